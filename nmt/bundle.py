"""A trained model as a folder: its configuration, weights, SentencePiece models and results."""

from __future__ import annotations

import json
import math
import os
import re
import stat
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import save_file
from torch import Tensor

from nmt.config import TrainConfig
from nmt.config.plain_yaml import MOST_CHARACTERS
from nmt.config.storage import from_yaml, to_yaml
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.model import Seq2Seq, build_model, model_class
from nmt.runtime import (
    abbreviated,
    checkpoint_names,
    config_file,
    decoded,
    enclosing_run,
    expanded,
    fsync_folder,
    log,
    make_folder,
    model_folders,
    naming_plugins,
    parse_json,
    pieces_folder,
    read_checked,
    read_errors,
    remove,
    update_of,
    write_errors,
)
from nmt.runtime.checksums import SUMS, file_sum, file_sums, read_sums, require_sum, sums_text
from nmt.runtime.tensors import read_header, read_tensors

CONFIG, WEIGHTS, RESULTS = "config.yaml", "model.safetensors", "results.json"
_STATE = "state.json"
_MOST_STATE = 1 << 26


@dataclass(frozen=True)
class Bundle:
    """A trained model and all that belongs to it."""

    folder: Path
    config: TrainConfig
    """What it was trained with."""
    model: Seq2Seq
    """On the CPU, in evaluation mode."""
    tokenizer: Tokenizer
    results: dict[str, Any]
    """What `results.json` holds."""


def save_bundle(
    folder: Path,
    config: TrainConfig,
    weights: Mapping[str, Tensor],
    tokenizer: Tokenizer,
    results: Mapping[str, Any],
) -> None:
    """Writes a model folder whole or not at all: beside its place first, then renamed.

    One process at a time may do this; what one that was killed has left beside the folder is cleared away.

    Raises:
        UserError: the disk is full, or the folder can't be written to.
    """
    fresh, old = (folder.with_name(f".{folder.name}.{end}") for end in ("tmp", "old"))
    remove(fresh)
    try:
        make_folder(fresh)
        with write_errors(folder):
            write_weights(fresh / WEIGHTS, weights)
            tokenizer.save(fresh)
            (fresh / CONFIG).write_text(config_to_yaml(config), encoding="utf-8")
            (fresh / RESULTS).write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", "utf-8")
            sums = file_sums(fresh, (path.name for path in fresh.iterdir()), flush=True)
            (fresh / SUMS).write_text(sums_text(sums), encoding="utf-8")
            file_sum(fresh / SUMS, flush=True)
            if folder.exists():
                remove(old)
                folder.rename(old)
            fresh.rename(folder)
            remove(old)
            fsync_folder(folder.parent)
    finally:
        remove(fresh)


def load_bundle(path: str | Path) -> Bundle:
    """Reads a model.

    Args:
        path: a model folder, a run folder that holds one, or a checkpoint of a run.

    Raises:
        UserError: the folder is not a model folder, or is damaged; a file is not the one that `SHA256SUMS`
            lists; the model needs a plugin that was not imported.
    """
    folder = find_model_folder(path)
    config = read_config(config_file(folder))
    tokenizer = Tokenizer.load(pieces_folder(folder))
    results = _read_results(folder / RESULTS) if enclosing_run(folder) is None else _results_of_run(folder)
    with naming_plugins(config.plugins), ThreadPoolExecutor(1) as pool:
        _require_size(folder, config, tokenizer)
        weights = pool.submit(read_model_weights, folder)
        model = build_model(config.model, tokenizer.source_vocab_size, tokenizer.target_vocab_size)
        load_weights(model, weights.result(), folder / WEIGHTS)
    return Bundle(folder, config, model.eval(), tokenizer, results)


def _require_size(folder: Path, config: TrainConfig, tokenizer: Tokenizer) -> None:
    """Makes sure that the weights are as many as the model has, before memory is taken for it."""
    path = folder / WEIGHTS
    sizes = tokenizer.source_vocab_size, tokenizer.target_vocab_size
    with _damage_told(path):
        held = sum(map(math.prod, read_header(path).values()))
    wanted = model_class(config.model).num_weights(config.model, *sizes)
    if wanted > held:
        raise UserError(
            f"{path}: belongs to another configuration or vocabulary: it holds {held:,} weights, and "
            f"{config_file(folder)} describes a model of {wanted:,}"
        )


