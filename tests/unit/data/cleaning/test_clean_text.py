"""Finding repeated pairs."""

from __future__ import annotations

import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.cleaning import clean_text as module
from nmt.data.cleaning.clean_text import Hashes, repeats

SPREAD = 0x1C71C71C71C71C71  # its multiples by 0 to 9 spread over all 64-bit values


def shards(parts: list[list[int]]) -> list[Hashes]:
    return [Hashes.of(np.array(part, np.uint64)) for part in parts]


@given(st.lists(st.lists(st.integers(0, 9), max_size=9), max_size=4), st.sampled_from([1, 4, 100]))
def test_repeats_against_naive(parts: list[list[int]], part_pairs: int) -> None:
    values = [value for part in parts for value in part]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "_PART_PAIRS", part_pairs)
        found = repeats(shards([[value * SPREAD for value in part] for part in parts]))
    assert found.dtype == np.int64
    assert found.tolist() == [i for i, value in enumerate(values) if value in values[:i]]


def test_the_hashes_of_a_shard_are_sorted() -> None:
    (found,) = shards([[5, 3, 2**64 - 1, 5, 1]])
    assert found.values.tolist() == [1, 3, 5, 5, 2**64 - 1]
    assert found.rows.tolist() == [4, 1, 0, 3, 2]
    assert (found.values.dtype, found.rows.dtype) == (np.uint64, np.uint16)


def test_numbers_go_beyond_those_of_a_shard() -> None:
    """Rows within a shard take 16 bits; row numbers over all shards need more."""
    many = Hashes.of(np.arange(65_536, dtype=np.uint64))
    found = repeats([many, many, *shards([[65_535, 65_536, 65_536]])])
    assert found.tolist() == [*range(65_536, 131_072), 131_072, 131_074]


def test_a_pair_that_stands_there_a_million_times_takes_little_more_than_its_numbers() -> None:
    count, times = 1 << 16, 16
    shards = [Hashes.of(np.full(count, 7, np.uint64)) for _ in range(times)]
    tracemalloc.start()
    try:
        found = repeats(shards)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert np.array_equal(found, np.arange(1, count * times))
    assert peak < 20 * len(found)


def test_each_pair_is_looked_at_once_and_few_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    looked_at: list[int] = []

    class Bar:
        def update(self, num_pairs: int) -> None:
            looked_at.append(num_pairs)

    @contextmanager
    def progress(**reported: Any) -> Iterator[Bar]:
        assert (reported["total"], reported["unit"]) == (10_000, "pairs")
        yield Bar()

    monkeypatch.setattr(module, "progress", progress)
    monkeypatch.setattr(module, "_PART_PAIRS", 1000)
    values = np.random.default_rng(1).integers(0, 2**64, 10_000, np.uint64)
    values[7000:7100] = values[50:150]
    assert repeats([Hashes.of(part) for part in np.split(values, 20)]).tolist() == list(range(7000, 7100))
    assert len(looked_at) == 11
    assert sum(looked_at) == 10_000
    assert max(looked_at) < 1100
