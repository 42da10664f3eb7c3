"""Data that a model names are read only if they match the record of the model.

A model may come from a stranger, and its configuration could name any file of this machine. The author of the
model already knows the content of a file whose size and SHA-256 are in the record.
"""

from __future__ import annotations

import glob
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from nmt.config import DataConfig, PairsConfig
from nmt.data.corpora.hub import local_folder
from nmt.data.corpora.text import BUNDLED, bundled_folder, expand, file_facts
from nmt.errors import UserError
from nmt.runtime.files import require_regular
from nmt.runtime.os_errors import read_errors

_SYSTEM_FOLDERS = tuple(map(Path, ("/proc", "/sys")))  # reading them can block or have side effects
_HUB_NAME = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*", re.ASCII)
_WORD = re.compile(r"[A-Za-z0-9][\w.-]*", re.ASCII)
_KINDS = {"source": "source", "target": "target", "path": "files", "groups": "groups"}


class NotRecorded(UserError):
    """The data are not in the record of the model that names them."""


def require_recorded(split: PairsConfig, data: DataConfig, key: str, record: Mapping[str, Any]) -> None:
    """Checks that a split named by the configuration of a model contains only data that its author knows.

    Files must have the size and SHA-256 in the record, the facts of the split in the `results.json` of the
    model, or belong to the bundled corpus. Data sets of the hub and test sets of sacreBLEU are public. Local
    folders are not.

    Raises:
        NotRecorded: some data differ from the record, or are not in it.
        UserError: a file does not exist.
    """
    for option, kind in _KINDS.items():
        _require_files(getattr(split, option, None), f"{key}.{option}", record.get(kind))
    if split.split is not None and data.hub.path is not None:
        _require_public(data)


def _require_files(value: Any, key: str, recorded: Any) -> None:
    values = value if isinstance(value, list | tuple) else [value]
    names = [str(item) for item in values if item not in (None, "", "???")]
    files = [(name, path) for name in names for path in _files(name, key)]
    known = recorded if isinstance(recorded, list) and len(recorded) == len(files) else [None] * len(files)
    for (name, path), facts in zip(files, known, strict=True):
        is_bundled = name.startswith(BUNDLED) and path.resolve().is_relative_to(bundled_folder().resolve())
        if not is_bundled and not _is_recorded(path, facts):
            raise NotRecorded(f"{key}={name}: not the file that the model's results.json has recorded")


def _files(name: str, key: str) -> list[Path]:
    """Returns the files of a name. Only its last part may be a pattern, so that only one folder is listed."""
    with read_errors(Path(name)):
        if glob.has_magic(str(Path(name).parent)) and not Path(name).exists():
            raise NotRecorded(f"{key}={name}: a pattern that matches folders")
        return expand(name, key, several=False)


def _is_recorded(path: Path, facts: Any) -> bool:
    """Whether a file is the recorded one. It is read only if its size is equal."""
    real = path.resolve()
    if not isinstance(facts, Mapping) or any(real.is_relative_to(folder) for folder in _SYSTEM_FOLDERS):
        return False
    with read_errors(path):
        if require_regular(path).st_size != facts.get("bytes"):
            return False
        return bool(file_facts(path)["sha256"] == facts.get("sha256"))


def _require_public(data: DataConfig) -> None:
    hub = data.hub
    if not _HUB_NAME.fullmatch(str(hub.path)) or local_folder(hub) is not None:
        raise NotRecorded(f"data.hub.path={hub.path}: a folder, or not a name on the hub")
    for key, value in (("name", hub.name), ("revision", hub.revision)):
        if value is not None and not _WORD.fullmatch(value):
            raise NotRecorded(f"data.hub.{key}={value}: not a name on the hub")
