"""Composes YAML files and overrides with Hydra into the typed dataclasses of options."""

from __future__ import annotations

import re
import threading
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import fields
from typing import Any, TypeVar, cast

from hydra import compose, initialize_config_dir
from hydra.core.config_store import ConfigStore
from hydra.core.singleton import Singleton
from hydra.errors import HydraException, MissingConfigException
from omegaconf import DictConfig, OmegaConf
from omegaconf.basecontainer import BaseContainer
from omegaconf.errors import (
    GrammarParseError,
    InterpolationResolutionError,
    MissingMandatoryValue,
    OmegaConfBaseException,
)

from nmt.config import RECIPE_KEYS, DecodingConfig, TranslateConfig, folders, storage
from nmt.config.checks import Section
from nmt.config.schema import check_texts, check_truth, declared_key, schema_keys
from nmt.errors import UserError
from nmt.options.arguments import Arguments, configs_folder, require_option, require_text
from nmt.options.messages import did_you_mean, explained, first_line, missing_config
from nmt.options.model_options import (
    decoding_of_model,
    options_of_start,
    settings_of_decoding,
    with_commit,
)
from nmt.options.overrides import Setting, named_sections, settings_of_jobs
from nmt.options.sweep import with_distinct_folders, words_of
from nmt.options.user_files import Folder
from nmt.runtime.forks import undivided
from nmt.runtime.streams import log, progress

C = TypeVar("C")

_LARGE_SWEEP = 100  # jobs
_LOCK = threading.RLock()
_GLOBAL_OBJECTS: dict[Any, Any] = {}
"""The global objects of Hydra, such as its `ConfigStore`, that nmt uses in place of a calling program's."""
_SCHEMAS: dict[str, Any] = {}
"""The option dataclasses in Hydra's form, by name; to make one takes a quarter of a composition."""


def compose_jobs(schema: type[C], config_name: str, arguments: Arguments) -> list[C]:
    """Returns the finished options of each job: one, or several in a sweep (`-m`).

    Raises:
        UserError: an override can't be parsed, names an unknown key or group, or has the wrong type.
    """
    with _isolated_hydra(config_name, schema):
        folder = Folder(arguments.config_dir)
        settings = [list(map(with_commit, job)) for job in settings_of_jobs(schema, arguments)]
        jobs, chosen = [], _Chosen(schema, config_name, folder)
        for job in _shown(settings):
            with folder.located([f"{setting.key}={setting.written}" for setting in job]):
                whole = [*_defaults(schema, config_name, job), *job]
                jobs.append(_finish(schema, _compose(chosen, whole)))
    for message in dict.fromkeys(message for job in jobs for message in _warnings(job)):
        log.warning("%s", message)
    return with_distinct_folders(jobs, settings)


def names_of_jobs(schema: type[Any], config_name: str, arguments: Arguments) -> list[str]:
    """Returns the options that differ between the jobs of a sweep, of each job, for messages."""
    with _isolated_hydra(config_name, schema):
        return list(map(words_of, settings_of_jobs(schema, arguments)))


def _shown(jobs: Sequence[list[Setting]]) -> Iterator[list[Setting]]:
    """Yields the jobs, and shows the progress of a large sweep."""
    if len(jobs) < _LARGE_SWEEP:
        yield from jobs
        return
    with progress(total=len(jobs), unit="jobs", description="Reading the options") as bar:
        for job in jobs:
            yield job
            bar.update(1)


def _warnings(config: Any) -> Iterable[str]:
    return config.warnings() if isinstance(config, Section) else ()


def changed_decoding(decoding: DecodingConfig, changes: Mapping[str, Any]) -> DecodingConfig:
    """Returns options of decoding with changes: key → value, as in `nmt-translate decoding.key=value`.

    Raises:
        UserError: as `nmt-translate` reports it.
    """
    name, schema = "translate", TranslateConfig
    words, settings = ["model_dir=none"], settings_of_decoding(decoding)  # `model_dir` must have a value
    for key, value in changes.items():
        plain = storage.to_plain(value)
        word = f"decoding.{key}={plain}"
        require_text(word)
        require_option(word)
        if isinstance(plain, str):
            words.append(word)
        else:
            check_truth(schema, f"decoding.{key}", plain)
            adds = key.startswith("processors")
            settings.append(Setting(f"decoding.{key}", str(plain), plain, adds=adds))
    with _isolated_hydra(name, schema):
        (parsed,) = settings_of_jobs(schema, Arguments(tuple(words)))
        config = _compose(_Chosen(schema, name, Folder(None)), [*settings, *parsed])
        return _finish(schema, config).decoding


