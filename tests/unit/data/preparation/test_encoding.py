"""Counts of lengths, ratios and pieces: literal values, and equal counts for any division into shards."""

from __future__ import annotations

from collections import Counter

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from nmt.data.preparation.encoding import Counts, ratio_edges
from nmt.runtime.arrays import Side

ids = st.lists(st.integers(0, 9), min_size=1, max_size=30)


def counts_of(pairs: list[tuple[list[int], list[int]]]) -> Counts:
    return Counts.of(
        Side.of([source for source, _ in pairs]), Side.of([target for _, target in pairs]), 10, 12
    )


def test_literal_counts() -> None:
    counts = counts_of([([1, 1, 2], [4]), ([9], [4, 4, 5, 6, 7, 8, 9, 0]), ([3, 1, 3], [5, 5, 5])])
    assert counts.source_length_counts.tolist() == [0, 1, 0, 2]
    assert counts.source_piece_counts.tolist() == [0, 3, 1, 2, 0, 0, 0, 0, 0, 1]
    assert counts.target_length_counts.tolist() == [0, 1, 0, 1, 0, 0, 0, 0, 1]
    assert counts.target_piece_counts.tolist() == [1, 0, 0, 0, 3, 4, 1, 1, 1, 1, 0, 0]
    # Ratio 1/3 is 2^-1.58, between 2^-1.75 and 2^-1.5. Ratio 8 is in the last bin; 1 is a lower edge.
    assert np.flatnonzero(counts.ratio_counts).tolist() == [5, 12, 23]
    assert [ratio_edges()[place] for place in (0, 12, 24)] == [0.125, 1.0, 8.0]


@given(st.lists(st.tuples(ids, ids), max_size=40), st.lists(st.integers(0, 40), max_size=5))
def test_shards_come_to_the_whole(pairs: list[tuple[list[int], list[int]]], cuts: list[int]) -> None:
    whole = counts_of(pairs)
    bounds = [0, *sorted(min(cut, len(pairs)) for cut in cuts), len(pairs)]
    shards = [counts_of(pairs[low:high]) for low, high in zip(bounds, bounds[1:], strict=False)]
    summed = Counts.summed(shard.arrays() for shard in shards)
    for name, array in whole.arrays().items():
        assert summed.arrays()[name].tolist() == array.tolist(), name
    assert Counter(len(source) for source, _ in pairs) == {
        length: count for length, count in enumerate(summed.source_length_counts.tolist()) if count
    }
    assert whole.arrays()["ratio_counts"].dtype == np.uint16
