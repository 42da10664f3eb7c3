"""Links between the words of raw text, from links between the words of text with placeholders."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nmt.copying.strings import Original, number_of

Links: TypeAlias = tuple[tuple[int, int], ...]
"""Links of source word and target word, from 0, in the order of the target words."""


@dataclass(frozen=True)
class RawWords:
    """The words of a raw text that belong to the parts of the same text with placeholders.

    Attributes:
        words: for each word with placeholders, the numbers of the raw words with which it shares characters.
            Empty if its placeholders were removed.
        plain: for each word with placeholders, whether it has no placeholder.
        strings: for each string of the raw text, the numbers of its words.
    """

    words: Sequence[range]
    plain: Sequence[bool]
    strings: dict[int, range]

    @classmethod
    def of(cls, masked: str, raw: str, strings: Sequence[Original]) -> RawWords:
        """Compares a text with placeholders with the raw text.

        Both have the same characters in the same order, except white space and the placeholders. An unknown
        or repeated placeholder has no raw characters. Strings without a placeholder are at the end.

        Args:
            masked: the text with placeholders.
            raw: the text with strings.
            strings: the string of each placeholder, by number.
        """
        numbers = [number for number, word in enumerate(raw.split()) for _ in word]
        sizes = {number: len("".join(string.text.split())) for number, string in enumerate(strings)}
        words, plain, spans = [], [], dict[int, range]()
        place = 0
        for word in masked.split():
            begin = place
            for character in word:
                number = number_of(character)
                size = 1 if number is None else sizes.pop(number, 0)
                if number is not None and size:
                    spans[number] = _span(numbers[place : place + size])
                place += size
            words.append(_span(numbers[begin:place]))
            plain.append(all(number_of(character) is None for character in word))
        for number, size in sizes.items():
            spans[number] = _span(numbers[place : place + size])
            place += size
        return cls(words, plain, spans)


def raw_links(links: Links, source: RawWords, target: RawWords) -> Links:
    """Returns the links of raw words.

    A string is linked to itself. A raw word that has letters and a string has the link of the letters. All
    other words have the links of the words with placeholders.

    Args:
        links: of the words with placeholders.
        source: the words of the source.
        target: the words of the target.

    Returns:
        The links in the order of the target words, at most one for each.
    """
    found: dict[int, int] = {}
    _add(found, [link for link in links if target.plain[link[1]]], source.words, target.words)
    strings = [(number, number) for number in target.strings if number in source.strings]
    _add(found, strings, source.strings, target.strings)
    _add(found, links, source.words, target.words)
    return tuple((found[word], word) for word in sorted(found))


def identity_links(line: str) -> Links:
    """Returns the links of a line that is its own translation."""
    return tuple((number, number) for number in range(len(line.split())))


def _add(
    found: dict[int, int],
    links: Iterable[tuple[int, int]],
    source: Sequence[range] | dict[int, range],
    target: Sequence[range] | dict[int, range],
) -> None:
    """Links raw words one by one: the first to the first, the second to the second, and so on.

    If the source has fewer, its last word is linked to the others. Links that exist are left unchanged.
    """
    for one, other in links:
        for offset, word in enumerate(target[other]):
            if begins := source[one]:
                found.setdefault(word, begins[min(offset, len(begins) - 1)])


def _span(numbers: Sequence[int]) -> range:
    return range(numbers[0], numbers[-1] + 1) if numbers else range(0)
