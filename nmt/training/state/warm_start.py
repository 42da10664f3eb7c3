"""The initial model of a run: random or trained weights (warm start), of which some may be frozen."""

from __future__ import annotations

import json
from collections.abc import Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from nmt.bundle import load_weights, read_config, read_model_weights
from nmt.config import DataConfig, Extension, TrainConfig
from nmt.config.checks import shortened
from nmt.config.storage import with_values
from nmt.data.preparation.prepare import Prepared
from nmt.data.subwords.extension import is_extension
from nmt.data.subwords.tokenizer import Tokenizer, tokenizer_folder
from nmt.errors import UserError
from nmt.model import Seq2Seq, build_model
from nmt.runtime.checksums import file_sum
from nmt.runtime.files import expanded
from nmt.runtime.hub import find_model_folder, is_commit, is_hub_name, model_folder_or_none, pinned
from nmt.runtime.model_files import WEIGHTS, config_file, holds_pieces, pieces_folder
from nmt.runtime.os_errors import read_errors
from nmt.runtime.seeds import mix
from nmt.runtime.streams import log
from nmt.training.state.checkpoint import START, CheckpointFolder
from nmt.training.state.new_pieces import FEW_PIECES, sides_of_weights, with_new_pieces
from nmt.training.state.run_folder import RunFolder, fixed_options
from nmt.training.update.optimizer import trained_parameters

_KEY = "start_from"
# Options that do not affect the weights of a model.
_CHANGEABLE = ("model.dropout", "model.ffn_dropout", "model.word_dropout", "model.zero_init")


def new_model(config: TrainConfig, prepared: Prepared) -> Seq2Seq:
    """Creates the model with random weights, which depend only on the seed."""
    torch.manual_seed(mix(config.seed))
    tokenizer = prepared.tokenizer
    return build_model(config.model, tokenizer.source.size, tokenizer.target.size)


def initial_model(config: TrainConfig, prepared: Prepared, *, resumable: bool = False) -> Seq2Seq:
    """Creates the model as it is before the first update, with the weights of `training.freeze` frozen.

    With `resumable`, its weights are random if `start_folder` is None: a checkpoint will replace them.

    Raises:
        UserError: the weights of `start_from` are missing or damaged, or belong to another vocabulary; or
            `training.freeze` names no weights.
    """
    model = new_model(config, prepared)
    folder = None
    if config.start_from is not None:
        folder = start_folder(config) if resumable else find_model_folder(config.start_from, _KEY)
    if folder is not None:
        weights = read_model_weights(folder)
        old, new = Tokenizer.load(pieces_folder(folder)), prepared.tokenizer
        if old.fingerprint != new.fingerprint:
            if not is_extension(new, old):
                raise UserError(
                    f"{_KEY}={config.start_from}: the weights belong to another vocabulary than that of "
                    f"data.tokenizer.path={config.data.tokenizer.path}. Leave that option out."
                )
            weights = with_new_pieces(weights, config.model, old, new)
        load_weights(model, weights, folder / WEIGHTS)
    freeze(model, config.training.freeze)
    return model


def log_new_pieces(config: TrainConfig, prepared: Prepared) -> None:
    """Logs the new pieces of an extended vocabulary; warns if `training.freeze` freezes their weights."""
    if not prepared.is_extended:
        return
    assert prepared.given is not None
    old, new = prepared.given, prepared.tokenizer
    counts = [new.source.size - old.source.size, new.target.size - old.target.size]
    log.info(
        "data.tokenizer.extend=%s: %s new pieces",
        config.data.tokenizer.extend.value,
        f"{counts[0]:,}" if new.joint else f"{counts[0]:,} source and {counts[1]:,} target",
    )
    if config.training.freeze:
        model = build_model(config.model, FEW_PIECES, FEW_PIECES)
        freeze(model, config.training.freeze)
        trained = trained_parameters(model)
        if frozen := sorted(sides_of_weights(config.model).keys() - trained.keys()):
            log.warning(
                "training.freeze: %s is frozen, so the new pieces are not learnt. Remove it.",
                " ".join(frozen),
            )


