"""SHA256SUMS: the checksums of the files in a folder, in the format of `sha256sum -c`."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from nmt.errors import UserError
from nmt.runtime.files import parse_json, read_bytes, require_regular
from nmt.runtime.os_errors import read_errors

SUMS = "SHA256SUMS"
"""The name of the file. Folders that earlier versions wrote do not have it."""

_LINE = re.compile(r"([0-9a-f]{64})  ([^/\n]+)\n")
_MOST = 1 << 20


def sums_text(sums: Mapping[str, str]) -> str:
    """Returns the content of the file: a line for each name → SHA-256, sorted by name."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))


def file_sum(path: Path, *, flush: bool = False) -> str:
    """Returns the SHA-256 of a regular file in hexadecimal; with `flush` it flushes the file to disk first.

    Raises:
        OSError: the file can't be read.
        UserError: the path is not a regular file.
    """
    require_regular(path)
    with open(path, "rb") as file:
        if flush:
            os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_sums(folder: Path, names: Iterable[str], *, flush: bool = False) -> dict[str, str]:
    """Returns name → `file_sum` for several files of a folder, computed in parallel threads."""
    names = list(names)
    with ThreadPoolExecutor(max_workers=max(1, min(len(names), os.cpu_count() or 1))) as pool:
        return dict(
            zip(names, pool.map(lambda name: file_sum(folder / name, flush=flush), names), strict=True)
        )


def read_sums(folder: Path) -> dict[str, str] | None:
    """Returns name → checksum from the SHA256SUMS of a folder; None if the folder has no such file.

    Raises:
        OSError: the file can't be read.
        ValueError: its format differs from that of `sums_text`.
    """
    path = folder / SUMS
    if not os.path.lexists(path):
        return None
    text = read_bytes(path, _MOST).decode("latin-1")
    sums = {match[2]: match[1] for match in _LINE.finditer(text)}
    if sums_text(sums) != text:
        raise ValueError(f"{path}: is damaged: it is not a list of checksums and file names")
    return sums


def first_difference(recorded: Mapping[str, str], computed: Mapping[str, str]) -> str | None:
    """Returns the first file, by name, whose checksum is missing or differs; None if all agree."""
    return next((name for name in sorted(computed) if recorded.get(name) != computed[name]), None)


def damaged_file(folder: Path) -> str | None:
    """Returns the first file of a folder that differs from its checksum in SHA256SUMS; None if none does.

    A folder without SHA256SUMS is damaged, too.
    """
    sums: dict[str, str] | None = None
    try:
        sums = read_sums(folder)
        if not sums:
            return SUMS
        return first_difference(sums, file_sums(folder, sums))
    except (OSError, ValueError):  # UserError, too
        return next((name for name in sorted(sums or {}) if not (folder / name).is_file()), SUMS)


def write_sums(folder: Path, known: Mapping[str, str] | None = None) -> None:
    """Writes SHA256SUMS for all files of a folder, and flushes them; `known` are sums of flushed files.

    Raises:
        OSError: writing fails.
    """
    sums = dict(known or {})
    sums |= file_sums(folder, {path.name for path in folder.iterdir()} - sums.keys(), flush=True)
    (folder / SUMS).write_text(sums_text(sums), encoding="utf-8")
    file_sum(folder / SUMS, flush=True)


def read_checked(path: Path, most: int) -> bytes:
    """Returns the content of a regular file after comparing it with the SHA256SUMS of its folder, if any.

    Raises:
        UserError: the file can't be read, has more than `most` bytes, or has another checksum.
    """
    content = read_bytes(path, most)
    require_sum(path, hashlib.sha256(content).hexdigest())
    return content


def read_sections(path: Path, most: int = 1 << 24) -> dict[str, Any]:
    """Returns the content of a JSON file that has an object at its top level, after `read_checked`.

    Raises:
        UserError: as for `read_checked`, or the content is not such an object.
    """
    content = read_checked(path, most)
    try:
        sections = parse_json(content)
    except ValueError as error:
        raise UserError(f"{path}: is damaged: {error}") from error
    if not isinstance(sections, dict):
        raise UserError(f"{path}: is damaged: it has no sections")
    return sections


def require_sum(path: Path, computed: str) -> None:
    """Compares `computed` with the checksum of `path` in the SHA256SUMS of its folder, if there is one.

    Raises:
        UserError: the checksums differ, or SHA256SUMS is damaged.
    """
    try:
        with read_errors(path.parent / SUMS):
            recorded = read_sums(path.parent)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{error}. Copy the folder again, or remove this file.") from error
    if recorded is not None and recorded.get(path.name) != computed:
        raise UserError(
            f"{path}: is damaged: its checksum is not the one in {SUMS}. Copy the file again. If you have "
            f"changed it yourself, remove {SUMS}."
        )
