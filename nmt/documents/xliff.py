"""XLIFF 1.2 and 2: segments without a translation get one in `target`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from nmt.data.corpora.translation_memories import UNTRANSLATED
from nmt.documents.inline import add_segment
from nmt.documents.marks import MarkedText
from nmt.documents.pair import Pair
from nmt.documents.xml_tree import Element, XmlFile

_STATES: Mapping[str, Mapping[str, str | None]] = {
    "trans-unit": {"state": "needs-review-translation", "state_qualifier": "mt-suggestion"},
    "segment": {"state": "translated", "subState": None},
}
"""The attributes of a translation by a machine: of `target` in XLIFF 1.2, of `segment` in XLIFF 2."""


def read_xliff(text: str, name: str, languages: Pair) -> MarkedText:
    """Divides an XLIFF file into the texts of segments that have no translation.

    A segment has none if its `target` is missing or blank, or is equal to the source and has a state such as
    `new`. Units with `translate="no"` are left as they are.

    Raises:
        UserError: the file is not valid XML, a unit has no `source`, or the languages are others.
    """
    xml = XmlFile(text, name, languages.most_lines)
    reader = _Reader(xml, languages)
    return xml.read(["xliff"], [*_STATES], reader.begin, reader.unit)


class _Reader:
    def __init__(self, xml: XmlFile, languages: Pair) -> None:
        self._xml, self._languages = xml, languages

    def begin(self, element: Element, around: Sequence[Element]) -> None:
        """Checks the languages of a file, and names the target language if it is missing."""
        version_2 = element.attributes.get("version", "").startswith("2")
        if element.local == "xliff" and version_2:
            names = "srcLang", "trgLang"
        elif element.local == "file" and not around[0].attributes.get("version", "").startswith("2"):
            names = "source-language", "target-language"
        else:
            return
        source, target = (element.attributes.get(name, "") for name in names)
        if problem := self._languages.mismatch(source, target):
            self._xml.fail(element.line, problem)
        is_empty = self._xml.source(element.start, element.inner).endswith("/>")
        if not target and self._languages.target and not is_empty:
            tag = self._xml.start_tag(element, **{names[1]: self._languages.target})
            self._xml.replace(element.start, element.inner, tag)

    def unit(self, unit: Element, around: Sequence[Element]) -> None:
        """Adds the segments of a unit without a translation."""
        xml = self._xml
        source, target = unit.child("source"), unit.child("target")
        if _inherited("translate", [*around, unit]) == "no":
            return
        if source is None:
            xml.fail(unit.line, f"{unit.local} has no source")
        if source.is_blank:
            return
        by_lines = _inherited("xml:space", [*around, unit, source]) == "preserve"
        segmented = unit.child("seg-source")
        if segmented is None or not any(map(_is_segment, segmented.walk())):
            segmented = source
        state = _STATES[unit.local]
        if unit.local == "segment" and not _is_translated(xml, unit, source, target):
            xml.replace(unit.start, unit.inner, xml.start_tag(unit, **state))
        attributes = state if unit.local == "trans-unit" else {}
        if target is None:
            anchor = unit.child("seg-source") or source
            xml.copy_to(anchor.end)
            xml.result.add_frame(xml.space_next_to(source, unit))
            states = "".join(f' {name.replace("_", "-")}="{value}"' for name, value in attributes.items())
            xml.result.add_frame(f"<{unit.sibling_name('target')}{states}>")
        elif (empty := [*_empty_segments(segmented, target)]) or not _is_translated(
            xml, unit, source, target
        ):
            xml.replace(target.start, target.inner, xml.start_tag(target, **attributes))
            for mark, segment in empty:
                xml.replace(mark.start, mark.inner, xml.start_tag(mark))
                add_segment(xml, segment, by_lines=by_lines)
                xml.replace(mark.close, mark.end, f"</{mark.name}>")
            if empty:
                return
            xml.place = target.close
        else:
            return
        self._add(segmented, by_lines)
        if target is None or target.close == target.end:
            xml.result.add_frame(f"</{unit.sibling_name('target')}>")

    def _add(self, element: Element, by_lines: bool) -> None:
        """Adds the content of an element, in which segments may be marked."""
        xml = self._xml
        if not any(map(_is_segment, element.walk())):
            add_segment(xml, element, by_lines=by_lines)
            return
        for child in element.children:
            if not _is_segment(child) and not any(map(_is_segment, child.walk())):
                xml.result.add_frame(xml.source(child.start, child.end))
                continue
            xml.result.add_frame(xml.start_tag(child))
            if _is_segment(child):
                add_segment(xml, child, by_lines=by_lines)
            else:
                self._add(child, by_lines)
            xml.result.add_frame(f"</{child.name}>")


def _inherited(name: str, elements: Sequence[Element]) -> str | None:
    """Returns an attribute of the innermost element that has it."""
    return next((one.attributes[name] for one in reversed(elements) if name in one.attributes), None)


def _is_segment(element: Element) -> bool:
    return element.local == "mrk" and element.attributes.get("mtype") == "seg"


def _is_translated(xml: XmlFile, unit: Element, source: Element, target: Element | None) -> bool:
    if target is None or target.is_blank:
        return False
    states = {element.attributes.get("state") for element in (unit, target)}
    same = xml.source(source.inner, source.close) == xml.source(target.inner, target.close)
    return not (same and states & UNTRANSLATED)


def _empty_segments(source: Element, target: Element) -> Iterator[tuple[Element, Element]]:
    """Yields the empty marks of segments in a target, with the segments of the source."""
    segments = {one.attributes.get("mid"): one for one in source.walk() if _is_segment(one)}
    for mark in target.walk():
        segment = segments.get(mark.attributes.get("mid")) if _is_segment(mark) else None
        if segment is not None and mark.is_blank and not segment.is_blank:
            yield mark, segment
