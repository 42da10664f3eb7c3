"""Text files: one sentence a line, plain or compressed, read strictly; and what identifies them."""

from __future__ import annotations

import contextlib
import glob
import gzip
import hashlib
import io
import json
import lzma
import os
import stat
import time
import zlib
from collections.abc import Iterator, Sequence
from itertools import chain
from pathlib import Path
from typing import Any

import nmt
from nmt.errors import UserError
from nmt.runtime import (
    cache_folder,
    expanded,
    make_folder,
    progress,
    read_errors,
    read_text,
    reason_of,
    replaced,
    stat_or_none,
)

BUNDLED = "bundled:"
"""Paths that begin like this lie in the bundled corpus, such as `bundled:quickstart/train.en.gz`."""

_MAGIC = {
    ".gz": (b"\x1f\x8b",),
    ".xz": (b"\xfd7zXZ\x00",),
    # The others begin a frame to be skipped, as pzstd writes before each that holds text (RFC 8878, 3.1.2).
    ".zst": (b"\x28\xb5\x2f\xfd", *(bytes([number]) + b"\x2a\x4d\x18" for number in range(0x50, 0x60))),
}
_BOM = b"\xef\xbb\xbf"
_CHUNK = 1 << 20
_LARGE = 1 << 20  # bytes: of less, reading what is remembered takes as long
_MOMENT = 2_000_000_000  # nanoseconds, longer than the tick of any disk's clock


def read_lines(path: Path) -> Iterator[str]:
    r"""Yields the lines of a UTF-8 file, without their ends.

    A line ends at `\n` (or `\r\n`) and nowhere else; a last line needs no end. The compression (gzip, xz,
    Zstandard) is seen from the content. A byte order mark at the start is dropped.

    Args:
        path: the file.

    Raises:
        UserError: the file cannot be read, is damaged, or is not UTF-8 (named with its line).
    """
    return chain.from_iterable(read_blocks(path))


def read_blocks(path: Path) -> Iterator[list[str]]:
    """Yields the lines that `read_lines` yields, as many at a time as were read at once; at least one."""
    number = 0
    try:
        with open(path, "rb") as raw, _uncompressed(raw, path) as stream:
            while content := stream.read1(_CHUNK):
                if not content.endswith(b"\n"):
                    content += stream.readline()
                if not number:
                    content = content.removeprefix(_BOM)
                if b"\r\n" in content:
                    content = content.replace(b"\r\n", b"\n")
                lines = content.removesuffix(b"\n").decode("utf-8").split("\n")
                yield lines
                number += len(lines)
    except UnicodeDecodeError as error:
        raise UserError(_not_utf8(path, number, error)) from None
    except (EOFError, gzip.BadGzipFile, zlib.error, lzma.LZMAError) as error:
        raise UserError(
            f"{path}: damaged after line {number} ({error}): fetch or compress it again"
        ) from None
    except OSError as error:
        if error.errno is None:  # pyarrow's Zstandard reports damage so
            raise UserError(
                f"{path}: damaged after line {number} ({error}): fetch or compress it again"
            ) from None
        with read_errors(path):
            raise


def _uncompressed(raw: io.BufferedReader, path: Path) -> io.BufferedIOBase:
    start = raw.peek(8)
    kind = next((suffix for suffix, magic in _MAGIC.items() if start.startswith(magic)), None)
    if kind == ".gz":
        return gzip.GzipFile(fileobj=raw)
    if kind == ".xz":
        return lzma.LZMAFile(raw)
    if kind == ".zst":
        import pyarrow as pa

        stream = pa.CompressedInputStream(pa.PythonFile(raw, mode="r"), "zstd")
        return io.BufferedReader(stream, _CHUNK)
    if path.suffix in _MAGIC:
        raise UserError(f"{path}: named {path.suffix}, but its content is not compressed that way")
    return raw


def _not_utf8(path: Path, lines_before: int, error: UnicodeDecodeError) -> str:
    number = lines_before + 1 + error.object.count(b"\n", 0, error.start)
    looks = ", it looks like UTF-16" if number == 1 and error.object[:2] in (b"\xff\xfe", b"\xfe\xff") else ""
    return (
        f"{path}:{number}: not valid UTF-8 (byte 0x{error.object[error.start]:02x}{looks}): "
        "convert the file to UTF-8, for example with iconv"
    )


