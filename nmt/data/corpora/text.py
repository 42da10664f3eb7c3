"""Text files of one sentence per line: a strict reader; identity and order of files."""

from __future__ import annotations

import codecs
import contextlib
import glob
import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterator, Sequence
from io import BufferedIOBase
from itertools import chain
from pathlib import Path
from typing import Any

import nmt
from nmt.data.corpora.columns import TextBlock
from nmt.data.corpora.malformed import BROKEN, NOT_UTF8, Malformed
from nmt.data.corpora.opening import CHUNK, DataFile, Place, opened
from nmt.errors import UserError
from nmt.runtime.files import cache_folder, expanded, make_folder, read_text, stat_or_none, write_text
from nmt.runtime.os_errors import read_errors, reason_of
from nmt.runtime.streams import progress

BUNDLED = "bundled:"
"""Prefix of paths in the bundled corpus, such as `bundled:quickstart/train.en.gz`."""

_BOM = codecs.BOM_UTF8
_BOMS_16 = codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE
DOCUMENTS = b"PK\x03\x04", b"\xd0\xcf\x11\xe0", b"%PDF-"
"""The first bytes of archives, such as .docx, of .doc and .xls, and of PDF."""
NOT_TEXT = "is an archive or a document, not text. Save its text as UTF-8."
_CR_ALONE = "its lines end with CR alone, as on old Macs. Convert it: tr '\\r' '\\n' <FILE >NEW"
_CARRIAGE_RETURNS = 9  # in the text before the first line feed; a line seldom has one
_LONGEST_LINE = 1 << 26  # bytes; a device such as /dev/zero has no line ends
_MIN_CACHED = 1 << 20  # bytes; for a smaller file, reading a cached checksum is not faster
_CLOCK_TICK = 2_000_000_000  # nanoseconds; longer than the clock tick of any disk


def read_lines(file: DataFile, malformed: Malformed | None = None) -> Iterator[str]:
    r"""Yields the lines of a file in UTF-8, or in UTF-16 with a byte order mark, without line ends.

    Only `\n` and `\r\n` end a line. The last line may have no end. The compression (gzip, xz, Zstandard) is
    detected from the content. A byte order mark at the beginning is removed. If `malformed` allows them,
    a line that is not UTF-8 is yielded as `BROKEN`.

    Raises:
        UserError: the file can't be read, is damaged, or is not in its encoding (the message gives the line);
            or its lines end with CR alone.
    """
    return chain.from_iterable(read_blocks(file, malformed))


def read_blocks(file: DataFile, malformed: Malformed | None = None) -> Iterator[list[str]]:
    """Yields the lines of `read_lines` in blocks of at least one line, as many as one read returns."""
    with opened(file) as (stream, place):
        while content := stream.read1(CHUNK):
            if not place.lines and content.startswith(_BOMS_16):
                yield from _utf16_blocks(content, stream, place, file)
                return
            if not place.lines and b"\n" not in content and content.count(b"\r") > _CARRIAGE_RETURNS:
                raise UserError(f"{file}: {_CR_ALONE}")
            if not content.endswith(b"\n"):
                content += (rest := stream.readline(_LONGEST_LINE))
                if len(rest) == _LONGEST_LINE:
                    line = place.lines + content.count(b"\n", 0, -1) + 1
                    raise UserError(f"{file}:{line}: has more than 64 MiB. Give a text file.")
            if not place.lines:
                content = content.removeprefix(_BOM)
            if b"\r\n" in content:
                content = content.replace(b"\r\n", b"\n")
            content = content.removesuffix(b"\n")
            try:
                lines = content.decode("utf-8").split("\n")
            except UnicodeDecodeError as error:
                if not place.lines and content.startswith(DOCUMENTS):
                    raise UserError(f"{file}: {NOT_TEXT}") from None
                if malformed is None or not malformed.allowed:
                    fix = "" if malformed is None else malformed.fix
                    raise UserError(f"{_not_utf8(file, place.lines, error)}{fix}") from None
                lines = list(map(_decoded, content.split(b"\n")))
            yield lines
            place.lines += len(lines)


def _utf16_blocks(
    content: bytes, stream: BufferedIOBase, place: Place, file: DataFile
) -> Iterator[list[str]]:
    """Yields the lines of a UTF-16 file in blocks; `content` is its beginning."""
    encoding, rest = f"utf-16-{'le' if content.startswith(codecs.BOM_UTF16_LE) else 'be'}", ""
    decoder, content = codecs.getincrementaldecoder(encoding)(), content[2:] or stream.read1(CHUNK)
    is_end = False
    while not is_end:
        is_end = not content
        try:
            text = rest + decoder.decode(content, final=is_end)
        except UnicodeDecodeError as error:
            line = place.lines + error.object[: error.start].decode(encoding).count("\n") + 1
            raise UserError(f"{file}:{line}: not valid UTF-16. Convert the file to UTF-8.") from None
        *lines, rest = text.split("\n")
        if is_end and rest:
            lines.append(rest)
        if len(rest) > _LONGEST_LINE:
            raise UserError(f"{file}:{place.lines + 1}: has more than 64 MiB. Give a text file.")
        if lines:
            yield [line.removesuffix("\r") for line in lines]
        place.lines += len(lines)
        content = b"" if is_end else stream.read1(CHUNK)


