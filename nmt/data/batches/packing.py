"""Packing of sentences into batches that use up their budgets."""

from __future__ import annotations

import numpy as np

from nmt.runtime.arrays import Array

OPEN_BATCHES = 8  # batches that are filled at the same time; more of them do not fill batches better


def pack(
    source_lengths: Array, target_lengths: Array, order: Array, max_target: int, max_source: int
) -> list[Array]:
    """Splits a random order of sentences into batches that fill their budgets.

    Packs by first fit into a few open batches. A sentence that does not fit into the oldest open batch goes
    into the next one. If it fits into none, the oldest is closed and a new batch is opened. Sentences near
    each other in `order` therefore share a batch.

    Args:
        source_lengths: source lengths by row, EOS not counted (it is added here).
        target_lengths: target lengths by row, EOS not counted.
        order: the rows to pack, in random order.
        max_target: largest number of target tokens per batch, EOS counted.
        max_source: largest number of source tokens per batch, EOS counted.

    Returns:
        The rows of each batch, sorted by source length, then target length, then row. Every row of `order` is
        in exactly one batch, and no batch exceeds a budget.
    """
    sources = (source_lengths[order].astype(np.int64) + 1).tolist()
    targets = (target_lengths[order].astype(np.int64) + 1).tolist()
    least = min(targets, default=0)
    batches: list[list[int]] = []
    opened: list[tuple[list[int], list[int]]] = []  # rows, [remaining target tokens, remaining source tokens]
    for row, source, target in zip(order.tolist(), sources, targets, strict=True):
        assert source <= max_source and target <= max_target, "a pair exceeds the budget of a batch"
        for place, (rows, left) in enumerate(opened):
            if target <= left[0] and source <= left[1]:
                rows.append(row)
                left[0] -= target
                left[1] -= source
                if left[0] < least:
                    batches.append(opened.pop(place)[0])
                break
        else:
            if len(opened) == OPEN_BATCHES:
                batches.append(opened.pop(0)[0])
            opened.append(([row], [max_target - target, max_source - source]))
    batches.extend(rows for rows, _ in opened)
    return [_by_length(np.asarray(rows), source_lengths, target_lengths) for rows in batches]


def _by_length(rows: Array, source_lengths: Array, target_lengths: Array) -> Array:
    return rows[np.lexsort((rows, target_lengths[rows], source_lengths[rows]))]
