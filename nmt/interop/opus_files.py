"""The files of an OPUS-MT model in a folder or a zip, and the arrays of its npz, checked for their sizes.

Anybody can have written them. Files are read by name into memory: nothing of a zip is extracted, and nothing
of an npz is unpickled.
"""

from __future__ import annotations

import io
import math
import re
import zipfile
import zlib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Any

import numpy as np

from nmt.config.checks import shortened
from nmt.errors import UserError
from nmt.runtime.files import decoded, read_bytes, require_regular, stat_or_none
from nmt.runtime.os_errors import read_errors

DECODER = "decoder.yml"
OPTIONS = "special:model.yml"
"""The name of the options among the arrays of a model."""
_ZIP, _NPZ = 10, 4  # limits, times the size of the file: weights hardly shrink
_SLACK = 1 << 26  # bytes that are allowed in any case
_MEMBERS = 10_000
_DAMAGED = (zipfile.BadZipFile, zlib.error, EOFError, ValueError, RuntimeError)


def is_opus(path: Path) -> bool:
    """Whether a path is a zip, or a folder with the files of Marian itself."""
    return path.is_file() or (path / DECODER).is_file()


class OpusFiles:
    """The files in the folder of `decoder.yml`.

    Raises:
        UserError: the zip is damaged, its members are too large or have paths, or it has no `decoder.yml`.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._zip: zipfile.ZipFile | None = None
        self._members: dict[str, zipfile.ZipInfo] = {}
        with read_errors(path):
            if not path.is_dir():
                self._zip = _checked_zip(path, require_regular(path).st_size * _ZIP, str(path))
                self._members = _beside_decoder(self._zip)
        self._require(DECODER)

    def __enter__(self) -> OpusFiles:
        return self

    def __exit__(self, *_: object) -> None:
        if self._zip is not None:
            self._zip.close()

    def place(self, name: str) -> str:
        """Returns the name of a file for messages."""
        return str(self.path / name)

    def read(self, name: str, most: int | None = None) -> bytes:
        """Returns the content of a file.

        Raises:
            UserError: it is missing, damaged, or has more than `most` bytes.
        """
        self._require(name)
        if self._zip is None:
            path = self.path / name
            with read_errors(path):
                return read_bytes(path, require_regular(path).st_size if most is None else most)
        member = self._members[name]
        if most is not None and member.file_size > most:
            raise UserError(f"{self.place(name)}: is damaged: it has more than {most:,} bytes")
        with read_errors(self.path), _damaged(self.place(name)):
            with self._zip.open(member) as file:
                return file.read(member.file_size)  # without a size, a false one could fill the memory

    def text(self, name: str, most: int) -> str:
        """Returns the text of a file in UTF-8; raises `UserError` as `read`, or if it is not UTF-8."""
        return decoded(self.read(name, most), self.path / name)

    def arrays(self, name: str) -> dict[str, np.ndarray[Any, Any]]:
        """Returns the arrays of an npz, as they are.

        Raises:
            UserError: it is missing or damaged, or has objects of Python.
        """
        content = self.read(name)
        place, arrays = self.place(name), {}
        with _checked_zip(io.BytesIO(content), len(content) * _NPZ, place) as npz, _damaged(place):
            for member in npz.infolist():
                with npz.open(member) as file:
                    arrays[member.filename.removesuffix(".npy")] = _array(file, member)
        return arrays

    def _require(self, name: str) -> None:
        with read_errors(self.path):
            if self._zip is not None:
                is_there = name in self._members
            else:
                is_there = stat_or_none(self.path / name) is not None
            if not is_there:
                raise UserError(
                    f"{self.path}: lacks {name}, so it is not an OPUS-MT model with SentencePiece. "
                    "Give its zip, or the folder that it was unpacked to."
                )


def _beside_decoder(archive: zipfile.ZipFile) -> dict[str, zipfile.ZipInfo]:
    """Returns the members by name: those of the folder that has `decoder.yml`."""
    names = archive.namelist()
    base = min(
        (name[: -len(DECODER)] for name in names if re.fullmatch(f"([^/]+/)?{DECODER}", name)), default=""
    )
    return {name.removeprefix(base): archive.getinfo(name) for name in names if name.startswith(base)}


def _checked_zip(file: Path | IO[bytes], most: int, place: str) -> zipfile.ZipFile:
    """Opens a zip, whose members have plain paths and not many more than `most` bytes together.

    Raises:
        UserError: it is not such a zip.
    """
    with _damaged(place):
        archive = zipfile.ZipFile(file)
        try:
            _check_members(archive.infolist(), most + _SLACK)
        except ValueError:
            archive.close()
            raise
    return archive


def _check_members(members: Sequence[zipfile.ZipInfo], most: int) -> None:
    if len(members) > _MEMBERS:
        raise ValueError(f"it has more than {_MEMBERS:,} files")
    if len({member.filename for member in members}) < len(members):
        raise ValueError("two of its files have one name")
    for member in members:
        parts, shown = re.split(r"[/\\]", member.filename), shortened(repr(member.filename))
        if ".." in parts or parts[0] == "" or parts[0][1:2] == ":":
            raise ValueError(f"{shown} is a path out of it")
        if member.flag_bits & 1:
            raise ValueError(f"{shown} is encrypted")
    if (whole := sum(member.file_size for member in members)) > most:
        raise ValueError(f"its files would have {whole:,} bytes")


def _array(file: IO[bytes], member: zipfile.ZipInfo) -> np.ndarray[Any, Any]:
    """Reads an array, whose size is that of its member.

    Raises:
        ValueError: the member is not a plain array of this size.
    """
    name = shortened(repr(member.filename))
    version = np.lib.format.read_magic(file)
    read_header = {(1, 0): np.lib.format.read_array_header_1_0, (2, 0): np.lib.format.read_array_header_2_0}
    if version not in read_header:
        raise ValueError(f"{name} has an unknown format")
    shape, fortran, dtype = read_header[version](file)
    if dtype.hasobject:
        raise ValueError(f"{name} has objects of Python, which are not read")
    content = file.read(member.file_size)
    if len(content) != math.prod(shape) * dtype.itemsize or min(shape, default=0) < 0:
        raise ValueError(f"{name} does not have the size that it states")
    return np.frombuffer(content, dtype).reshape(shape, order="F" if fortran else "C")


@contextmanager
def _damaged(place: str) -> Iterator[None]:
    """Raises `UserError` for the errors of damaged zips and arrays."""
    try:
        yield
    except UserError:
        raise
    except _DAMAGED as error:
        reason = " ".join(str(error).split()) or type(error).__name__
        raise UserError(f"{place}: is damaged: {shortened(reason)}. Copy the file again.") from None
