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
    through once, and memory stays bounded however many there are.

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
            pieces = [slice(*cut) for cut in cuts[:, part : part + 2].tolist()]
            values = np.concatenate([s.values[piece] for s, piece in zip(shards, pieces, strict=True)])
            numbers = np.concatenate(
                [s.rows[p].astype(np.int64) + b for s, p, b in zip(shards, pieces, starts, strict=False)]
            )
            order = np.argsort(values, kind="stable")  # of equal ones, the first stays first
            ascending = values[order]
            found.append(numbers[order[1:][ascending[1:] == ascending[:-1]]])
            bar.update(len(values))
    return np.sort(np.concatenate(found))
