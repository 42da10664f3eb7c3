"""Reads files that may come from strangers: regular files of a bounded size, and strict JSON."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from nmt.errors import UserError
from nmt.runtime.os_errors import read_errors


def read_bytes(path: Path, most: int) -> bytes:
    """The content of a regular file; pipes and devices are not opened.

    Args:
        path: the file.
        most: bytes that it has at most.

    Raises:
        UserError: it can't be read, is not a regular file, or is larger.
    """
    with read_errors(path):
        require_regular(path)
        with open(path, "rb") as file:
            content = file.read(most + 1)
    if len(content) > most:
        raise UserError(f"{path}: is damaged: it has more than {most:,} bytes")
    return content


def read_text(path: Path, most: int) -> str:
    """The text of a regular file in UTF-8.

    Raises:
        UserError: as `read_bytes`, and where it is not UTF-8.
    """
    return decoded(read_bytes(path, most), path)


def decoded(content: bytes, path: Path) -> str:
    """The text that `content`, read from `path`, is in UTF-8.

    Raises:
        UserError: it is not UTF-8.
    """
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is damaged: it is not UTF-8 text") from error


def require_regular(path: Path) -> os.stat_result:
    """The status of a file that can be read without waiting and without effect.

    Raises:
        OSError: there is no such file.
        UserError: it is a folder, a pipe or a device.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path}: is not a regular file")
    return status


def parse_json(text: str | bytes) -> Any:
    """The values that JSON holds.

    Raises:
        ValueError: it is not JSON, a key is there twice, it is nested too deep, or a number is too long.
    """
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("a key is there twice")
    return values
