"""Concatenated training pairs: which pairs are joined, and what becomes of their ids."""

from __future__ import annotations

import itertools
from collections import Counter
from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from test_stream import content
from toy_corpus import learnt, toy_pairs

from nmt.config import CleaningConfig, CorpusConfig, DataConfig, TrainSplitConfig
from nmt.data.batches.blocks import begins_with, chains, concatenated, pack
from nmt.data.batches.stream import BatchStream, Cursor
from nmt.data.store import Store
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.runtime.arrays import Side


def chained(lengths: list[int], fraction: float, limit: int = 100, corpora: Any = None) -> list[list[int]]:
    sizes = np.array(lengths, np.int64)
    groups = np.zeros(len(lengths), np.int64) if corpora is None else np.array(corpora)
    tagged = np.zeros(len(lengths), np.bool_)
    found = chains(sizes, sizes, groups, tagged, fraction=fraction, limits=(limit, limit), seed=3)
    return [part.tolist() for part in found]


def test_literal_chains() -> None:
    assert chained([1, 2, 3, 4], 0.0) == [[0], [1], [2], [3]]
    assert chained([1, 2, 3, 4], 1.0) == [[0, 1, 2, 3]]
    assert chained([5, 5, 5, 9, 1, 2], 1.0, limit=10) == [[0, 1], [2], [3, 4], [5]]
    assert chained([20, 1, 1], 1.0, limit=10) == [[0], [1, 2]]  # a long pair remains, alone
    assert chained([1, 1, 1, 1, 1], 1.0, corpora=[1, 0, 1, 0, 1]) == [[1, 3], [0, 2, 4]]
    assert chained([], 0.5) == []


def test_literal_ids() -> None:
    side = Side.of([[7, 1, 2], [7, 3], [], [7, 4, 5]])
    members = Side.of([[3, 0], [2, 1]])
    plain = concatenated(side, members)
    assert [part.tolist() for part in plain] == [[7, 4, 5, 7, 1, 2], [7, 3]]
    tagged = concatenated(side, members, np.array([True, True, False, True]))
    assert [part.tolist() for part in tagged] == [[7, 4, 5, 1, 2], [3]]


def test_a_dropped_tag_takes_no_room() -> None:
    sizes, corpora = np.array([4, 4, 4]), np.zeros(3, np.int64)
    for tagged, expected in ((True, [[0, 1, 2]]), (False, [[0, 1], [2]])):
        found = chains(sizes, sizes - 1, corpora, np.full(3, tagged), fraction=1.0, limits=(10, 10), seed=1)
        assert [part.tolist() for part in found] == expected
    side = Side.of([[7, 1], [], [7], [1, 7]])
    assert begins_with(side, np.array([7, 7, -1, 7])).tolist() == [True, False, False, False]


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(0, 12), st.integers(0, 2)), max_size=60),
    st.sampled_from([0.0, 0.1, 0.5, 1.0]),
    st.integers(0, 5),
)
def test_each_pair_is_in_one_chain(rows: list[tuple[int, int, int]], fraction: float, seed: int) -> None:
    source, target, corpora = (np.array([row[place] for row in rows], np.int64) for place in range(3))
    tagged = (source % 2 == 1) & (corpora == 1)
    found = chains(source, target, corpora, tagged, fraction=fraction, limits=(20, 15), seed=seed)
    parts = [part.tolist() for part in found]
    assert sorted(itertools.chain(*parts)) == list(range(len(rows)))
    assert len(rows) - len(parts) <= round(fraction * len(rows))
    for part in parts:
        assert len(set(corpora[part].tolist())) == 1
        assert len(part) == 1 or (
            source[part].sum() - tagged[part[1:]].sum() <= 20 and target[part].sum() <= 15
        )
    again = chains(source, target, corpora, tagged, fraction=fraction, limits=(20, 15), seed=seed)
    assert [part.tolist() for part in again] == parts


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return learnt(toy_pairs(50), vocab_size=310, user_symbols=["<t>"])


def data(concatenate: float, **more: Any) -> DataConfig:
    return DataConfig(
        source_lang="xx",
        target_lang="yy",
        max_tokens=60,
        block_pairs=40,
        concatenate=concatenate,
        cleaning=CleaningConfig(max_pieces=20),
        **more,
    )


def numbered(count: int, tag: int | None = None) -> Store:
    """Pairs of different lengths, each id used by one pair alone (but for the tag)."""
    front = [] if tag is None else [tag]
    ids = [[300 + 10 * row + place for place in range(1 + row % 7)] for row in range(count)]
    return Store.of([[*front, *part] for part in ids], [part[::-1] for part in ids])


