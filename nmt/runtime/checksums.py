"""SHA256SUMS: the sums of the files in a folder, as `sha256sum -c` reads them."""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from nmt.errors import UserError
from nmt.runtime.os_errors import read_errors
from nmt.runtime.untrusted_files import read_bytes, require_regular

SUMS = "SHA256SUMS"
"""The name of the file. Folders made by earlier versions do not have it."""

_LINE = re.compile(r"([0-9a-f]{64})  ([^/\n]+)\n")
_MOST = 1 << 20


def sums_text(sums: Mapping[str, str]) -> str:
    """The content of the file: name → SHA-256, one a line, by name."""
    return "".join(f"{digest}  {name}\n" for name, digest in sorted(sums.items()))


def file_sum(path: Path, *, flush: bool = False) -> str:
    """SHA-256 of a regular file, in hexadecimal; with `flush` the file is flushed to disk first.

    Raises:
        OSError: it can't be read.
        UserError: it is not a regular file.
    """
    require_regular(path)
    with open(path, "rb") as file:
        if flush:
            os.fsync(file.fileno())
        return hashlib.file_digest(file, "sha256").hexdigest()


def file_sums(folder: Path, names: Iterable[str], *, flush: bool = False) -> dict[str, str]:
    """`file_sum` of several files of a folder, each by a thread of its own: name → sum.

    Raises:
        OSError, UserError: as `file_sum`.
    """
    names = list(names)
    with ThreadPoolExecutor(max_workers=max(1, min(len(names), os.cpu_count() or 1))) as pool:
        return dict(
            zip(names, pool.map(lambda name: file_sum(folder / name, flush=flush), names), strict=True)
        )


def read_sums(folder: Path) -> dict[str, str] | None:
    """The sums that a folder has on record: name → sum; None if it has no such file.

    Raises:
        OSError: the file can't be read.
        ValueError: it is not as `sums_text` writes it.
    """
    path = folder / SUMS
    if not os.path.lexists(path):
        return None
    text = read_bytes(path, _MOST).decode("latin-1")
    sums = {match[2]: match[1] for match in _LINE.finditer(text)}
    if sums_text(sums) != text:
        raise ValueError(f"{path}: is damaged: it is not a list of sums and names")
    return sums


def first_difference(sums: Mapping[str, str], found: Mapping[str, str]) -> str | None:
    """The first file, by name, whose sum is not the recorded one, or has no record; None if all agree."""
    return next((name for name in sorted(found) if sums.get(name) != found[name]), None)


def read_checked(path: Path, most: int) -> bytes:
    """The content of a regular file, if it has the sum that its folder has on record, or there is no record.

    Args:
        path: the file.
        most: bytes that it has at most.

    Raises:
        UserError: it can't be read, is larger, or its content is another.
    """
    content = read_bytes(path, most)
    require_sum(path, hashlib.sha256(content).hexdigest())
    return content


def require_sum(path: Path, found: str) -> None:
    """Makes sure that `found` is the sum of `path` that its folder has on record, if it has a record.

    Raises:
        UserError: it is another, or the record is damaged.
    """
    try:
        with read_errors(path.parent / SUMS):
            recorded = read_sums(path.parent)
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{error}; take another copy of the folder, or remove this file") from error
    if recorded is not None and recorded.get(path.name) != found:
        raise UserError(
            f"{path}: is not the file that {SUMS} beside it lists: it is damaged, so take another copy; if "
            f"you have changed it yourself, remove {SUMS}"
        )
