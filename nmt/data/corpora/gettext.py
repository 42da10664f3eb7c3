"""PO files of gettext: messages and their translations, parsed by polib."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from nmt.config import DataConfig
from nmt.data.corpora.columns import NoPairs, Pair, TextBlock
from nmt.data.corpora.malformed import BROKEN, NOT_UTF8, Malformed
from nmt.data.corpora.opening import CHUNK, DataFile, head_of, known_encoding, opened
from nmt.data.corpora.tables import blocks_of
from nmt.data.corpora.text import one_line, read_lines
from nmt.errors import UserError
from nmt.languages import distance
from nmt.runtime.streams import visible

if TYPE_CHECKING:
    from polib import POFile

_CHARSET = re.compile(rb"\bcharset=([A-Za-z0-9._-]+)")
STRING = re.compile(
    r"[ \t]*(?:(?P<keyword>msgctxt|msgid_plural|msgid|msgstr(?:\[\d+\])?)[ \t]*)?"
    r'"(?P<string>(?:[^"\\]++|\\.)*+)"[ \t]*'
)
"""Matches a line with a string, and a keyword before its first string."""
_BATCH = 500  # messages that polib parses at a time
_HIDDEN = {ord(mark): 0xDC00 + place for place, mark in enumerate("\r\v\f\x1c\x1d\x1e\x85\u2028\u2029")}
"""Characters that end a line for polib, but not in PO; and halves of characters, which stand for them."""
_SHOWN = {hidden: mark for mark, hidden in _HIDDEN.items()}


def read_po(file: DataFile, data: DataConfig, malformed: Malformed) -> Iterator[TextBlock]:
    """Reads the translated messages of a PO file, without fuzzy and obsolete ones.

    A message is in the source language, unless the header says that the translations are. Of a message with
    plural forms, the singular and the plural are two pairs, the latter with the last form.
    """
    try:
        import polib  # noqa: F401
    except ImportError:
        raise UserError(f'{file}: PO files need polib. Install it: pip install "nmt[po]"') from None
    return blocks_of(_pairs(file, data, malformed))


def _pairs(file: DataFile, data: DataConfig, malformed: Malformed) -> Iterator[Pair]:
    turned = None
    for messages in _parsed(file, malformed):
        if turned is None:
            language = str(messages.metadata.get("Language", "")).partition("\n")[0]
            turned = _is_turned(language, data, file)
        for message in messages:
            if message.obsolete or message.fuzzy:
                continue
            pairs = [(message.msgid, message.msgstr)]
            if message.msgid_plural and (forms := [*dict(sorted(message.msgstr_plural.items())).values()]):
                plural = message.msgid_plural, forms[-1]
                pairs = [(message.msgid, forms[0]), plural] if len(forms) > 1 else [plural]
            for source, target in pairs:
                if source and target:
                    source, target = (one_line(side.translate(_SHOWN)) for side in (source, target))
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
    """The lines of a message, with the comments before it, and their numbers."""

    lines: list[str] = field(default_factory=list)
    numbers: list[int] = field(default_factory=list)
    keywords: set[str] = field(default_factory=set)
    problem: str = ""

    def add(self, line: str, number: int) -> None:
        """Adds a line, and checks it more strictly than polib, which accepts strings without an end."""
        self.lines.append(line)
        self.numbers.append(number)
        if line is BROKEN or "\ufffd" in line:
            self.problem = self.problem or NOT_UTF8
        elif not line.lstrip().startswith("#"):
            found = STRING.fullmatch(line)
            if found is None or not (found["keyword"] or self.keywords):
                self.problem = self.problem or "is not a string of PO, or its quotation marks do not match"
            elif found["keyword"]:
                self.keywords.add(found["keyword"].partition("[")[0])

    def checked(self) -> Message:
        """Checks the whole message."""
        if not self.problem and self.keywords and not {"msgid", "msgstr"} <= self.keywords:
            self.problem = "has no msgid or no msgstr"
        return self

    @property
    def number(self) -> int:
        """The number of its first line."""
        return self.numbers[0]

    @property
    def is_translated(self) -> bool:
        """Whether it has a translation, after which another message may begin."""
        return "msgstr" in self.keywords


def _parsed(file: DataFile, malformed: Malformed) -> Iterator[POFile]:
    batch: list[Message] = []
    for message in messages_of(_lines(file, malformed)):
        if message.problem:
            malformed.drop(f"{file}:{message.number}: {message.problem}.")
            continue
        batch.append(message)
        if len(batch) == _BATCH:
            yield from _parse(batch, file, malformed)
            batch = []
    yield from _parse(batch, file, malformed)


def _parse(batch: list[Message], file: DataFile, malformed: Malformed) -> Iterator[POFile]:
    import polib

    try:
        text = "\n\n".join("\n".join(message.lines) for message in batch)
        yield polib.pofile(f"{text.translate(_HIDDEN)}\n")
    except (OSError, ValueError, IndexError) as error:
        if len(batch) > 1:  # find the one that polib refuses
            for message in batch:
                yield from _parse([message], file, malformed)
        elif batch:
            malformed.drop(f"{file}:{batch[0].number}: {error}.")


def messages_of(lines: Iterable[str]) -> Iterator[Message]:
    """Yields the messages of the lines of a file; last, the comments behind them."""
    message = None
    for number, line in enumerate(lines, start=1):
        starts = line.lstrip().startswith(("#", "msgctxt", "msgid ", 'msgid"'))
        if message is not None and (not line.strip() or (starts and message.is_translated)):
            if message.keywords or message.problem:
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
