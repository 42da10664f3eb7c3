"""Random permutations that are computed, not stored."""

from __future__ import annotations

import math
from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.shuffle import Shuffle


@given(st.integers(0, 3000), st.integers(0, 2**63 - 1))
def test_is_a_permutation(size: int, seed: int) -> None:
    assert sorted(Shuffle(size, seed).rows(0, size).tolist()) == list(range(size))


@given(st.integers(1, 30_000), st.integers(0, 99), st.data())
def test_a_part_is_the_part_of_the_whole(size: int, seed: int, data: st.DataObject) -> None:
    start = data.draw(st.integers(0, size))
    stop = data.draw(st.integers(start, size))
    shuffle = Shuffle(size, seed)
    assert shuffle.rows(start, stop).tolist() == shuffle.rows(0, size)[start:stop].tolist()


@pytest.mark.parametrize("size", [2, 3, 4])
def test_all_permutations_are_alike(size: int) -> None:
    """Chi-square over all size! permutations, at six standard deviations."""
    draws, kinds = 1200, math.factorial(size)
    counts = Counter(tuple(Shuffle(size, seed).rows(0, size).tolist()) for seed in range(draws))
    chi_square = sum((counts[kind] - draws / kinds) ** 2 / (draws / kinds) for kind in counts)
    assert len(counts) == kinds
    assert chi_square < kinds - 1 + 6 * math.sqrt(2 * (kinds - 1))


def test_rows_go_everywhere() -> None:
    """Chi-square of (tenth of the places, tenth of the rows) over seeds, at six standard deviations."""
    size, seeds = 1000, 100
    table = np.zeros((10, 10))
    for seed in range(seeds):
        np.add.at(table, (np.arange(size) // 100, Shuffle(size, seed).rows(0, size) // 100), 1)
    chi_square = float(((table - table.mean()) ** 2 / table.mean()).sum())
    assert chi_square < 81 + 6 * math.sqrt(2 * 81)


def test_literal() -> None:
    """A resumed run must find the same order: a change here breaks old runs."""
    assert Shuffle(10, 1).rows(0, 10).tolist() == [2, 3, 0, 9, 6, 8, 4, 1, 5, 7]
    assert Shuffle(2**32, 7).rows(2**32 - 2, 2**32).tolist() == [2522005135, 1907606701]
