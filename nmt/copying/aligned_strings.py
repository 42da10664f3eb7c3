"""URLs and variables placed by word links: for a model that has not seen any, and has no placeholders.

The line is translated without them. Each is then next to the word that is linked to its neighbour in the
source: behind the one before it or, if that has no link or the string joins the next one, before this one.
"""

from __future__ import annotations

import re
from bisect import bisect, bisect_left
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from nmt.copying.removal import OTHERS, WORD, Placed, Removed, with_inserted
from nmt.copying.strings import TAG, spans_of

_OPENING = frozenset("([{«‹„“‘\"'¿¡（「『【《")
_STOPS = frozenset(".,;:!?…。、，！？；：")
_CLOSING = _STOPS | frozenset(")]}»›”’\"'）」』】》")
_END = re.compile(rf"[{re.escape(''.join(sorted(_CLOSING)))}]+(?=\s|$)|[。、，！？；：）」』】》]+")
"""Punctuation that belongs to what is before it."""
_LETTER = re.compile(r"\w")
_AROUND = {**OTHERS, "`": "`", "<": ">"}


@dataclass(frozen=True)
class Standing:
    """A string of a line, and its place.

    Attributes:
        text: the string. Several with only punctuation between them are one, and brackets around it are part
            of it.
        word: the number of the source word before which it is or, if `is_behind`, behind which; strings do
            not count.
        is_behind: whether it can't be before the next word.
        is_last: whether only punctuation is behind it.
        marks: number of the characters of punctuation that are behind it.
        before: the character before it; empty for white space and the beginning of the line.
        after: the character behind it; empty for white space, punctuation and the end of the line.
    """

    text: str
    word: int
    is_behind: bool
    is_last: bool
    marks: int
    before: str
    after: str


def removed_strings(line: str, pattern: re.Pattern[str]) -> Removed[Standing]:
    """Returns a line without its strings, which match the pattern."""
    spans = [*_spans(line, pattern)]
    bare, place = "", 0
    parts, places = [(0, 0)], list[tuple[int, int]]()
    for start, end in spans:
        bare += line[place:start]
        place = end
        mark = _END.match(line, end)
        if mark and bare[-1:].isspace():
            bare = bare[:-1]
        elif line[end : end + 1].isspace() and (not bare or bare[-1].isspace() or _opens(line, start)):
            place += 1
        places.append((len(bare), len(mark[0]) if mark else 0))
        parts.append((len(bare), place))
    bare += line[place:]
    starts, ends = ([word.span()[side] for word in WORD.finditer(bare)] for side in (0, 1))
    strings = []
    for (start, end), (place, marks) in zip(spans, places, strict=True):
        before = line[start - 1 : start].strip() if start else ""
        after = "" if marks else line[end : end + 1].strip()
        is_last = not bare[place + marks :].strip()
        has_mark = line[end - 1] in _STOPS and not bare[:place].strip()  # it remains at the beginning
        is_behind = bool(is_last or marks or has_mark or (before and not after and not _opens(line, start)))
        number = bisect_left(starts, place) - 1 if is_behind else bisect(ends, place)
        if is_last and not marks and bare[:place].rstrip()[-1:] not in _CLOSING:
            marks = 1  # which the model may add
        strings.append(Standing(line[start:end], number, is_behind, is_last, marks, before, after))
    return Removed(bare, strings, parts, [start for start, _ in spans])


def _spans(line: str, pattern: re.Pattern[str]) -> Iterator[tuple[int, int]]:
    """Yields the beginning and the end of each string, see `Standing.text`."""
    tags = [tag.span() for tag in TAG.finditer(line)]
    merged: list[tuple[int, int]] = []
    for span in spans_of(pattern, line):
        if any(begin < span[0] < stop for begin, stop in tags):
            continue  # part of a tag, which the model knows
        start, end = _enclosed(line, *span)
        if merged and not _LETTER.search(line, merged[-1][1], start):
            start = merged.pop()[0]
        merged.append((start, end))
    for span in merged:
        start, end = _enclosed(line, *span)
        before = line[max(0, start - 2) : start].strip()[-1:]
        if (mark := _END.match(line, end)) and (not before or before in _CLOSING):
            end = mark.end()  # otherwise it would be behind other punctuation, or at the beginning
        yield start, end


def _enclosed(line: str, start: int, end: int) -> tuple[int, int]:
    """Returns the place of a string with the brackets, quotation marks and backticks around it."""
    while start and line[end : end + 1] and line[end] in _AROUND.get(line[start - 1], ""):
        start, end = start - 1, end + 1
    return start, end


def _opens(line: str, place: int) -> bool:
    """Returns whether a part of a line begins there: only brackets and quotation marks are before it."""
    while place and line[place - 1] in _OPENING:
        place -= 1
    return not place or line[place - 1].isspace()


def with_strings(text: str, strings: Sequence[Standing], links: Sequence[tuple[int, int]]) -> Placed:
    """Returns a translation with the strings of its source line.

    Args:
        text: the translation without strings.
        strings: the strings, as `removed_strings` returns them.
        links: source word and target word of each link; a target word has at most one.
    """
    words = [word.span() for word in WORD.finditer(text)]
    linked = sorted(link for link in links if link[1] < len(words))
    sources = {source for source, _ in linked}
    inserted = []
    for string in strings:
        joins = string.after or string.before in _OPENING
        if not string.is_behind and not joins and string.word - 1 in sources:
            string = replace(string, word=string.word - 1, is_behind=True)
        if string.is_behind:
            earlier = [link for link in linked if link[0] <= string.word]
            source, target = earlier[-1] if earlier else (-1, -1)
            if string.is_last and not (string.before and source == string.word):
                source, target = -1, len(words) - 1
            place = _end(text, words[target], string) if target >= 0 else 0
        else:
            later = (link for link in linked if link[0] >= string.word)
            source, target = next(later, (-1, -1))
            end = _end(text, words[-1], replace(string, marks=1)) if words else 0
            place = _start(text, words[target], string) if target >= 0 else end
        is_linked = source == string.word
        left, right = text[:place][-1:], text[place : place + 1]
        is_apart = left and not left.isspace() and not _joins(string.before, left, is_linked)
        ends_apart = right and not right.isspace() and not _joins(string.after, right, is_linked)
        ends_apart = ends_apart and not ((string.is_behind or target < 0) and right in _CLOSING)
        inserted.append((place, " " * bool(is_apart) + string.text + " " * bool(ends_apart)))
    return with_inserted(text, inserted)


def _joins(neighbour: str, character: str, is_linked: bool) -> bool:
    """Returns whether a string touches a character of the translation as it touches one of the source.

    `is_linked`: whether their words are linked.
    """
    if neighbour in _OPENING and character in _OPENING:
        return True
    return (is_linked and neighbour.isalnum()) or neighbour == character


def _end(text: str, word: tuple[int, int], string: Standing) -> int:
    """Returns the end of a word, before as much punctuation as is behind the string."""
    start, end = word
    for _ in range(string.marks):
        if end - 1 > start and text[end - 1] in _CLOSING:
            end -= 1
    return end


def _start(text: str, word: tuple[int, int], string: Standing) -> int:
    """Returns the beginning of a word, behind a bracket or a quotation mark if the string is behind one."""
    start, end = word
    while string.before in _OPENING and start < end - 1 and text[start] in _OPENING:
        start += 1
    return start
