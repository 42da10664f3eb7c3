"""Subword sampling against exact enumerations and against SentencePiece itself."""

from __future__ import annotations

import itertools
import math
from collections import Counter
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config import Segmentation, TokenizerConfig
from nmt.data.arrays import Side
from nmt.data.sampling import BpeWays, Sampler, UnigramWays
from nmt.data.tokenizer import Tokenizer, train_tokenizer

VOCABULARY = {"a": -1.0, "b": -1.5, "c": -2.0, "ab": -1.2, "bc": -2.2, "abc": -3.0, "ca": -1.1}
MERGES = {"a": -9.0, "b": -10.0, "c": -11.0, "ab": 0.0, "bc": -1.0, "ca": -2.0, "abc": -3.0, "cab": -4.0}
IDS = {piece: number for number, piece in enumerate(MERGES)}
NAMES = {number: piece for piece, number in IDS.items()}


@cache
def tokenizer(segmentation: Segmentation) -> Tokenizer:
    """Learnt from words of few letters, with a user's symbol."""
    import tempfile

    random = Random(4)
    words = ["".join(random.choices("abcde", k=random.randint(1, 7))) for _ in range(200)]
    pairs = [(" ".join(random.choices(words, k=6)), " ".join(random.choices(words, k=6))) for _ in range(400)]
    config = TokenizerConfig(segmentation=segmentation, vocab_size=380, user_symbols=["<x>", "ce"])
    with tempfile.TemporaryDirectory() as folder:
        return train_tokenizer(lambda: iter(pairs), config, Path(folder))


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


@pytest.mark.parametrize("text", ["a", "abc", "abcab", "cabcaab"])
@pytest.mark.parametrize("alpha", [1.0, 0.3])
def test_unigram_draws_from_the_exact_distribution(text: str, alpha: float) -> None:
    word = UnigramWays(IDS, VOCABULARY, alpha).word(text)
    assert word is not None
    random = Random(1).random
    drawn = Counter(tuple(NAMES[i] for i in word.draw(random)) for _ in range(4000))
    assert_drawn_from(drawn, unigram_distribution(text, alpha))


@pytest.mark.parametrize("text", ["a", "abc", "abcab", "cabcaab"])
@pytest.mark.parametrize("alpha", [0.1, 0.5])
def test_bpe_draws_from_the_exact_distribution(text: str, alpha: float) -> None:
    word = BpeWays(IDS, MERGES, alpha).word(text)
    assert word is not None
    random = Random(1).random
    drawn = Counter(tuple(NAMES[i] for i in word.draw(random)) for _ in range(4000))
    assert_drawn_from(drawn, bpe_distribution(tuple(text), alpha))


def test_words_that_cannot_be_cut() -> None:
    assert UnigramWays(IDS, VOCABULARY, 1.0).word("axb") is None
    assert BpeWays(IDS, MERGES, 0.1).word("axb") is None


def test_bpe_without_room_draws_the_same() -> None:
    full, tight = (BpeWays(IDS, MERGES, 0.3) for _ in range(2))
    tight.room = 0
    words = [ways.word("cabcaab") for ways in (full, tight)]
    drawn = [[list(word.draw(Random(seed).random)) for seed in range(50)] for word in words if word]
    assert drawn[0] == drawn[1]


TEXT = st.text(alphabet="abcde <>xéß\U0001f600", max_size=30)


@given(st.lists(TEXT, max_size=6))
def test_bpe_with_no_merge_left_out_is_sentencepiece(texts: list[str]) -> None:
    own = tokenizer(Segmentation.bpe)
    encoded = own.encode_source(texts)
    sampler = Sampler(own.source_processor, Segmentation.bpe, 0.0)
    assert [ids.tolist() for ids in sampler.resegment(Side.of(encoded), 3)] == encoded


@given(st.lists(TEXT, max_size=6))
def test_bpe_with_all_merges_left_out_is_characters(texts: list[str]) -> None:
    own = tokenizer(Segmentation.bpe)
    sampler = Sampler(own.source_processor, Segmentation.bpe, 1.0)
    new = sampler.resegment(Side.of(own.encode_source(texts)), 3)
    for text, ids in zip(texts, new, strict=True):
        for word in own.source_processor.decode(ids.tolist()).split():
            assert word in text
        if set(text) <= set("abd "):
            assert all(len(own.source_processor.id_to_piece(int(i))) == 1 for i in ids)


@pytest.mark.parametrize("segmentation", list(Segmentation))
@given(texts=st.lists(TEXT, max_size=6), seed=st.integers(0, 2**63 - 1))
@settings(max_examples=30)
def test_text_stays_the_same(segmentation: Segmentation, texts: list[str], seed: int) -> None:
    own = tokenizer(segmentation)
    before = Side.of(own.encode_source(texts), np.uint16)
    sampler = Sampler(own.source_processor, segmentation, 0.5)
    after = sampler.resegment(before, seed)
    assert len(after) == len(before) and after.ids.dtype == np.uint16
    assert own.decode_target([ids.tolist() for ids in after]) == own.decode_target(
        [ids.tolist() for ids in before]
    )
    fresh = Sampler(own.source_processor, segmentation, 0.5).resegment(before, seed)
    assert fresh.ids.tolist() == after.ids.tolist()  # what is remembered does not matter


@pytest.mark.parametrize("segmentation", list(Segmentation))
def test_words_with_symbols_or_bytes_stay_as_they_are(segmentation: Segmentation) -> None:
    own = tokenizer(segmentation)
    fixed = own.encode_source(["abc<x>dea", "abcédea", "adceba"])
    sampler = Sampler(own.source_processor, segmentation, 0.3)
    for seed in range(20):
        assert [ids.tolist() for ids in sampler.resegment(Side.of(fixed), seed)] == fixed


@pytest.mark.parametrize("segmentation", list(Segmentation))
def test_another_seed_another_cut(segmentation: Segmentation) -> None:
    own = tokenizer(segmentation)
    before = Side.of(own.encode_source(["abcd bcdab abd abdca"] * 5))
    sampler = Sampler(own.source_processor, segmentation, 0.3)
    drawn = {tuple(sampler.resegment(before, seed).ids.tolist()) for seed in range(10)}
    assert len(drawn) == 10
    assert len({tuple(ids.tolist()) for ids in sampler.resegment(before, 1)}) > 1
