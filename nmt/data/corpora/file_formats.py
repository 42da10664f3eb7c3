"""The formats of files that hold pairs; a file's format is chosen by its name, or else by its content."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from nmt.config import DataConfig
from nmt.data.corpora.arrow import read_parquet
from nmt.data.corpora.columns import NoPairs, TextBlock, choose_keys, column_numbers, listed, nearest
from nmt.data.corpora.gettext import read_po
from nmt.data.corpora.json_tables import read_json
from nmt.data.corpora.malformed import Malformed
from nmt.data.corpora.opening import DataFile, Member, head_of, members_of, suffix_of
from nmt.data.corpora.tables import FIRST_LINES, delimiter_of, read_csv, read_tsv
from nmt.data.corpora.text import read_pairs
from nmt.data.corpora.translation_memories import read_units
from nmt.errors import UserError
from nmt.runtime.streams import log

Reader = Callable[[DataFile, DataConfig, Malformed], Iterator[TextBlock]]
"""Reads the pairs of a file in order, block by block, and drops malformed rows.

It raises `UserError` if a column is missing, or a row is malformed and may not be dropped (with its line).
"""

BlockReader = Callable[[Malformed], Iterator[TextBlock]]
"""Reads pairs from the beginning, without malformed rows."""


@dataclass(frozen=True)
class Format:
    """A format of files with both sides.

    Attributes:
        suffixes: ends of its names.
        read: its reader.
        begins: whether a file may be of this format by its first bytes, in UTF-8 or UTF-16.
    """

    suffixes: tuple[str, ...]
    read: Reader
    begins: Callable[[bytes, DataConfig], bool]


XML_ROOT = re.compile(
    rb"\s*(?:<\?xml\b[^>]*>|<!DOCTYPE\b[^>]*>|<!--.*?-->|\s)*<(?:\w+:)?(?:tmx|xliff)\b", re.DOTALL
)
"""Matches the beginning of a TMX or XLIFF file up to the name of its root."""
_MOST_UNNAMED = 100  # files of an archive whose content is looked at
_OFFICE = {"[Content_Types].xml", "mimetype"}  # of Microsoft's formats, and of OpenDocument
_MESSAGE = re.compile(rb'^msgid[ \t]*"', re.MULTILINE)


def _begins_with_columns(head: bytes, data: DataConfig, delimiters: str) -> bool:
    """Whether the first lines of a text have equal numbers of columns, and the two columns are among them."""
    lines = head.decode("utf-8", "replace").split("\n")[:FIRST_LINES]
    rows = [line for line in (lines[:-1] if len(lines) > 1 else lines) if line.strip()]
    if not rows:
        return False
    delimiter = delimiter_of(rows)[0]
    names = [name.strip('"\r ') for name in rows[0].split(delimiter)]
    if delimiter not in delimiters or len(names) < 2:
        return False
    with suppress(UserError):
        if column_numbers(data) is not None:
            return len({row.count(delimiter) for row in rows}) == 1
        return bool(choose_keys(data, names.__contains__, names, ""))
    return False


def _read_archive(file: DataFile, data: DataConfig, malformed: Malformed) -> Iterator[TextBlock]:
    """Reads the pairs of text files in a zip archive whose names end in the two languages, as OPUS has them.

    If it has none, all its files of another format are read, in the order of their names. If no name shows a
    format, the content does, such as that of `deu.txt` of manythings.org.
    """
    if not isinstance(file, Path):
        raise UserError(f"{file}: an archive in an archive. Unpack the outer one.")
    with members_of(file) as members:
        if pairs := _text_pairs(members, data):
            yield from read_pairs(pairs, str(file), malformed)
            return
        suffixes = {suffix for form in FORMATS.values() for suffix in form.suffixes}
        chosen = [member for member in members if suffix_of(member) in suffixes]
        chosen = chosen or [member for member in members[:_MOST_UNNAMED] if _by_content(member, data)]
        if not chosen and _OFFICE & {member.member for member in members}:
            raise UserError(f"{file}: is a document of an office program. Save a sheet as CSV in UTF-8.")
        if not chosen:
            raise UserError(
                f"{file}: has no two files whose names end in .{data.source_lang} and .{data.target_lang}, "
                f"and none of a known format, but {listed([member.member for member in members])}"
            )
        yield from read_all((partial(reader_of(member, data), member, data) for member in chosen), malformed)


def read_all(files: Iterable[BlockReader], malformed: Malformed) -> Iterator[TextBlock]:
    """Reads several files in order. One without the two languages is skipped, unless no other has pairs.

    Raises:
        UserError: as `Reader`, or no file has the two languages.
    """
    num_lacking, first, has_pairs = 0, "", False
    for read in files:
        try:
            for block in read(malformed):
                has_pairs = True
                yield block
        except NoPairs as error:
            num_lacking += 1
            first = first or str(error)
    if num_lacking and not has_pairs:
        raise NoPairs(first)
    if num_lacking:
        log.warning("Files without a pair are skipped: %s. The first: %s", f"{num_lacking:,}", first)


def _text_pairs(members: Sequence[Member], data: DataConfig) -> list[tuple[DataFile, DataFile]]:
    """Returns the files whose names differ only at the end, which is the language of a side."""
    by_stem: dict[str, dict[str, Member]] = {}
    for member in members:
        if suffix := suffix_of(member):
            stem = member.member[: member.member.lower().rindex(suffix)]
            by_stem.setdefault(stem, {})[suffix[1:]] = member
    pairs: list[tuple[DataFile, DataFile]] = []
    for files in by_stem.values():
        source = nearest(data.source_lang, files)
        target = nearest(data.target_lang, [code for code in files if code != source])
        if source is not None and target is not None:
            pairs.append((files[source], files[target]))
    return pairs


FORMATS: dict[str, Format] = {
    "Parquet": Format((".parquet",), read_parquet, lambda head, _: head.startswith(b"PAR1")),
    "TMX or XLIFF": Format(
        (".tmx", ".xlf", ".xliff", ".mxliff", ".sdlxliff", ".mqxliff"),
        read_units,
        lambda head, _: XML_ROOT.match(head.replace(b"\0", b"").lstrip(b"\xef\xbb\xbf\xff\xfe")) is not None,
    ),
    "PO": Format((".po", ".pot"), read_po, lambda head, _: _MESSAGE.search(head) is not None),
    "JSON": Format(
        (".jsonl", ".ndjson", ".json"),
        read_json,
        lambda head, _: head.lstrip(b"\xef\xbb\xbf \t\r\n")[:1] in (b"{", b"["),
    ),
    "TSV": Format((".tsv", ".tab"), read_tsv, lambda head, data: _begins_with_columns(head, data, "\t")),
    "CSV": Format((".csv",), read_csv, lambda head, data: _begins_with_columns(head, data, ",;|")),
    "zip": Format((".zip",), _read_archive, lambda head, _: head.startswith(b"PK\3\4")),
}
"""The formats by name, in the order in which a content is compared with them."""


def _by_content(file: DataFile, data: DataConfig) -> Reader | None:
    head = head_of(file)
    return next((form.read for form in FORMATS.values() if form.begins(head, data)), None)


def may_have_numbers(file: DataFile) -> bool:
    """Whether a file may have columns without names, by its name."""
    return all(suffix_of(file) not in form.suffixes or form.read is read_tsv for form in FORMATS.values())


def reader_of(file: DataFile, data: DataConfig) -> Reader:
    """Returns the reader for a file, which may be compressed unless it is Parquet.

    Raises:
        UserError: neither its name nor its content is of a format.
    """
    suffix = suffix_of(file)
    for form in FORMATS.values():
        if suffix in form.suffixes:
            if form.read is read_parquet and (not isinstance(file, Path) or not file.name.endswith(suffix)):
                raise UserError(f"{file}: a Parquet file must be given as it is. Unpack it.")
            return form.read
    if read := _by_content(file, data):
        return read
    raise UserError(
        f"{file}: is neither {', '.join(FORMATS)}, by its name and by its content. Give two plain text files "
        "as source= and target="
    )