@contextmanager
def _isolated_hydra(config_name: str, schema: type[Any]) -> Iterator[None]:
    """Sets Hydra up to compose from `configs/`, apart from a calling program's use; one thread at a time."""
    with undivided(), _LOCK:
        # There is no public way: `Singleton.get_state` copies deeply, and after `set_state` a `ConfigStore`
        # that the calling program has in a variable would no longer be the one that Hydra reads.
        repo = dict(ConfigStore.instance().repo)  # with Hydra's own entries
        objects, resolvers = Singleton._instances, BaseContainer._resolvers
        Singleton._instances, BaseContainer._resolvers = _GLOBAL_OBJECTS, dict(resolvers)
        try:
            ConfigStore.instance().repo = repo
            name = f"{config_name}_schema"
            if name not in _SCHEMAS:
                ConfigStore.instance().store(name=name, node=schema)
                _SCHEMAS[name] = repo[f"{name}.yaml"]
            repo[f"{name}.yaml"] = _SCHEMAS[name]  # `ConfigStore.load` copies it
            with initialize_config_dir(str(configs_folder()), version_base="1.3"):
                yield
        finally:
            Singleton._instances, BaseContainer._resolvers = objects, resolvers


def _defaults(schema: type[Any], config_name: str, settings: Sequence[Setting]) -> list[Setting]:
    """Returns the settings that the given ones imply. They go first, since later settings win."""
    given = {setting.key: setting.value for setting in settings}
    if config_name == "train":
        # The default is the quickstart experiment, unless other data or another experiment are chosen.
        chosen = {"experiment", "data"} & set(given)
        quickstart = (
            [] if chosen else [Setting("experiment", "quickstart", "quickstart", "experiment=quickstart")]
        )
        files = {setting.key for setting in settings if setting.choice is not None}
        recipe = [] if quickstart and "recipe" not in given else _recipe(given, files)
        start = given.get("start_from")
        return [*quickstart, *recipe, *([] if start is None else options_of_start(start, given))]
    loose = next((key for key in given if key.startswith("data.")), None)
    if loose and "data" not in given:
        raise UserError(f"{loose}: no data are chosen. Add some, such as data=local or data=wmt14_de_en.")
    if "decoding" not in {one.name for one in fields(schema)}:
        return []
    named = folders("model_dir", given.get("model_dir"))
    # Of several models, the first one decides.
    return decoding_of_model(named[0]) if named else []


def _recipe(given: Mapping[str, Any], files: Collection[str]) -> list[Setting]:
    """Returns the settings of `recipe=auto`, or none.

    It is the default without experiment and model; with `start_from`, only if there is a budget: many give
    such a training a learning rate and updates of their own.

    `given` are the options that are given, and `files` the keys of those that choose a file.
    """
    values = dict(pair for key, value in given.items() for pair in _inner(key, value))
    has_experiment, starts = (given.get(key) is not None for key in ("experiment", "start_from"))
    is_default = not has_experiment and "model" not in files and "model.architecture" not in given
    if starts and values.get("training.budget") is None:
        is_default = False
    if given.get("recipe", "auto" if is_default else "none") != "auto":
        return []
    if has_experiment:
        raise UserError(
            "recipe=auto: experiment= chooses the options of the training itself. Remove one of the two."
        )
    keys = [key for key in values if key not in files or key == "model"]
    keeps = [key for key in keys if key == "recipe" or any(_overlap(key, other) for other in RECIPE_KEYS)]
    if starts:  # the weights need the model that they were trained in, with any dropout
        keeps += [key for key in RECIPE_KEYS if key.startswith("model.") and key != "model.dropout"]
    kept = [*keeps, *given.get("recipe_keeps", [])]
    return [Setting("recipe", "auto", "auto"), Setting("recipe_keeps", f"[{','.join(kept)}]", kept)]