def with_vocabulary(config: TrainConfig, begun: TrainConfig | None = None) -> TrainConfig:
    """Returns the options with the vocabulary of the model in `start_from`.

    A model on the hub gets the commit of this moment.

    A resumed run retains the commits of its options, `begun`, and its choice for
    `data.tokenizer.extend=auto`.

    Raises:
        UserError: `start_from` is not a model, or one of another shape.
    """
    start_begun, path_begun = (begun.start_from, begun.data.tokenizer.path) if begun else (None, None)
    start = _pinned(_KEY, config.start_from, start_begun)
    path = _pinned("data.tokenizer.path", config.data.tokenizer.path, path_begun)
    config = _with_paths(config, start, path)
    if config.data.tokenizer.extend is Extension.auto and (path or start):
        # `auto` in the options of a run that can be resumed: it began before there was a choice.
        chosen = begun.data.tokenizer.extend if begun else Extension.auto
        if chosen is Extension.auto and (begun or start is None):
            chosen = Extension.never
        config = with_values(config, {"data.tokenizer.extend": chosen})
    if config.start_from is None:
        return config
    folder = start_folder(config)
    if folder is None:
        log.info("%s=%s: the model is not there any more; the run resumes without it", _KEY, start)
        return _with_paths(config, start, path or start)
    saved, new = map(fixed_options, (read_config(config_file(folder)), config))
    shape = [key for key in saved | new if key.startswith("model.") and key not in _CHANGEABLE]
    other = [key for key in shape if saved.get(key) != new.get(key)]
    if other:
        settings = [f"{key}={_as_given(saved[key])}" for key in other if key in saved]
        left_out = [key for key in other if key not in saved]
        raise UserError(
            f"{_KEY}={config.start_from}: the model has other options."
            + (f" Leave out {' '.join(left_out)}." if left_out else "")
            + (f" Give {' '.join(settings)}" if settings else "")
        )
    return _with_paths(config, start, path or start)


def start_folder(config: TrainConfig) -> Path | None:
    """Returns the folder of the model in `start_from`; None if it is gone, but a checkpoint has all of it.

    A checkpoint lacks only the weights that `training.l2_to_start` compares with.

    Raises:
        UserError: there is no model, and the run needs it.
    """
    with read_errors(expanded(str(config.start_from))):
        folder = model_folder_or_none(str(config.start_from), _KEY)
    if (
        folder is None
        and RunFolder(Path(config.run_dir)).holds_checkpoints()
        and not config.training.l2_to_start
    ):
        return None
    return folder or find_model_folder(str(config.start_from), _KEY)


def data_to_prepare(config: TrainConfig) -> DataConfig:
    """Returns the options of the data, of a resumed run with its own vocabulary if the given one is gone."""
    path, run = config.data.tokenizer.path, RunFolder(Path(config.run_dir))
    if path is None or not run.holds_checkpoints() or not holds_pieces(run.path) or tokenizer_folder(path):
        return config.data
    return with_values(config.data, {"tokenizer.path": str(run.path), "tokenizer.extend": Extension.never})


def start_plugins(config: TrainConfig) -> list[str]:
    """Returns the `plugins` with which the model in `start_from` was trained."""
    folder = start_folder(config)
    return [] if folder is None else read_config(config_file(folder)).plugins


def _pinned(key: str, path: str | None, begun: str | None) -> str | None:
    """Returns a path with the commit of a model on the hub: the current, or that of the resumed run."""
    if path is None or not is_hub_name(path):
        return path
    if begun is not None and is_hub_name(begun) and not is_commit(path.rpartition("@")[2]):
        if begun.partition("@")[0] == path.partition("@")[0]:
            log.info("%s=%s: the resumed run uses %s", key, path, begun)
            return begun
    path_at_commit = pinned(path, key)
    log.info("%s=%s", key, path_at_commit)
    return path_at_commit


