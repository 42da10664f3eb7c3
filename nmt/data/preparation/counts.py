"""Counts of lengths, their ratios and pieces: made as a shard is encoded, and kept in it for the report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from nmt.data.arrays import Array, Side, smallest_dtype

_RATIO_BINS_PER_OCTAVE = 4
_RATIO_OCTAVES = 3  # from an eighth to eight times as long; what is beyond goes into the bins at the ends
_RATIO_BINS = 2 * _RATIO_OCTAVES * _RATIO_BINS_PER_OCTAVE


@dataclass(frozen=True)
class SideCounts:
    """What one side of pairs is like.

    Attributes:
        lengths: (L,) sentences by their number of pieces, EOS not counted.
        pieces: (V,) occurrences of each piece.
    """

    lengths: Array
    pieces: Array


@dataclass(frozen=True)
class Counts:
    """What pairs are like.

    Attributes:
        source: one side.
        target: the other.
        ratios: (24,) pairs by target length over source length, in the bins of `ratio_edges`.
    """

    source: SideCounts
    target: SideCounts
    ratios: Array

    @classmethod
    def of(cls, source: Side, target: Side, source_vocab_size: int, target_vocab_size: int) -> Counts:
        """Counts pairs, of which no side is empty."""
        lengths = source.lengths(), target.lengths()
        place = (np.log2(lengths[1] / lengths[0]) + _RATIO_OCTAVES) * _RATIO_BINS_PER_OCTAVE
        bins = np.clip(np.floor(place).astype(np.int64), 0, _RATIO_BINS - 1)
        return cls(
            SideCounts(np.bincount(lengths[0]), np.bincount(source.flat(), minlength=source_vocab_size)),
            SideCounts(np.bincount(lengths[1]), np.bincount(target.flat(), minlength=target_vocab_size)),
            np.bincount(bins, minlength=_RATIO_BINS),
        )

    @classmethod
    def summed(cls, shards: Iterable[Mapping[str, Array]]) -> Counts:
        """Adds up what `arrays` gave of several shards, at least one."""
        sums: dict[str, Array] = {}
        for arrays in shards:
            for name in _NAMES:
                sums[name] = _added(sums.get(name, np.zeros(0, np.int64)), arrays[name])
        source_lengths, source_pieces, target_lengths, target_pieces, ratios = (sums[n] for n in _NAMES)
        return cls(
            SideCounts(source_lengths, source_pieces), SideCounts(target_lengths, target_pieces), ratios
        )

    def arrays(self) -> dict[str, Array]:
        """The counts as a shard keeps them, in as few bytes as hold them."""
        counts = (
            *(self.source.lengths, self.source.pieces),
            *(self.target.lengths, self.target.pieces),
            self.ratios,
        )
        return {
            name: array.astype(smallest_dtype(int(array.max(initial=0))))
            for name, array in zip(_NAMES, counts, strict=True)
        }


_NAMES = (
    "source_length_counts",
    "source_piece_counts",
    "target_length_counts",
    "target_piece_counts",
    "ratio_counts",
)


def ratio_edges() -> list[float]:
    """The ends of the bins of `Counts.ratios`, one more than there are; outer bins hold what is beyond."""
    octaves = np.arange(_RATIO_BINS + 1) / _RATIO_BINS_PER_OCTAVE - _RATIO_OCTAVES
    return [round(edge, 4) for edge in np.exp2(octaves).tolist()]


def _added(one: Array, other: Array) -> Array:
    """The sum of two arrays, the shorter as if zeros came after it."""
    total = np.zeros(max(len(one), len(other)), np.int64)
    total[: len(one)] += one
    total[: len(other)] += other
    return total
