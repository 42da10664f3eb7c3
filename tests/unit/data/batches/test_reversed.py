"""Reversed training pairs: which ones, what becomes of their ids, and what leaves them alone."""

from __future__ import annotations

from collections import Counter
from typing import Any

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
from nmt.data.batches.blocks import Plan, begun, first_ids
from nmt.data.store import Store
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID
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


def test_literal_sides() -> None:
    side = Side.of([[9], [7, 8], [], [4]])
    assert [ids.tolist() for ids in begun(side)] == [[BOS_ID, 9], [BOS_ID, 7, 8], [BOS_ID], [BOS_ID, 4]]
    assert first_ids(side).tolist() == [9, 7, EOS_ID, 4]
    part = Side(side.ids, side.offsets[1:3])
    assert [ids.tolist() for ids in begun(part)] == [[BOS_ID, 7, 8]]


@pytest.mark.parametrize(("limit", "longest"), [(3, 2), (9, 9)])
def test_a_pair_that_would_be_too_long_remains(tokenizer: Tokenizer, limit: int, longest: int) -> None:
    """A reversed source is longer by BOS; an empty source can't become a target."""
    ids = [[300 + row] * row for row in range(4)]
    options = data(1.0, cleaning=CleaningConfig(max_pieces=limit))
    block = Plan(Store.of(ids, [[310 + row] * max(row, 1) for row in range(4)]), options, 1, tokenizer).block(
        0, 0
    )
    for (row,), source, target in zip(block.rows, block.source, block.target, strict=True):
        reverses = 0 < row <= longest
        assert source.tolist() == ([BOS_ID, *[310 + row] * row] if reverses else ids[row])
        assert target.tolist() == (ids[row] if reverses else [310 + row] * max(row, 1))


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
