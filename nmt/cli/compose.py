"""Options from YAML and the command line, through Hydra, into the typed dataclasses."""

from __future__ import annotations

import dataclasses
import difflib
import itertools
import re
import typing
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, TypeVar, cast

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, MissingConfigException, OverrideParseException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import (
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from nmt.cli.arguments import Arguments
from nmt.config import folders
from nmt.errors import UserError
from nmt.runtime import readable

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
    search = _search_path(arguments.config_dir)
    with initialize_config_dir(str(configs_folder()), version_base="1.3"):
        jobs = []
        for overrides, suffix in _jobs(arguments):
            overrides = _defaults(config_name, overrides) + overrides
            overrides = [_into_named(text, _named_sections(schema)) for text in overrides]
            jobs.append(_finish(schema, _compose(schema, config_name, search, overrides), suffix))
    return jobs


def to_yaml(config: Any) -> str:
    """A finished configuration as YAML."""
    return OmegaConf.to_yaml(OmegaConf.structured(config))


def _search_path(folder: str | None) -> list[str]:
    if folder is None:
        return []
    path = Path(folder).expanduser().resolve()
    if not path.is_dir():
        raise UserError(f"--config-dir {folder}: there is no such folder")
    return [f"hydra.searchpath=[{_quoted(f'file://{path}')}]"]


def _quoted(text: str) -> str:
    return "'" + text.replace("\\", "\\\\").replace("'", "\\'") + "'"


def _parse(overrides: Sequence[str]) -> list[Override]:
    parser = OverridesParser.create()
    parsed = []
    for text in overrides:
        if "=" not in text and not text.startswith("~"):
            raise UserError(f"{text}: options are written key=value; --help lists them")
        try:
            parsed += parser.parse_overrides([text])
        except OverrideParseException as error:
            raise UserError(
                f"{text}: can't be read ({_first_line(error)}); values with spaces, commas, brackets or = "
                f"need quotes inside quotes, such as \"key='a, b.txt'\""
            ) from error
        except HydraException as error:
            raise UserError(f"{text}: {_first_line(error)}") from error
    return parsed


def _jobs(arguments: Arguments) -> Iterator[tuple[list[str], str]]:
    """The overrides of each job, and what is added to its run folder."""
    parsed = _parse(arguments.overrides)
    choices: list[list[str]] = []
    for text, override in zip(arguments.overrides, parsed, strict=True):
        if not override.is_sweep_override():
            choices.append([text])
        elif not arguments.sweep:
            raise UserError(f"{text}: several values run as a sweep; add -m, or quote a list: key=[a,b]")
        else:
            key = override.get_key_element()
            try:
                choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
            except HydraException as error:  # a glob or an interval: Hydra's own launchers know them
                raise UserError(f"{text}: name the values, separated by commas") from error
    swept = [len(texts) > 1 for texts in choices]
    for combination in itertools.product(*choices):
        named = [text for text, is_swept in zip(combination, swept, strict=True) if is_swept]
        yield list(combination), ",".join(text.lstrip("+").replace("/", "-") for text in named)


def _defaults(config_name: str, overrides: Sequence[str]) -> list[str]:
    """What the overrides imply: later ones win, so these go first."""
    given = {override.key_or_group: override.value() for override in _parse(overrides)}
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
        raise UserError(f"{key}={value}: {_first_line(error)}") from error


def _decoding_of(model_dir: str) -> list[str]:
    """A model translates as it did when it was tested, unless told otherwise."""
    given = Path(model_dir).expanduser()
    for folder in (given / "model", given):
        path = folder / "config.yaml"
        with readable(path):
            if not ((folder / "model.safetensors").is_file() and path.is_file()):
                continue
            text = path.read_bytes()
        try:
            decoding = cast(DictConfig, OmegaConf.create(text.decode())).get("decoding") or {}
        except Exception as error:  # whatever a YAML parser finds wrong with a damaged file
            raise UserError(f"{path}: is damaged ({_first_line(error)})") from error
        return [f"decoding.{key}={value}" for key, value in decoding.items()]
    return []  # no model folder: the command itself says so best


def _into_named(text: str, sections: Sequence[str]) -> str:
    """An override inside a section whose parts have free names, written so that the part need not exist yet.

    OmegaConf makes a part of the right type only where the section is given a whole: `a.b.name.key=value`
    becomes `++a.b={name:{key:value}}`, which is merged into what is there.
    """
    key, _, value = text.partition("=")
    for section in sections:
        start = f"{section}."
        if key.lstrip("+").startswith(start):
            for name in reversed(key.lstrip("+").removeprefix(start).split(".")):
                value = f"{{{name}:{value or repr('')}}}"
            return f"++{section}={value}"
        if key.lstrip("+") == section:
            return f"++{section}={value}"
    return text


def _compose(
    schema: type[Any], config_name: str, search: Sequence[str], overrides: Sequence[str]
) -> DictConfig:
    try:
        return compose(config_name, overrides=[*search, *overrides])
    except MissingConfigException as error:
        raise UserError(_missing_config(error, overrides)) from error
    except (HydraException, OmegaConfBaseException) as error:
        known = [*_known_keys(config_name, search), *_schema_keys(schema)]
        raise UserError(_explained(known, error)) from error


def _missing_config(error: MissingConfigException, overrides: Sequence[str]) -> str:
    group, _, name = (error.missing_cfg_file or "").rpartition("/")
    options = sorted(option for option in (error.options or []) if not option.endswith("_schema"))
    asked = f"{group}={name}" if group else name
    hint = _did_you_mean(name, options, prefix=f"{group}=")
    if not options:
        return f"{next((o for o in overrides if o.startswith(asked)), asked)}: there is no group {group}"
    return f"{asked}: there is no such {group}{hint}; there are {', '.join(options)}"


def _explained(known: Sequence[str], error: Exception) -> str:
    """Hydra's and OmegaConf's complaints in our words: the key first, then what to do."""
    cause = error.__cause__ if isinstance(error.__cause__, OmegaConfBaseException) else error
    text = f"{error}\n{cause}"
    unknown = re.search(r"(?:Could not override|Could not append to config[^']*) '([^']+)'", text)
    key = getattr(cause, "full_key", None) or (unknown.group(1) if unknown else "")
    if re.search(r"[Kk]ey '.*' (is )?not in|No match in the defaults list|Could not append", text):
        return f"{key}: there is no such option{_did_you_mean(key, known)}"
    words = _first_line(cause)
    return f"{key}: {words[0].lower()}{words[1:]}" if key else _first_line(error)


def _known_keys(config_name: str, search: Sequence[str]) -> list[str]:
    return [*_keys(compose(config_name, overrides=list(search))), "experiment"]


def _keys(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """Every key of a configuration, parents before their children."""
    for name in map(str, config):
        yield f"{prefix}{name}"
        if not OmegaConf.is_missing(config, name) and OmegaConf.is_dict(child := config._get_node(name)):
            yield from _keys(cast(DictConfig, child), f"{prefix}{name}.")


def _schema_keys(schema: type[Any], prefix: str = "") -> Iterator[str]:
    """Every key that a dataclass of options has, in sections that are optional too.

    Where the parts of a section have free names, `*` stands for them; the parts of a section without types
    are not listed.
    """
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        key = f"{prefix}{field.name}"
        yield key
        hint = hints[field.name]
        if typing.get_origin(hint) is dict:
            key += ".*"
            yield key
        for kind in typing.get_args(hint) or (hint,):
            if dataclasses.is_dataclass(kind):
                yield from _schema_keys(cast(type[Any], kind), f"{key}.")


def _named_sections(schema: type[Any]) -> list[str]:
    """The sections whose parts have free names and are sections themselves."""
    keys = list(_schema_keys(schema))
    return [key.removesuffix(".*") for key in keys if key.endswith(".*") and key.count("*") == 1]


def _did_you_mean(name: str, known: Sequence[str], prefix: str = "") -> str:
    last = {key.rpartition(".")[2]: key for key in reversed(known)}
    near = difflib.get_close_matches(name, known, 1, 0.75) or [
        last[key] for key in difflib.get_close_matches(name.rpartition(".")[2], list(last), 1, 0.75)
    ]
    return f"; did you mean {prefix}{_with_names(near[0], name)}?" if near else " (--help lists all)"


def _with_names(key: str, given: str) -> str:
    """A key of `_schema_keys` with the free names that stand in `given`."""
    names = [*given.split("."), *["NAME"] * key.count(".")]
    return ".".join(name if part == "*" else part for part, name in zip(key.split("."), names, strict=False))


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
    except (MissingMandatoryValue, InterpolationResolutionError) as error:
        raise UserError(_first_line(error)) from error
    assert isinstance(finished, schema)
    return finished


def _refuse_unknown(schema: type[Any], config: DictConfig) -> None:
    """`+key=value` gets past Hydra's own check; an option that nothing reads is a mistake all the same."""
    known = list(_schema_keys(schema))
    pattern = re.compile("|".join(re.escape(key).replace(r"\*", r"[^.]+") for key in known))
    for key in _keys(config):
        if not pattern.fullmatch(key):
            raise UserError(f"+{key}: there is no such option{_did_you_mean(key, sorted(known))}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