def _with_paths(config: TrainConfig, start: str | None, vocabulary: str | None) -> TrainConfig:
    return with_values(config, {"start_from": start, "data.tokenizer.path": vocabulary})


def _as_given(value: Any) -> str:
    """Returns a value as the command line takes it."""
    return json.dumps(value) if isinstance(value, bool) or value is None else str(value)


def start_fingerprint(config: TrainConfig) -> str | None:
    """Returns the SHA-256 of the weights in `start_from`; None without that option.

    It is that of the checkpoints if `start_folder` is None.

    Raises:
        UserError: the weights can't be read.
    """
    if config.start_from is None:
        return None
    folder = start_folder(config)
    if folder is None:
        known = CheckpointFolder(RunFolder(Path(config.run_dir)).checkpoints, {}).newest_fingerprints()
        return known.get(START)
    return weights_fingerprint(folder)


def weights_fingerprint(folder: Path) -> str:
    """Returns the SHA-256 of the weights in a model folder; raises `UserError` if they can't be read."""
    with read_errors(folder / WEIGHTS):
        return file_sum(folder / WEIGHTS)


_EMBEDDINGS = "embeddings"


def freeze(model: Seq2Seq, parts: Sequence[str]) -> None:
    """Freezes parts of a model: their weights get no gradient.

    `embeddings` are the weights of all `torch.nn.Embedding` modules, in every architecture. Any other part is
    a sequence of whole components of the names of weights: `decoder.0` and `cross_attention` both select
    `decoder.0.cross_attention.q.weight`. `*` stands for any text. A part also selects the modules of the
    model whose names begin with it and `_`: `encoder` includes `encoder_norm` and `encoder_positions`.

    The weights are changed to `requires_grad=False`. A weight with several names is frozen if one of them is
    selected.

    Raises:
        UserError: a part selects no weight, or no weight is left to train.
    """
    for part in parts:
        selected = _selected(model, part)
        if not selected:
            raise UserError(
                f"training.freeze={shortened(part)}: no weight has this name. The parts of this model are "
                f"{', '.join(_parts(model))}; parts of them are, for example, encoder.0 and cross_attention."
            )
        for parameter in selected:
            parameter.requires_grad_(False)
    if parts and not trained_parameters(model):
        raise UserError(
            f"training.freeze=[{','.join(parts)}]: freezes all weights of the model. Remove a part."
        )


def check_frozen(config: TrainConfig) -> None:
    """Checks `training.freeze` before the data are prepared; the names do not depend on the vocabulary.

    Raises:
        UserError: see `freeze`.
    """
    if config.training.freeze:
        freeze(build_model(config.model, FEW_PIECES, FEW_PIECES), config.training.freeze)


def in_numbers(model: Seq2Seq) -> str:
    """Returns how many weights are trained, for the log."""
    trained = sum(parameter.numel() for parameter in trained_parameters(model).values())
    return f"{trained:,} of {model.num_parameters:,} weights are trained, the others are frozen"


def _selected(model: Seq2Seq, part: str) -> Sequence[Tensor]:
    """Returns the weights of a part; see `freeze`."""
    if part == _EMBEDDINGS:
        return [module.weight for module in model.modules() if isinstance(module, nn.Embedding)]
    return [
        parameter
        for name, parameter in model.named_parameters(remove_duplicate=False)
        if fnmatchcase(f".{name}.", f"*.{part}.*") or fnmatchcase(name.partition(".")[0], f"{part}_*")
    ]


def _parts(model: Seq2Seq) -> list[str]:
    """Returns the largest parts, in alphabetical order."""
    parts = {name.partition(".")[0] for name, _ in model.named_parameters()}
    return sorted(parts | ({_EMBEDDINGS} if _selected(model, _EMBEDDINGS) else set()))
