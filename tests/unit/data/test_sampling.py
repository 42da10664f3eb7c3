"""Subword sampling of whole sentences, against SentencePiece and against itself without its memory."""

from __future__ import annotations

import gc
import itertools
from functools import cache
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from nmt.config import Segmentation, TokenizerConfig
from nmt.data import sampling
from nmt.data.arrays import Side
from nmt.data.sampling import Sampler
from nmt.data.tokenizer import Tokenizer, train_tokenizer


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
def test_neither_tables_nor_memory_change_what_is_drawn(
    segmentation: Segmentation, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = tokenizer(segmentation)
    random = Random(8)
    words = ["".join(random.choices("abcdexé", k=random.randint(1, 9))) for _ in range(60)]
    side = Side.of(own.encode_source([" ".join(random.choices(words, k=8)) for _ in range(200)]))

    def drawn() -> list[list[int]]:
        sampler = Sampler(own.source_processor, segmentation, 0.3)
        blocks = [[ids.tolist() for ids in sampler.resegment(side, seed)] for seed in range(3)]
        return list(itertools.chain(*blocks))

    expected = drawn()
    monkeypatch.setattr(sampling, "_COMMON", 10**9)  # no tables: each word by its tree
    assert drawn() == expected
    monkeypatch.setattr(sampling, "_MOST_TREES", 0)  # nor any tree kept
    assert drawn() == expected
    monkeypatch.setattr(sampling, "_MOST_WORDS", 50)
    monkeypatch.setattr(sampling, "_COMMON", 1)  # all words that there is room for, in full
    monkeypatch.setattr(sampling, "_LEAST", 0)
    assert drawn() == expected
    monkeypatch.setattr(sampling, "_MOST_WAYS", 9)  # until there are more
    assert drawn() == expected


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


@pytest.mark.parametrize("segmentation", list(Segmentation))
def test_trees_are_not_kept(segmentation: Segmentation, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "_MOST_TREES", 16)
    monkeypatch.setattr(sampling, "_COMMON", 10**9)
    own = tokenizer(segmentation)
    random = Random(9)
    words = ["".join(random.choices("abcde", k=random.randint(6, 12))) for _ in range(200)]
    side = Side.of(own.encode_source([" ".join(words)]))
    sampler = Sampler(own.source_processor, segmentation, 0.4)
    before = num_nodes()
    for seed in range(3):
        sampler.resegment(side, seed)
    assert 16 <= num_nodes() - before <= 64


def num_nodes() -> int:
    gc.collect()
    return sum(type(thing).__module__ == "nmt.data.ways" for thing in gc.get_objects())