def _decoded(line: bytes) -> str:
    try:
        return line.decode("utf-8")
    except UnicodeDecodeError:
        return BROKEN


def _not_utf8(file: DataFile, lines_before: int, error: UnicodeDecodeError) -> str:
    number = lines_before + 1 + error.object.count(b"\n", 0, error.start)
    return (
        f"{file}:{number}: not valid UTF-8 (byte 0x{error.object[error.start]:02x}). "
        "Convert the file to UTF-8, for example with iconv."
    )


def read_pairs(
    files: Sequence[tuple[DataFile, DataFile]], key: str, malformed: Malformed
) -> Iterator[TextBlock]:
    """Yields the pairs of text files that correspond line by line, in blocks of the lines of both sides.

    A line that is not UTF-8 is dropped with the line of the other side.

    Raises:
        UserError: as `read_lines`, or the numbers of lines differ; the message begins with `key`.
    """
    for source, target in files:
        sides = read_blocks(source, malformed), read_blocks(target, malformed)
        counts = [0, 0]
        waiting: TextBlock = [], []  # lines of one side whose other side was not read yet
        while True:
            behind = 0 if len(waiting[0]) <= len(waiting[1]) else 1
            block = next(sides[behind], None)
            if block is None:
                break
            counts[behind] += len(block)
            waiting[behind].extend(block)
            ready = min(map(len, waiting))
            lines = waiting[0][:ready], waiting[1][:ready]
            waiting = waiting[0][ready:], waiting[1][ready:]
            if malformed.allowed and (BROKEN in lines[0] or BROKEN in lines[1]):
                first = counts[behind] - len(waiting[behind]) - ready + 1
                lines = _without_broken(lines, (source, target), first, malformed)
            yield lines
        ahead = 1 - behind
        counts[ahead] += sum(map(len, sides[ahead]))
        if counts[0] != counts[1]:
            raise UserError(
                f"{key}: {source} has {counts[0]} lines but {target} has {counts[1]}. "
                "They must correspond line by line."
            )


def _without_broken(
    lines: TextBlock, files: tuple[DataFile, DataFile], first: int, malformed: Malformed
) -> TextBlock:
    """Drops the pairs with a line that is not UTF-8; `first` is the number of the first line."""
    retained = []
    for number, pair in enumerate(zip(*lines, strict=True), first):
        if BROKEN in pair:
            malformed.drop(f"{files[pair.index(BROKEN)]}:{number}: {NOT_UTF8}.")
        else:
            retained.append(pair)
    return [pair[0] for pair in retained], [pair[1] for pair in retained]


def one_line(text: str) -> str:
    """Makes one line of a sentence: removes line breaks at its ends and replaces those inside by spaces."""
    if "\n" in text:
        return " ".join(part.removesuffix("\r") for part in text.strip("\r\n").split("\n"))
    return text


def expand(value: Any, key: str, *, several: bool = True) -> list[Path]:
    """Turns the value of the option `key` into files, at least one, all of which exist.

    The value is a path, a glob, or a list of them if the option takes `several`. `bundled:` is the folder of
    the bundled data, `~` the home folder. The files of a glob are sorted by name.

    Raises:
        UserError: nothing is given, a file is missing or not a file, or a glob matches nothing.
    """
    values = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    values = [item for item in values if item is not None and str(item) not in ("", "???")]
    if not values:
        raise UserError(f"{key}: not given. Give a file, a list such as [a,b] or a quoted glob.")
    several = several and isinstance(value, str)
    return [path for item in values for path in _expand_one(str(item), key, several)]


def _expand_one(value: str, key: str, several: bool) -> list[Path]:
    if value.startswith(BUNDLED):
        path = bundled_folder() / value.removeprefix(BUNDLED)
    else:
        path = expanded(value)
    try:
        status = stat_or_none(path)
    except OSError as error:
        raise UserError(f"{key}={value}: {reason_of(error, 'read')}") from error
    if status is not None and stat.S_ISREG(status.st_mode):
        return [path]
    if status is not None and stat.S_ISDIR(status.st_mode):
        raise UserError(f"{key}={value}: is a folder. Give the files in it, for example as a quoted glob.")
    if status is not None:
        raise UserError(f"{key}={value}: not a regular file. It is read several times, so save it as one.")
    hint = f'. Write several files as a list: "{key}=[{value}]".' if several and "," in value else ""
    if glob.has_magic(value):
        names = glob.glob(str(path), recursive=True)
        matching = sorted(Path(name) for name in names if os.path.isfile(name))
        if matching:
            return matching
        raise UserError(f"{key}={value}: no file matches (looked for {path.absolute()}){hint}")
    raise UserError(f"{key}={value}: there is no such file (looked at {path.absolute()}){hint}")


