"""Inline elements of XLIFF and TMX: the content of a segment as pieces of text and marks."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from nmt.data.corpora.translation_memories import CLOSING, CODES, OPENING, is_line_break
from nmt.documents.marks import Piece
from nmt.documents.xml_tree import Element, XmlFile, text_source

_LINE_END = re.compile(r"(\n|&#(?:0*10|x0*[aA]);)")
_ANGULAR = re.compile(r"(START|CLOSE)_(\w+?)(?:_\d+)?")
"""Matches the id of `x` for a tag in XLIFF 1.2 of Angular: `START_LINK_1`, and `CLOSE_LINK` for its end."""


def add_segment(xml: XmlFile, segment: Element, *, by_lines: bool = False) -> None:
    """Adds the content of a segment to the texts of a file, as one text or `by_lines`."""
    pieces = [*_Pieces(xml).of(segment)]
    if not by_lines:
        xml.result.add(pieces)
        return
    line: list[Piece] = []
    for piece in pieces:
        parts = _LINE_END.split(piece.source) if piece.kind == "text" else [piece.source]
        line.append(replace(piece, source=parts[0]))
        for end, other in zip(parts[1::2], parts[2::2], strict=True):
            xml.result.add(line)
            xml.result.add_frame(end)
            line = [Piece("text", other)]
    xml.result.add(line)


@dataclass
class _Pieces:
    xml: XmlFile
    numbers: dict[str | None, int] = field(default_factory=dict)
    """The number of each pair of codes."""

    def of(self, element: Element) -> Iterator[Piece]:
        """Yields the pieces in an element."""
        source = self.xml.source
        for child in element.children:
            whole, name = source(child.start, child.end), child.local
            if not child.is_element:
                is_text = child.name != "#comment"
                yield Piece("text" if is_text else "alone", text_source(whole, child.name), "", not is_text)
            elif name in OPENING | CLOSING:
                yield Piece("open" if name in OPENING else "close", whole, f"b{self._number(child)}")
            elif name == "x" and (half := _ANGULAR.fullmatch(child.attributes.get("id", ""))):
                yield Piece("open" if half[1] == "START" else "close", whole, f"a{half[2]}")
            elif name in CODES or child.close == child.end or _is_protected(child):
                yield Piece("alone", whole, "br" if is_line_break(child.attributes) else name)
            else:
                yield Piece("open", source(child.start, child.inner), name)
                yield from self.of(child)
                yield Piece("close", source(child.close, child.end), name)

    def _number(self, code: Element) -> int:
        given = code.attributes
        joined = next((given[name] for name in ("startRef", "rid", "i", "id") if name in given), None)
        return self.numbers.setdefault(joined, len(self.numbers) + 1)


def _is_protected(element: Element) -> bool:
    given = element.attributes
    return given.get("translate") == "no" or given.get("mtype") == "protected"
