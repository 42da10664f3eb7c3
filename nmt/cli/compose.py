"""Options from YAML and the command line, through Hydra, into the typed dataclasses."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, TypeVar

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    GrammarParseError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from nmt.cli.arguments import Arguments
from nmt.cli.complaints import config_keys, did_you_mean, explained, first_line, missing_config
from nmt.cli.overrides import into_named, named_sections, override_lists, parse
from nmt.cli.user_yaml import Folder
from nmt.config import DecodingConfig, folders, stored
from nmt.config.paths import schema_keys
from nmt.config.plain_yaml import MOST_CHARACTERS
from nmt.errors import UserError
from nmt.runtime import config_file, decoded, model_folders, read_checked, readable

C = TypeVar("C")


def configs_folder() -> Path:
    """The folder of the YAML files: beside the package in a checkout, inside it in an installed wheel."""
    package = Path(__file__).resolve().parents[1]
    inside = package / "configs"
    return inside if inside.is_dir() else package.parent / "configs"


def compose_jobs(schema: type[C], config_name: str, arguments: Arguments) -> list[C]:
    """The finished options of every job that the command line asks for: one, or many in a sweep (`-m`).

    Raises:
        UserError: an override is misspelt, names an unknown key or group, or has the wrong type.
    """
    ConfigStore.instance().store(name=f"{config_name}_schema", node=schema)
    folder = Folder(arguments.config_dir, configs_folder())
    with initialize_config_dir(str(configs_folder()), version_base="1.3"):
        jobs = []
        for overrides, suffix in override_lists(arguments):
            overrides = _defaults(config_name, overrides) + overrides
            overrides = [into_named(text, named_sections(schema)) for text in overrides]
            with folder.located(overrides):
                jobs.append(_finish(schema, _compose(schema, config_name, folder, overrides), suffix))
    return jobs


def to_yaml(config: Any) -> str:
    """A finished configuration as YAML."""
    return stored.to_yaml(config)


def _defaults(config_name: str, overrides: Sequence[str]) -> list[str]:
    """What the overrides imply: later ones win, so these go first."""
    given = {override.key_or_group: override.value() for override in parse(overrides)}
    if config_name == "train":
        # With nothing else the quickstart runs; whoever names other data means another experiment.
        return [] if {"experiment", "data"} & set(given) else ["experiment=quickstart"]
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


def _decoding_of(model_dir: str) -> list[str]:
    """A model translates as it did when it was tested, unless told otherwise."""
    for folder in model_folders(model_dir):
        with readable(folder):
            path = config_file(folder)
            if not ((folder / "model.safetensors").is_file() and path.is_file()):
                continue
        text = decoded(read_checked(path, MOST_CHARACTERS), path)
        decoding = stored.to_plain(stored.section_from_yaml(DecodingConfig, text, str(path), "decoding"))
        return [f"decoding.{key}={value}" for key, value in decoding.items()]  # numbers, all of them
    return []  # no model folder: the command itself says so best


def _compose(schema: type[Any], config_name: str, folder: Folder, overrides: Sequence[str]) -> DictConfig:
    try:
        folder.check(schema, config_name, overrides)
        return compose(config_name, overrides=[*folder.search, *overrides])
    except MissingConfigException as error:
        raise UserError(missing_config(error, overrides)) from error
    except UserError:
        raise
    except (HydraException, OmegaConfBaseException, ValueError, OverflowError, AssertionError) as error:
        known = [*_known_keys(config_name, folder.search), *schema_keys(schema)]
        raise UserError(explained(known, error)) from error


def _known_keys(config_name: str, search: Sequence[str]) -> list[str]:
    return [*config_keys(compose(config_name, overrides=list(search))), "experiment"]


def _finish(schema: type[C], config: DictConfig, suffix: str) -> C:
    """Resolves and checks the options; a sweep's job gets a run folder of its own."""
    try:
        if suffix and "run_dir" in config:
            config.run_dir = f"{config.run_dir}/{suffix}"
        _refuse_unknown(schema, config)
        missing = sorted(OmegaConf.missing_keys(config))
        if missing:
            examples = " ".join(f"{key}=..." for key in missing)
            raise UserError(f"{', '.join(missing)} must be given: add {examples}")
        OmegaConf.resolve(config)
        finished = OmegaConf.to_object(config)
    except (MissingMandatoryValue, InterpolationResolutionError, GrammarParseError) as error:
        words = re.sub(r"^\w+ (raised )?while resolving interpolation: ", "", first_line(error)).strip('"')
        key = error.full_key
        raise UserError(f"{key}: {words[0].lower()}{words[1:]}" if key else words) from error
    assert isinstance(finished, schema)
    return finished


def _refuse_unknown(schema: type[Any], config: DictConfig) -> None:
    """`+key=value` gets past Hydra's own check; an option that nothing reads is a mistake all the same."""
    known = list(schema_keys(schema))
    pattern = re.compile("|".join(re.escape(key).replace(r"\*", r"[^.]+") for key in known))
    for key in config_keys(config):
        if not pattern.fullmatch(key):
            raise UserError(f"+{key}: there is no such option{did_you_mean(key, sorted(known))}")
