"""The trees of ways to cut up a word, against exact enumerations."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.data.ways import NUMBERS, BpeWays, Node, UnigramWays, draw, stretches

VOCABULARY = {"a": -1.0, "b": -1.5, "c": -2.0, "ab": -1.2, "bc": -2.2, "abc": -3.0, "ca": -1.1}
MERGES = {"a": -9.0, "b": -10.0, "c": -11.0, "ab": 0.0, "bc": -1.0, "ca": -2.0, "abc": -3.0, "cab": -4.0}
IDS = {piece: number for number, piece in enumerate(MERGES)}
NAMES = {number: piece for piece, number in IDS.items()}


def cuts(text: str) -> list[tuple[str, ...]]:
    """All ways to cut a text into pieces."""
    ways = []
    for marks in itertools.product([False, True], repeat=len(text) - 1):
        places = [0, *(i + 1 for i, mark in enumerate(marks) if mark), len(text)]
        ways.append(tuple(text[a:b] for a, b in itertools.pairwise(places)))
    return ways


def unigram_distribution(text: str, alpha: float) -> dict[tuple[str, ...], float]:
    possible = [way for way in cuts(text) if all(piece in VOCABULARY for piece in way)]
    weights = [math.exp(sum(VOCABULARY[piece] for piece in way)) ** alpha for way in possible]
    return {way: weight / sum(weights) for way, weight in zip(possible, weights, strict=True)}


def bpe_distribution(parts: tuple[str, ...], alpha: float) -> Counter[tuple[str, ...]]:
    """Algorithm 1 of Provilkov et al. 2020, word for word, over all outcomes of all its coins."""
    places = [i for i in range(len(parts) - 1) if parts[i] + parts[i + 1] in MERGES]
    ends: Counter[tuple[str, ...]] = Counter()
    for left_out in itertools.product([False, True], repeat=len(places)):
        share = math.prod(alpha if out else 1 - alpha for out in left_out)
        merges = [place for place, out in zip(places, left_out, strict=True) if not out]
        if not merges:
            ends[parts] += share
            continue
        best = max(merges, key=lambda i: (MERGES[parts[i] + parts[i + 1]], -i))
        merged = (*parts[:best], parts[best] + parts[best + 1], *parts[best + 2 :])
        for way, rest in bpe_distribution(merged, alpha).items():
            ends[way] += share * rest
    return ends


def assert_drawn_from(drawn: Counter[tuple[str, ...]], distribution: dict[tuple[str, ...], float]) -> None:
    """Each share within six standard deviations."""
    draws = drawn.total()
    assert set(drawn) <= {way for way, share in distribution.items() if share > 0}
    for way, share in distribution.items():
        deviation = math.sqrt(share * (1 - share) / draws)
        assert abs(drawn[way] / draws - share) <= 6 * deviation + 1e-9, way


def drawn_from(word: Node) -> Counter[tuple[str, ...]]:
    numbers = Random(1)
    return Counter(tuple(NAMES[i] for i in draw(word, numbers.randrange(NUMBERS))) for _ in range(4000))


@pytest.mark.parametrize("text", ["a", "abc", "abcab", "cabcaab"])
@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_unigram_draws_from_the_exact_distribution(text: str, alpha: float) -> None:
    word = UnigramWays(IDS, VOCABULARY, alpha).word(text)
    assert word is not None
    assert_drawn_from(drawn_from(word), unigram_distribution(text, alpha))


@pytest.mark.parametrize("text", ["a", "abc", "abcab", "cabcaab"])
@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_bpe_draws_from_the_exact_distribution(text: str, alpha: float) -> None:
    word = BpeWays(IDS, MERGES, alpha).word(text)
    assert word is not None
    assert_drawn_from(drawn_from(word), bpe_distribution(tuple(text), alpha))


def test_words_that_cannot_be_cut() -> None:
    assert UnigramWays(IDS, VOCABULARY, 1.0).word("axb") is None
    assert BpeWays(IDS, MERGES, 0.1).word("axb") is None


@pytest.mark.parametrize("ways", [UnigramWays(IDS, VOCABULARY, 0.4), BpeWays(IDS, MERGES, 0.3)])
@given(text=st.text("abc", min_size=1, max_size=9), least=st.sampled_from([0, NUMBERS >> 8, NUMBERS]))
@settings(max_examples=40)
def test_stretches_end_where_another_way_is_drawn(ways: UnigramWays | BpeWays, text: str, least: int) -> None:
    word = ways.word(text)
    assert word is not None
    found = stretches(word, least)
    ends = [end for end, _ in found]
    assert ends == sorted(set(ends)) and ends[-1] == NUMBERS
    assert least or all(ids is not None for _, ids in found)
    for begin, (end, ids) in zip([0, *ends], found, strict=False):
        assert ids is not None or (0 < end - begin <= least)
        if ids is not None:
            assert list(draw(word, begin)) == list(draw(word, end - 1)) == list(ids)
