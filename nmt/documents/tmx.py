"""TMX: units without a variant in the target language get one."""

from __future__ import annotations

from collections.abc import Sequence
from xml.sax.saxutils import quoteattr

from nmt.data.corpora.columns import listed, nearest
from nmt.documents.inline import add_segment
from nmt.documents.marks import MarkedText
from nmt.documents.pair import Pair
from nmt.documents.xml_tree import Element, XmlFile
from nmt.errors import UserError


def read_tmx(text: str, name: str, languages: Pair) -> MarkedText:
    """Divides a TMX file into the texts of units that have no variant in the target language.

    Without a source language, it is that of the header, or else that of the first variant.

    Raises:
        UserError: the file is not valid XML, a variant has no `seg`, no unit is in the source language, or
            the target language is not given.
    """
    if languages.target is None:
        raise UserError(f"{name}: has several languages. Give the target language.")
    xml = XmlFile(text, name, languages.most_lines)
    reader = _Reader(xml, languages.source, languages.target)
    result = xml.read(["tmx"], ["tu"], reader.begin, reader.unit)
    if reader.seen and not reader.has_source:
        raise UserError(
            f"{name}: has no text in {languages.source}. Its languages are {listed(sorted(reader.seen))}."
        )
    return result


class _Reader:
    """Reads units; `seen` has their languages, `has_source` whether a unit is in the source language."""

    def __init__(self, xml: XmlFile, source: str | None, target: str) -> None:
        self._xml, self._source, self._target = xml, source, target
        self.seen: set[str] = set()
        self.has_source = False

    def begin(self, element: Element, around: Sequence[Element]) -> None:
        """Reads the source language of the header."""
        language = element.attributes.get("srclang", "*all*")
        if element.local == "header" and self._source is None and language != "*all*":
            self._source = language

    def unit(self, unit: Element, around: Sequence[Element]) -> None:
        """Adds the source of a unit that has no text in the target language."""
        xml = self._xml
        elements = [child for child in unit.children if child.name == unit.sibling_name("tuv")]
        variants: dict[str, Element] = {}  # the first of each language
        for one in elements:
            variants.setdefault(one.attributes.get("xml:lang") or one.attributes.get("lang", ""), one)
        self.seen |= {*variants}
        named = [code for code in variants if code]
        source = next(iter(variants), None) if self._source is None else nearest(self._source, named)
        if source is None:
            return
        self.has_source = True
        target = nearest(self._target, [code for code in named if code != source])
        segment = variants[source].child("seg")
        if segment is None:
            xml.fail(variants[source].line, "tuv has no seg")
        if segment.is_blank:
            return
        if target is None:
            last = elements[-1]
            name = "xml:lang" if "xml:lang" in variants[source].attributes else "lang"
            xml.copy_to(last.end)
            xml.result.add_frame(xml.space_next_to(variants[source], unit))
            xml.result.add_frame(f"<{last.name} {name}={quoteattr(self._target)}>")
            self._add(segment, xml.space_next_to(segment, variants[source]))
            xml.result.add_frame(f"{xml.space_next_to(segment, variants[source], 1)}</{last.name}>")
            return
        empty = variants[target].child("seg")
        if empty is None:
            xml.fail(variants[target].line, "tuv has no seg")
        if empty.is_blank:
            xml.copy_to(empty.start)
            self._add(segment, "")
            xml.place = empty.end

    def _add(self, segment: Element, space: str) -> None:
        self._xml.result.add_frame(f"{space}<{segment.name}>")
        add_segment(self._xml, segment)
        self._xml.result.add_frame(f"</{segment.name}>")
