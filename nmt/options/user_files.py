"""The folder of `--config-dir`: the user's YAML files, in addition to `configs/`.

Hydra determines the files that a command uses and the section of their keys. It reads them through
`UserFiles`, which checks their text before composition. `Folder.check` then compares keys, types and values
with the option dataclasses, and `Folder.located` adds file and line to later errors.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hydra.core.default_element import ResultDefault
from hydra.core.global_hydra import GlobalHydra
from hydra.core.object_type import ObjectType
from hydra.core.plugins import Plugins
from hydra.errors import HydraException, MissingConfigException
from hydra.plugins.config_source import ConfigResult, ConfigSource
from hydra.types import RunMode
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from nmt.config.checks import shortened
from nmt.config.plain_yaml import YamlProblem
from nmt.config.schema import check_truth, declared_key, schema_keys, text_option
from nmt.errors import UserError
from nmt.options.arguments import configs_folder, quoted
from nmt.options.messages import did_you_mean, first_line, wrong_value
from nmt.options.yaml_files import Default, Entry, YamlFile, problems_of, read_yaml
from nmt.runtime.files import expanded

_ODD_NUMBER = re.compile(r"[-+]?(0[0-7_]+|[\d_]+(:[0-5]?\d)+(\.[\d_]*)?)")
"""Octal numbers, and numbers in base 60, as YAML reads 12:30."""
_WORD = r"\b[A-Za-z_][\w-]*"
_DOTTED = rf"{_WORD}(?:\.[\w-]+)+"
_KEY_IN_MESSAGE = re.compile(rf"{_DOTTED}|^{_WORD}|{_WORD}(?==)")
"""An option in an error message: with dots, at the beginning, or before an equals sign."""


class UserFiles(ConfigSource):
    """The folder as a config source of Hydra; a file is read when Hydra needs it."""

    @staticmethod
    def scheme() -> str:
        """The scheme of the folder's URL in Hydra's search path."""
        return "nmt-user"

    def load_config(self, config_path: str) -> ConfigResult:
        """Reads a file strictly.

        Raises:
            UserError: the file has an error; the message has file and line.
        """
        file = read_yaml(self._place(config_path))
        package = file.package
        if package is None and config_path.startswith("experiment/"):
            package = "_global_"  # an experiment sets options of all sections
        return ConfigResult(
            provider=self.provider,
            path=self.full_path(),
            config=OmegaConf.create(file.text),
            header={"package": package},
        )

    def available(self) -> bool:
        """Whether the folder exists."""
        return self.is_group("")

    def is_group(self, config_path: str) -> bool:
        """Whether the folder has a sub-folder of this name."""
        return os.path.isdir(os.path.join(self.path, config_path))

    def is_config(self, config_path: str) -> bool:
        """Whether the folder has an entry of this name; if it is not a file, `load_config` reports that."""
        return os.path.lexists(self._place(config_path))

    def list(self, config_path: str, results_filter: ObjectType | None) -> list[str]:
        """Returns the names in a sub-folder."""
        names: list[str] = []
        with contextlib.suppress(OSError):
            for name in os.listdir(os.path.join(self.path, config_path)):
                self._list_add_result(names, os.path.join(config_path, name), name, results_filter)
        return sorted(set(names))

    def _place(self, config_path: str) -> Path:
        return Path(self.path) / self._normalize_file_name(config_path)


class Folder:
    """The folder of `--config-dir`, or none. Raises `UserError` if there is no such folder."""

    def __init__(self, given: str | None) -> None:
        self._path = expanded(given).resolve() if given is not None else None
        self._files: list[tuple[YamlFile, str]] = []
        self._checked: dict[tuple[str, ...], list[tuple[YamlFile, str]]] = {}  # by the files that were chosen
        if self._path is None:
            return
        if not given:
            raise UserError("--config-dir: has no value. Give the name of a folder.")
        if not self._path.is_dir():
            raise UserError(f"--config-dir {given}: there is no such folder.")
        Plugins.instance().register(UserFiles)

    @property
    def search(self) -> list[str]:
        """The override that adds the folder to Hydra's search path."""
        if self._path is None:
            return []
        return [f"hydra.searchpath=[{quoted(f'{UserFiles.scheme()}://{self._path}')}]"]

    def check(self, schema: type[Any], config_name: str, overrides: Sequence[str]) -> None:
        """Checks every file of the folder that a command uses; `overrides` may choose files of groups.

        Raises:
            UserError: a file has an error; the message has file, line and key.
            MissingConfigException: the command line names a file that does not exist.
        """
        if self._path is None:
            return
        chosen = (config_name, *overrides)
        if chosen in self._checked:
            self._files = self._checked[chosen]
            return
        self._files = []
        for default in self._used(config_name, overrides):
            path = self._path / f"{default.config_path}.yaml"
            if default.config_path is None or not os.path.lexists(path):
                continue
            if (configs_folder() / f"{default.config_path}.yaml").exists():
                raise UserError(f"{path}: nmt has a file of this name, which takes precedence. Rename yours.")
            package = (default.package or "").replace("_global_", "").strip(".")
            file = read_yaml(path)
            with problems_of(path):
                for entry in file.entries:
                    _check_entry(schema, file, package, default.config_path, entry)
                _check_types(schema, file, package)
            self._files.append((file, package))
        self._checked[chosen] = self._files

    @contextlib.contextmanager
    def located(self, overrides: Sequence[str]) -> Iterator[None]:
        """Adds file and line to an error about an option whose value comes from one of the files."""
        try:
            yield
        except UserError as error:
            place = self._place(str(error), overrides)
            if place is None:
                raise
            raise UserError(f"{place}: {error}") from error

    def _place(self, message: str, overrides: Sequence[str]) -> str | None:
        given = [override.lstrip("+~").partition("=")[0] for override in overrides]
        problem = message.partition("Did you mean")[0]  # a suggestion names other options
        for name in _KEY_IN_MESSAGE.findall(problem):
            # A key without a dot may be a group, such as model=mine, which sets no single option.
            if any(name == key or ("." in key and name.startswith(f"{key}.")) for key in given):
                continue
            for file, package in reversed(self._files):
                for entry in file.entries:
                    if _full(package, entry) == name and not isinstance(entry.value, dict):
                        return f"{file.path}:{entry.line}"
        return None

    def _used(self, config_name: str, overrides: Sequence[str]) -> list[ResultDefault]:
        """Returns the files that a command uses, in the order in which they are merged."""
        assert self._path is not None
        loader = GlobalHydra.instance().config_loader()
        try:
            used = loader.compute_defaults_list(config_name, [*self.search, *overrides], RunMode.RUN)
        except RecursionError as error:
            raise UserError(_cycle(self._path)) from error
        except MissingConfigException as error:
            raise _missing_file(self._path, error) from error
        except UserError:
            raise
        except (HydraException, OmegaConfBaseException, ValueError, AssertionError) as error:
            problem = _wrong_list(self._path, error)
            if problem is None:
                raise
            raise UserError(problem) from error
        return list(used.defaults)


