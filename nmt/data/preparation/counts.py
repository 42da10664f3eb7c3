"""Counts of lengths, length ratios and pieces. Encoding a shard stores them in it for the data report."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np

from nmt.runtime.arrays import Array, Side, smallest_dtype

_RATIO_BINS_PER_OCTAVE = 4
_RATIO_OCTAVES = 3  # ratios from 1/8 to 8; the outer bins include all ratios beyond that
_RATIO_BINS = 2 * _RATIO_OCTAVES * _RATIO_BINS_PER_OCTAVE


@dataclass(frozen=True)
class SideCounts:
    """Counts of one side of the pairs.

    Attributes:
        lengths: (L,) number of sentences of each length in pieces, EOS not counted.
        pieces: (V,) number of occurrences of each piece.
    """

    lengths: Array
    pieces: Array


@dataclass(frozen=True)
class Counts:
    """Counts of pairs.

    Attributes:
        source: counts of the source side.
        target: counts of the target side.
        ratios: (24,) histogram of target length / source length, with the bins of `ratio_edges`.
    """

    source: SideCounts
    target: SideCounts
    ratios: Array

    @classmethod
    def of(cls, source: Side, target: Side, source_vocab_size: int, target_vocab_size: int) -> Counts:
        """Counts pairs without empty sides."""
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
        """Returns the sum of the counts of several shards (at least one), given as `arrays` returned them."""
        sums: dict[str, Array] = {}
        for arrays in shards:
            for name in _NAMES:
                sums[name] = _added(sums.get(name, np.zeros(0, np.int64)), arrays[name])
        source_lengths, source_pieces, target_lengths, target_pieces, ratios = (sums[n] for n in _NAMES)
        return cls(
            SideCounts(source_lengths, source_pieces), SideCounts(target_lengths, target_pieces), ratios
        )

    def arrays(self) -> dict[str, Array]:
        """Returns the counts in the form in which a shard stores them, in the smallest integer types."""
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
    """Returns the edges of the bins of `Counts.ratios`, one more than bins.

    The outer bins include all ratios beyond the edges.
    """
    octaves = np.arange(_RATIO_BINS + 1) / _RATIO_BINS_PER_OCTAVE - _RATIO_OCTAVES
    return [round(edge, 4) for edge in np.exp2(octaves).tolist()]


def _added(one: Array, other: Array) -> Array:
    """Returns the sum of two arrays; the shorter one is padded with zeros."""
    total = np.zeros(max(len(one), len(other)), np.int64)
    total[: len(one)] += one
    total[: len(other)] += other
    return total
