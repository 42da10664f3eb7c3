"""Options that a model sets: those of its decoding, and in a warm start its architecture, too."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeVar

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nmt.config import DecodingConfig, ModelConfig, folders, storage
from nmt.config.plain_yaml import MOST_CHARACTERS
from nmt.errors import UserError
from nmt.options.messages import first_line
from nmt.options.overrides import Setting
from nmt.runtime.checksums import read_checked, read_sections
from nmt.runtime.files import decoded, expanded
from nmt.runtime.hub import is_hub_name, model_folder_or_none, pinned
from nmt.runtime.model_files import CONFIG, EXPORT_REPORT, config_file
from nmt.runtime.os_errors import read_errors

_C = TypeVar("_C")
_NAMES = ("name", "data.name", "experiment", "data")
"""Options that name the run folder if `run_dir` is not given; the first one decides."""


def with_commit(setting: Setting) -> Setting:
    """Returns `model_dir` with the current commit of a model on the hub, so that a command reads only one."""
    if setting.key != "model_dir" or not isinstance(setting.value, str | list):
        return setting
    given = folders("model_dir", setting.value)
    if not any(map(is_hub_name, given)):
        return setting
    named = [pinned(_resolved("model_dir", one)) if is_hub_name(one) else one for one in given]
    return replace(setting, value=named[0] if isinstance(setting.value, str) else named)


def decoding_of_model(model_dir: str) -> list[Setting]:
    """Returns the decoding settings that a model was tested with; they are the defaults for translation."""
    model_dir = _resolved("model_dir", model_dir)
    path = _config_of(model_dir, "model_dir")
    if path is None:
        return _decoding_of_export(expanded(model_dir) / EXPORT_REPORT)
    return _decoding_of_config(path)


def options_of_start(start_from: str, given: Mapping[str, Any]) -> list[Setting]:
    """Returns the options that a warm start takes from the model in `start_from`.

    Its architecture, since the weights need the same, but not its dropout; none with `model=`. And its
    decoding, which it was tested with, except where an experiment chooses one.
    """
    path = _config_of(_resolved("start_from", str(start_from)), "start_from")
    if path is None:  # a run that resumes without it has its options
        name = next((given[key] for key in _NAMES if given.get(key) is not None), "quickstart")
        run_dir = _resolved("run_dir", str(given.get("run_dir") or f"runs/{name}"))
        path = expanded(run_dir) / CONFIG
        if not path.is_file():
            return []
    settings = [] if "model" in given else _architecture(path, given)
    if given.get("experiment") is None:
        settings += _decoding_of_config(path)
    return settings


def _architecture(path: Path, given: Mapping[str, Any]) -> list[Setting]:
    """Returns the options of a model, without those whose keys are in `given`: later ones would not win."""
    model = storage.to_plain(_section(ModelConfig, path, "model"))
    positions = model.pop("positions")
    if "model/positions" not in given:
        model |= {f"positions.{key}": value for key, value in positions.items()}
    if "${" in json.dumps(model):
        raise UserError(f"{path}: model: ${{ begins an interpolation. Remove it.")
    wanted = {f"model.{key}": value for key, value in model.items() if not key.endswith("dropout")}
    return [
        Setting(key, str(each), each, adds=True)
        for key, value in wanted.items()
        if not any(f"{other}.".startswith(f"{key}.") for other in given)
        # An empty section first: a section would be merged with the one of the experiment.
        for each in ([{}, value] if isinstance(value, dict) else [value])
    ]


def _config_of(model_dir: str, key: str) -> Path | None:
    """Returns the configuration of a model; None if this is not a model folder, which is reported later."""
    with read_errors(expanded(model_dir)):
        folder = model_folder_or_none(model_dir, key)
        return None if folder is None else config_file(folder)


def _section(schema: type[_C], path: Path, name: str) -> _C:
    text = decoded(read_checked(path, MOST_CHARACTERS), path)
    return storage.from_yaml(schema, text, str(path), name)


def _decoding_of_config(path: Path) -> list[Setting]:
    return settings_of_decoding(_section(DecodingConfig, path, "decoding"), f"{path}: ")


def _decoding_of_export(report: Path) -> list[Setting]:
    """Returns the decoding settings that an export records; none without that file."""
    with read_errors(report):
        if not report.is_file():
            return []  # not a model folder: the command reports it later, with a better message
    values = read_sections(report).get("decoding", {})
    try:
        decoding = storage.from_plain(DecodingConfig, values, "decoding")
    except UserError as error:
        raise UserError(f"{report}: {error}") from error
    return settings_of_decoding(decoding, f"{report}: ")


def settings_of_decoding(decoding: DecodingConfig, where: str = "") -> list[Setting]:
    """Returns settings for the options of decoding: the numbers and the processors.

    Raises:
        UserError: a processor has an interpolation; the message begins with `where`.
    """
    plain = storage.to_plain(decoding)
    processors = plain.pop("processors")
    if "${" in json.dumps(processors):
        raise UserError(f"{where}decoding.processors: ${{ begins an interpolation. Remove it.")
    numbers = [Setting(f"decoding.{key}", str(value), value) for key, value in plain.items()]
    return [*numbers, Setting("decoding.processors", str(processors), processors, adds=True)]


def _resolved(key: str, value: str) -> str:
    """Resolves a value before composition: `${oc.env:HOME}` works, `${other.key}` does not."""
    try:
        return str(OmegaConf.create({key: value})[key])
    except OmegaConfBaseException as error:
        raise UserError(f"{key}={value}: {first_line(error)}") from error
