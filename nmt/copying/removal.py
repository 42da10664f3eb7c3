"""Lines without some of their strings, and translations with these: where their words are in the whole."""

from __future__ import annotations

import re
from bisect import bisect
from collections.abc import Sequence
from typing import Generic, NamedTuple, TypeVar

T = TypeVar("T")

WORD = re.compile(r"\S+")
"""Matches a word of a line, with its punctuation."""
_PAIRS = "() [] {} «» ‹› “” „“ ‘’ ‚‘ 「」 『』 （） 【】 《》 \"\" ''"
OTHERS: dict[str, str] = {}
"""The other characters of the pairs of a bracket or a quotation mark."""
for _pair in map(tuple, _PAIRS.split()):
    for _one, _other in (_pair, _pair[::-1]):
        OTHERS[_one] = OTHERS.get(_one, "") + _other

Part = tuple[int, int]
"""The place of a part of a text in the shorter and in the longer text; it ends where the next one begins."""


class Removed(NamedTuple, Generic[T]):
    """A line without some of its strings.

    Attributes:
        text: the line without them.
        strings: what was removed.
        parts: the parts that remain.
        places: the beginning of each string that is a word, in the line.
    """

    text: str
    strings: Sequence[T]
    parts: Sequence[Part]
    places: Sequence[int] = ()


class Placed(NamedTuple):
    """A translation with the strings of its line.

    Attributes:
        text: the translation.
        parts: the parts that were there before.
        places: the beginning of each string.
    """

    text: str
    parts: Sequence[Part]
    places: Sequence[int]


def with_inserted(text: str, strings: Sequence[tuple[int, str]]) -> Placed:
    """Returns a text with strings at these places of it; those at the same place in their order."""
    order = sorted(range(len(strings)), key=lambda number: strings[number][0])
    whole, end = "", 0
    parts, places = [(0, 0)], [0] * len(strings)
    for number in order:
        place, string = strings[number]
        whole += text[end:place]
        places[number] = len(whole) + len(string) - len(string.lstrip(" "))
        whole, end = whole + string, place
        parts.append((end, len(whole)))
    return Placed(whole + text[end:], parts, places)


def word_numbers(shorter: str, longer: str, parts: Sequence[Part]) -> list[int]:
    """Returns the number in the longer text of each word of the shorter one: that of its first letter."""
    starts = [word.start() for word in WORD.finditer(longer)]
    numbers = []
    for word in WORD.finditer(shorter):
        begin, moved = parts[bisect(parts, (word.start(), len(longer))) - 1]
        numbers.append(bisect(starts, moved + word.start() - begin) - 1)
    return numbers


def word_number(text: str, place: int) -> int:
    """Returns the number of the word at a place of a text."""
    return len(text[: place + 1].split()) - 1


def proportional_links(source: str, target: str) -> list[tuple[int, int]]:
    """Returns a link for each target word, to the source word at the same share of the text."""
    sources, targets = len(source.split()), len(target.split())
    return [(place * sources // targets, place) for place in range(targets)] if sources else []
