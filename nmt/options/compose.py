"""Options from YAML and the command line, through Hydra, into the typed dataclasses."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
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

from nmt.config import DecodingConfig, TranslateConfig, folders, storage
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
from nmt.runtime import config_file, decoded, model_folders, read_checked, read_errors

C = TypeVar("C")


def compose_jobs(schema: type[C], config_name: str, arguments: Arguments) -> list[C]:
    """The finished options of every job that the command line asks for: one, or many in a sweep (`-m`).

    Raises:
        UserError: an override is misspelt, names an unknown key or group, or has the wrong type.
    """
    with isolated_hydra(config_name, schema):
        folder = Folder(arguments.config_dir, configs_folder())
        settings = list(settings_of_jobs(schema, arguments))
        jobs = []
        for given in settings:
            with folder.located([f"{setting.key}={setting.written}" for setting in given]):
                whole = [*_defaults(config_name, given), *given]
                jobs.append(_finish(schema, _compose(schema, config_name, folder, whole)))
    return with_distinct_folders(jobs, settings)


def changed_decoding(decoding: DecodingConfig, changes: Mapping[str, Any]) -> DecodingConfig:
    """The options of decoding with some of them changed.

    Args:
        decoding: the options.
        changes: key of the section `decoding` → value; what `nmt-translate decoding.key=value` takes.

    Raises:
        UserError: as `nmt-translate` gives it.
    """
    name, schema = "translate", TranslateConfig
    given = [f"decoding.{key}={_as_written(value)}" for key, value in changes.items()]
    for word in given:
        require_text(word)
        require_option(word)
    with isolated_hydra(name, schema):
        (settings,) = settings_of_jobs(schema, Arguments(("model_dir=none", *given)))  # it must have a value
        folder = Folder(None, configs_folder())
        config = _compose(schema, name, folder, [*_settings_of(decoding), *settings])
        return _finish(schema, config).decoding


def _as_written(value: Any) -> str:
    """A value as it stands on a command line."""
    plain = storage.to_plain(value)
    if isinstance(plain, list):
        return f"[{','.join(map(_as_written, plain))}]"
    if plain is None or isinstance(plain, bool):
        return "null" if plain is None else str(plain).lower()
    return str(plain)


def to_yaml(config: Any) -> str:
    """A finished configuration as YAML."""
    return storage.to_yaml(config)


def _defaults(config_name: str, settings: Sequence[Setting]) -> list[Setting]:
    """What the settings imply: later ones win, so these go first."""
    given = {setting.key: setting.value for setting in settings}
    if config_name == "train":
        # With nothing else the quickstart runs; whoever names other data means another experiment.
        return [] if {"experiment", "data"} & set(given) else [_default("experiment", "quickstart")]
    loose = next((key for key in given if key.startswith("data.")), None)
    if loose and "data" not in given:
        raise UserError(f"{loose}: say which data it changes, such as data=local or data=wmt14_de_en")
    named = folders("model_dir", given.get("model_dir"))
    return _decoding_of(_resolved("model_dir", named[0])) if named else []  # the first of several decides


def _resolved(key: str, value: str) -> str:
    """A value before there is a configuration around it: `${oc.env:HOME}` works, `${other.key}` does not."""
    try:
        return str(OmegaConf.create({key: value})[key])
    except OmegaConfBaseException as error:
        raise UserError(f"{key}={value}: {first_line(error)}") from error


def _default(key: str, value: Any) -> Setting:
    """A setting that is implied; a number or a name."""
    return Setting(key, str(value), value, f"{key}={value}")


def _decoding_of(model_dir: str) -> list[Setting]:
    """A model translates as it did when it was tested, unless told otherwise."""
    for folder in model_folders(model_dir):
        with read_errors(folder):
            path = config_file(folder)
            if not ((folder / "model.safetensors").is_file() and path.is_file()):
                continue
        text = decoded(read_checked(path, MOST_CHARACTERS), path)
        decoding = storage.section_from_yaml(DecodingConfig, text, str(path), "decoding")
        return _settings_of(decoding, f"{path}: ")
    return []  # no model folder: the command itself says so best


def _settings_of(decoding: DecodingConfig, where: str = "") -> list[Setting]:
    """Settings that give these options: numbers, and processors.

    Raises:
        UserError: an interpolation stands among them; the message begins with `where`.
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
    """Puts a value into the composed options as it is.

    OmegaConf makes a part with a free name of the right type only where its section is given a whole:
    `{name: {key: value}}` is merged into what is there. An empty section replaces it: `KEY={}` means none.
    """
    key, value = setting.key, setting.value
    if value == "???":
        raise UserError(f"{key}=???: means that a value is missing. Give one.")
    for section in sections:
        if key.startswith(f"{section}."):
            for name in reversed(key.removeprefix(f"{section}.").split(".")):
                value = {name: value}
            key = section
    try:
        OmegaConf.update(config, key, value, merge=value != {}, force_add=True)
    except GrammarParseError as error:
        raise UserError(
            f"{setting.key}={setting.written}: ${{ begins an interpolation such as ${{name}}, and this one "
            "can't be read. Rename the file or folder."
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
            raise UserError(f"{', '.join(missing)} must be given: add {examples}")
        finished = OmegaConf.to_object(config)
    except (MissingMandatoryValue, InterpolationResolutionError, GrammarParseError) as error:
        words = re.sub(r"^\w+ (raised )?while resolving interpolation: ", "", first_line(error)).strip('"')
        key = error.full_key
        raise UserError(f"{key}: {words[0].lower()}{words[1:]}" if key else words) from error
    assert isinstance(finished, schema)
    check_texts(finished)
    return finished


def _refuse_unknown(schema: type[Any], config: DictConfig) -> None:
    """`+key=value` gets past Hydra's own check; an option that nothing reads is a mistake all the same."""
    known = list(schema_keys(schema))
    pattern = re.compile("|".join(re.escape(key).replace(r"\*", r"[^.]+") for key in known))
    for key in config_keys(config):
        if not pattern.fullmatch(key):
            raise UserError(f"+{key}: there is no such option{did_you_mean(key, sorted(known))}")
