"""Opens the files that hold a corpus: plain, compressed, or members of a zip archive."""

from __future__ import annotations

import codecs
import gzip
import io
import lzma
import zipfile
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import IO

from nmt.errors import UserError
from nmt.runtime.os_errors import read_errors
from nmt.runtime.streams import visible

CHUNK = 1 << 20
"""Bytes that are read at a time."""
_MAGIC = {
    ".gz": (b"\x1f\x8b",),
    ".xz": (b"\xfd7zXZ\x00",),
    # The others begin a skippable frame (RFC 8878, 3.1.2), which pzstd writes before each frame with text.
    ".zst": (b"\x28\xb5\x2f\xfd", *(bytes([number]) + b"\x2a\x4d\x18" for number in range(0x50, 0x60))),
}
COMPRESSED = tuple(_MAGIC)
"""Endings of the names of compressed files."""
_DAMAGED = (EOFError, gzip.BadGzipFile, zipfile.BadZipFile, zlib.error, lzma.LZMAError)


@dataclass(frozen=True)
class Member:
    """A file in a zip archive."""

    archive: Path
    member: str
    """Its name there."""
    opened: zipfile.ZipFile = field(repr=False, compare=False)
    """The open archive: its list of files is read once, not for each of them."""

    def __str__(self) -> str:
        return f"{self.archive}/{visible(self.member)}"

    @property
    def name(self) -> str:
        """Its name without folders."""
        return PurePosixPath(self.member).name


DataFile = Path | Member
"""A file that holds a corpus, or a part of one."""


def suffix_of(file: DataFile) -> str:
    """Returns the end of a file's name in lower case, such as `.tsv`, without that of its compression."""
    suffixes = [suffix.lower() for suffix in PurePosixPath(file.name).suffixes]
    packed = bool(suffixes) and suffixes[-1] in COMPRESSED
    return suffixes[-2] if packed and len(suffixes) > 1 else suffixes[-1] if suffixes else ""


class Place:
    """How far a file has been read; for messages."""

    lines = 0


@contextmanager
def opened(file: DataFile) -> Iterator[tuple[io.BufferedIOBase, Place]]:
    """Opens a file to read its bytes, without its compression, which is recognised from the content.

    The caller may count the lines that it has read.

    Raises:
        UserError: the file can't be read, or is damaged.
    """
    place = Place()
    try:
        with _raw(file) as raw, _uncompressed(raw, file) as stream:
            yield stream, place
    except _DAMAGED as error:
        raise _damaged(file, place, error) from None
    except OSError as error:
        if error.errno is None:  # pyarrow reports damaged Zstandard like this
            raise _damaged(file, place, error) from None
        with read_errors(file.archive if isinstance(file, Member) else file):
            raise


def head_of(file: DataFile, size: int = 1 << 16) -> bytes:
    """Returns the first bytes of a file, without its compression.

    Raises:
        UserError: as `opened`.
    """
    with opened(file) as (stream, _):
        head = b""
        while len(head) < size and (more := stream.read1(size - len(head))):
            head += more
        return head


@contextmanager
def members_of(archive: Path) -> Iterator[list[Member]]:
    """Opens a zip archive; its files are in order of their names, without hidden files.

    Of files of the same name, the last one counts, as when the archive is unpacked.

    Raises:
        UserError: it is not a zip archive, or a file in it is encrypted.
    """
    with read_errors(archive):
        try:
            file = zipfile.ZipFile(archive)
        except (zipfile.BadZipFile, ValueError, NotImplementedError) as error:
            raise UserError(f"{archive}: not a zip archive ({error}). Download it again.") from None
    with file:
        members = {}
        for info in file.infolist():
            if info.is_dir() or any(
                part.startswith((".", "__MACOSX")) for part in PurePosixPath(info.filename).parts
            ):
                continue
            members[info.filename] = Member(archive, info.filename, file)
            if info.flag_bits & 1:
                raise UserError(f"{members[info.filename]}: is encrypted. Unpack the archive.")
        yield [members[name] for name in sorted(members)]


def known_encoding(name: str, file: DataFile) -> str:
    """Returns the encoding that a file declares in letters of ASCII, by the name that Python has for it.

    UTF-16 and the like can't be true then: an editor has converted the file. It is UTF-8, as is all ASCII.

    Raises:
        UserError: it is not known.
    """
    try:
        is_true = b"a\xe9".decode(name, "replace").startswith("a")
        known = codecs.lookup(name).name
    except (LookupError, UnicodeError):
        raise UserError(f"{file}: its encoding, {name}, is not known. Convert the file to UTF-8.") from None
    return known if is_true and known != "ascii" else "utf-8"


@contextmanager
def _raw(file: DataFile) -> Iterator[io.BufferedReader | IO[bytes]]:
    if isinstance(file, Path):
        with open(file, "rb") as raw:
            yield raw
        return
    try:
        stream = file.opened.open(file.member)
    except (NotImplementedError, RuntimeError) as error:
        raise UserError(f"{file}: can't be unpacked ({error}). Unpack the archive.") from None
    with stream:
        yield stream


def _uncompressed(raw: io.BufferedReader | IO[bytes], file: DataFile) -> io.BufferedIOBase:
    assert isinstance(raw, io.BufferedReader | zipfile.ZipExtFile)
    start = raw.peek(8)
    kind = next((suffix for suffix, magic in _MAGIC.items() if start.startswith(magic)), None)
    if kind == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if kind == ".xz":
        return lzma.LZMAFile(raw)
    if kind == ".zst":
        import pyarrow as pa

        stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
        return io.BufferedReader(stream, CHUNK)
    if (ending := PurePosixPath(file.name).suffix) in _MAGIC:
        raise UserError(f"{file}: the name ends in {ending}, but the content is not in this format")
    return raw


def _damaged(file: DataFile, place: Place, error: Exception) -> UserError:
    return UserError(f"{file}: damaged after line {place.lines} ({error}). Download or compress it again.")
