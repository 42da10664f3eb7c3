"""Differences of lines by word, or by character in languages without spaces between words."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Mapping, Sequence

LONGEST = 20_000
"""Words of a line; the differences of longer lines are not computed."""


def words_of(line: str, *, by_character: bool = False) -> list[str]:
    """Splits a line into words, each with the white space before it; punctuation around a word is a word.

    With `by_character`, each character is a word, with the combining marks after it.
    """
    words: list[str] = []
    rest = line.rstrip()
    while rest:
        text = rest.lstrip()
        space, (part, *_) = rest[: len(rest) - len(text)], text.split(maxsplit=1)
        rest = text[len(part) :]
        first, *others = _characters(part) if by_character else _peeled(part)
        words += [space + first, *others]
    return words


def missing(ours: Sequence[str], theirs: Sequence[str]) -> tuple[list[bool], list[bool]]:
    """Returns for each word of two lines whether it is outside their longest common subsequence.

    A row of the table of lengths is an integer with a bit for each of our words, as in Hyyrö (2004), "Bit-
    parallel LCS-length computation revisited". White space does not matter. All is missing from lines with
    more than `LONGEST` words.
    """
    flags = [True] * len(ours), [True] * len(theirs)
    if max(map(len, flags)) > LONGEST:
        return flags
    places: dict[str, int] = {}
    for place, word in enumerate(map(str.strip, ours)):
        places[word] = places.get(word, 0) | 1 << place
    whole = (1 << len(ours)) - 1
    rows = [
        whole
    ]  # bit i of row j is 0: our words up to i have one more in common with the first j than without i
    for word in map(str.strip, theirs):
        row, hits = rows[-1], rows[-1] & places.get(word, 0)
        rows.append((row + hits | row - hits) & whole)
    i, j = len(ours), len(theirs)
    while i and j:
        if rows[j] >> (i - 1) & 1:
            i -= 1
        elif not rows[j - 1] >> (i - 1) & 1:
            j -= 1
        else:
            i, j = i - 1, j - 1
            flags[0][i] = flags[1][j] = False
    return flags


def runs(words: Sequence[str], marks: Mapping[str, Sequence[bool]]) -> list[tuple[str, str]]:
    """Joins words with equal marks; returns each text with the names of its marks, separated by spaces.

    `marks` has for each name whether a word is marked. White space before a marked word is not marked.
    """
    joined: list[tuple[str, str]] = []
    for place, word in enumerate(words):
        names = " ".join(name for name, flags in marks.items() if flags[place])
        if joined and joined[-1][1] == names:
            joined[-1] = (joined[-1][0] + word, names)
            continue
        text = word.lstrip()
        if space := word[: len(word) - len(text)]:
            joined.append((space, ""))
        joined.append((text, names))
    return joined


def _characters(text: str) -> Iterator[str]:
    character = ""
    for one in text:
        if character and not unicodedata.category(one).startswith("M"):
            yield character
            character = ""
        character += one
    yield character


def _peeled(text: str) -> list[str]:
    punctuation = "".join(one for one in {*text} if unicodedata.category(one)[0] in "PS")
    core = text.strip(punctuation)
    before, _, after = text.partition(core) if core else (text, "", "")
    return [part for part in (before, core, after) if part]
