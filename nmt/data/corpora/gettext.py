"""PO files of gettext: messages and their translations."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from nmt.config import DataConfig
from nmt.data.corpora.columns import NoPairs, Pair, TextBlock
from nmt.data.corpora.malformed import BROKEN, NOT_UTF8, Malformed
from nmt.data.corpora.opening import CHUNK, DataFile, head_of, known_encoding, opened
from nmt.data.corpora.tables import blocks_of
from nmt.data.corpora.text import one_line, read_lines
from nmt.languages import distance
from nmt.runtime.streams import visible

ESCAPES = {
    "n": "\n", "t": "\t", "r": "\r", "a": "\a", "b": "\b", "f": "\f", "v": "\v", '"': '"', "\\": "\\",
}  # fmt: skip
"""The letter behind a backslash, and the character that it stands for."""
LANGUAGE = re.compile(r"^Language:[ \t]*(\S+)", re.MULTILINE)
"""Matches the language of the translations in a header."""
_CHARSET = re.compile(rb"\bcharset=([A-Za-z0-9._-]+)")
_STRING = re.compile(
    r"[ \t]*(?:(?P<keyword>msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)[ \t]*)?"
    r'"(?P<string>(?:[^"\\]++|\\.)*+)"[ \t]*'
)
_ESCAPE = re.compile(r"\\(.)")


def read_po(file: DataFile, data: DataConfig, malformed: Malformed) -> Iterator[TextBlock]:
    """Reads the translated messages of a PO file, without fuzzy and obsolete ones.

    A message is in the source language, unless the header says that the translations are. Of a message with
    plural forms, the singular and the plural are two pairs, the latter with the last form.
    """
    return blocks_of(_pairs(file, data, malformed))


def _pairs(file: DataFile, data: DataConfig, malformed: Malformed) -> Iterator[Pair]:
    turned = None
    for message in messages_of(_lines(file, malformed)):
        if message.problem:
            malformed.drop(f"{file}:{message.number}: {message.problem}.")
            continue
        strings = defaultdict(str, message.strings)
        if turned is None:
            language = LANGUAGE.search("" if strings["msgid"] else strings["msgstr"])
            turned = _is_turned(language[1] if language else "", data, file)
        pairs = [(strings["msgid"], strings["msgstr"])]
        forms = [form for keyword, form in sorted(strings.items()) if keyword.startswith("msgstr[")]
        if forms and strings["msgid_plural"]:
            plural = strings["msgid_plural"], forms[-1]
            pairs = [(strings["msgid"], forms[0]), plural] if len(forms) > 1 else [plural]
        for source, target in [] if message.is_fuzzy else pairs:
            if source and target:
                source, target = one_line(source), one_line(target)
                yield (target, source) if turned else (source, target)


def _is_turned(language: str, data: DataConfig, file: DataFile) -> bool:
    """Whether the translations of a file are in the source language of the data."""
    if not language or distance(data.target_lang, language) is not None:
        return False
    if distance(data.source_lang, language) is not None:
        return True
    raise NoPairs(
        f"{file}: its translations are in {visible(language)}, which is neither "
        f"data.source_lang={data.source_lang} nor data.target_lang={data.target_lang}."
    )


@dataclass
class Message:
    """A message, with the comments before it.

    Attributes:
        numbers: the numbers of its lines.
        parts: by keyword, such as `msgstr[0]`, the parts of its string.
        rows: by keyword, the numbers of the lines of its string.
        is_fuzzy: whether it has the flag `fuzzy`.
        problem: what is wrong with it; empty if nothing is.
    """

    numbers: list[int] = field(default_factory=list)
    parts: dict[str, list[str]] = field(default_factory=lambda: defaultdict(list))
    rows: dict[str, list[int]] = field(default_factory=lambda: defaultdict(list))
    is_fuzzy: bool = False
    problem: str = ""

    def add(self, line: str, number: int) -> None:
        """Adds a line, and checks it."""
        self.numbers.append(number)
        comment, found = line.lstrip(), _STRING.fullmatch(line)
        if line is BROKEN or "\ufffd" in line:
            self.problem = self.problem or NOT_UTF8
        elif comment.startswith("#"):
            if comment.startswith("#~"):  # the flags so far are those of an obsolete message
                self.is_fuzzy = False
            elif comment.startswith("#,"):
                self.is_fuzzy |= "fuzzy" in map(str.strip, comment[2:].split(","))
        elif found is None or not (found["keyword"] or self.parts):
            self.problem = self.problem or "is not a string of PO, or its quotation marks do not match"
        elif found["keyword"] in self.parts:
            self.problem = self.problem or "has a keyword twice"
        else:
            keyword = found["keyword"] or next(reversed(self.parts))
            self.parts[keyword].append(
                _ESCAPE.sub(lambda escape: ESCAPES.get(escape[1], escape[0]), found["string"])
            )
            self.rows[keyword].append(number)

    def checked(self) -> Message:
        """Checks the whole message."""
        if not self.problem and self.parts and not ("msgid" in self.parts and self.is_translated):
            self.problem = "has no msgid or no msgstr"
        return self

    @property
    def number(self) -> int:
        """The number of its first line."""
        return self.numbers[0]

    @property
    def strings(self) -> dict[str, str]:
        """By keyword its string."""
        return {keyword: "".join(parts) for keyword, parts in self.parts.items()}

    @property
    def is_translated(self) -> bool:
        """Whether it has a translation, after which another message may begin."""
        return any(keyword.startswith("msgstr") for keyword in self.parts)


def messages_of(lines: Iterable[str]) -> Iterator[Message]:
    """Yields the messages of the lines of a file; last, the comments behind them."""
    message = None
    for number, line in enumerate(lines, start=1):
        starts = line.lstrip().startswith(("#", "msgctxt", "msgid ", 'msgid"'))
        if message is not None and (not line.strip() or (starts and message.is_translated)):
            if message.parts or message.problem:
                yield message.checked()
                message = None
        if line.strip():
            message = message or Message()
            message.add(line, number)
    if message is not None:
        yield message.checked()


def _lines(file: DataFile, malformed: Malformed) -> Iterator[str]:
    charset = charset_of(head_of(file), file)
    if charset == "utf-8":
        yield from read_lines(file, malformed)
        return
    with opened(file) as (stream, place):
        while line := stream.readline(CHUNK):
            place.lines += 1
            yield line.decode(charset, "replace").removesuffix("\n").removesuffix("\r")


def charset_of(head: bytes, file: DataFile) -> str:
    """Returns the encoding that a PO file declares.

    Raises:
        UserError: it is not known.
    """
    found = _CHARSET.search(head)
    name = found[1].decode() if found else "CHARSET"
    return "utf-8" if name == "CHARSET" else known_encoding(name, file)  # CHARSET: a template
