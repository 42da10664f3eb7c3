"""Places in XML files: elements with the offsets of their tags, so that the rest of a file is left as it is.

The parser is Expat, which Python has. Entities are refused, and nothing is loaded.
"""

from __future__ import annotations

import html
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple, NoReturn
from xml.parsers import expat
from xml.sax.saxutils import quoteattr

from nmt.documents.marks import MarkedText
from nmt.errors import UserError
from nmt.runtime.streams import visible

_ATTRIBUTE = re.compile(r"\s+([^\s=/>]+)\s*=\s*(?:\"[^\"]*\"|'[^']*')")
_ILLEGAL = re.compile("[\0-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]")  # in XML 1.0
_MOST_LEVELS = 100  # of elements in a unit
_CHUNK = 1 << 20
_END_OF_CDATA = 3  # characters


@dataclass(eq=False, slots=True)
class Element:
    """An element, or what is between elements, and its place in the file.

    Attributes:
        name: its name with its prefix; `#text`, `#cdata` or `#comment` for what is not an element.
        attributes: its attributes.
        start: the offset of its start tag.
        inner: the offset of the end of its start tag.
        close: the offset of its end tag; that of its end for an empty element, such as `<x/>`.
        end: the offset of its end.
        line: the number of its line.
        is_space: whether it is text that is white space.
        children: what is inside it.
    """

    name: str
    attributes: Mapping[str, str]
    start: int
    line: int
    inner: int = 0
    close: int = 0
    end: int = 0
    is_space: bool = False
    children: list[Element] = field(default_factory=list)

    @property
    def is_blank(self) -> bool:
        """Whether it has neither text nor elements."""
        return all(child.is_space or child.name == "#comment" for child in self.children)

    @property
    def local(self) -> str:
        """The name without its prefix."""
        return self.name.rpartition(":")[2]

    @property
    def is_element(self) -> bool:
        """Whether it is an element."""
        return not self.name.startswith("#")

    def sibling_name(self, local: str) -> str:
        """Returns a name with the prefix of this element."""
        return self.name[: len(self.name) - len(self.local)] + local

    def child(self, local: str) -> Element | None:
        """Returns the first child with this local name and the prefix of this element."""
        name = self.sibling_name(local)
        return next((child for child in self.children if child.name == name), None)

    def walk(self) -> Iterator[Element]:
        """Yields everything inside it, in order."""
        for child in self.children:
            yield child
            yield from child.walk()


class _Event(NamedTuple):
    kind: str
    name: str
    attributes: Mapping[str, str]
    start: int
    line: int


Visit = Callable[[Element, Sequence[Element]], None]
"""A function of an element and of the elements around it."""


