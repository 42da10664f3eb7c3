"""Segmentations of words, against exact enumerations and naive twins that take one word at a time."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from collections.abc import Sequence
from fractions import Fraction
from functools import cache
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_corpus import learnt, toy_pairs

from nmt.config import Segmentation
from nmt.data.subwords import segmentation as ways_module
from nmt.data.subwords.segmentation import (
    WORD_START,
    BpeSegmenter,
    Sampler,
    Segmenter,
    UnigramSegmenter,
    uniform,
)
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.runtime.arrays import Side

VOCABULARY = {"a": -1.0, "b": -1.5, "c": -2.0, "ab": -1.2, "bc": -2.2, "abc": -3.0, "ca": -1.1}
MERGES = {"a": -9.0, "b": -10.0, "c": -11.0, "ab": 0.0, "bc": -1.0, "ca": -2.0, "abc": -3.0, "cab": -4.0}
IDS = {piece: number for number, piece in enumerate(MERGES)}
NAMES = {number: piece for piece, number in IDS.items()}


def cuts(text: str) -> list[tuple[str, ...]]:
    """Returns all segmentations of a text."""
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
    """Algorithm 1 of Provilkov et al. 2020, taken literally, over all outcomes of its random choices."""
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
    """Asserts that each share is within six standard deviations."""
    draws = drawn.total()
    assert set(drawn) <= {way for way, share in distribution.items() if share > 0}
    for way, share in distribution.items():
        deviation = math.sqrt(share * (1 - share) / draws)
        assert abs(drawn[way] / draws - share) <= 6 * deviation + 1e-9, way


def draw(ways: Segmenter, texts: Sequence[str], numbers: Sequence[int]) -> list[tuple[str, ...]]:
    words = Side.of([[ways.letters[letter] for letter in text] for text in texts])
    drawn = ways.draw(words, np.array(numbers, np.uint64))
    return [tuple(NAMES[i] for i in ids.tolist()) for ids in drawn]


def drawn_from(ways: Segmenter, text: str) -> Counter[tuple[str, ...]]:
    random = Random(1)
    return Counter(draw(ways, [text] * 4000, [random.getrandbits(64) for _ in range(4000)]))


@pytest.mark.parametrize("text", ["a", "abc", "abcab", "cabcaab"])
@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_unigram_draws_from_the_exact_distribution(text: str, alpha: float) -> None:
    drawn = drawn_from(UnigramSegmenter(IDS, VOCABULARY, alpha), text)
    assert_drawn_from(drawn, unigram_distribution(text, alpha))


@pytest.mark.parametrize("text", ["a", "abc", "abcab", "cabcaab"])
@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_bpe_draws_from_the_exact_distribution(text: str, alpha: float) -> None:
    drawn = drawn_from(BpeSegmenter(IDS, MERGES, alpha), text)
    assert_drawn_from(drawn, bpe_distribution(tuple(text), alpha))


def chance(number: int, step: int) -> float:
    """SplitMix64 in Python integers."""
    most = 2**64 - 1
    x = number + (step + 1) * 0x9E3779B97F4A7C15 & most
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & most
    x = (x ^ x >> 27) * 0x94D049BB133111EB & most
    return ((x ^ x >> 31) >> 11) / 2**53


def test_splitmix() -> None:
    """The first outputs of the authors' program for seed 1234567."""
    expected = [6457827717110365317, 3203168211198807973, 9817491932198370423]
    assert [uniform(np.array([1234567], np.uint64), step)[0] for step in range(3)] == [
        (value >> 11) / 2**53 for value in expected
    ]
    assert uniform(np.array([7, 2**64 - 1], np.uint64), 5).tolist() == [chance(7, 5), chance(2**64 - 1, 5)]


def naive_unigram(text: str, number: int, alpha: float) -> tuple[str, ...]:
    """Draws a segmentation letter by letter, in exact fractions."""
    weights = {piece: Fraction(math.exp(alpha * score)) for piece, score in VOCABULARY.items()}
    sums = [Fraction(1)]
    for end in range(1, len(text) + 1):
        sums.append(sum((sums[i] * weights.get(text[i:end], 0) for i in range(end)), Fraction(0)))
    pieces: list[str] = []
    end = len(text)
    while end:
        aim, running, begin = Fraction(chance(number, len(pieces))) * sums[end], Fraction(0), end
        while running <= aim:
            begin -= 1
            running += sums[begin] * weights.get(text[begin:end], 0)
        pieces.insert(0, text[begin:end])
        end = begin
    return tuple(pieces)


