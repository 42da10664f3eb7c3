"""Finds the errors in the `defaults` lists of a user's YAML files after Hydra has failed on them."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hydra.errors import MissingConfigException

from nmt.errors import UserError
from nmt.options.hydra_errors import first_line
from nmt.options.yaml_files import Default, read_yaml


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
        found = []
        for name in self.default.names:
            full = "/".join(part for part in (group, name.partition("@")[0]) if part)
            found.append((full if full.startswith("/") else f"{parent}/{full}").strip("/"))
        return found

    def message(self, problem: str) -> str:
        return f"{self.path}:{self.default.line}: defaults: {problem}"


def missing_file(folder: Path, error: MissingConfigException) -> Exception:
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


def wrong_list(folder: Path, error: Exception) -> str | None:
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


def cycle(folder: Path) -> str:
    """Returns a message that names the file that includes itself."""
    entries = list(_entries(folder))
    for entry in entries:
        seen: set[str] = set()
        left = entry.children
        while left:
            child = left.pop()
            if child == entry.config_path:
                return entry.message(f"{entry.config_path} includes itself.")
            if child not in seen:
                seen.add(child)
                for other in entries:
                    left += other.children if other.config_path == child else []
    return f"{folder}: its files include each other in a cycle."


def _entries(folder: Path) -> Iterator[_Named]:
    for path in sorted(folder.rglob("*.yaml")):
        with contextlib.suppress(UserError):
            for default in read_yaml(path).defaults:
                yield _Named(path, path.relative_to(folder).with_suffix("").as_posix(), default)