def one_line(text: str) -> str:
    """A sentence from a table or data set as one line: breaks at its ends go, those inside become spaces."""
    if "\n" in text:
        return " ".join(part.removesuffix("\r") for part in text.strip("\r\n").split("\n"))
    return text


def expand(value: Any, key: str, *, several: bool = True) -> list[Path]:
    """Turns the value of an option into files.

    Args:
        value: a path, a glob, or a list of them. `bundled:` stands for the bundled data, `~` for the home
            folder. A glob's files come in order of their names.
        key: full name of the option, for the message.
        several: whether the option takes a list.

    Returns:
        The files, at least one; all exist.

    Raises:
        UserError: nothing is given, a file is missing or is no file, or a glob matches nothing.
    """
    values = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    values = [item for item in values if item is not None and str(item) not in ("", "???")]
    if not values:
        raise UserError(f"{key} is not given: name a file, a list such as [a,b] or a quoted glob")
    several = several and isinstance(value, str)
    return [path for item in values for path in _expand_one(str(item), key, several)]


def _expand_one(value: str, key: str, several: bool) -> list[Path]:
    if value.startswith(BUNDLED):
        path = bundled_folder() / value.removeprefix(BUNDLED)
    else:
        path = expanded(value)
    try:
        there = stat_or_none(path)
    except OSError as error:
        raise UserError(f"{key}={value}: {reason_of(error, 'read')}") from error
    if there is not None and stat.S_ISREG(there.st_mode):
        return [path]
    if there is not None and stat.S_ISDIR(there.st_mode):
        raise UserError(f"{key}={value}: is a folder; name the files in it, for example with a quoted glob")
    if there is not None:
        raise UserError(f"{key}={value}: is not a regular file; it is read several times, so save it as one")
    hint = f'. Write several files as a list: "{key}=[{value}]".' if several and "," in value else ""
    if glob.has_magic(value):
        names = glob.glob(str(path), recursive=True)
        matching = sorted(Path(name) for name in names if os.path.isfile(name))
        if matching:
            return matching
        raise UserError(f"{key}={value}: no file matches (looked for {path.absolute()}){hint}")
    raise UserError(f"{key}={value}: there is no such file (looked at {path.absolute()}){hint}")


def bundled_folder() -> Path:
    """The folder that holds `quickstart/`: the package's own in a wheel, `data/` in a checkout.

    Raises:
        UserError: the installation lacks the bundled data.
    """
    package = Path(nmt.__file__).resolve().parent
    for folder in (package, package.parent / "data"):
        if (folder / "quickstart").is_dir():
            return folder
    raise UserError(f"the bundled corpus is missing beside {package}: install the program again")


def file_facts(path: Path) -> dict[str, Any]:
    """What identifies a file on any machine: its name, size in bytes and SHA-256; not where it lies.

    Of a large one the sum is kept in `cache_folder()`, and serves as long as its size, place on the disk and
    times of change are the same.
    """
    with read_errors(path):
        there = path.stat()
        digest = _summed_up(path, there.st_size) if there.st_size < _LARGE else _remembered(path, there)
    return {"name": path.name, "bytes": there.st_size, "sha256": digest}


def _remembered(path: Path, there: os.stat_result) -> str:
    # Not the device: on a network file system every machine has another number for it.
    seen = [there.st_size, there.st_ino, there.st_mtime_ns, there.st_ctime_ns]
    name = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:16]
    kept = cache_folder() / "checksums" / f"{name}.json"
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
        known = json.loads(read_text(kept, 1 << 10))
        if known["seen"] == seen:
            return str(known["sha256"])
    digest = _summed_up(path, there.st_size)
    # Of a file that was written a moment ago, what is written next may bear the same time.
    if time.time_ns() - there.st_ctime_ns > _MOMENT:
        with contextlib.suppress(UserError):
            make_folder(kept.parent)
            with replaced(kept) as temporary:
                temporary.write_text(json.dumps({"seen": seen, "sha256": digest}), encoding="utf-8")
    return digest


def _summed_up(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file, progress(total=size, unit="B", description=f"Checking {path.name}") as bar:
        while chunk := file.read(_CHUNK):
            digest.update(chunk)
            bar.update(len(chunk))
    return digest.hexdigest()