def bundled_folder() -> Path:
    """Returns the folder that contains `quickstart/`: the package itself in a wheel, `data/` in a checkout.

    Raises:
        UserError: the installation lacks the bundled data.
    """
    package = Path(nmt.__file__).resolve().parent
    for folder in (package, package.parent / "data"):
        if (folder / "quickstart").is_dir():
            return folder
    raise UserError(f"{package}: the bundled corpus is missing. Install the program again.")


def file_facts(path: Path) -> dict[str, Any]:
    """Returns facts that identify a file on any machine: its name, size in bytes and SHA-256, not its folder.

    The checksum of a large file is cached in `cache_folder()`. It is valid as long as the size, the inode and
    the times of change of the file are the same.
    """
    with read_errors(path):
        status = path.stat()
        digest = (
            _sha256(path, status.st_size) if status.st_size < _MIN_CACHED else _cached_sha256(path, status)
        )
    return {"name": path.name, "bytes": status.st_size, "sha256": digest}


def _cached_sha256(path: Path, status: os.stat_result) -> str:
    # Without the device: its number on a network file system differs between machines.
    seen = [status.st_size, status.st_ino, status.st_mtime_ns, status.st_ctime_ns]
    name = hashlib.sha256(os.fsencode(path.absolute())).hexdigest()[:16]
    with contextlib.suppress(OSError, ValueError, KeyError, TypeError):  # UserError is a ValueError
        cached = cache_folder() / "checksums" / f"{name}.json"
        known = json.loads(read_text(cached, 1 << 10))
        if known["seen"] == seen:
            return str(known["sha256"])
    digest = _sha256(path, status.st_size)
    # A file that was written just now could be changed again without a change of its time.
    if time.time_ns() - status.st_ctime_ns > _CLOCK_TICK:
        with contextlib.suppress(UserError):  # without a cache too
            cached = cache_folder() / "checksums" / f"{name}.json"
            make_folder(cached.parent)
            write_text(cached, json.dumps({"seen": seen, "sha256": digest}))
    return digest


def _sha256(path: Path, size: int) -> str:
    digest = hashlib.sha256()
    with open(path, "rb") as file, progress(total=size, unit="B", description=f"Checking {path.name}") as bar:
        while chunk := file.read(CHUNK):
            digest.update(chunk)
            bar.update(len(chunk))
    return digest.hexdigest()


_SIDES = {"src", "source", "tgt", "trg", "target", "ref", "in", "out"}
_ENDINGS = {"gz", "xz", "zst", "bz2", "txt"}


def mispaired(
    sources: Sequence[Path], targets: Sequence[Path], languages: Sequence[str]
) -> tuple[Path, Path] | None:
    """Finds the first source whose name matches a target at another position, and that target.

    Names are compared without the words that distinguish the sides: the languages, words such as `src` and
    `tgt`, and words that all names of one side have and no name of the other has. A source is reported only
    if its remaining words equal those of exactly one target at another position. Freely named files therefore
    cause no report.
    """
    keys = _keys(sources, targets, languages, whole=False)
    if any(len(set(side)) < len(side) for side in keys):  # such as a/train.en and b/train.en
        keys = _keys(sources, targets, languages, whole=True)
    source_keys, target_keys = keys
    for source, key, paired in zip(sources, source_keys, target_keys, strict=True):
        if key != paired and target_keys.count(key) == 1 and source_keys.count(key) == 1:
            return source, targets[target_keys.index(key)]
    return None


def has_exchanged_names(sources: Sequence[str], targets: Sequence[str], languages: Sequence[str]) -> bool:
    """Whether all names of the sources have the code of the target language alone, and the reverse."""
    sides = [[set(_split(name)) for name in names] for names in (sources, targets)]
    codes = [code.lower() for code in languages]
    return all(
        bool(names) and all(other in words and own not in words for words in names)
        for names, own, other in zip(sides, codes, reversed(codes), strict=True)
    )


def _keys(
    sources: Sequence[Path], targets: Sequence[Path], languages: Sequence[str], whole: bool
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    source_words, target_words = (
        [_split(str(path) if whole else path.name) for path in side] for side in (sources, targets)
    )
    known = _SIDES | _ENDINGS | {word for code in languages for word in _split(code)}
    return (
        [_without(words, known | _side_words(source_words, target_words)) for words in source_words],
        [_without(words, known | _side_words(target_words, source_words)) for words in target_words],
    )


def _split(name: str) -> list[str]:
    return [word for word in re.split(r"[^\w]|_", name.lower()) if word]


def _side_words(side: Sequence[list[str]], other: Sequence[list[str]]) -> set[str]:
    """Returns the words that all names of a side have and no name of the other has, such as `english`."""
    return set.intersection(*map(set, side)) - set().union(*other)


def _without(words: list[str], dropped: set[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in dropped)