def naive_bpe(text: str, number: int, alpha: float) -> tuple[str, ...]:
    """Draws a segmentation; sorts all merges again at each step."""
    parts = list(text)
    for step in itertools.count():
        left_out = sum(chance(number, step) < alpha**power for power in range(1, len(text) + 1))
        places = [i for i in range(len(parts) - 1) if parts[i] + parts[i + 1] in MERGES]
        places.sort(key=lambda i: (-MERGES[parts[i] + parts[i + 1]], i))
        if left_out >= len(places):
            break
        place = places[left_out]
        parts[place : place + 2] = [parts[place] + parts[place + 1]]
    return tuple(parts)


WORDS = st.lists(
    st.tuples(st.text("abc", min_size=1, max_size=40), st.integers(0, 2**64 - 1)), min_size=1, max_size=20
)


@given(WORDS, st.sampled_from([0.0, 0.1, 0.5, 1.0]))
@settings(max_examples=60)
def test_many_words_at_once_are_drawn_as_each_by_itself(words: list[tuple[str, int]], alpha: float) -> None:
    texts, numbers = [text for text, _ in words], [number for _, number in words]
    unigram = draw(UnigramSegmenter(IDS, VOCABULARY, alpha), texts, numbers)
    assert unigram == [naive_unigram(text, number, alpha) for text, number in words]
    bpe = draw(BpeSegmenter(IDS, MERGES, alpha), texts, numbers)
    assert bpe == [naive_bpe(text, number, alpha) for text, number in words]


def test_sums_out_of_the_range_of_numbers() -> None:
    """A sentence without spaces is one word: weights may be e**-4000, numbers of segmentations 2**2000."""
    for vocabulary, alpha in (({"a": -8.0, "aa": -15.9}, 1.0), ({"a": -8.0, "aa": -15.9}, 0.001)):
        ids = {"a": 0, "aa": 1}
        ways = UnigramSegmenter(ids, vocabulary, alpha)
        numbers = np.arange(50, dtype=np.uint64)
        words = Side.of([[0] * (1000 if i % 2 else 30) for i in range(50)])
        drawn = [ids.tolist() for ids in ways.draw(words, numbers)]
        assert [sum(row) + len(row) for row in drawn] == words.lengths().tolist()
        # The sums grow by x, where x**2 = w x + w2; the last piece has one letter with probability w / x.
        one, two = math.exp(alpha * -8.0), math.exp(alpha * -15.9)
        share = one * 2 / (one + math.sqrt(one * one + 4 * two))
        singles = sum(row.count(0) for row in drawn) / sum(map(len, drawn))
        assert abs(singles - share) < 0.02


def test_words_of_every_length_fill_the_room(monkeypatch: pytest.MonkeyPatch) -> None:
    random = Random(3)
    texts = ["".join(random.choices("abc", k=random.randint(1, 60))) for _ in range(300)]
    numbers = [random.getrandbits(64) for _ in texts]
    for ways in (UnigramSegmenter(IDS, VOCABULARY, 0.4), BpeSegmenter(IDS, MERGES, 0.3)):
        expected = draw(ways, texts, numbers)
        assert ["".join(pieces) for pieces in expected] == texts
        monkeypatch.setattr(ways_module, "_MAX_CELLS", 200)
        assert draw(ways, texts, numbers) == expected
        assert draw(ways, [], []) == []


@given(st.dictionaries(st.tuples(st.integers(0, 40), st.integers(0, 40)), st.integers(0, 99), max_size=400))
def test_lookup_is_a_dictionary(values: dict[tuple[int, int], int]) -> None:
    lookup = ways_module._Lookup(values, missing=-7)
    first, second = np.meshgrid(np.arange(42), np.arange(42))
    expected = [[values.get((x, y), -7) for x in range(42)] for y in range(42)]
    assert lookup(first, second).tolist() == expected


@cache
def tokenizer(segmentation: Segmentation) -> Tokenizer:
    """A tokenizer learnt from words over few letters, with user symbols."""
    return learnt(toy_pairs(400), segmentation=segmentation, vocab_size=380, user_symbols=["<x>", "ce"])


TEXT = st.text(alphabet="abcde <>xéß\U0001f600", max_size=30)


