"""Readers for untrusted files: regular files of limited size, and strict JSON."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path
from typing import Any

from nmt.errors import UserError
from nmt.runtime.os_errors import read_errors


def read_bytes(path: Path, most: int) -> bytes:
    """Returns the content of a regular file; pipes and devices are not opened.

    Args:
        path: the file.
        most: maximum size in bytes.

    Raises:
        UserError: the file can't be read, is not a regular file, or is larger than `most`.
    """
    with read_errors(path):
        require_regular(path)
        with open(path, "rb") as file:
            content = file.read(most + 1)
    if len(content) > most:
        raise UserError(f"{path}: is damaged: it has more than {most:,} bytes")
    return content


def read_text(path: Path, most: int) -> str:
    """Returns the text of a regular file in UTF-8.

    Raises:
        UserError: as for `read_bytes`, or the content is not UTF-8.
    """
    return decoded(read_bytes(path, most), path)


def decoded(content: bytes, path: Path) -> str:
    """Decodes `content`, which was read from `path`, as UTF-8.

    Raises:
        UserError: the content is not UTF-8.
    """
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is damaged: it is not UTF-8 text") from error


def require_regular(path: Path) -> os.stat_result:
    """Returns the status of a regular file, which can be read without waiting and without side effects.

    Raises:
        OSError: the file does not exist.
        UserError: the path is a folder, a pipe or a device.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path}: is not a regular file")
    return status


def parse_json(text: str | bytes) -> Any:
    """Parses JSON.

    Raises:
        ValueError: the text is not JSON, has a duplicate key, is nested too deeply, or has too long a number.
    """
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("it has a duplicate key")
    return values