def load_bundles(paths: Sequence[str]) -> list[Bundle]:
    """Reads models that are to translate together.

    Args:
        paths: one folder or more, as `load_bundle` takes them.

    Raises:
        UserError: a folder is none or damaged, or their vocabularies are not one.
    """
    bundles = [load_bundle(path) for path in paths]
    for path, bundle in zip(paths, bundles, strict=True):
        if bundle.tokenizer.fingerprint != bundles[0].tokenizer.fingerprint:
            raise UserError(
                f"model_dir=[{','.join(paths)}]: models that translate together have one vocabulary, but "
                f"{path} has another than {paths[0]}: train it with data.tokenizer.path={paths[0]}"
            )
    return bundles


def _read_results(path: Path) -> dict[str, Any]:
    """What the scores were; a model translates without them."""
    with read_errors(path):
        listed = path.name in (read_sums(path.parent) or {})
        if not listed and not path.exists():
            return {}
    content = read_checked(path, MOST_RESULTS)
    try:
        return checked_results(parse_json(content))
    except ValueError as error:
        log.warning("%s is damaged, and is not used: %s", path, error)
        return {}


def _results_of_run(checkpoint: Path) -> dict[str, Any]:
    """What a checkpoint has on record of its run's held-out data; of earlier versions, what the run has."""
    data = _read_state(checkpoint).get("data")
    if data is None:
        run = enclosing_run(checkpoint)
        assert run is not None
        return {"data": _read_results(run / RESULTS).get("data", {})}
    try:
        return checked_results({"data": data})
    except ValueError as error:
        raise UserError(f"{checkpoint / _STATE}: is damaged: {error}") from error


def _read_state(checkpoint: Path) -> dict[str, Any]:
    path = checkpoint / _STATE
    try:
        state = parse_json(read_checked(path, _MOST_STATE))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{path}: is damaged: {error}") from error
    if not isinstance(state, dict):
        raise UserError(f"{path}: is damaged: it holds no sections")
    return state


MOST_RESULTS = 1 << 24
"""Bytes of a `results.json`, its report of the data included."""


def checked_results(values: Any) -> dict[str, Any]:
    """What `results.json` holds, if its sections are such.

    Raises:
        ValueError: a section has another type.
    """
    if not isinstance(values, dict):
        raise ValueError("it holds no sections")
    for name in ("test", "valid", "training", "data"):
        if not isinstance(values.get(name, {}), dict):
            raise ValueError(f"{name} is not a section")
    for name, facts in values.get("data", {}).items():
        if name in ("train", "valid", "test") and not isinstance(facts, dict):
            raise ValueError(f"data.{name} is not a section")
    return values


def find_model_folder(path: str | Path, key: str = "model_dir") -> Path:
    """The folder with the weights that `path` names: a model folder, that of a run, or a checkpoint.

    `config_file` and `pieces_folder` tell where the rest of the model is.

    Args:
        path: the folder.
        key: the option that gave it, for the error.

    Raises:
        UserError: it is neither.
    """
    given = expanded(path)
    with read_errors(given):
        for folder in model_folders(given):
            if (folder / WEIGHTS).is_file() and config_file(folder).is_file():
                return folder
        raise UserError(f"{key}={path}: {_why_no_model(given, str(path), key)}")


def _why_no_model(given: Path, path: str, key: str) -> str:
    inside = given if given.name == "checkpoints" else given.parent
    names = checkpoint_names(inside)
    if update_of(given.name) is not None and inside.is_dir() and not given.exists():
        return f"there is no such checkpoint; {inside} has {abbreviated(names) or 'none'}"
    if not given.exists():
        several = key == "model_dir" and "," in path
        hint = f'. Write several as a list: "{key}=[{path}]".' if several else ""
        return f"there is no such folder (looked for {given.absolute()}){hint}"
    if inside == given and names:
        return f"holds checkpoints; name one of them: {key}={Path(path) / names[-1]}"
    if enclosing_run(given) is not None:
        return f"this checkpoint is not in its run: there is no {config_file(given)}; put it back there"
    if (given / "checkpoints").is_dir():
        names = checkpoint_names(given / "checkpoints")
        last = f", or name a checkpoint: {key}={Path(path) / 'checkpoints' / names[-1]}" if names else ""
        return (
            f"its training has not ended, so there is no model yet; "
            f"the same nmt-train command goes on with it{last}"
        )
    return f"is not a model folder: neither it nor its folder model/ has {CONFIG} and {WEIGHTS}"


