"""The input of `nmt-translate`: a file or standard input, as rows or as a whole."""

from __future__ import annotations

import itertools
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from nmt.config import TranslateConfig
from nmt.data.corpora.opening import head_of
from nmt.data.corpora.tables import FIRST_LINES
from nmt.data.corpora.text import DOCUMENTS, NOT_TEXT, read_lines
from nmt.documents.files import LARGEST_FILE, head_text, read_whole
from nmt.documents.rows import Column, Format
from nmt.errors import UserError
from nmt.runtime.files import expanded
from nmt.runtime.os_errors import read_errors


def open_rows(config: TranslateConfig, form: Format) -> tuple[Iterable[str], int | None]:
    """Returns the lines and their number; the number is None if the input is not a regular file.

    A file is read twice, so that an error in its last line is found before hours of translating.
    """

    def count(lines: Iterable[str]) -> int:
        number = 0
        for number, line in enumerate(form.rows(lines), 1):
            if isinstance(form, Column):  # the other formats accept every line
                form.read(line, number)
        return number

    if config.input is None:
        descriptor, total = _check_standard_input(), None
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            start = os.lseek(descriptor, 0, os.SEEK_CUR)
            total = count(standard_input(descriptor))
            os.lseek(descriptor, start, os.SEEK_SET)
        return form.rows(standard_input(descriptor)), total
    path = _input_path(config.input)
    with read_errors(path):
        if not path.is_file():
            return form.rows(read_lines(path)), None
        form.look_at([*itertools.islice(read_lines(path), FIRST_LINES)])
        return form.rows(read_lines(path)), count(read_lines(path))


def _check_standard_input() -> int:
    """Returns the file descriptor of standard input, which must be neither closed nor a folder."""
    if sys.stdin is None:
        raise UserError("standard input: is closed. Give input=FILE.")
    descriptor = sys.stdin.fileno()
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise UserError("standard input: is a folder. Give input=FILE, or a file after <.")
    return descriptor


def _input_path(name: str) -> Path:
    path = expanded(name)
    with read_errors(path):
        if not path.exists():
            raise UserError(f"input={name}: there is no such file (looked at {path.absolute()}).")
        if path.is_dir():
            raise UserError(f"input={name}: is a folder. Give a file.")
    return path


def head_of_input(config: TranslateConfig) -> str:
    """Returns the first characters of the input if that is a regular file."""
    if config.input is None:
        return ""
    path = expanded(config.input)
    with read_errors(path):
        return head_text(head_of(path)) if path.is_file() else ""


def whole_input(config: TranslateConfig) -> bytes:
    """Returns the whole input."""
    if config.input is not None:
        return read_whole(str(_input_path(config.input)))
    descriptor, content = _check_standard_input(), bytearray()
    while chunk := _read(descriptor):
        content += chunk
        if len(content) > LARGEST_FILE:
            raise UserError("standard input: has more than 1 GiB. Divide the file.")
    return bytes(content)


def standard_input(descriptor: int) -> Iterator[str]:
    r"""Yields lines as they arrive. Only `\n` and `\r\n` end a line.

    The file descriptor is read without a buffered file object, whose lock would block the exit of the program
    while a thread waits for input.

    Raises:
        UserError: a line is not UTF-8, or the input is not text.
    """
    number, is_document = 0, False
    for number, line in enumerate(_byte_lines(descriptor), start=1):
        if number == 1:
            line, is_document = line.removeprefix(b"\xef\xbb\xbf"), line.startswith(DOCUMENTS)
        try:
            yield line.removesuffix(b"\r").decode()
        except UnicodeDecodeError as error:
            if is_document:
                raise UserError(f"standard input: {NOT_TEXT}") from None
            raise UserError(
                f"standard input, line {number}: not valid UTF-8 (byte 0x{line[error.start]:02x}). "
                "Convert it first, for example with iconv."
            ) from None


def _read(descriptor: int) -> bytes:
    with read_errors(Path("standard input")):
        return os.read(descriptor, 1 << 16)


def _byte_lines(descriptor: int) -> Iterator[bytes]:
    begun: list[bytes] = []  # parts of a line whose end has not been read
    while chunk := _read(descriptor):
        first, *others = chunk.split(b"\n")
        begun.append(first)
        for other in others:
            yield b"".join(begun)
            begun = [other]
    if last := b"".join(begun):
        yield last
