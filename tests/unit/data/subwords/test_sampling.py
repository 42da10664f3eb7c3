"""Subword sampling of whole sentences, against SentencePiece."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config import Segmentation, TokenizerConfig
from nmt.data.subwords.learning import train_tokenizer
from nmt.data.subwords.segmentation import WORD_START, BpeSegmenter, Sampler
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.runtime.arrays import Side


@cache
def tokenizer(segmentation: Segmentation) -> Tokenizer:
    """A tokenizer learnt from words over few letters, with user symbols."""
    import tempfile

    random = Random(4)
    words = ["".join(random.choices("abcde", k=random.randint(1, 7))) for _ in range(200)]
    pairs = [(" ".join(random.choices(words, k=6)), " ".join(random.choices(words, k=6))) for _ in range(400)]
    config = TokenizerConfig(segmentation=segmentation, vocab_size=380, user_symbols=["<x>", "ce"])
    with tempfile.TemporaryDirectory() as folder:
        return train_tokenizer(lambda: iter(pairs), config, Path(folder))


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
            seen.add(tuple(own.source_processor.id_to_piece(ids.tolist())))
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


@pytest.mark.parametrize("segmentation", list(Segmentation))
def test_another_seed_another_cut(segmentation: Segmentation) -> None:
    own = tokenizer(segmentation)
    before = Side.of(own.encode_source(["abcd bcdab abd abdca"] * 5))
    sampler = Sampler(own.source, segmentation, 0.3)
    drawn = {tuple(sampler.resegment(before, seed).ids.tolist()) for seed in range(10)}
    assert len(drawn) == 10
    assert len({tuple(ids.tolist()) for ids in sampler.resegment(before, 1)}) > 1
