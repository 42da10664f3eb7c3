"""Text with markup as lines to translate: the tags inside a sentence are short marks.

A tag inside a line becomes a mark `<b i=0>` without its attributes, which the translation has again at its
place. Everything outside the lines is left as it is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from nmt.copying.aligned_tags import removed_tags, with_tags
from nmt.copying.removal import proportional_links
from nmt.documents.pair import TooManyLines

_SPACES = re.compile(r"[ \t\n\r\f\v\x1c-\x1f\x85\u2028\u2029]+")
_MOST_TAGS = 24  # of a line; a line with more is divided


@dataclass(frozen=True, slots=True)
class Piece:
    """A part of a text with markup: text, or a tag, a comment or an element that is not translated.

    Attributes:
        kind: one of `text`, `open`, `close` and `alone`.
        source: the part as it is in the file.
        name: the name of the tag; that of a closing tag is that of its opening tag.
        is_loose: whether it is not part of a line at whose beginning or end it is.
    """

    kind: str
    source: str
    name: str = ""
    is_loose: bool = False

    @property
    def text(self) -> str:
        """The characters of a text: without entities, and with each white space as one space."""
        return _SPACES.sub(" ", html.unescape(self.source))


@dataclass
class MarkedText:
    """A text with markup as lines, none or more.

    Attributes:
        lines: the lines, with marks in place of tags.
        frame: the text before, between and after the lines, in parts.
        tags: for each line the source of its marks.
        keys: for each line the name of the attribute of its marks.
    """

    lines: list[str] = field(default_factory=list)
    frame: list[list[str]] = field(default_factory=lambda: [[]])
    tags: list[list[str]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)
    has_entities: bool = True
    """Whether `&`, `<` and `>` of translations are written as entities."""
    most_lines: int = 1 << 62

    def add_frame(self, source: str) -> None:
        """Adds text that is left as it is."""
        self.frame[-1].append(source)

    def add(self, segment: Sequence[Piece]) -> None:
        """Adds pieces, whose lines are translated. Raises `TooManyLines` if there are too many."""
        if len(self.lines) > self.most_lines:
            raise TooManyLines(f"has more than {self.most_lines:,} lines.")
        for pieces in _divided(segment):
            before, inner, after = _trimmed(pieces)
            self.add_frame("".join(piece.source for piece in before))
            if has_text(inner):
                line, tags, key = _marked(inner)
                self.lines.append(line)
                self.tags.append(tags)
                self.keys.append(key)
                self.frame.append([])
            else:
                self.add_frame("".join(piece.source for piece in inner))
            self.add_frame("".join(piece.source for piece in after))

    def joined(self, lines: Sequence[str]) -> str:
        """Returns the text with other lines, such as translations, in place of its own."""
        parts = [*self.frame[0]]
        columns = self.lines, lines, self.tags, self.keys, self.frame[1:]
        for number, (source, line, tags, key, after) in enumerate(zip(*columns, strict=True)):
            restored = _restored(_nested_as(source, line, key), tags, key, self.has_entities)
            parts += [self.finished(number, restored), *after]
        return "".join(parts)

    def finished(self, number: int, text: str) -> str:
        """Returns the text of a translation as it is in the file."""
        return text


def has_text(pieces: Iterable[Piece]) -> bool:
    """Whether there is a letter outside of the tags of pieces."""
    return any(piece.kind == "text" and any(map(str.isalpha, piece.text)) for piece in pieces)


def _divided(segment: Sequence[Piece]) -> Iterator[list[Piece]]:
    """Yields the pieces in groups, of which each has no more tags than a line may have."""
    group: list[Piece] = []
    tags = 0
    for piece in segment:
        if tags >= _MOST_TAGS and (piece.kind == "text" or tags >= 2 * _MOST_TAGS):
            yield group
            group, tags = [], 0
        group.append(piece)
        tags += piece.kind != "text"
    yield group


def _partners(pieces: Sequence[Piece]) -> dict[int, int]:
    """Returns the places of opening tags and their closing tags, in both directions."""
    partners: dict[int, int] = {}
    opened: dict[str, list[int]] = {}
    for place, piece in enumerate(pieces):
        if piece.kind == "open":
            opened.setdefault(piece.name, []).append(place)
        elif piece.kind == "close" and opened.get(piece.name):
            partners[place] = opened[piece.name].pop()
            partners[partners[place]] = place
    return partners


def _trimmed(pieces: list[Piece]) -> tuple[list[Piece], list[Piece], list[Piece]]:
    """Returns the pieces before a line, of the line, and after it.

    White space, comments, images, single tags, and pairs that enclose the whole line are not part of it.
    """
    pieces = [*_with_edges(pieces)]
    partners = _partners(pieces)
    begin, end = 0, len(pieces)

    def is_loose(place: int) -> bool:
        piece = pieces[place]
        if piece.kind == "text":
            return not _SPACES.sub("", piece.source)
        return piece.is_loose if piece.kind == "alone" else place not in partners

    while begin < end:
        if is_loose(begin):
            begin += 1
        elif is_loose(end - 1):
            end -= 1
        elif pieces[begin].kind == "open" and partners[begin] == end - 1:
            begin, end = begin + 1, end - 1
        elif pieces[begin].kind == "open" and partners[begin] == begin + 1:  # empty
            begin += 2
        else:
            break
    return pieces[:begin], pieces[begin:end], pieces[end:]


def _with_edges(pieces: Sequence[Piece]) -> Iterator[Piece]:
    """Yields the pieces, with the white space at the ends of a text as pieces of its own."""
    for piece in pieces:
        if piece.kind != "text":
            yield piece
            continue
        bare = piece.source.strip(" \t\n\r\f")
        if not bare:
            yield piece
            continue
        start = piece.source.index(bare)
        for part in (piece.source[:start], bare, piece.source[start + len(bare) :]):
            if part:
                yield Piece("text", part)


def _marked(pieces: Sequence[Piece]) -> tuple[str, list[str], str]:
    """Returns the line of pieces, the source of its marks, and the name of their attribute."""
    texts = [piece.text if piece.kind == "text" else "" for piece in pieces]
    key, whole = "i", "".join(texts)
    while f" {key}=" in whole:
        key += "i"
    parts, tags = [], list[str]()
    for piece, text in zip(pieces, texts, strict=True):
        if piece.kind == "text":
            parts.append(text)
            continue
        name = re.sub(r"[^A-Za-z0-9]", "", piece.name) or "x"
        start, end = "</" if piece.kind == "close" else "<", "/>" if piece.kind == "alone" else ">"
        parts.append(f"{start}{name} {key}={len(tags)}{end}")
        tags.append(piece.source)
    return "".join(parts), tags, key


def _marks(key: str) -> re.Pattern[str]:
    return re.compile(rf"<(?P<end>/?)(?P<name>[A-Za-z0-9]+) {key}=(?P<number>[0-9]{{1,4}})(?P<alone>/?)>")


def _nested_as(source: str, line: str, key: str) -> str:
    """Returns a translation with marks that are nested as in its source; some may be moved."""
    marks = [*_marks(key).finditer(source)]
    if not marks:
        return line
    order = dict.fromkeys(int(mark["number"]) for mark in marks)
    placed = dict.fromkeys(int(mark["number"]) for mark in _marks(key).finditer(line))
    wanted = _unclosed(order, marks)
    missing = [number for number in order if number not in placed]
    if _unclosed([*(number for number in placed if number in order), *missing], marks) == wanted:
        return line
    bare, removed = removed_tags(line).text, removed_tags(source)
    again = with_tags(bare, removed.strings, proportional_links(removed.text, bare)).text
    if _unclosed([int(mark["number"]) for mark in _marks(key).finditer(again)], marks) == wanted:
        return again
    return bare + "".join(mark[0] for mark in marks)


def _unclosed(order: Iterable[int], marks: Sequence[re.Match[str]]) -> list[int]:
    """Returns the tags that remain of a row of tags when all pairs without others between are removed."""
    remaining: list[int] = []
    for number in order:
        mark = marks[number]
        if (
            mark["end"]
            and remaining
            and not (last := marks[remaining[-1]])["end"]
            and last["name"] == mark["name"]
        ):
            remaining.pop()
        elif not mark["alone"]:
            remaining.append(number)
    return remaining


def _restored(line: str, tags: Sequence[str], key: str, has_entities: bool) -> str:
    """Returns the source of a line with marks. Each tag is in it once, at the end if it has no mark."""
    missing = dict(enumerate(tags))
    parts: list[str] = []
    marks = [*_marks(key).finditer(line)]
    edges = [0, *(mark.end() for mark in marks)], [*(mark.start() for mark in marks), len(line)]
    for number, (start, end) in enumerate(zip(*edges, strict=True)):
        text = line[start:end]
        parts.append(html.escape(text, quote=False) if has_entities else text)
        if number < len(marks):
            parts.append(missing.pop(int(marks[number]["number"]), ""))
    return "".join([*parts, *missing.values()])
