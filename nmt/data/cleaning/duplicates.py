"""Which pairs stood before, by their hashes: sorted shard by shard, compared a range of values at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nmt.data.arrays import Array, offsets_of, smallest_dtype
from nmt.runtime import progress

_PART_PAIRS = 1 << 22  # pairs whose hashes are compared at a time, some 50 bytes each


@dataclass(frozen=True, eq=False)
class Hashes:
    """The hashes of a shard's pairs, in ascending order; equal ones in the order of their rows.

    Attributes:
        values: (n,) uint64.
        rows: (n,) any unsigned integers: the row that each belongs to.
    """

    values: Array
    rows: Array

    @classmethod
    def of(cls, values: Array) -> Hashes:
        """Sorts the hashes (n,) of rows 0 to n."""
        rows = np.argsort(values, kind="stable")
        return cls(values[rows], rows.astype(smallest_dtype(len(rows) - 1)))


def repeats(shards: Sequence[Hashes]) -> Array:
    """Finds the values that stood before.

    Every shard is sorted, so that a part, which is a range of values, lies in one piece of each: all is gone
    through once. Of equal values in one shard only the first is compared, so that a part stays small even if
    a single pair stands there millions of times. Memory is bounded however many pairs there are, but for
    the result: some 16 bytes a repeat.

    Args:
        shards: what goes before comes first; rows are numbered through all.

    Returns:
        (n,) int64 in ascending order: numbers of all but the first of equal values.
    """
    starts = offsets_of(np.array([len(shard.values) for shard in shards], np.int64))
    num_parts = int(starts[-1]) // _PART_PAIRS + 1
    lowest = np.array([(part << 64) // num_parts for part in range(num_parts)], np.uint64)
    cuts = np.array([np.append(np.searchsorted(s.values, lowest), len(s.values)) for s in shards])
    found = [np.empty(0, np.int64)]
    with progress(total=int(starts[-1]), unit="pairs", description="Finding repeats") as bar:
        for part in range(num_parts if shards else 0):
            firsts: list[tuple[Array, Array]] = []
            pieces = [slice(*cut) for cut in cuts[:, part : part + 2].tolist()]
            for shard, piece, start in zip(shards, pieces, starts, strict=False):
                values, numbers = shard.values[piece], shard.rows[piece].astype(np.int64) + start
                again = _again(values)
                if again.any():
                    found.append(numbers[again])
                    values, numbers = values[~again], numbers[~again]
                firsts.append((values, numbers))
            values, numbers = map(np.concatenate, zip(*firsts, strict=True))
            order = np.argsort(values, kind="stable")  # of equal ones, the first stays first
            found.append(numbers[order[_again(values[order])]])
            bar.update(sum(piece.stop - piece.start for piece in pieces))
    result = np.concatenate(found)
    result.sort()
    return result


def _again(ascending: Array) -> Array:
    """(n,) truth values: whether a value is the one before it."""
    again = np.zeros(len(ascending), bool)
    again[1:] = ascending[1:] == ascending[:-1]
    return again