def _inner(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    """Yields the names and values of the options that a setting gives, which may be a section."""
    if isinstance(value, Mapping) and value:
        for name, item in value.items():
            yield from _inner(f"{key}.{name}", item)
    else:
        yield key, value


def _overlap(key: str, other: str) -> bool:
    return f"{key}.".startswith(f"{other}.") or f"{other}.".startswith(f"{key}.")


class _Chosen:
    """Composes the chosen YAML files, once for all jobs of a sweep that have the same ones."""

    def __init__(self, schema: type[Any], config_name: str, folder: Folder) -> None:
        self.schema, self._name, self._folder = schema, config_name, folder
        self._composed: dict[tuple[str, ...], DictConfig] = {}

    def config(self, choices: tuple[str, ...]) -> DictConfig:
        """Returns a copy of the composed files; without choices they are the defaults of the command."""
        self._folder.check(self.schema, self._name, choices)
        if choices not in self._composed:
            self._composed[choices] = compose(self._name, overrides=[*self._folder.search, *choices])
        return deepcopy(self._composed[choices])


def _compose(chosen: _Chosen, settings: Sequence[Setting]) -> DictConfig:
    choices = tuple(setting.choice for setting in settings if setting.choice is not None)
    try:
        config = chosen.config(choices)
        for setting in settings:
            if setting.choice is None:
                _assign(config, setting, named_sections(chosen.schema))
        return config
    except MissingConfigException as error:
        raise UserError(missing_config(error, choices)) from error
    except UserError:
        raise
    except (HydraException, OmegaConfBaseException, ValueError, OverflowError, AssertionError) as error:
        # The keys that the command has by default come first, so that they are suggested first.
        default_keys = _keys(chosen.config(()))
        raise UserError(
            explained([*default_keys, "experiment", *schema_keys(chosen.schema)], error)
        ) from error


def _assign(config: DictConfig, setting: Setting, sections: Sequence[str]) -> None:
    """Assigns a value to the composed options.

    OmegaConf gives a part with a free name its type only if the value is merged into its section as a whole:
    `{name: {key: value}}`. An empty section replaces the present one: `KEY={}` means none.
    """
    key, value = setting.key, setting.value
    if value == "???" and setting.adds:
        raise UserError(f"{key}=???: stands for a missing value. Give a value.")
    whole, _, side = key.rpartition(".")
    if side in ("source", "target"):
        both = OmegaConf.select(config, whole, throw_on_resolution_failure=False)
        if isinstance(both, str):
            raise UserError(
                f"{key}={setting.written}: {whole}={both} is for both sides. Give '{whole}={{source: ..., "
                "target: ...}'."
            )
    for section in sections:
        if key.startswith(f"{section}."):
            for name in reversed(key.removeprefix(f"{section}.").split(".")):
                value = {name: value}
            key = section
    try:
        OmegaConf.update(config, key, value, merge=value != {} or not setting.adds, force_add=setting.adds)
    except GrammarParseError as error:
        raise UserError(
            f"{setting.key}={setting.written}: ${{ begins an interpolation such as ${{name}}, but this one "
            "can't be parsed. Rename the file or folder."
        ) from error


def _finish(schema: type[C], config: DictConfig) -> C:
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
    """Refuses unknown options, which may have been added in the form `+key=value`."""
    for key in _keys(config):
        if declared_key(schema, key) is None:
            raise UserError(
                f"+{key}: there is no such option{did_you_mean(key, sorted(schema_keys(schema)))}"
            )


def _keys(config: DictConfig, prefix: str = "") -> Iterator[str]:
    """Yields every key of composed options, parents before children."""
    for name in map(str, config):
        yield f"{prefix}{name}"
        if not OmegaConf.is_missing(config, name) and OmegaConf.is_dict(child := config._get_node(name)):
            yield from _keys(cast(DictConfig, child), f"{prefix}{name}.")
