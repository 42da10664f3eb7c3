"""Packing sentences into batches."""

from __future__ import annotations

from collections import Counter
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.batches.blocks import pack

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