@given(st.lists(TEXT, max_size=6))
def test_bpe_with_no_merge_left_out_is_sentencepiece(texts: list[str]) -> None:
    own = tokenizer(Segmentation.bpe)
    encoded = own.encode_source(texts)
    sampler = Sampler(own.source, Segmentation.bpe, 0.0)
    assert [ids.tolist() for ids in sampler.resegment(Side.of(encoded), 3)] == encoded


@given(st.lists(TEXT, max_size=6))
def test_bpe_with_all_merges_left_out_is_characters(texts: list[str]) -> None:
    own = tokenizer(Segmentation.bpe)
    sampler = Sampler(own.source, Segmentation.bpe, 1.0)
    new = sampler.resegment(Side.of(own.encode_source(texts)), 3)
    for text, ids in zip(texts, new, strict=True):
        for word in own.source.processor.decode(ids.tolist()).split():
            assert word in text
        if set(text) <= set("abd "):
            assert all(len(own.source.processor.id_to_piece(int(i))) == 1 for i in ids)


@pytest.mark.parametrize("segmentation", list(Segmentation))
@given(texts=st.lists(TEXT, max_size=6), seed=st.integers(0, 2**63 - 1))
@settings(max_examples=30)
def test_text_stays_the_same(segmentation: Segmentation, texts: list[str], seed: int) -> None:
    own = tokenizer(segmentation)
    before = Side.of(own.encode_source(texts), np.uint16)
    sampler = Sampler(own.source, segmentation, 0.5)
    after = sampler.resegment(before, seed)
    assert len(after) == len(before) and after.ids.dtype == np.uint16
    assert own.decode_target([ids.tolist() for ids in after]) == own.decode_target(
        [ids.tolist() for ids in before]
    )
    assert sampler.resegment(before, seed).ids.tolist() == after.ids.tolist()


def test_words_that_need_not_be_drawn(monkeypatch: pytest.MonkeyPatch) -> None:
    own = tokenizer(Segmentation.bpe)
    random = Random(8)
    words = ["".join(random.choices("abcdexé", k=random.randint(1, 9))) for _ in range(60)]
    side = Side.of(own.encode_source([" ".join(random.choices(words, k=8)) for _ in range(200)]))
    sampler = Sampler(own.source, Segmentation.bpe, 0.1)
    found = sampler.resegment(side, 1)
    asked: list[int] = []

    def always(ways: BpeSegmenter, merges: np.ndarray[Any, Any], numbers: np.ndarray[Any, Any]) -> Any:
        asked.extend(merges.tolist())
        return np.ones(len(merges), np.bool_)

    monkeypatch.setattr(BpeSegmenter, "may_change", always)
    drawn = sampler.resegment(side, 1)
    assert found.ids.tolist() == drawn.ids.tolist() and found.offsets.tolist() == drawn.offsets.tolist()
    assert min(asked) == 0 and max(asked) > 3


@pytest.mark.parametrize("segmentation", list(Segmentation))
def test_symbols_and_bytes_stay_and_what_is_around_them_is_drawn(segmentation: Segmentation) -> None:
    own = tokenizer(segmentation)
    before = Side.of(own.encode_source(["abc<x>dea", "abcédeabd", "dabceaba"]))
    sampler = Sampler(own.source, segmentation, 0.5)
    ends: list[set[tuple[str, ...]]] = [set(), set(), set()]
    for seed in range(60):
        for ids, seen in zip(sampler.resegment(before, seed), ends, strict=True):
            seen.add(tuple(own.source.processor.id_to_piece(ids.tolist())))
    kept = ["<x>"], ["<0xC3>", "<0xA9>"], ["ce"]
    around = ("abc", "dea"), ("abc", "deabd"), ("dab", "aba")
    for seen, fixed, (left, right) in zip(ends, kept, around, strict=True):
        assert len(seen) > 4
        cut = [[row.index(fixed[0]), row.index(fixed[-1])] for row in seen]
        assert all(list(row[a : b + 1]) == fixed for row, (a, b) in zip(seen, cut, strict=True))
        lefts = {row[:a] for row, (a, _) in zip(seen, cut, strict=True)}
        rights = {row[b + 1 :] for row, (_, b) in zip(seen, cut, strict=True)}
        assert {"".join(part) for part in lefts} == {WORD_START + left}
        assert {"".join(part) for part in rights} == {right}
        assert len(lefts) > 1 and len(rights) > 1
