"""Tags placed by word links: for a model that has no placeholders, which can't place them in a search.

The line is translated without its tags. A pair of tags encloses the longest run of target words that are
linked to the words that it encloses in the source. Pairs stay inside each other as in the source.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect, bisect_left
from collections.abc import Sequence
from dataclasses import dataclass, field

from nmt.copying.removal import OTHERS, WORD, Placed, Removed, with_inserted
from nmt.copying.strings import TAG

_OF_WORDS = "%‰&*/@#\\_-§"


@dataclass
class Element:
    """A tag, or a pair of tags, of a line.

    Attributes:
        opening: the tag, or the opening one of the pair.
        closing: the closing tag; empty for a single tag.
        words: the numbers of the source words inside it; empty for a single tag: those from the word behind.
        is_apart: whether a space is before and behind a single tag.
        marks: whether the text inside it begins and ends with punctuation.
        inner: the tags inside it.
    """

    opening: str
    closing: str
    words: range
    is_apart: tuple[bool, bool] = (False, False)
    marks: tuple[bool, bool] = (False, False)
    inner: list[Element] = field(default_factory=list)


def removed_tags(line: str, pattern: re.Pattern[str] = TAG) -> Removed[Element]:
    """Returns a line without its tags, which match the pattern, and the outermost of them."""
    bare, place = "", 0
    matches, parts = [], [(0, 0)]
    for match in pattern.finditer(line):
        bare += line[place : match.start()]
        place = match.end()
        before, after = bare[-1:].isspace() or not bare, line[place : place + 1].isspace()
        matches.append((match[0], len(bare), (before, after)))
        if bare[-1:].isspace() and after:
            place += 1  # one of two spaces
        parts.append((len(bare), place))
    bare += line[place:]
    return Removed(bare, _nested(matches, bare), parts)


def _nested(tags: Sequence[tuple[str, int, tuple[bool, bool]]], bare: str) -> list[Element]:
    starts = [word.start() for word in WORD.finditer(bare)]
    ends = [word.end() for word in WORD.finditer(bare)]
    top: list[Element] = []
    opened: list[tuple[str, Element, int]] = []
    for tag, place, apart in tags:
        behind = bisect(ends, place)  # number of the first word that ends behind the tag
        name = re.split(r"[\s/>]", tag.lstrip("</"), maxsplit=1)[0].casefold()
        siblings = opened[-1][1].inner if opened else top
        if tag.startswith("</") and any(name == other for other, *_ in opened):
            while opened[-1][0] != name:  # not closed: single tags, whose content is next to them
                element = opened.pop()[1]
                parent = opened[-1][1].inner if opened else top
                parent += element.inner
                element.inner = []
            _, element, start = opened.pop()
            inside = bare[start:place].strip()
            element.marks = _is_mark(inside[:1]), _is_mark(inside[-1:])
            stop = bisect_left(starts, place)
            element.closing, element.words = tag, range(element.words.start, max(stop, element.words.start))
            continue
        element = Element(tag, "", range(behind, behind), apart)
        siblings.append(element)
        if not tag.startswith("</") and not tag.endswith("/>"):
            opened.append((name, element, place))
    for number, (_, element, _) in reversed([*enumerate(opened)]):
        parent = opened[number - 1][1].inner if number else top
        parent += element.inner
        element.inner = []
    return top


def with_tags(text: str, elements: Sequence[Element], links: Sequence[tuple[int, int]]) -> Placed:
    """Returns a translation with the tags of its source line.

    Args:
        text: the translation without tags.
        elements: the tags, as `removed_tags` returns them.
        links: source word and target word of each link; a target word has at most one.
    """
    spans = [word.span() for word in WORD.finditer(text)]
    sources: list[int | None] = [None] * len(spans)
    for source, target in links:
        if target < len(spans):
            sources[target] = source
    inserted: list[tuple[int, str]] = []

    def place_all(siblings: Sequence[Element], low: int, high: int, first: int, limit: int) -> None:
        runs = _runs(siblings, sources, low, high)
        cursor = low
        for number in sorted(range(len(runs)), key=lambda number: runs[number]):
            element, (begin, end) = siblings[number], runs[number]
            begin = max(begin, cursor)
            end = cursor = max(end, begin)
            if element.closing:
                start = spans[begin][0] if begin < high else limit
                stop = spans[end - 1][1] if end > begin else start
                start, stop = _without_marks(text, start, stop, element.marks)
                start = min(max(start, first), limit)
                stop = max(min(stop, limit), start)
                inserted.append((start, element.opening))
                place_all(element.inner, begin, end, start, stop)
                inserted.append((stop, element.closing))
            else:
                at_end = begin == high
                before, after = element.is_apart
                string = (" " if at_end and before and text else "") + element.opening
                place = limit if at_end else min(max(spans[begin][0], first), limit)
                inserted.append((place, string + " " * (after and not at_end)))

    place_all(elements, 0, len(spans), 0, len(text))
    return with_inserted(text, inserted)


def _without_marks(text: str, start: int, stop: int, marks: tuple[bool, bool]) -> tuple[int, int]:
    """Returns the place of a part of a text without the punctuation at its ends, at those without `marks`.

    A bracket or a quotation mark inside the part has its other one there, as in `Datei(en)`.
    """
    begins, ends = marks

    def is_outer(place: int) -> bool:
        others, rest = OTHERS.get(text[place], ""), (start + (place == start), stop - (place != start))
        return _is_mark(text[place]) and all(text.find(other, *rest) < 0 for other in others)

    while stop - start > 1:
        if not begins and not ends and text[stop - 1] in OTHERS.get(text[start], "") and stop - start > 2:
            start, stop = start + 1, stop - 1
        elif not ends and is_outer(stop - 1):
            stop -= 1
        elif not begins and is_outer(start):
            start += 1
        else:
            break
    return start, stop


def _is_mark(character: str) -> bool:
    """Returns whether a character is punctuation that is not part of the word next to it."""
    return unicodedata.category(character or "a").startswith("P") and character not in _OF_WORDS


def _runs(
    elements: Sequence[Element], sources: Sequence[int | None], low: int, high: int
) -> list[tuple[int, int]]:
    """Returns the target words of each tag, see `_run`.

    A pair without a linked word, though it encloses words, gets the word before which it would be, unless
    this belongs to another tag: English `is running` is German `rennt`, linked to `running` alone.
    """
    runs = [_run(element, sources, low, high) for element in elements]
    taken = {word for run in runs for word in range(*run)}
    for number, (element, (begin, end)) in enumerate(zip(elements, runs, strict=True)):
        if begin == end < high and element.closing and element.words and begin not in taken:
            taken.add(begin)
            runs[number] = begin, begin + 1
    return runs


def _run(element: Element, sources: Sequence[int | None], low: int, high: int) -> tuple[int, int]:
    """Returns the target words of a tag: the longest run from `low` to `high` that is linked to its words.

    Words without a link inside the run belong to it. Without any link, the run is empty, and before the
    word that is linked to the next source word, or to the next one that has a link.
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
        later = [
            (source, p) for p in range(low, high) if (source := sources[p]) is not None and source >= start
        ]
        _, place = min(later, default=(0, high))
        return place, place
    return best