def _full(package: str, entry: Entry) -> str:
    return f"{package}.{entry.key}" if package else entry.key


def _check_entry(schema: type[Any], file: YamlFile, package: str, config_path: str, entry: Entry) -> None:
    """Refuses an unknown key, a wrong truth value, and text that YAML converts."""
    key = _full(package, entry)
    if key.split(".")[0] == "hydra":
        problem = "hydra: options of Hydra are not supported. Set the run folder by run_dir."
        raise YamlProblem(entry.line, problem)
    if declared_key(schema, key) is None:
        section = Path(config_path).parent.name
        if entry.key.rpartition(".")[2].startswith("_"):
            hint = ". Objects can't be created from class names."
        elif package and declared_key(schema, entry.key):
            hint = f". The keys of this file already belong to {package}."
            if file.package is None:
                hint += " Remove the section, or add the line `# @package _global_` at the top."
        elif package == "" and declared_key(schema, f"{section}.{entry.key}"):
            hint = f". Did you mean {section}.{entry.key}?"
        else:
            hint = did_you_mean(key, sorted(schema_keys(schema)))
        raise YamlProblem(entry.line, f"{key}: there is no such option{hint}")
    if not isinstance(entry.value, dict):
        try:
            check_truth(schema, key, entry.value)
        except UserError as error:
            raise YamlProblem(entry.line, str(error)) from error
    is_text = text_option(schema, key) is not None
    for written, read in zip(entry.written, entry.read, strict=True):
        if isinstance(read, str) or read is None:
            continue
        shown = str(read).lower() if isinstance(read, bool) else shortened(read)
        reads = f"{key}: YAML reads {written} as {shown}"
        if is_text and str(read) != written:
            raise YamlProblem(entry.line, f"{reads}. Put it in quotes.")
        if not is_text and _ODD_NUMBER.fullmatch(written):
            raise YamlProblem(entry.line, f"{reads}. Write a decimal number.")


