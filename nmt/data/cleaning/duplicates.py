"""Finds repeated pairs by their hashes, which are sorted per shard and compared one value range at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nmt.runtime import progress
from nmt.runtime.arrays import Array, offsets_of, smallest_dtype

_PART_PAIRS = 1 << 22  # pairs whose hashes are compared at a time, about 50 bytes each


@dataclass(frozen=True, eq=False)
class Hashes:
    """The hashes of a shard's pairs in ascending order; equal hashes are in the order of their rows.

    Attributes:
        values: (n,) uint64 hashes.
        rows: (n,) unsigned integers of any size: the row of each hash.
    """

    values: Array
    rows: Array

    @classmethod
    def of(cls, values: Array) -> Hashes:
        """Sorts the hashes (n,) of rows 0 to n - 1."""
        rows = np.argsort(values, kind="stable")
        return cls(values[rows], rows.astype(smallest_dtype(len(rows) - 1)))


def repeats(shards: Sequence[Hashes]) -> Array:
    """Finds the values that occur earlier.

    The values are compared in parts, each a range of values. Every shard is sorted, so a part is one slice of
    each shard and all values are read once. Only the first of equal values in a shard is compared with other
    shards. A part therefore stays small even if one pair occurs millions of times. Memory is bounded for any
    number of pairs, except for the result, which takes about 16 bytes per repeated value.

    Args:
        shards: the shards in order of precedence. Rows are numbered through all shards.

    Returns:
        (n,) int64 in ascending order: the numbers of all but the first of equal values.
    """
    starts = offsets_of(np.array([len(shard.values) for shard in shards], np.int64))
    num_parts = int(starts[-1]) // _PART_PAIRS + 1
    lowest = np.array([(part << 64) // num_parts for part in range(num_parts)], np.uint64)
    cuts = np.array([np.append(np.searchsorted(s.values, lowest), len(s.values)) for s in shards])
    found = [np.empty(0, np.int64)]
    with progress(total=int(starts[-1]), unit="pairs", description="Finding duplicates") as bar:
        for part in range(num_parts if shards else 0):
            firsts: list[tuple[Array, Array]] = []
            slices = [slice(*cut) for cut in cuts[:, part : part + 2].tolist()]
            for shard, span, start in zip(shards, slices, starts, strict=False):
                values, numbers = shard.values[span], shard.rows[span].astype(np.int64) + start
                repeated = _equals_previous(values)
                if repeated.any():
                    found.append(numbers[repeated])
                    values, numbers = values[~repeated], numbers[~repeated]
                firsts.append((values, numbers))
            values, numbers = map(np.concatenate, zip(*firsts, strict=True))
            order = np.argsort(values, kind="stable")  # the first of equal values stays first
            found.append(numbers[order[_equals_previous(values[order])]])
            bar.update(sum(span.stop - span.start for span in slices))
    result = np.concatenate(found)
    result.sort()
    return result


def _equals_previous(ascending: Array) -> Array:
    """Returns (n,) bool: whether each value equals the previous one."""
    equal = np.zeros(len(ascending), bool)
    equal[1:] = ascending[1:] == ascending[:-1]
    return equal
