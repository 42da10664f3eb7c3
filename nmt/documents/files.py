"""The formats of files to translate; a file's format is chosen by its name, or else by its content."""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.config import TranslateConfig
from nmt.data.corpora.file_formats import XML_ROOT
from nmt.data.corpora.gettext import charset_of
from nmt.data.corpora.opening import opened, suffix_of
from nmt.data.corpora.tables import FIRST_LINES
from nmt.data.corpora.translation_memories import xml_encoding
from nmt.documents.html import read_html
from nmt.documents.pair import Pair, TooManyLines
from nmt.documents.po import read_po
from nmt.documents.rows import Column, CsvColumn, Format, JsonLines, JsonList, Lines, Request
from nmt.documents.subtitles import TIMES, read_srt, read_vtt
from nmt.documents.text import Document, Text
from nmt.documents.tmx import read_tmx
from nmt.documents.xliff import read_xliff
from nmt.errors import UserError
from nmt.runtime.files import expanded

if TYPE_CHECKING:
    from nmt.decoding.translation import Translation

Reader = Callable[[str, str, Pair], Document]
"""Divides the text of a file into lines; the others are the name for messages, and the languages.

It raises `UserError` if the file is malformed.
"""


@dataclass(frozen=True)
class FileFormat:
    """A format of files that are translated as a whole.

    Attributes:
        suffixes: ends of its names.
        read: its reader.
        begins: whether a text is of this format by its beginning.
        encoding: the encoding by the first bytes, for a file without a byte order mark.
        on_missing: how a character is written that the encoding does not have, as `str.encode` has it.
    """

    suffixes: tuple[str, ...]
    read: Reader
    begins: Callable[[str], bool]
    encoding: Callable[[bytes, Path], str] = lambda head, path: "utf-8"
    on_missing: str = "strict"


def _has_root(name: str) -> Callable[[str], bool]:
    return lambda head: (
        (found := XML_ROOT.match(head.encode())) is not None and found[0].endswith(name.encode())
    )


def _matches(pattern: str) -> Callable[[str], bool]:
    return lambda head: re.match(pattern, head, re.IGNORECASE) is not None


FILE_FORMATS: dict[str, FileFormat] = {
    "html": FileFormat(
        (".html", ".htm"),
        lambda text, name, languages: read_html(text, languages.most_lines),
        _matches(r"\s*(?:<!--.*?-->\s*)?<(?:!doctype html|html)\b"),
        on_missing="xmlcharrefreplace",
    ),
    "xliff": FileFormat(
        (".xlf", ".xliff", ".mxliff", ".sdlxliff", ".mqxliff"),
        read_xliff,
        _has_root("xliff"),
        xml_encoding,
        "xmlcharrefreplace",
    ),
    "tmx": FileFormat((".tmx",), read_tmx, _has_root("tmx"), xml_encoding, "xmlcharrefreplace"),
    "po": FileFormat(
        (".po", ".pot"),
        read_po,
        lambda head: re.search(r'^msgid[ \t]*".*\n(?:".*\n)*msgstr', head, re.MULTILINE) is not None,
        charset_of,
    ),
    "srt": FileFormat(
        (".srt",), read_srt, lambda head: any(map(TIMES.fullmatch, head.lstrip().split("\n")[:2]))
    ),
    "vtt": FileFormat((".vtt",), read_vtt, _matches(r"WEBVTT(?:\s|$)")),
}
"""The formats of whole files by name, in the order in which a content is compared with them."""
ROW_FORMATS: dict[str, tuple[tuple[str, ...], type[Format]]] = {
    "text": ((".txt",), Lines),
    "tsv": ((".tsv", ".tab"), Column),
    "csv": ((".csv",), CsvColumn),
    "jsonl": ((".jsonl", ".ndjson"), JsonLines),
    "json": ((".json",), JsonList),
}
"""The formats with rows: ends of names, and classes."""
SUFFIXES = {
    suffix: name
    for name, suffixes in [
        *((name, suffixes) for name, (suffixes, _) in ROW_FORMATS.items()),
        *((name, form.suffixes) for name, form in FILE_FORMATS.items()),
    ]
    for suffix in suffixes
}
"""The format by the end of a file's name."""
_HEAD = 4096  # characters that show the format
_TABLES = ("tsv", "csv")
LARGEST_FILE = 1 << 30
"""Bytes of a file that is translated as a whole."""
_MARKS = {
    codecs.BOM_UTF8: "utf-8",
    codecs.BOM_UTF16_LE: "utf-16-le",
    codecs.BOM_UTF16_BE: "utf-16-be",
}


