"""Translation memories and files of translators' tools: TMX 1.1 to 1.4b, and XLIFF 1.2 and 2.

The parser is lxml's, without entities, external files and huge texts. It gets the file unit by unit, so that
an error belongs to the unit in which it is, and memory is that of one unit.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from io import BufferedIOBase
from typing import TYPE_CHECKING, Any
from xml.sax.saxutils import quoteattr

from nmt.config import DataConfig, Markup
from nmt.data.corpora.columns import NoPairs, Pair, TextBlock, listed
from nmt.data.corpora.malformed import NOT_UTF8, Malformed
from nmt.data.corpora.opening import CHUNK, DataFile, known_encoding, opened
from nmt.data.corpora.tables import blocks_of
from nmt.errors import UserError
from nmt.languages import distance

if TYPE_CHECKING:
    from lxml.etree import XMLPullParser, _Element

_UNITS = ("tu", "trans-unit", "segment")
_END = re.compile(  # the group; comments and CDATA sections may contain such text
    r"<!--(?:.*?-->|.*\Z)|<!\[CDATA\[(?:.*?\]\]>|.*\Z)|(</(?:[\w.-]+:)?(?:tu|trans-unit|segment)\s*>)",
    re.DOTALL,
)
_BEGIN = re.compile(r"<(?:[\w.-]+:)?(?:tu|trans-unit|segment)[\s>]")
_DECLARATION = re.compile(r"\A\s*<\?xml\b[^>]*?\?>")
_ENCODING = re.compile(rb"<\?xml\b[^>]*?\bencoding\s*=\s*[\"']([A-Za-z0-9._-]+)[\"']")
_FILE = re.compile(r"<(?:[\w.-]+:)?(?:file|xliff)\s")
_ORIGINAL = re.compile(r"(<(?:[\w.-]+:)?internal-file\b[^>]*>)[^<]*+")  # the file that an XLIFF was made from
_LONGEST = 1 << 25  # characters between the ends of two units, with the original file
_LONGEST_UNIT = 8_000_000  # characters without it; the tree of small elements is much larger than they are
_MARKS = {
    codecs.BOM_UTF8: "utf-8-sig",
    codecs.BOM_UTF16_LE: "utf-16",
    codecs.BOM_UTF16_BE: "utf-16",
    b"<\0": "utf-16-le",
    b"\0<": "utf-16-be",
}
_XML_LANG = "{http://www.w3.org/XML/1998/namespace}lang"

CODES = {"bpt", "ept", "it", "ph", "ut", "x", "bx", "ex", "sc", "ec", "cp", "sm", "em"}
"""Inline elements whose content is not text of the sentence: codes of the original format."""
OPENING, CLOSING = {"bpt", "bx", "sc"}, {"ept", "ex", "ec"}
"""Codes that begin and end a pair without being the tags of one element."""
_AROUND = {"g", "pc", "hi"}
"""Inline elements around text of the sentence that stand for formatting. Other elements are annotations."""
_LINE_BREAKS = {"lb", "br", "pb", "x-lb", "x-br", "x-pb", "xlf:lb", "xlf:pb"}
UNTRANSLATED = {"new", "needs-translation", "initial"}
"""States of segments whose target is not a translation."""


def read_units(file: DataFile, data: DataConfig, malformed: Malformed) -> Iterator[TextBlock]:
    """Reads the pairs of a TMX or XLIFF file.

    A unit without a text in one of the two languages is not a pair. Inline elements are removed, or written
    as tags with `data.markup=tags`: `<1>…</1>` around text and `<2/>` elsewhere, with the same numbers on
    both sides.
    """
    return blocks_of(_pairs(file, data, malformed))


def _pairs(file: DataFile, data: DataConfig, malformed: Malformed) -> Iterator[Pair]:
    reader = _Units(data)
    count, before = 0, malformed.count
    for where, parts in _parsed(file, reader):
        for part in parts:
            if isinstance(part, str):
                malformed.drop(f"{where}: {part}.")
            elif all(part):
                count += 1
                yield part
    if not count and malformed.count == before:
        raise NoPairs(f"{file}: has no pair of {data.source_lang} and {data.target_lang}. {reader.found()}")


@dataclass
class _Units:
    """Turns the XML elements of units into pairs."""

    data: DataConfig
    languages: tuple[str, str] = ("", "")
    """Of an XLIFF file or its current part: those of `source` and `target` elements."""
    seen: set[str] = field(default_factory=set)
    """The languages of the file, for a message."""
    has_units: bool = False

    def begin(self, element: _Element) -> None:
        """Takes the languages from the start of an element around units."""
        names = ("source-language", "target-language") if _name(element) == "file" else ("srcLang", "trgLang")
        source, target = (str(element.get(name, "")) for name in names)
        if source or target:
            self.languages = source, target
            self.seen |= {source, target} - {""}

    def pairs(self, unit: _Element) -> Iterator[Pair | str]:
        """Yields the pairs of a unit; a text says what is wrong with it."""
        self.has_units = True
        if any(_name(child) in _UNITS for child in unit.iterdescendants("*")):
            yield "has another unit inside, as if its end were missing"
        elif _name(unit) == "tu":
            yield from self._of_tu(unit)
        else:
            yield from self._of_segment(unit)

    def found(self) -> str:
        """Returns a sentence with the languages of the file."""
        if not self.has_units:
            return "It has no unit: is it TMX or XLIFF, or the page of an error?"
        return f"Its languages are {listed(sorted(self.seen)) if self.seen else 'not named'}."

    def _of_tu(self, unit: _Element) -> Iterator[Pair | str]:
        variants = [child for child in unit if _name(child) == "tuv"]
        langs = [str(child.get(_XML_LANG) or child.get("lang") or "") for child in variants]
        self.seen |= {*langs} - {""}
        chosen: list[int] = []
        for wanted in (self.data.source_lang, self.data.target_lang):
            near = [
                (far, place)
                for place, lang in enumerate(langs)
                if place not in chosen and (far := _distance(wanted, lang)) is not None
            ]
            if not near:
                return
            chosen.append(min(near)[1])
        sides = [
            next((child for child in variants[place] if _name(child) == "seg"), None) for place in chosen
        ]
        if sides[0] is None or sides[1] is None:
            yield "has a tuv without seg"
        else:
            yield self._texts(sides[0], sides[1])

    def _of_segment(self, unit: _Element) -> Iterator[Pair | str]:
        children = {_name(child): child for child in unit}
        source, target = children.get("source"), children.get("target")
        if source is None:
            yield "has no source"
            return
        if target is None or {target.get("state"), unit.get("state")} & UNTRANSLATED:
            return
        turned = self._is_turned()
        if turned is None:
            return
        for pair in _segments(children.get("seg-source"), source, target):
            yield self._texts(*(reversed(pair) if turned else pair))

    def _is_turned(self) -> bool | None:
        """Whether the file translates in the other direction; None: it has other languages."""
        wanted = self.data.source_lang, self.data.target_lang
        for turned, (source, target) in ((False, self.languages), (True, self.languages[::-1])):
            if all(
                not lang or _distance(own, lang) is not None
                for own, lang in zip(wanted, (source, target), strict=True)
            ):
                return turned
        return None

    def _texts(self, source: _Element, target: _Element) -> Pair | str:
        numbers: dict[Any, int] | None = {} if self.data.markup is Markup.tags else None
        try:
            return _text(source, numbers), _text(target, numbers)
        except ValueError as error:
            return str(error)


def _segments(
    seg_source: _Element | None, source: _Element, target: _Element
) -> Sequence[tuple[_Element, _Element]]:
    """Returns the segments of both sides, which XLIFF 1.2 marks in `seg-source`, or else the whole sides."""
    if seg_source is None:
        return [(source, target)]
    sides = [
        {mark.get("mid"): mark for mark in side.iter("{*}mrk") if mark.get("mtype") == "seg"}
        for side in (seg_source, target)
    ]
    if not sides[0] or sides[0].keys() != sides[1].keys():
        return [(source, target)]
    return [(mark, sides[1][mid]) for mid, mark in sides[0].items()]


def _text(element: _Element, numbers: dict[Any, int] | None) -> str:
    """Returns the text of a side in one line; `numbers` of the inline elements, or None to remove them.

    Raises:
        ValueError: it has an entity, which is not loaded.
    """
    parts: list[str] = []
    _collect(element, numbers, parts, {})
    text = "".join(parts)
    if "\n" in text or "\r" in text:
        return " ".join(line.strip(" \t") for line in re.split(r"[\r\n]+", text.strip()))
    return text


def _collect(
    element: _Element, numbers: dict[Any, int] | None, parts: list[str], opened_as: dict[Any, Any]
) -> None:
    """Appends the texts in an element. `opened_as`: the key of each pair of codes that has begun."""
    parts.append(element.text or "")
    for child in element:
        name = _name(child)
        if name is None:
            raise ValueError(f"has an entity, {child.text}, which is not loaded")
        tag = _tag(child, name, numbers, opened_as)
        if name in CODES:
            parts.append(tag or (" " if is_line_break(child.attrib) else ""))
        else:
            parts.append(tag)
            _collect(child, numbers, parts, opened_as)
            parts.append(tag.replace("<", "</"))
        parts.append(child.tail or "")


def _tag(child: _Element, name: str, numbers: dict[Any, int] | None, opened_as: dict[Any, Any]) -> str:
    """Returns the tag for an inline element; empty if it has none."""
    if numbers is None or name not in CODES | _AROUND or name in {"cp", "sm", "em"}:
        return ""
    given: Mapping[Any, Any] = child.attrib
    own = given.get("rid") or given.get("i") or given.get("id")  # what joins the two codes of a pair
    if name in CLOSING:
        key = opened_as.get(given.get("startRef") or own, (name, own))
    else:
        kind = "pair" if name in OPENING else name
        opened_as[kind] = nth = opened_as.get(kind, 0) + 1  # on this side
        key = (kind, given.get("x") or own or nth)
        if name in OPENING:
            opened_as[own] = key
    number = numbers.setdefault(key, len(numbers) + 1)
    closing = "/" if name in CLOSING else ""
    return f"<{closing}{number}{'' if name in OPENING | CLOSING | _AROUND else '/'}>"


def is_line_break(attributes: Mapping[Any, Any]) -> bool:
    """Whether the attributes of an inline element say that it breaks a line."""
    return not _LINE_BREAKS.isdisjoint(
        attributes.get(key, "").lower() for key in ("ctype", "type", "subType")
    )


def _name(element: _Element) -> str | None:
    """Returns the name of an element without its namespace; None for an entity."""
    tag = element.tag
    return tag.rpartition("}")[2] if isinstance(tag, str) else None


@lru_cache(1 << 10)
def _distance(wanted: str, offered: str) -> int | None:
    return distance(wanted, offered) if offered else None


def _parsed(file: DataFile, reader: _Units) -> Iterator[tuple[str, list[Pair | str]]]:
    """Yields the place of each unit with its pairs, or with what is wrong with it."""
    from lxml import etree

    parser, parent = _parser(""), None  # of the last unit
    with opened(file) as (stream, place):
        for piece, is_unit, is_broken in _pieces(stream, file):
            begin = [found.start() for found in _BEGIN.finditer(piece)][-1:]
            where = f"{file}:{place.lines + piece.count(chr(10), 0, begin[0] if begin else len(piece)) + 1}"
            place.lines += piece.count("\n")
            parts: list[Pair | str] = []
            problem, has_begun = "", False
            if len(piece) > _LONGEST_UNIT:
                problem = f"a unit of more than {_LONGEST_UNIT:,} characters"
            else:
                try:
                    parser.feed(piece.encode("utf-8", "replace"))
                except etree.XMLSyntaxError as error:
                    problem = _problem(error)
            for event, element in parser.read_events():
                if event == "end":
                    if _name(element) in _UNITS:
                        parts += reader.pairs(element)
                        is_unit = False
                    _forget(element)
                elif _name(element) in _UNITS:
                    parent, has_begun = element.getparent(), True
                else:
                    reader.begin(element)
            if is_unit or problem:  # the unit has not ended: the parser has stopped, or waits for more
                problem = f"not valid XML ({problem or _closed(parser)})"
                if not has_begun and _FILE.search(piece):
                    raise UserError(
                        f"{where}: {problem}, in the element that names the languages. Correct it."
                    )
                parts, parser = [problem], _parser(_start_tags(parent))
            yield where, [NOT_UTF8] if is_broken else parts
        if problem := _closed(parser):
            yield f"{file}:{place.lines + 1}", [f"not valid XML ({problem})"]


def _problem(error: Exception) -> str:
    """Returns the message of a parser in one line, without the place, which is that in a piece."""
    return re.sub(r",? line \d+, column \d+$", "", " ".join(str(error).split("(<string>")[0].split()))


def _closed(parser: XMLPullParser) -> str:
    """Ends a parser; returns its error, or an empty text."""
    from lxml import etree

    try:
        parser.close()
    except etree.XMLSyntaxError as error:
        return _problem(error)
    return ""


def _start_tags(element: _Element | None) -> str:
    """Returns the start tags of an element and those around it, in which a new parser begins."""
    if element is None:
        return "<body>"
    names = "".join(
        f" xmlns{prefix and ':'}{prefix or ''}={quoteattr(str(uri))}" for prefix, uri in element.nsmap.items()
    )
    prefix, parent = f"{element.prefix}:" if element.prefix else "", element.getparent()
    return f"{'' if parent is None else _start_tags(parent)}<{prefix}{_name(element)}{names}>"


def _parser(start_tags: str) -> XMLPullParser:
    """Returns a parser that is inside elements."""
    from lxml import etree

    tags = [f"{{*}}{name}" for name in (*_UNITS, "unit", "file", "xliff")]
    parser = etree.XMLPullParser(
        ("start", "end"), tag=tags, encoding="utf-8", huge_tree=False, resolve_entities=False,
        load_dtd=False, no_network=True, remove_comments=True, remove_pis=True,
    )  # fmt: skip
    parser.feed(start_tags.encode())
    for _ in parser.read_events():
        pass
    return parser


def _pieces(stream: BufferedIOBase, file: DataFile) -> Iterator[tuple[str, bool, bool]]:
    """Yields the text in pieces, whether a unit ends at its end, and whether some of it is not decoded."""
    content = stream.read1(CHUNK)
    encoding = xml_encoding(content, file)
    is_utf8 = encoding in ("utf-8", "utf-8-sig")
    decoder = codecs.getincrementaldecoder(encoding)("surrogateescape" if is_utf8 else "replace")
    buffer, is_first, wanted = "", True, 0
    while content or buffer:
        buffer += decoder.decode(content, final=not content)
        ends = []
        if not content or len(buffer) >= wanted:
            ends = [found.end() for found in _END.finditer(buffer) if found[1]]
            wanted = 0 if ends else 2 * len(buffer)  # a long text is not searched again with each read
        num_units, at = len(ends), 0
        if not content or (not ends and len(buffer) > _LONGEST):
            ends.append(len(buffer))
        for number, end in enumerate(ends):
            piece = buffer[at:end]
            is_broken = _has_surrogates(piece) if is_utf8 else "\ufffd" in piece
            if is_first:
                piece, is_first = _DECLARATION.sub("", piece), False
            if len(piece) > CHUNK:
                piece = _ORIGINAL.sub(r"\1", piece)
            yield piece, number < num_units, is_broken
            at = end
        buffer, content = buffer[at:], stream.read1(CHUNK) if content else b""


def _has_surrogates(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return True
    return False


def xml_encoding(start: bytes, file: DataFile) -> str:
    """Returns the encoding of an XML file by its first bytes (XML 1.0, appendix F)."""
    for mark, name in _MARKS.items():
        if start.startswith(mark):
            return name
    declared = _ENCODING.match(start)
    return known_encoding(declared[1].decode(), file) if declared else "utf-8"


def _forget(element: _Element) -> None:
    """Frees the memory of an element that has ended, and of those before it."""
    element.clear(keep_tail=False)
    parent = element.getparent()
    while parent is not None and (before := element.getprevious()) is not None:
        parent.remove(before)
