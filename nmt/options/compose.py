"""Composes YAML files and overrides with Hydra into the typed dataclasses of options."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
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
from nmt.config.schema import check_texts, schema_keys
from nmt.errors import UserError
from nmt.options.arguments import Arguments, configs_folder, require_option, require_text
from nmt.options.hydra_errors import config_keys, did_you_mean, explained, first_line, missing_config
from nmt.options.hydra_state import isolated_hydra
from nmt.options.model_options import (
    architecture_of_model,
    decoding_of_model,
    implied,
    settings_of_decoding,
    with_commit,
)
from nmt.options.overrides import Setting, named_sections, settings_of_jobs
from nmt.options.sweep import with_distinct_folders
from nmt.options.user_yaml import Folder

C = TypeVar("C")


def compose_jobs(schema: type[C], config_name: str, arguments: Arguments) -> list[C]:
    """Returns the finished options of each job: one, or several in a sweep (`-m`).

    Raises:
        UserError: an override can't be parsed, names an unknown key or group, or has the wrong type.
    """
    with isolated_hydra(config_name, schema):
        folder = Folder(arguments.config_dir, configs_folder())
        settings = [[with_commit(one) for one in job] for job in settings_of_jobs(schema, arguments)]
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
        config = _compose(schema, name, folder, [*settings_of_decoding(decoding), *settings])
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
        settings = [] if chosen else [implied("experiment", "quickstart")]
        start = given.get("start_from")
        wanted = [] if start is None or "model" in given else architecture_of_model(start, given)
        return [*settings, *wanted]
    loose = next((key for key in given if key.startswith("data.")), None)
    if loose and "data" not in given:
        raise UserError(f"{loose}: no data are chosen. Add some, such as data=local or data=wmt14_de_en.")
    if "decoding" not in {one.name for one in fields(schema)}:
        return []
    named = folders("model_dir", given.get("model_dir"))
    # Of several models, the first one decides.
    return decoding_of_model(named[0]) if named else []


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
