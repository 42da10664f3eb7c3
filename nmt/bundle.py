"""Model folders: the configuration, weights, SentencePiece models and results of a trained model."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt.card import CARD, Subject, bundle_card
from nmt.config import TrainConfig
from nmt.config.plain_yaml import MOST_CHARACTERS
from nmt.config.storage import from_yaml, to_yaml
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.model import Seq2Seq, build_model, model_class
from nmt.runtime.checksums import (
    SUMS,
    file_sum,
    read_checked,
    read_sections,
    read_sums,
    require_sum,
    write_sums,
)
from nmt.runtime.files import decoded, fresh_folder, parse_json, remove
from nmt.runtime.hub import find_model_folder, is_hub_name, pinned
from nmt.runtime.model_files import (
    CONFIG,
    RESULTS,
    STATE,
    WEIGHTS,
    config_file,
    enclosing_run,
    pieces_folder,
)
from nmt.runtime.os_errors import read_errors
from nmt.runtime.plugins import naming_plugins
from nmt.runtime.streams import log
from nmt.runtime.tensors import read_header, read_tensors, write_tensors

_MOST_STATE = 1 << 26


@dataclass(frozen=True)
class Bundle:
    """A trained model with its configuration, tokenizer and results."""

    folder: Path
    config: TrainConfig
    """The configuration of its training."""
    model: Seq2Seq
    """On the CPU, in evaluation mode."""
    tokenizer: Tokenizer
    results: dict[str, Any]
    """The content of `results.json`."""


def save_bundle(
    folder: Path,
    config: TrainConfig,
    weights: Mapping[str, Tensor],
    tokenizer: Tokenizer,
    results: Mapping[str, Any],
) -> None:
    """Writes a model folder with its card, atomically; replaces one that exists. See `fresh_folder`.

    Raises:
        UserError: the disk is full, or the folder is not writable.
    """
    old = folder.with_name(f".{folder.name}.old")
    with fresh_folder(folder) as fresh:
        write_model(fresh, config, weights, tokenizer)
        write_results(fresh, config, tokenizer, results)
        if folder.exists():
            remove(old)
            folder.rename(old)
    remove(old)


def write_model(
    folder: Path, config: TrainConfig, weights: Mapping[str, Tensor], tokenizer: Tokenizer
) -> None:
    """Writes the files that `load_bundle` needs. `write_results` writes the others.

    The weights may be on any device. Shared ones are written under each of their names.
    """
    write_tensors(folder / WEIGHTS, {name: weight.detach().cpu().clone() for name, weight in weights.items()})
    tokenizer.save(folder)
    (folder / CONFIG).write_text(to_yaml(config), encoding="utf-8")


def write_results(
    folder: Path, config: TrainConfig, tokenizer: Tokenizer, results: Mapping[str, Any], place: str = "."
) -> None:
    """Writes `results.json`, the checksums of all files and the card, and flushes all files to disk.

    `SHA256SUMS` does not list the card: its reader is a person, who may edit it.
    """
    (folder / RESULTS).write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", "utf-8")
    write_sums(folder)
    (folder / CARD).write_text(bundle_card(Subject(config, tokenizer, results), place), encoding="utf-8")
    file_sum(folder / CARD, flush=True)


def load_bundle(path: str | Path, key: str = "model_dir") -> Bundle:
    """Reads a model: a model folder, a run folder that holds one, a checkpoint, or `hf://owner/name`.

    `key` is the option that named it, for messages.

    Raises:
        UserError: the folder is not a model folder, or is damaged; the checksum of a file is not the one in
            `SHA256SUMS`; the model needs a plugin that was not imported; as for `model_folders`.
    """
    if is_hub_name(path):
        path = pinned(str(path), key)
        log.info("%s=%s", key, path)
    folder = find_model_folder(path, key)
    config = read_config(config_file(folder))
    tokenizer = Tokenizer.load(pieces_folder(folder))
    results = read_results(folder)
    with naming_plugins(config.plugins), ThreadPoolExecutor(1) as pool:
        _require_size(folder, config, tokenizer)
        weights = pool.submit(read_model_weights, folder)
        model = build_model(config.model, tokenizer.source.size, tokenizer.target.size)
        load_weights(model, weights.result(), folder / WEIGHTS)
    return Bundle(folder, config, model.eval(), tokenizer, results)


def _require_size(folder: Path, config: TrainConfig, tokenizer: Tokenizer) -> None:
    """Checks that the file holds enough weights for the model, before memory is allocated for the model."""
    path = folder / WEIGHTS
    sizes = tokenizer.source.size, tokenizer.target.size
    with _damage_errors(path):
        stored = sum(map(math.prod, read_header(path).values()))
    needed = model_class(config.model).num_weights(config.model, *sizes)
    if needed > stored:
        raise UserError(
            f"{path}: belongs to another configuration or vocabulary: it holds {stored:,} weights, but "
            f"{config_file(folder)} describes a model with {needed:,}."
        )


def load_bundles(paths: Sequence[str], key: str = "model_dir") -> list[Bundle]:
    """Reads the models of an ensemble, one or more as for `load_bundle`.

    Raises:
        UserError: a folder is not a model folder or is damaged, or the vocabularies differ.
    """
    bundles = [load_bundle(path, key) for path in paths]
    for path, bundle in zip(paths, bundles, strict=True):
        if bundle.tokenizer.fingerprint != bundles[0].tokenizer.fingerprint:
            raise UserError(
                f"{key}=[{','.join(paths)}]: models that translate together must have the same "
                f"vocabulary, but that of {path} differs from that of {paths[0]}. Train it with "
                f"data.tokenizer.path={paths[0]}."
            )
    return bundles


def read_results(folder: Path) -> dict[str, Any]:
    """Returns the content of `results.json` of a model folder; of a checkpoint the facts about its data.

    Raises:
        UserError: a file can't be read, or the state of the checkpoint is damaged.
    """
    return _read_results(folder / RESULTS) if enclosing_run(folder) is None else _results_of_run(folder)


def _read_results(path: Path) -> dict[str, Any]:
    """Returns the content of `results.json`; {} if it is missing or damaged: translation does not need it."""
    with read_errors(path):
        listed = path.name in (read_sums(path.parent) or {})
        if not listed and not path.exists():
            return {}
    content = read_checked(path, MOST_RESULTS)
    try:
        return checked_results(parse_json(content))
    except ValueError as error:
        log.warning("%s is damaged and will be ignored: %s", path, error)
        return {}


def _results_of_run(checkpoint: Path) -> dict[str, Any]:
    """Returns the record of the held-out data in a checkpoint; for earlier versions, that of its run."""
    data = _read_state(checkpoint).get("data")
    if data is None:
        run = enclosing_run(checkpoint)
        assert run is not None
        return {"data": _read_results(run / RESULTS).get("data", {})}
    try:
        return checked_results({"data": data})
    except ValueError as error:
        raise UserError(f"{checkpoint / STATE}: is damaged: {error}") from error


def _read_state(checkpoint: Path) -> dict[str, Any]:
    return read_sections(checkpoint / STATE, _MOST_STATE)


MOST_RESULTS = 1 << 24
"""Maximum size of `results.json` in bytes, including its report on the data."""


def checked_results(values: Any) -> dict[str, Any]:
    """Returns the content of `results.json` after checking its sections.

    Raises:
        ValueError: a section has the wrong type.
    """
    if not isinstance(values, dict):
        raise ValueError("it has no sections")
    for name in ("test", "valid", "training", "data", "alignment", "before"):
        if not isinstance(values.get(name, {}), dict):
            raise ValueError(f"{name} is not a section")
    for name, facts in values.get("data", {}).items():
        if name in ("train", "valid", "test") and not isinstance(facts, dict):
            raise ValueError(f"data.{name} is not a section")
        sets = facts.get("sets", {}) if name in ("valid", "test") else {}
        if not isinstance(sets, dict) or not all(isinstance(part, dict) for part in sets.values()):
            raise ValueError(f"data.{name}.sets is not a section of sections")
    return values


def read_weights(path: Path) -> dict[str, Tensor]:
    """Reads a safetensors file.

    Raises:
        UserError: the file is missing or damaged, or its checksum is not the one in `SHA256SUMS`.
    """
    with _damage_errors(path), ThreadPoolExecutor(1) as pool:
        checksum = pool.submit(file_sum, path)
        tensors = read_tensors(path)
        require_sum(path, checksum.result())
        return tensors


@contextmanager
def _damage_errors(path: Path) -> Iterator[None]:
    """Turns OSErrors and ValueErrors from reading `path` into UserErrors."""
    try:
        with read_errors(path):
            yield
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{path}: is damaged: {error}. Copy the file again.") from error


def read_model_weights(folder: Path) -> dict[str, Tensor]:
    """Reads the weights of a model folder or a checkpoint.

    Raises:
        UserError: the weights are missing or damaged.
    """
    path = folder / WEIGHTS
    if enclosing_run(folder) is not None and not (folder / SUMS).exists():  # written by an earlier version
        try:
            written = _read_state(folder)["sha256"][WEIGHTS]
        except (KeyError, TypeError):
            raise UserError(f"{folder / STATE}: is damaged: it has no checksum of {WEIGHTS}") from None
        with read_errors(path):
            if file_sum(path) != written:
                raise UserError(f"{path}: is damaged: its checksum is not the recorded one")
    return read_weights(path)


def load_weights(model: Seq2Seq, weights: Mapping[str, Tensor], path: Path) -> None:
    """Loads weights by name, from the file `path`, into the model that they belong to.

    Raises:
        UserError: names or shapes differ: the weights belong to another vocabulary or configuration.
    """
    state = model.state_dict()
    for name in sorted(state.keys() ^ weights.keys()):
        raise UserError(
            f"{path}: belongs to another model: {'it lacks' if name in state else 'it has an unknown'} {name}"
        )
    for name, tensor in state.items():
        if tensor.shape != weights[name].shape:
            what = "another vocabulary" if "embedding" in name else "another configuration"
            raise UserError(
                f"{path}: belongs to {what}: {name} has the shape {tuple(weights[name].shape)} in the file "
                f"and {tuple(tensor.shape)} in the model"
            )
    model.load_state_dict(dict(weights))


def read_config(path: Path) -> TrainConfig:
    """Reads the `config.yaml` of a model, with all its options.

    Raises:
        UserError: the file is missing or damaged, or has options that this version does not know.
    """
    return from_yaml(TrainConfig, decoded(read_checked(path, MOST_CHARACTERS), path), str(path))