@pytest.mark.parametrize("fraction", [0.3, 1.0])
def test_batches_hold_each_piece_once_an_epoch(tokenizer: Tokenizer, fraction: float) -> None:
    store = numbered(101)
    stream = BatchStream(store, data(fraction), 1, tokenizer)
    longest, found, begin = 0, [], Cursor()
    for batch, cursor in stream:
        rows = stream.rows(begin, cursor)[0][1].tolist()
        pairs = content(batch)
        # The rows of a batch are those of its pairs, joined in their order.
        assert [i for pair in pairs for i in pair[0]] == [i for row in rows for i in store.pair(row)[0]]
        assert [i for pair in pairs for i in pair[1]] == [i for row in rows for i in store.pair(row)[1]]
        longest = max(longest, *(max(map(len, pair)) for pair in pairs))
        found += rows
        begin = cursor
        if cursor.epoch:
            break
    stream.close()
    assert sorted(found) == list(range(101))
    assert 12 < longest <= 20  # 7 without concatenation


def test_the_tag_of_a_corpus_stays_in_front(tokenizer: Tokenizer) -> None:
    tag = tokenizer.source.processor.piece_to_id("<t>")
    store = Store.joined([numbered(60, tag), numbered(43)])
    corpora = {"tagged": CorpusConfig(tag="<t>"), "plain": CorpusConfig()}
    stream = BatchStream(store, data(1.0, train=TrainSplitConfig(corpora=corpora)), 1, tokenizer)
    batches = [content(batch) for batch, _ in itertools.islice(stream, 12)]
    stream.close()
    kinds = set()
    for source, target in itertools.chain(*batches):
        kinds.add(source[0] == tag)
        assert tag not in source[1:]
        assert len(source) - (source[0] == tag) == len(target)
    assert kinds == {True, False}


PAIRS = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=60)


@given(PAIRS, st.integers(15, 60), st.integers(15, 60), st.randoms(use_true_random=False))
def test_pack_properties(
    pairs: list[tuple[int, int]], max_target: int, max_source: int, random: Random
) -> None:
    source, target = (np.array([pair[side] for pair in pairs], np.uint16) for side in (0, 1))
    order = np.arange(len(pairs))
    random.shuffle(order)
    batches = pack(source, target, order, max_target, max_source)
    assert Counter(int(row) for rows in batches for row in rows) == Counter(range(len(pairs)))
    for rows in batches:
        assert len(rows) > 0
        assert sum(target[rows].tolist()) + len(rows) <= max_target
        assert sum(source[rows].tolist()) + len(rows) <= max_source
        keys = [(source[row], target[row], row) for row in rows]
        assert keys == sorted(keys)
    again = pack(source, target, order, max_target, max_source)
    assert [rows.tolist() for rows in again] == [rows.tolist() for rows in batches]


def test_pack_takes_a_subset_of_the_rows() -> None:
    lengths = np.array([1, 2, 3, 4])
    assert [rows.tolist() for rows in pack(lengths, lengths, np.array([3, 1]), 8, 8)] == [[1, 3]]
    assert pack(lengths, lengths, np.array([], np.int64), 8, 8) == []


def test_pack_obeys_the_tighter_side() -> None:
    source, target = np.array([9, 9, 9]), np.array([1, 1, 1])
    assert [len(rows) for rows in pack(source, target, np.arange(3), 100, 20)] == [2, 1]


@pytest.mark.parametrize("budget", [1024, 4096])
def test_filling(budget: int) -> None:
    rng = np.random.default_rng(5)
    target = np.clip(rng.lognormal(np.log(20), 0.67, 65_536).round(), 1, 256).astype(np.uint16)
    source = np.clip((target * rng.normal(1.0, 0.15, len(target))).round(), 1, 256).astype(np.uint16)
    assert 23 < target.mean() < 27
    batches = pack(source, target, rng.permutation(len(target)), budget, budget * 3 // 2)
    tokens = int(target.sum()) + len(target)
    assert tokens / (len(batches) * budget) >= 0.99


def test_neighbours_are_random() -> None:
    """A batch is a random sample: its mean length is close to that of the corpus."""
    rng = np.random.default_rng(6)
    lengths = rng.integers(1, 50, 20_000)
    batches = pack(lengths, lengths, rng.permutation(len(lengths)), 4096, 6144)
    means = np.array([lengths[rows].mean() for rows in batches[:-1]])
    assert abs(means - lengths.mean()).max() < 5 * lengths.std() / np.sqrt(4096 / 26)