def format_of_file(name: str, head: Callable[[], str]) -> str | None:
    """Returns the format of a file, by its name, or else by its first characters; None: unknown."""
    suffix = suffix_of(Path(name))
    found = SUFFIXES.get(suffix)
    if found is None:
        begin = head()
        return next((name for name, form in FILE_FORMATS.items() if form.begins(begin)), None)
    return "jsonl" if found == "json" and not head().lstrip().startswith("[") else found


def file_of(
    name: str, languages: Pair, *, format: str, column: int | str | None, key: str
) -> tuple[OpenFile, bool]:
    """Opens a file by its name; also returns whether it is translated as a whole.

    Raises:
        UserError: as for `open_file`, or the file can't be read.
    """
    content = read_whole(name)
    if format == "auto":
        format = format_of_file(name, lambda: head_text(content)) or "text"
    config = TranslateConfig("", format=format, column=column, key=key)
    return open_file(content, name, config, languages), format in FILE_FORMATS


def read_whole(name: str) -> bytes:
    """Returns the content of a file, without its compression.

    Raises:
        UserError: it can't be read, or is too large.
    """
    with opened(expanded(name)) as (stream, _):
        content = stream.read(LARGEST_FILE + 1)
    if len(content) > LARGEST_FILE:
        raise UserError(f"{name}: has more than 1 GiB. Divide the file.")
    return content


def open_file(content: bytes, name: str, config: TranslateConfig, languages: Pair) -> OpenFile:
    """Opens a file of the format that the options select.

    Raises:
        UserError: the options contradict each other, or the file is malformed.
    """
    if config.format == "text" and config.column is None:
        return whole_file(content, name, _TEXT, languages)
    form = format_of(config)
    if isinstance(form, DocumentFormat):
        return whole_file(content, name, FILE_FORMATS[config.format], languages)
    return rows_file(content, name, form, languages.most_lines)


_TEXT = FileFormat((), lambda text, name, languages: Text.of(text), lambda head: False)


def head_text(content: bytes) -> str:
    """Returns the first characters of a file, to see its format."""
    mark = next((mark for mark in _MARKS if content.startswith(mark)), b"")
    return content[len(mark) : 2 * _HEAD].decode(_MARKS.get(mark, "utf-8"), "replace")[:_HEAD]


@dataclass(frozen=True)
class OpenFile:
    """A file to translate.

    Attributes:
        lines: the lines to translate, none or more.
        written: returns the file with the translation of each line. It raises `UserError` if the encoding of
            the file does not have a character.
    """

    lines: Sequence[str]
    written: Callable[[Sequence[Translation]], bytes]


def whole_file(content: bytes, name: str, form: FileFormat, languages: Pair) -> OpenFile:
    """Opens a file that is translated as a whole.

    Raises:
        UserError: the file is malformed, or not in its encoding.
    """
    text, mark, encoding = decoded(content, name, form.encoding)
    document = form.read(text, name, languages)

    def written(translations: Sequence[Translation]) -> bytes:
        text = document.joined([translation.hypotheses[0].text for translation in translations])
        try:
            return mark + text.encode(encoding, form.on_missing)
        except UnicodeEncodeError as error:
            raise UserError(
                f"{name}: its encoding, {encoding}, lacks {error.object[error.start]!r}, which a "
                "translation has. Convert the file to UTF-8."
            ) from None

    return OpenFile(document.lines, written)