class XmlFile:
    """A well-formed XML file with its texts to translate.

    `result` has the file up to the offset `place`, and what is inserted there.
    """

    def __init__(self, text: str, name: str, most_lines: int) -> None:
        self.content, self.name = text.encode(), name
        self.result, self.place = XmlText(most_lines=most_lines), 0

    def source(self, start: int, end: int) -> str:
        """Returns the text between two offsets."""
        return self.content[start:end].decode()

    def start_tag(self, element: Element, **attributes: str | None) -> str:
        """Returns the start tag of an element with content, with other attributes; None removes one."""
        tag = self.source(element.start, element.inner).removesuffix("/>").removesuffix(">").rstrip()
        given = {name.replace("_", "-"): value for name, value in attributes.items()}

        def changed(found: re.Match[str]) -> str:
            if found[1] not in given:
                return found[0]
            value = given.pop(found[1])
            return "" if value is None else f" {found[1]}={quoteattr(value)}"

        tag = _ATTRIBUTE.sub(changed, tag)
        return tag + "".join(f" {name}={quoteattr(value)}" for name, value in given.items() if value) + ">"

    def space_next_to(self, element: Element, parent: Element, step: int = -1) -> str:
        """Returns the white space before an element, such as a line end and an indentation; 1: behind it."""
        place = parent.children.index(element) + step
        found = parent.children[place] if 0 <= place < len(parent.children) else element
        return self.source(found.start, found.end) if found.is_space else ""

    def copy_to(self, offset: int) -> None:
        """Copies the file up to an offset to the result."""
        self.result.add_frame(self.source(self.place, offset))
        self.place = offset

    def replace(self, start: int, end: int, new: str) -> None:
        """Copies the file up to `start`, and then continues at `end`, with other text between."""
        self.copy_to(start)
        self.result.add_frame(new)
        self.place = end

    def fail(self, line: int, problem: str) -> NoReturn:
        """Raises an error that names the file and a line."""
        raise UserError(f"{self.name}:{line}: {problem}.")

    def read(self, roots: Sequence[str], units: Sequence[str], begin: Visit, unit: Visit) -> XmlText:
        """Reads the file, and returns its result.

        Args:
            roots: local names that the root element may have.
            units: local names of elements that are given whole.
            begin: called with the start tag of each element outside of units.
            unit: called with each unit.

        Raises:
            UserError: the file is not well-formed, has entities, or has another root.
        """
        around: list[Element] = []  # open elements outside of units
        inside: list[Element] = []  # the open unit and open elements in it
        for event, end in self._events():
            if event.kind == "end":
                element = (inside or around).pop()
                element.close, element.end = event.start, end
                if element.local in units and not inside:
                    unit(element, around)
                continue
            element = Element(*event[1:], inner=end, close=end, end=end)
            element.is_space = event.name == "#text" and self.content[event.start : end].isspace()
            if event.kind == "start" and not around:
                if element.local not in roots:
                    self.fail(element.line, f"begins with {visible(element.name)}, not with {roots[0]}")
            if inside:
                inside[-1].children.append(element)
            if event.kind != "start":
                continue
            if inside or element.local in units:
                if len(inside) > _MOST_LEVELS:
                    self.fail(element.line, "its elements are nested too deeply")
                inside.append(element)
            else:
                begin(element, around)
                around.append(element)
        self.copy_to(len(self.content))
        return self.result

    def _events(self) -> Iterator[tuple[_Event, int]]:
        """Yields the parts of the file with their ends."""
        parser = expat.ParserCreate("utf-8")
        events: list[_Event] = []
        in_cdata = False

        def note(kind: str, name: str, attributes: Mapping[str, str] | None = None) -> None:
            place = parser.CurrentByteIndex
            events.append(_Event(kind, name, attributes or {}, place, parser.CurrentLineNumber))

        def cdata(begins: bool) -> None:
            nonlocal in_cdata
            in_cdata = begins
            if begins:
                note("other", "#cdata")

        def text(_: str) -> None:
            if not in_cdata and not (events and events[-1].name == "#text"):
                note("other", "#text")

        def refuse(name: str, *_: object) -> None:
            line = parser.CurrentLineNumber
            self.fail(line, f"has an entity, {visible(name)}, which is not loaded. Write its text")

        parser.StartElementHandler = lambda name, attributes: note("start", name, attributes)
        parser.EndElementHandler = lambda name: note("end", name)
        parser.CommentHandler = lambda _: note("other", "#comment")
        parser.ProcessingInstructionHandler = lambda *_: note("other", "#comment")
        parser.StartCdataSectionHandler = lambda: cdata(True)
        parser.EndCdataSectionHandler = lambda: cdata(False)
        parser.CharacterDataHandler = text
        parser.EntityDeclHandler = parser.SkippedEntityHandler = refuse
        for start in range(0, len(self.content) + 1, _CHUNK):
            try:
                parser.Parse(self.content[start : start + _CHUNK], start + _CHUNK > len(self.content))
            except expat.ExpatError as error:
                self.fail(error.lineno, f"not valid XML ({expat.ErrorString(error.code)})")
            for event, after in zip(events, events[1:], strict=False):
                yield event, after.start
            del events[:-1]
        for event in events:
            yield event, len(self.content)


class XmlText(MarkedText):
    """Text of an XML file as lines; its translations have no characters that XML excludes."""

    def finished(self, number: int, text: str) -> str:
        """See `MarkedText.finished`."""
        return _ILLEGAL.sub("", text)


def text_source(source: str, name: str) -> str:
    """Returns the source of a text; that of a CDATA section without it."""
    if name != "#cdata":
        return source
    return html.escape(source[len("<![CDATA[") : -_END_OF_CDATA], quote=False)
