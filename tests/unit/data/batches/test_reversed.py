"""Reversed training pairs: which ones, what becomes of their ids, and what leaves them alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_corpus import learnt, toy_pairs

from nmt.config import (
    AugmentationConfig,
    CleaningConfig,
    CorpusConfig,
    DataConfig,
    SamplingConfig,
    TokenizerConfig,
    TrainSplitConfig,
)
from nmt.data.batches.blocks import Plan, exchanged
from nmt.data.store import Store
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import BOS_ID
from nmt.errors import UserError
from nmt.runtime.arrays import Side
from nmt.training.batch_size import largest_batches

PAIRS = toy_pairs(90)


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return learnt(PAIRS, vocab_size=310, user_symbols=["<t>"])


def data(share: float, **more: Any) -> DataConfig:
    values = {"source_lang": "xx", "target_lang": "yy", "max_tokens": 120, "block_pairs": 40}
    return DataConfig(**{**values, "reversed": share, **more})


def stored(tokenizer: Tokenizer, tag: str = "") -> Store:
    sources, targets = zip(*PAIRS, strict=True)
    return Store.of(
        tokenizer.encode_source([tag + source for source in sources]), tokenizer.encode_target(targets)
    )


def test_literal_exchange() -> None:
    source, target = Side.of([[7], [8, 9], [4, 5, 6]]), Side.of([[17, 18], [19], [14, 15, 16]])
    chosen = np.array([True, False, True])
    pairs = exchanged(source, target, chosen, (3, 9))
    assert [[ids.tolist() for ids in side] for side in pairs] == [
        [[BOS_ID, 17, 18], [8, 9], [4, 5, 6]],  # the third one would have a source of 4
        [[7], [19], [14, 15, 16]],
    ]
    assert exchanged(source, target, np.zeros(3, np.bool_), (9, 9))[0].flat().tolist() == [7, 8, 9, 4, 5, 6]
    short = exchanged(source, target, chosen, (9, 2))
    assert [len(ids) for ids in short[0]] == [3, 2, 3] and short[0][2].tolist() == [4, 5, 6]


@pytest.mark.parametrize("concatenate", [0.0, 0.5])
def test_every_pair_is_there_once_in_one_direction(tokenizer: Tokenizer, concatenate: float) -> None:
    """A pair with BOS is reversed, another one is not; a concatenated pair has one direction."""
    store, parts, backward = stored(tokenizer), Counter[int](), 0
    options = data(0.5, concatenate=concatenate, cleaning=CleaningConfig(max_pieces=60))
    plan = Plan(store, options, 1, tokenizer)
    for number in range(3):
        block = plan.block(0, number)
        for members, source, target in zip(block.rows, block.source, block.target, strict=True):
            sides = [[id for row in members.tolist() for id in store.pair(row)[side]] for side in (0, 1)]
            if source[0] == BOS_ID:
                backward += 1
                assert [source[1:].tolist(), target.tolist()] == sides[::-1]
            else:
                assert [source.tolist(), target.tolist()] == sides
            parts.update(members.tolist())
    assert parts == Counter(range(len(PAIRS)))
    assert 0.3 < backward / (len(PAIRS) * (1 - concatenate)) < 0.7


def test_each_epoch_draws_again_and_a_tag_prevents_it(tokenizer: Tokenizer) -> None:
    plan = Plan(stored(tokenizer), data(0.5, block_pairs=100), 1, tokenizer)
    ways = [[source[0] == BOS_ID for source in plan.block(epoch, 0).source] for epoch in (0, 1)]
    assert [sum(way) for way in ways] == [41, 37]
    corpora = {"plain": CorpusConfig(), "tagged": CorpusConfig(tag="<t>")}
    options = data(1.0, train=TrainSplitConfig(corpora=corpora), block_pairs=200)
    both = Store.joined([stored(tokenizer), stored(tokenizer, "<t> ")])
    block = Plan(both, options, 1, tokenizer).block(0, 0)
    for row, source in zip(block.rows, block.source, strict=True):
        assert (source[0] == BOS_ID) == (row[0] < len(PAIRS))


def test_reversed_pairs_have_sampled_pieces_and_no_typos(tokenizer: Tokenizer) -> None:
    plain = Plan(stored(tokenizer), data(1.0), 1, tokenizer).block(0, 0)
    typos = Plan(stored(tokenizer), data(1.0, augmentation=AugmentationConfig(typos=1.0)), 1, tokenizer)
    assert typos.block(0, 0).source.flat().tolist() == plain.source.flat().tolist()
    assert typos.block(0, 0).target.flat().tolist() == plain.target.flat().tolist()
    cut = Plan(stored(tokenizer), data(1.0, sampling=SamplingConfig(alpha=0.5)), 1, tokenizer).block(0, 0)
    for side, sampled in ((plain.source, cut.source), (plain.target, cut.target)):
        assert len(sampled.ids) != len(side.ids)
        texts = [tokenizer.source.decode([ids.tolist() for ids in one]) for one in (sampled, side)]
        assert texts[0] == texts[1]


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60),
    st.integers(16, 100),
    st.sampled_from([1.0, 3.0]),
)
def test_the_probe_of_memory_has_as_many_and_as_long_sentences(
    tokenizer: Tokenizer, sizes: list[tuple[int, int]], max_tokens: int, ratio: float
) -> None:
    store = Store.of([[300] * size for size, _ in sizes], [[300] * size for _, size in sizes])
    options = data(0.5, max_tokens=max_tokens, max_source_ratio=ratio, cleaning=CleaningConfig(max_pieces=45))
    probe = largest_batches(store, options)
    try:
        block = Plan(store, options, 3, tokenizer).block(0, 0)
    except UserError:
        return  # every pair is longer than a batch
    for batch in block.batches:
        assert len(batch) <= probe[-1].num_sentences
        assert block.source.lengths()[batch].max() < max(probe[0].source.lengths)
        assert block.target.lengths()[batch].max() < max(probe[0].target.lengths)


def test_two_vocabularies_are_refused() -> None:
    own = learnt(PAIRS, vocab_size=310, joint=False)
    message = r"^data\.reversed=0\.5: each side has its own vocabulary, so no pair can be reversed\. Set data"
    with pytest.raises(UserError, match=message):
        Plan(stored(own), data(0.5, tokenizer=TokenizerConfig(joint=False)), 1, own)
