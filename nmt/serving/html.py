"""HTML as lines to translate: the text between its blocks, with the tags inside a sentence as short marks.

A block, such as a paragraph or a cell, is a line. A tag inside a line becomes a mark `<b i=0>` without its
attributes, which the translation has again at its place. The content of elements such as `code`, and of those
with `translate="no"`, is one mark. Everything else of the text is left as it is.
"""

from __future__ import annotations

import html
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

_TAG = re.compile(
    r"<(?:!--|!\[CDATA\[|[!?][^<>]*+>|(?P<end>/?)(?P<name>[A-Za-z][^\s<>/]*+)"
    r"(?P<rest>[^<>\"']*+(?:(?:\"[^\"<]*+\"|'[^'<]*+')[^<>\"']*+)*+)>)"
)
_UNTRANSLATED = re.compile(
    r"\btranslate\s*=\s*[\"']?no\b|\bclass\s*=\s*(?:[\"'][^\"']*\bnotranslate\b|notranslate\b)", re.IGNORECASE
)
_OPAQUE = frozenset("code kbd math pre samp script style svg textarea var".split())
_RAW = frozenset(("script", "style", "textarea"))  # their content has no tags
_VOID = frozenset("area base br col embed hr img input link meta source track wbr".split())
_BLOCKS = frozenset(
    "address article aside audio base blockquote body br button canvas caption center col colgroup dd "
    "details dialog div dl dt embed fieldset figcaption figure footer form frame frameset h1 h2 h3 h4 h5 h6 "
    "head header hr html iframe input legend li link main map menu meta nav noscript object ol optgroup "
    "option p pre script section select style summary table tbody td template textarea tfoot th thead title "
    "tr ul video".split()
)
_SPACES = re.compile(r"[ \t\n\r\f\v\x1c-\x1f\x85\u2028\u2029]+")
_MOST_TAGS = 24  # of a line; a line with more is divided


@dataclass(frozen=True)
class _Piece:
    """A part of HTML: text, or a tag, a comment or an element that is not translated, with its name.

    `kind` is one of `text`, `open`, `close` and `alone`.
    """

    kind: str
    source: str
    name: str = ""


@dataclass
class HtmlText:
    """An HTML text as lines, none or more.

    Attributes:
        lines: the lines, with marks in place of tags.
        frame: the HTML before, between and after the lines.
        tags: for each line the HTML of its marks.
        keys: for each line the name of the attribute of its marks.
    """

    lines: list[str] = field(default_factory=list)
    frame: list[str] = field(default_factory=lambda: [""])
    tags: list[list[str]] = field(default_factory=list)
    keys: list[str] = field(default_factory=list)

    @classmethod
    def of(cls, text: str) -> HtmlText:
        """Divides HTML into lines."""
        result = cls()
        segment: list[_Piece] = []
        for piece in _pieces(text):
            if piece.name in _BLOCKS:
                result._add(segment)
                segment = []
                result.frame[-1] += piece.source
            else:
                segment.append(piece)
        result._add(segment)
        return result

    def joined(self, lines: Sequence[str]) -> str:
        """Returns the HTML with other lines, such as translations, in place of its own."""
        parts = [self.frame[0]]
        for line, tags, key, after in zip(lines, self.tags, self.keys, self.frame[1:], strict=True):
            parts += [_restored(line, tags, key), after]
        return "".join(parts)

    def _add(self, segment: list[_Piece]) -> None:
        """Adds the lines of the pieces between two blocks."""
        for pieces in _divided(segment):
            before, inner, after = _trimmed(pieces)
            self.frame[-1] += "".join(piece.source for piece in before)
            if any(piece.kind == "text" and any(map(str.isalpha, piece.source)) for piece in inner):
                line, tags, key = _marked(inner)
                self.lines.append(line)
                self.tags.append(tags)
                self.keys.append(key)
                self.frame.append("")
            else:
                self.frame[-1] += "".join(piece.source for piece in inner)
            self.frame[-1] += "".join(piece.source for piece in after)