def rows_file(content: bytes, name: str, form: Format, most_lines: int) -> OpenFile:
    """Opens a file with rows.

    Raises:
        UserError: the file is malformed, or not UTF-8.
    """
    requests: list[Request] = []
    text, mark, encoding = decoded(content, name)
    lines = text.removesuffix("\n").split("\n") if text else []
    end = "\r\n" if lines and lines[0].endswith("\r") else "\n"
    lines = [line.removesuffix("\r") for line in lines]
    form.look_at(lines[:FIRST_LINES])
    try:
        for number, row in enumerate(form.rows(lines), 1):
            request = form.read(row, number)
            requests.append(request)
            if request.error is not None:
                raise UserError(f"{request.error}.")
            if request.prefix or request.constraints:
                raise UserError(
                    f"line {number}: has a prefix or constraints, for which it needs nmt-translate."
                )
            if number > most_lines:
                raise TooManyLines(f"has more than {most_lines:,} lines.")
    except TooManyLines:
        raise
    except UserError as error:
        raise UserError(f"{name}: {error}") from None

    def written(translations: Sequence[Translation]) -> bytes:
        rows = enumerate(zip(requests, translations, strict=True), 1)
        parts = [form.write(request, translation, number) for number, (request, translation) in rows]
        text = b"".join([*parts, form.end()]).decode()
        return mark + text.replace("\n", end).encode(encoding)

    return OpenFile([request.text for request in requests], written)


def decoded(
    content: bytes, name: str, encoding_of: Callable[[bytes, Path], str] = lambda head, path: "utf-8"
) -> tuple[str, bytes, str]:
    """Returns the text of a file, its byte order mark and its encoding.

    Raises:
        UserError: the file is not in its encoding.
    """
    mark = next((mark for mark in _MARKS if content.startswith(mark)), b"")
    encoding = _MARKS[mark] if mark else encoding_of(content[: 4 * _HEAD], Path(name))
    try:
        return content[len(mark) :].decode(encoding), mark, encoding
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, len(mark) + error.start) + 1
        raise UserError(
            f"{name}:{line}: not valid {encoding.upper()} (byte 0x{error.object[error.start]:02x}). Convert "
            "the file to UTF-8, for example with iconv."
        ) from None


class DocumentFormat(Format):
    """A file that is translated as a whole, as rows: its lines. The whole output follows the last row."""

    def __init__(self, config: TranslateConfig, form: FileFormat) -> None:
        super().__init__(config)
        self._form = form
        self._translations: list[Translation] = []
        self._file: OpenFile | None = None

    def open(self, content: bytes, name: str, languages: Pair) -> Sequence[str]:
        """Reads the file, and returns its lines. Raises `UserError` as `whole_file`."""
        self._file = whole_file(content, name, self._form, languages)
        return self._file.lines

    def read(self, line: str, number: int) -> Request:
        """See `Format.read`."""
        return Request(line)

    def write(self, request: Request, translation: Translation, number: int) -> bytes:
        """See `Format.write`."""
        self._translations.append(translation)
        return b""

    def end(self) -> bytes:
        """See `Format.end`."""
        assert self._file is not None
        return self._file.written(self._translations)


def format_of(config: TranslateConfig, head: Callable[[], str] = lambda: "") -> Format:
    """Returns the format that the options select, with `head`, the first characters of the input file.

    Raises:
        UserError: the options contradict each other.
    """
    name = config.format
    if name == "auto":
        name = (None if config.input is None else format_of_file(config.input, head)) or "text"
    if config.column is not None and name == "text":
        name = "tsv"
    if config.key != "text" and name not in ("jsonl", "json"):
        raise UserError(f"key={config.key}: only format=jsonl and format=json have keys. Add one of them.")
    if config.delimiter is not None and name != "csv":
        raise UserError(f"delimiter={config.delimiter}: only format=csv has delimiters. Add it.")
    if name in _TABLES and config.column is None:
        raise UserError(f"format={name}: needs column=N or column=NAME, the column to translate. Add it.")
    if name not in _TABLES and config.column is not None:
        raise UserError(f"column={config.column}: format={name} has no columns. Leave one of them out.")
    one = f"column={config.column}" if name in _TABLES else f"format={name}"
    if name not in ("text", "jsonl", "json") and config.decoding.num_results > 1:
        raise UserError(
            f"{one}: takes one translation per line. Leave out decoding.nbest and decoding.samples, or use "
            "format=jsonl."
        )
    if name in FILE_FORMATS:
        for option in ("scores", "alignments", "attention"):
            if value := getattr(config, option):
                raise UserError(f"{option}={value}: format={name} has no lines for it. Leave it out.")
        return DocumentFormat(config, FILE_FORMATS[name])
    return ROW_FORMATS[name][1](config)
