"""Composes YAML files and overrides with Hydra into the typed dataclasses of options."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeVar

from hydra import compose
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    GrammarParseError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from nmt.config import DecodingConfig, ModelConfig, TranslateConfig, folders, storage
from nmt.config.paths import check_texts, schema_keys
from nmt.config.plain_yaml import MOST_CHARACTERS
from nmt.errors import UserError
from nmt.options.arguments import Arguments
from nmt.options.groups import configs_folder
from nmt.options.hydra_errors import config_keys, did_you_mean, explained, first_line, missing_config
from nmt.options.hydra_state import isolated_hydra
from nmt.options.malformed_words import require_option, require_text
from nmt.options.overrides import Setting, named_sections, settings_of_jobs
from nmt.options.sweep import with_distinct_folders
from nmt.options.user_yaml import Folder
from nmt.runtime import (
    EXPORT_REPORT,
    config_file,
    decoded,
    expanded,
    is_hub_name,
    pinned,
    read_checked,
    read_errors,
)
from nmt.runtime.checksums import read_sections
from nmt.runtime.model_files import model_folder_or_none

C = TypeVar("C")


def compose_jobs(schema: type[C], config_name: str, arguments: Arguments) -> list[C]:
    """Returns the finished options of each job: one, or several in a sweep (`-m`).

    Raises:
        UserError: an override can't be parsed, names an unknown key or group, or has the wrong type.
    """
    with isolated_hydra(config_name, schema):
        folder = Folder(arguments.config_dir, configs_folder())
        settings = [[_pinned(one) for one in job] for job in settings_of_jobs(schema, arguments)]
        jobs = []
        for given in settings:
            with folder.located([f"{setting.key}={setting.written}" for setting in given]):
                whole = [*_defaults(schema, config_name, given), *given]
                jobs.append(_finish(schema, _compose(schema, config_name, folder, whole)))
    return with_distinct_folders(jobs, settings)


def changed_decoding(decoding: DecodingConfig, changes: Mapping[str, Any]) -> DecodingConfig:
    """Returns options of decoding with changes.

    Args:
        decoding: the options.
        changes: key of the section `decoding` → value, as in `nmt-translate decoding.key=value`.

    Raises:
        UserError: as `nmt-translate` reports it.
    """
    name, schema = "translate", TranslateConfig
    given = [f"decoding.{key}={_as_written(value)}" for key, value in changes.items()]
    for word in given:
        require_text(word)
        require_option(word)
    with isolated_hydra(name, schema):
        # `model_dir` must have a value.
        (settings,) = settings_of_jobs(schema, Arguments(("model_dir=none", *given)))
        folder = Folder(None, configs_folder())
        config = _compose(schema, name, folder, [*_settings_of(decoding), *settings])
        return _finish(schema, config).decoding


def _as_written(value: Any) -> str:
    """Returns a value as written on a command line."""
    plain = storage.to_plain(value)
    if isinstance(plain, list):
        return f"[{','.join(map(_as_written, plain))}]"
    if isinstance(plain, dict):
        return f"{{{','.join(f'{key}:{_in_dict(item)}' for key, item in plain.items())}}}"
    if plain is None or isinstance(plain, bool):
        return "null" if plain is None else str(plain).lower()
    return str(plain)


def _in_dict(value: Any) -> str:
    """Returns a value inside a dictionary as written on a command line: text needs quotes there."""
    if not isinstance(value, str):
        return _as_written(value)
    # Hydra reads a backslash literally, except before a quote.
    escaped = re.sub(r"(\\+)(?='|$)", r"\1\1", value).replace("'", r"\'")
    return f"'{escaped}'"


def to_yaml(config: Any) -> str:
    """Returns finished options as YAML."""
    return storage.to_yaml(config)


def _defaults(schema: type[Any], config_name: str, settings: Sequence[Setting]) -> list[Setting]:
    """Returns the settings that the given ones imply. They go first, since later settings win."""
    given = {setting.key: setting.value for setting in settings}
    if config_name == "train":
        # The default is the quickstart experiment, unless other data or another experiment are chosen.
        chosen = {"experiment", "data"} & set(given)
        settings = [] if chosen else [_default("experiment", "quickstart")]
        start = given.get("start_from")
        return settings if start is None or "model" in given else [*settings, *_model_of(start, given)]
    loose = next((key for key in given if key.startswith("data.")), None)
    if loose and "data" not in given:
        raise UserError(f"{loose}: no data are chosen. Add some, such as data=local or data=wmt14_de_en.")
    if "decoding" not in {one.name for one in fields(schema)}:
        return []
    named = folders("model_dir", given.get("model_dir"))
    # Of several models, the first one decides.
    return _decoding_of(_resolved("model_dir", named[0])) if named else []


def _pinned(setting: Setting) -> Setting:
    """Returns `model_dir` with the current commit of a model on the hub, so that a command reads only one."""
    if setting.key != "model_dir" or not isinstance(setting.value, str | list):
        return setting
    given = folders("model_dir", setting.value)
    if not any(map(is_hub_name, given)):
        return setting
    named = [pinned(_resolved("model_dir", one)) if is_hub_name(one) else one for one in given]
    return replace(setting, value=named[0] if isinstance(setting.value, str) else named, override=None)


def _resolved(key: str, value: str) -> str:
    """Resolves a value before composition: `${oc.env:HOME}` works, `${other.key}` does not."""
    try:
        return str(OmegaConf.create({key: value})[key])
    except OmegaConfBaseException as error:
        raise UserError(f"{key}={value}: {first_line(error)}") from error


def _default(key: str, value: Any) -> Setting:
    """Returns an implied setting; its value is a number, a name or None."""
    written = "null" if value is None else str(value)
    return Setting(key, written, value, f"{key}={written}")


def _decoding_of(model_dir: str) -> list[Setting]:
    """Returns the decoding settings that a model was tested with; they are the defaults for translation."""
    path = _config_of(model_dir, "model_dir")
    if path is None:
        return _decoding_of_export(expanded(model_dir) / EXPORT_REPORT)
    decoding = storage.section_from_yaml(DecodingConfig, _text_of(path), str(path), "decoding")
    return _settings_of(decoding, f"{path}: ")


def _model_of(start_from: str, given: Mapping[str, Any]) -> list[Setting]:
    """Returns the options of the model in `start_from`, since a warm start needs the same; not its dropout.

    Args:
        start_from: the folder.
        given: key of each given setting → value. These are left out, since later settings would not win.
    """
    path = _config_of(_resolved("start_from", str(start_from)), "start_from")
    if path is None:
        return []
    model = storage.to_plain(storage.section_from_yaml(ModelConfig, _text_of(path), str(path), "model"))
    positions = model.pop("positions")
    if "model/positions" not in given:
        model |= {f"positions.{key}": value for key, value in positions.items()}
    if "${" in json.dumps(model):
        raise UserError(f"{path}: model: ${{ begins an interpolation. Remove it.")
    wanted = {f"model.{key}": value for key, value in model.items() if not key.endswith("dropout")}
    return [
        Setting(key, str(each), each, None)
        for key, value in wanted.items()
        if not any(f"{other}.".startswith(f"{key}.") for other in given)
        # An empty section first: a section would be merged with the one of the experiment.
        for each in ([{}, value] if isinstance(value, dict) else [value])
    ]


def _config_of(model_dir: str, key: str) -> Path | None:
    """Returns the configuration of a model; None if this is not a model folder, which is reported later.

    Args:
        model_dir: the folder.
        key: the option that gave it, for error messages.
    """
    with read_errors(expanded(model_dir)):
        folder = model_folder_or_none(model_dir, key)
        return None if folder is None else config_file(folder)


def _text_of(path: Path) -> str:
    return decoded(read_checked(path, MOST_CHARACTERS), path)


def _decoding_of_export(report: Path) -> list[Setting]:
    """Returns the decoding settings that an export records; none if there is no such file."""
    with read_errors(report):
        if not report.is_file():
            return []  # not a model folder: the command reports it later, with a better message
    values = read_sections(report).get("decoding", {})
    try:
        decoding = storage.from_plain(DecodingConfig, values, "decoding")
    except UserError as error:
        raise UserError(f"{report}: {error}") from error
    return _settings_of(decoding, f"{report}: ")


def _settings_of(decoding: DecodingConfig, where: str = "") -> list[Setting]:
    """Returns settings for the options of decoding: the numbers and the processors.

    Raises:
        UserError: a processor has an interpolation; the message begins with `where`.
    """
    plain = storage.to_plain(decoding)
    processors = plain.pop("processors")
    if "${" in json.dumps(processors):
        raise UserError(f"{where}decoding.processors: ${{ begins an interpolation. Remove it.")
    numbers = [_default(f"decoding.{key}", value) for key, value in plain.items()]
    return [*numbers, Setting("decoding.processors", str(processors), processors, None)]


def _compose(schema: type[Any], config_name: str, folder: Folder, settings: Sequence[Setting]) -> DictConfig:
    overrides = [setting.override for setting in settings if setting.override is not None]
    try:
        folder.check(schema, config_name, overrides)
        config = compose(config_name, overrides=[*folder.search, *overrides])
        for setting in settings:
            if setting.override is None:
                _assign(config, setting, named_sections(schema))
        return config
    except MissingConfigException as error:
        raise UserError(missing_config(error, overrides)) from error
    except UserError:
        raise
    except (HydraException, OmegaConfBaseException, ValueError, OverflowError, AssertionError) as error:
        known = [*_known_keys(config_name, folder.search), *schema_keys(schema)]
        raise UserError(explained(known, error)) from error


def _assign(config: DictConfig, setting: Setting, sections: Sequence[str]) -> None:
    """Assigns a value to the composed options without parsing it.

    OmegaConf gives a part with a free name its type only if the value is merged into its section as a whole:
    `{name: {key: value}}`. An empty section replaces the present one: `KEY={}` means none.
    """
    key, value = setting.key, setting.value
    if value == "???":
        raise UserError(f"{key}=???: stands for a missing value. Give a value.")
    for section in sections:
        if key.startswith(f"{section}."):
            for name in reversed(key.removeprefix(f"{section}.").split(".")):
                value = {name: value}
            key = section
    try:
        OmegaConf.update(config, key, value, merge=value != {}, force_add=True)
    except GrammarParseError as error:
        raise UserError(
            f"{setting.key}={setting.written}: ${{ begins an interpolation such as ${{name}}, but this one "
            "can't be parsed. Rename the file or folder."
        ) from error


def _known_keys(config_name: str, search: Sequence[str]) -> list[str]:
    return [*config_keys(compose(config_name, overrides=list(search))), "experiment"]


def _finish(schema: type[C], config: DictConfig) -> C:
    """Resolves and checks the options."""
    try:
        _refuse_unknown(schema, config)
        missing = sorted(OmegaConf.missing_keys(config))
        if missing:
            examples = " ".join(f"{key}=..." for key in missing)
            raise UserError(f"{', '.join(missing)}: must be given. Add {examples}")
        finished = OmegaConf.to_object(config)
    except (MissingMandatoryValue, InterpolationResolutionError, GrammarParseError) as error:
        words = re.sub(r"^\w+ (raised )?while resolving interpolation: ", "", first_line(error)).strip('"')
        key = error.full_key
        raise UserError(f"{key}: {words[0].lower()}{words[1:]}" if key else words) from error
    assert isinstance(finished, schema)
    check_texts(finished)
    return finished


def _refuse_unknown(schema: type[Any], config: DictConfig) -> None:
    """Refuses unknown options. Hydra itself allows them in the form `+key=value`."""
    known = list(schema_keys(schema))
    pattern = re.compile("|".join(re.escape(key).replace(r"\*", r"[^.]+") for key in known))
    for key in config_keys(config):
        if not pattern.fullmatch(key):
            raise UserError(f"+{key}: there is no such option{did_you_mean(key, sorted(known))}")