def _pieces(text: str) -> Iterator[_Piece]:
    """Yields the parts of HTML, which are the whole text."""
    place = 0
    while match := _TAG.search(text, place):
        if match.start() > place:
            yield _Piece("text", text[place : match.start()])
        place = match.start()
        if match["name"] is None:
            end = match.end()
            if close := {"<!--": "-->", "<![CDATA[": "]]>"}.get(match[0]):
                end = text.find(close, end)
                end = len(text) if end < 0 else end + 3
            yield _Piece("alone", text[place:end], "!doctype" if match[0][:3] == "<!D" else "!")
            place = end
            continue
        name = match["name"].lower()
        is_empty = name in _VOID or match["rest"].endswith("/")
        if match["end"]:
            yield _Piece("close", match[0], name)
        elif not is_empty and (name in _OPAQUE or _UNTRANSLATED.search(match["rest"])):
            end = _end_of_element(text, match.end(), name)
            yield _Piece("alone", text[place:end], name)
            place = end
            continue
        else:
            yield _Piece("alone" if is_empty else "open", match[0], name)
        place = match.end()
    if place < len(text):
        yield _Piece("text", text[place:])


def _end_of_element(text: str, place: int, name: str) -> int:
    """Returns the end of an element whose content begins at a place; that of the text if it is not closed."""
    pattern = rf"</{re.escape(name)}(?=[\s/>])[^<>]*+>"
    if name not in _RAW:
        pattern += rf"|<{re.escape(name)}(?=[\s/>])[^<>]*+>"
    depth = 1
    for match in re.compile(pattern, re.IGNORECASE).finditer(text, place):
        if match[0].startswith("</"):
            depth -= 1
        elif not match[0].endswith("/>"):
            depth += 1
        if not depth:
            return match.end()
    return len(text)


def _divided(segment: list[_Piece]) -> Iterator[list[_Piece]]:
    """Yields the pieces in groups, of which each has no more tags than a line may have."""
    group: list[_Piece] = []
    tags = 0
    for piece in segment:
        if tags >= _MOST_TAGS and piece.kind == "text":
            yield group
            group, tags = [], 0
        group.append(piece)
        tags += piece.kind != "text"
    yield group


def _partners(pieces: Sequence[_Piece]) -> dict[int, int]:
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


def _trimmed(pieces: list[_Piece]) -> tuple[list[_Piece], list[_Piece], list[_Piece]]:
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
        if piece.kind == "alone":
            return piece.name in _VOID or piece.name == "!"
        return place not in partners

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


def _with_edges(pieces: Sequence[_Piece]) -> Iterator[_Piece]:
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
                yield _Piece("text", part)


def _marked(pieces: Sequence[_Piece]) -> tuple[str, list[str], str]:
    """Returns the line of pieces, the HTML of its marks, and the name of their attribute."""
    texts = [_SPACES.sub(" ", html.unescape(p.source)) if p.kind == "text" else "" for p in pieces]
    key, whole = "i", "".join(texts)
    while f" {key}=" in whole:
        key += "i"
    parts, tags = [], list[str]()
    for piece, text in zip(pieces, texts, strict=True):
        if piece.kind == "text":
            parts.append(text)
            continue
        name = re.sub(r"[^\w.:-]", "", piece.name) or "x"
        start, end = "</" if piece.kind == "close" else "<", "/>" if piece.kind == "alone" else ">"
        parts.append(f"{start}{name} {key}={len(tags)}{end}")
        tags.append(piece.source)
    return "".join(parts), tags, key


def _restored(line: str, tags: Sequence[str], key: str) -> str:
    """Returns the HTML of a line with marks. Each tag is in it once; those without a mark are at the end."""
    missing = dict(enumerate(tags))
    parts: list[str] = []
    marks = [*re.finditer(rf"</?[\w.:-]+ {key}=(\d{{1,4}})/?>", line)]
    edges = [0, *(mark.end() for mark in marks)], [*(mark.start() for mark in marks), len(line)]
    for number, (start, end) in enumerate(zip(*edges, strict=True)):
        parts.append(html.escape(line[start:end], quote=False))
        if number < len(marks):
            parts.append(missing.pop(int(marks[number][1]), ""))
    return "".join([*parts, *missing.values()])
