"""Differences by word: against the plain table of lengths, and literal words and runs."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.reports.differences import LONGEST, missing, runs, words_of


@pytest.mark.parametrize(
    "line, words",
    [
        (
            ' Ein "Mann",  3.5 m (T-Shirt). ',
            [" Ein", ' "', "Mann", '",', "  3.5", " m", " (", "T-Shirt", ")."],
        ),
        ("...", ["..."]),
        (" ", []),
        ("हिन्दी, نعم", ["हिन्दी", ",", " نعم"]),  # combining marks remain in their words
    ],
)
def test_words(line: str, words: list[str]) -> None:
    assert words_of(line) == words


def test_characters_with_their_marks() -> None:
    assert words_of("ที่ 東京", by_character=True) == ["ที่", " 東", "京"]


def _longest(ours: list[str], theirs: list[str]) -> int:
    """Returns the length of the longest common subsequence."""
    lengths = [[0] * (len(theirs) + 1) for _ in range(len(ours) + 1)]
    for i, our in enumerate(ours):
        for j, their in enumerate(theirs):
            best = max(lengths[i][j + 1], lengths[i + 1][j])
            lengths[i + 1][j + 1] = lengths[i][j] + 1 if our == their else best
    return lengths[-1][-1]


_WORDS = st.lists(st.sampled_from("abcd"), max_size=20)


@given(_WORDS, _WORDS)
def test_the_common_words_are_a_longest_common_subsequence(ours: list[str], theirs: list[str]) -> None:
    common = [
        [word for word, alone in zip(words, flags, strict=True) if not alone]
        for words, flags in zip((ours, theirs), missing(ours, theirs), strict=True)
    ]
    assert common[0] == common[1]
    assert len(common[0]) == _longest(ours, theirs)


def test_runs() -> None:
    words = words_of("Ein Mann in rotem Hemd.")
    marks = {"r": missing(words, words_of("Ein Mann im Hemd ."))[0], "b": [True] + [False] * 5}
    expected = [("Ein", "b"), (" ", ""), ("Mann", ""), (" ", ""), ("in rotem", "r"), (" ", ""), ("Hemd.", "")]
    assert runs(words, marks) == expected


def test_long_lines_are_not_compared() -> None:
    assert missing(["a"] * (LONGEST + 1), ["a"]) == ([True] * (LONGEST + 1), [True])
    assert sum(missing(["a", "b"] * 5000, ["b"] * 10_000)[0]) == 5000
