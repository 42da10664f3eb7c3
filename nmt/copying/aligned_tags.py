"""Tags placed by word links: for a model that has no placeholders, which can't place them in a search.

The line is translated without its tags. A pair of tags encloses the longest run of target words that are
linked to the words that it encloses in the source. Pairs stay inside each other as in the source.
"""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Sequence
from dataclasses import dataclass, field

from nmt.copying.strings import TAG

_WORD = re.compile(r"\S+")


@dataclass
class Element:
    """A tag, or a pair of tags, of a line.

    Attributes:
        opening: the tag, or the opening one of the pair.
        closing: the closing tag; empty for a single tag.
        words: the numbers of the source words inside it; empty for a single tag: those from the word behind.
        is_apart: whether a space is before and behind a single tag.
        inner: the tags inside it.
    """

    opening: str
    closing: str
    words: range
    is_apart: tuple[bool, bool] = (False, False)
    inner: list[Element] = field(default_factory=list)


def removed_tags(line: str, pattern: re.Pattern[str] = TAG) -> tuple[str, list[Element]]:
    """Returns a line without its tags, and the outermost tags of the line; `pattern` matches a tag."""
    bare, matches = "", []
    place = 0
    for match in pattern.finditer(line):
        part = line[place : match.start()]
        bare += part
        place = match.end()
        before, after = bare[-1:].isspace() or not bare, line[place : place + 1].isspace()
        is_word = not match[0].startswith("<") and not line[place : place + 1].isalnum()  # a variable
        matches.append((match[0], len(bare), (before, after or is_word)))
        if bare[-1:].isspace() and after:
            place += 1  # one of two spaces
    bare += line[place:]
    spans = [word.span() for word in _WORD.finditer(bare)]
    return bare, _nested(matches, spans)


def word_numbers(line: str, pattern: re.Pattern[str]) -> list[int]:
    """Returns the number that each word of a line without its tags has in the line with them."""
    starts = [word.start() for word in _WORD.finditer(line)]
    numbers: list[int] = []
    place, continues = 0, False
    for begin, end in [*(match.span() for match in pattern.finditer(line)), (len(line), len(line))]:
        part = line[place:begin]
        for word in _WORD.finditer(part):
            if word.start() or not continues:
                numbers.append(bisect(starts, place + word.start()) - 1)
        continues = not part[-1:].isspace() if part else continues
        place = end
    return numbers


def _nested(
    tags: Sequence[tuple[str, int, tuple[bool, bool]]], words: Sequence[tuple[int, int]]
) -> list[Element]:
    top: list[Element] = []
    opened: list[tuple[str, Element]] = []
    for tag, place, apart in tags:
        behind = sum(end <= place for _, end in words)  # number of the first word that ends behind the tag
        name = re.split(r"[\s/>]", tag.lstrip("</"), maxsplit=1)[0].casefold()
        siblings = opened[-1][1].inner if opened else top
        if tag.startswith("</") and any(name == other for other, _ in opened):
            while opened[-1][0] != name:  # not closed: single tags, whose content is next to them
                element = opened.pop()[1]
                parent = opened[-1][1].inner if opened else top
                parent += element.inner
                element.inner = []
            element = opened.pop()[1]
            stop = sum(begin < place for begin, _ in words)
            element.closing, element.words = tag, range(element.words.start, max(stop, element.words.start))
            continue
        element = Element(tag, "", range(behind, behind), apart)
        siblings.append(element)
        if not tag.startswith("</") and not tag.endswith("/>"):
            opened.append((name, element))
    for number, (_, element) in reversed([*enumerate(opened)]):
        parent = opened[number - 1][1].inner if number else top
        parent += element.inner
        element.inner = []
    return top


def with_tags(text: str, elements: Sequence[Element], links: Sequence[tuple[int, int]]) -> str:
    """Returns a translation with the tags of its source line.

    Args:
        text: the translation without tags.
        elements: the tags, as `removed_tags` returns them.
        links: source word and target word of each link; a target word has at most one.
    """
    spans = [word.span() for word in _WORD.finditer(text)]
    sources: list[int | None] = [None] * len(spans)
    for source, target in links:
        if target < len(spans):
            sources[target] = source
    inserted: dict[int, str] = {}

    def insert(place: int, string: str) -> None:
        inserted[place] = inserted.get(place, "") + string

    def place_all(siblings: Sequence[Element], low: int, high: int, limit: int) -> None:
        runs = [_run(element, sources, low, high) for element in siblings]
        cursor = low
        for number in sorted(range(len(runs)), key=lambda number: runs[number]):
            element, (begin, end) = siblings[number], runs[number]
            begin = max(begin, cursor)
            end = cursor = max(end, begin)
            if element.closing:
                start = spans[begin][0] if begin < high else limit
                stop = spans[end - 1][1] if end > begin else start
                insert(start, element.opening)
                place_all(element.inner, begin, end, stop)
                insert(stop, element.closing)
            else:
                at_end = begin == high
                before, after = element.is_apart
                string = (" " if at_end and before and text else "") + element.opening
                insert(limit if at_end else spans[begin][0], string + " " * (after and not at_end))

    place_all(elements, 0, len(spans), len(text))
    parts, place = [], 0
    for at in sorted(inserted):
        parts += [text[place:at], inserted[at]]
        place = at
    return "".join([*parts, text[place:]])


def _run(element: Element, sources: Sequence[int | None], low: int, high: int) -> tuple[int, int]:
    """Returns the target words of a tag: the longest run from `low` to `high` that is linked to its words.

    Words without a link inside the run belong to it. Without any link, the run is empty, and before the
    first word that is linked to the next source word, or else to a later one.
    """
    best = (high, high)
    start: int | None = None
    for place in range(low, high):
        source = sources[place]
        if source is None:
            continue
        if source not in element.words:
            start = None
            continue
        start = place if start is None else start
        if place + 1 - start > best[1] - best[0]:
            best = (start, place + 1)
    if best == (high, high):
        start = element.words.start
        later = [p for p in range(low, high) if (source := sources[p]) is not None and source >= start]
        place = next((p for p in later if sources[p] == start), later[0] if later else high)
        return place, place
    return best


def proportional_links(source: str, target: str) -> list[tuple[int, int]]:
    """Returns a link for each target word, to the source word at the same share of the text."""
    sources, targets = len(source.split()), len(target.split())
    return [(place * sources // targets, place) for place in range(targets)] if sources else []