def write_weights(path: Path, weights: Mapping[str, Tensor]) -> None:
    """Writes a model's weights, on any device; those that share memory are written under each of their names.

    Raises:
        OSError: as `write_tensors`.
    """
    write_tensors(path, {name: tensor.detach().cpu().clone() for name, tensor in weights.items()})


def write_tensors(path: Path, tensors: Mapping[str, Tensor]) -> None:
    """Writes tensors, each with memory of its own on the CPU, as a safetensors file.

    Raises:
        OSError: the disk is full or refuses, which safetensors tells as an error of its own kind.
    """
    with open(path, "wb") as file:
        mode = stat.S_IMODE(os.fstat(file.fileno()).st_mode)  # as the umask has it; safetensors takes 0600
    try:
        save_file({name: tensor.detach().contiguous() for name, tensor in tensors.items()}, path)
        with suppress(PermissionError):  # some file systems have one mode for all files
            os.chmod(path, mode)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        if number is None:
            raise
        raise OSError(int(number[1]), os.strerror(int(number[1]))) from error


def read_weights(path: Path) -> dict[str, Tensor]:
    """Reads a safetensors file.

    Raises:
        UserError: it is missing or damaged, or not the one that `SHA256SUMS` lists.
    """
    with _damage_told(path), ThreadPoolExecutor(1) as pool:
        found = pool.submit(file_sum, path)
        tensors = read_tensors(path)
        require_sum(path, found.result())
        return tensors


@contextmanager
def _damage_told(path: Path) -> Iterator[None]:
    try:
        with read_errors(path):
            yield
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{path}: is damaged ({error}); take another copy of it") from error


def read_model_weights(folder: Path) -> dict[str, Tensor]:
    """Reads the weights of a model folder or a checkpoint.

    Raises:
        UserError: they are missing or damaged.
    """
    path = folder / WEIGHTS
    if enclosing_run(folder) is not None and not (folder / SUMS).exists():  # of an earlier version
        try:
            written = _read_state(folder)["sha256"][WEIGHTS]
        except (KeyError, TypeError):
            raise UserError(f"{folder / _STATE}: is damaged: it has no sum of {WEIGHTS}") from None
        with read_errors(path):
            if file_sum(path) != written:
                raise UserError(f"{path}: is damaged: its content is not what was written")
    return read_weights(path)


def load_weights(model: Seq2Seq, weights: Mapping[str, Tensor], path: Path) -> None:
    """Puts weights into a model.

    Args:
        model: of the shape that the weights are for.
        weights: by name, as `model.state_dict()` names them.
        path: where they come from, for the error.

    Raises:
        UserError: names or shapes differ: they belong to another vocabulary or configuration.
    """
    own = model.state_dict()
    for name in sorted(own.keys() ^ weights.keys()):
        raise UserError(
            f"{path}: belongs to another model: {'it lacks' if name in own else 'it has an unknown'} {name}"
        )
    for name, tensor in own.items():
        if tensor.shape != weights[name].shape:
            there, here = tuple(weights[name].shape), tuple(tensor.shape)
            what = "another vocabulary" if "embedding" in name else "another configuration"
            raise UserError(f"{path}: belongs to {what}: {name} is {there} there and {here} here")
    model.load_state_dict(dict(weights))


def config_to_yaml(config: TrainConfig) -> str:
    """A configuration as YAML, every option in it.

    Raises:
        UserError: a value is text that YAML can't hold.
    """
    return to_yaml(config)


def read_config(path: Path) -> TrainConfig:
    """Reads a configuration that `config_to_yaml` wrote.

    Raises:
        UserError: the file is missing, damaged, or has options that this version does not know.
    """
    return config_from_yaml(decoded(read_checked(path, MOST_CHARACTERS), path), str(path))


def config_from_yaml(text: str, where: str) -> TrainConfig:
    """The configuration that `text` holds; `where` names it in the error.

    Raises:
        UserError: it is damaged, or has options that this version does not know.
    """
    return from_yaml(TrainConfig, text, where)