def _check_types(schema: type[Any], file: YamlFile, package: str) -> None:
    nested: Any = file.content
    for name in reversed(package.split(".") if package else []):
        nested = {name: nested}
    try:
        OmegaConf.merge(OmegaConf.structured(schema), nested)
    except (OmegaConfBaseException, ValueError, OverflowError, TypeError, AttributeError) as error:
        name = str(getattr(error, "full_key", None) or package)
        entries = {_full(package, entry): entry for entry in file.entries}
        while name and name not in entries:
            name = name.rpartition(".")[0]
        entry = entries.get(name) or file.entries[0]
        problem = wrong_value(error)
        if "not Optional" in first_line(error):
            problem = "has no value. Give one, indent its options under it, or remove the line."
        raise YamlProblem(entry.line, f"{_full(package, entry)}: {problem}") from error


@dataclass(frozen=True)
class _Named:
    """An entry of a list, and the file that contains it."""

    path: Path
    config_path: str
    """The file in Hydra's form, such as `experiment/mine`."""
    default: Default

    @property
    def children(self) -> list[str]:
        """The files that the entry names, in Hydra's form."""
        if self.default.names == ("_self_",):
            return []
        group = self.default.group.partition("@")[0]
        parent = self.config_path.rpartition("/")[0]
        names = [name.partition("@")[0] for name in self.default.names]
        files = ["/".join(filter(None, (group, name))) for name in names]
        return [(file if file.startswith("/") else f"{parent}/{file}").strip("/") for file in files]

    def message(self, problem: str) -> str:
        return f"{self.path}:{self.default.line}: defaults: {problem}"


def _missing_file(folder: Path, error: MissingConfigException) -> Exception:
    """Returns the exception for a missing file: file and line, or `error` if the command line names it."""
    wanted = (error.missing_cfg_file or "").removesuffix(".yaml")
    for entry in _entries(folder):
        if wanted in entry.children:
            group = entry.default.group
            hint = f" For the group itself, write /{group}." if group and group[0] != "/" else ""
            return UserError(entry.message(f"there is no {wanted}.yaml, here or in nmt.{hint}"))
    other = folder / f"{wanted}.yml"
    if other.exists():
        return UserError(f"{other}: is not read. Rename it to {other.stem}.yaml.")
    loose = folder / f"{Path(wanted).name}.yaml"
    if loose.exists() and "/" in wanted and ".." not in wanted:
        return UserError(f"{loose}: is not read there. Move it to {folder / wanted}.yaml.")
    return error


def _wrong_list(folder: Path, error: Exception) -> str | None:
    """Returns Hydra's error about a list with file and line; None if no file of the folder matches it."""
    words = first_line(error)
    named = re.match(r"In '([^']+)': ", words)
    twice = re.match(r"Multiple values for ([\w/]+)\.", words)
    for entry in _entries(folder):
        group = entry.default.group.strip("/")
        if twice and group == twice[1] and not entry.default.override:
            return entry.message(f"{group} is already chosen. Write `- override {entry.default.group}: ...`.")
        if any(name in words for name in entry.default.names if "${" in name):
            return entry.message(words)
        if named and named[1] == entry.config_path and (not group or group in words):
            return entry.message(words[named.end() :])
    return None


def _cycle(folder: Path) -> str:
    """Returns a message that names the file that includes itself."""
    entries = list(_entries(folder))
    for entry in entries:
        reached: set[str] = set()
        new = set(entry.children)
        while new:
            reached |= new
            new = {
                child for other in entries if other.config_path in new for child in other.children
            } - reached
        if entry.config_path in reached:
            return entry.message(f"{entry.config_path} includes itself.")
    return f"{folder}: its files include each other in a cycle."


def _entries(folder: Path) -> Iterator[_Named]:
    for path in sorted(folder.rglob("*.yaml")):
        with contextlib.suppress(UserError):
            for default in read_yaml(path).defaults:
                yield _Named(path, path.relative_to(folder).with_suffix("").as_posix(), default)
