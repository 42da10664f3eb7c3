"""Concatenation of training pairs into longer pairs, resampled in each epoch (Varis & Bojar 2021, section 5).

Shapes: n pairs of a block, m longer pairs made of them.
"""

from __future__ import annotations

import numpy as np

from nmt.data.shuffle import Shuffle
from nmt.runtime.arrays import Array, Side, offsets_of


def chains(
    source_lengths: Array,
    target_lengths: Array,
    corpora: Array,
    tagged: Array,
    *,
    fraction: float,
    limits: tuple[int, int],
    seed: int,
) -> Side:
    """Selects the pairs to concatenate.

    A given fraction of the pairs is chosen at random. Each of them is appended to the pair before it, in the
    order of the block, if both are of the same corpus and the result is within the limits. The pair before
    may itself be appended to another one.

    Args:
        source_lengths: (n,), number of pieces of each source.
        target_lengths: (n,), number of pieces of each target.
        corpora: (n,), the number of the corpus of each pair.
        tagged: (n,) bool, whether a source begins with a tag; it is dropped after another source.
        fraction: of the pairs, from 0 to 1.
        limits: largest number of pieces of a concatenated source and target.
        seed: the result is a pure function of the arguments.

    Returns:
        (m,), for each longer pair the pairs that it consists of, as indices into the block. Each pair is in
        exactly one of them.
    """
    count = len(corpora)
    chosen = Shuffle(count, seed).rows(0, count) < round(fraction * count)
    order = np.argsort(corpora, kind="stable")
    is_new = ~chosen[order]
    is_new[:1] = True
    is_new[1:] |= np.diff(corpora[order]) != 0
    source_left = target_left = 0
    sizes: list[int] = []
    columns = (is_new, source_lengths[order], target_lengths[order], tagged[order])
    for new, source, target, tag in zip(*(column.tolist() for column in columns), strict=True):
        if new or source - tag > source_left or target > target_left:
            sizes.append(1)
            source_left, target_left = limits[0] - source, limits[1] - target
        else:
            sizes[-1] += 1
            source_left, target_left = source_left - (source - tag), target_left - target
    return Side(order, offsets_of(np.array(sizes, np.int64)))


def begins_with(side: Side, ids: Array) -> Array:
    """Returns whether each of n sentences begins with the id at its place in `ids`, (n,); (n,) bool."""
    found = np.zeros(len(side), np.bool_)
    nonempty = np.flatnonzero(side.lengths())
    found[nonempty] = side.ids[side.offsets[nonempty]] == ids[nonempty]
    return found


def steps_in_chains(counts: Array, members: Side) -> Array:
    """Returns the number of placeholders before each pair in its chain: (n,).

    Args:
        counts: (n,), number of placeholders of each pair.
        members: (m,), as `chains` returns them.
    """
    order = members.flat()
    before = np.cumsum(counts[order]) - counts[order]
    begins = members.offsets[:-1] - members.offsets[0]
    steps = np.empty(len(counts), np.int64)
    steps[order] = before - np.repeat(before[begins], members.lengths())
    return steps


def concatenated(side: Side, members: Side, tagged: Array | None = None) -> Side:
    """Concatenates sentences.

    Args:
        side: the n sentences.
        members: (m,), as `chains` returns them.
        tagged: (n,) bool, whether a sentence begins with a tag. The tag is dropped, unless the sentence is
            the first of its chain. None: no sentence does.

    Returns:
        The m sentences.
    """
    taken = side.take(members.flat())
    if tagged is None:
        return Side(taken.ids, taken.offsets[members.offsets])
    is_first = np.zeros(len(taken), np.bool_)
    is_first[members.offsets[:-1]] = True
    drops = tagged[members.flat()] & ~is_first
    kept = np.ones(len(taken.ids), np.bool_)
    kept[taken.offsets[:-1][drops]] = False
    offsets = offsets_of(taken.lengths() - drops)
    return Side(taken.ids[kept], offsets[members.offsets])
