"""The mixture of corpora: how often each is sampled, and the order of every epoch, computed on demand."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from nmt.config import DataConfig
from nmt.data.shuffle import Shuffle
from nmt.errors import UserError
from nmt.runtime.arrays import Array, offsets_of
from nmt.runtime.seeds import mix

_EPOCH, _PASS = 0, 4  # uses of a seed; nmt.data.batches.blocks has 1 to 3
_MAX_DRAWS = 2**32  # per epoch, the limit of `Shuffle`


class Mixture:
    """Concatenated corpora, of each of which an epoch draws a fixed number of pairs.

    Each corpus has an infinite sequence of passes. Each pass is a permutation of its pairs. An epoch takes
    the next `draws` pairs of that sequence. The pairs of a corpus are thus drawn equally often; their numbers
    of draws differ by at most one. The draws of all corpora in an epoch are then shuffled together.

    Args:
        sizes: number of pairs of each corpus.
        draws: mean number of pairs of each corpus that an epoch draws.

    Raises:
        UserError: an epoch would be longer than 2**32 draws.
    """

    def __init__(self, sizes: Sequence[int], draws: Sequence[Fraction]) -> None:
        assert len(sizes) == len(draws) and all(sizes)
        if sum(draws) + len(draws) > _MAX_DRAWS:
            raise UserError(f"data.train.corpora: the weights give an epoch of {float(sum(draws)):.3g} pairs")
        self._sizes = list(sizes)
        self._draws = list(draws)
        self._starts = offsets_of(np.array(sizes, np.int64))

    @classmethod
    def of(cls, sizes: Sequence[int], data: DataConfig) -> Mixture:
        """Returns the mixture of corpora of these sizes, as the options define it."""
        return cls(sizes, mean_draws(sizes, data))

    def counts(self, epoch: int) -> list[int]:
        """Returns the number of pairs of each corpus that an epoch draws.

        It is the mean, rounded. The rounding error is carried over to the next epochs.
        """
        return [_drawn(draws, epoch + 1) - _drawn(draws, epoch) for draws in self._draws]

    def num_draws(self, epoch: int) -> int:
        """Returns the number of pairs that an epoch draws from all corpora."""
        return sum(self.counts(epoch))

    def rows(self, seed: int, epoch: int, start: int, stop: int) -> Array:
        """Returns the rows of the concatenated corpora drawn at places `start` to `stop` of an epoch: int64.

        They are a pure function of the arguments.
        """
        counts = self.counts(epoch)
        ends = offsets_of(np.array(counts, np.int64))
        places = Shuffle(int(ends[-1]), mix(seed, _EPOCH, epoch)).rows(start, stop)
        if len(counts) == 1:
            return self._corpus_rows(0, seed, epoch, places)
        corpora = np.searchsorted(ends, places, "right") - 1
        rows = np.empty_like(places)
        for corpus in np.unique(corpora).tolist():
            chosen = np.flatnonzero(corpora == corpus)
            rows[chosen] = self._corpus_rows(corpus, seed, epoch, places[chosen] - ends[corpus])
        return rows

    def corpora_of(self, rows: Array) -> Array:
        """Returns the number of the corpus of each row of the concatenated corpora, from 0: (n,) int64."""
        corpora: Array = np.searchsorted(self._starts, rows, "right") - 1
        return corpora

    def _corpus_rows(self, corpus: int, seed: int, epoch: int, places: Array) -> Array:
        """Returns the rows of an epoch's draws from one corpus; the draws are counted from 0."""
        size, draws = self._sizes[corpus], self._draws[corpus]
        first, last = _drawn(draws, epoch), _drawn(draws, epoch + 1)
        passes, rows = np.divmod(places + first, size)
        # A pass that is completely in this epoch needs no permutation: the epoch is shuffled anyway.
        for number in {first // size, (last - 1) // size}:
            if number * size < first or last < (number + 1) * size:
                chosen = np.flatnonzero(passes == number)
                rows[chosen] = Shuffle(size, mix(seed, _PASS, corpus, number)).at(rows[chosen])
        shifted: Array = rows + self._starts[corpus]
        return shifted


def mean_draws(sizes: Sequence[int], data: DataConfig) -> list[Fraction]:
    """Returns the mean number of pairs of each corpus per epoch, by the weights or the temperature."""
    if data.temperature is not None:
        shares = [size ** (1.0 / data.temperature) for size in sizes]
        return [Fraction(count) for count in apportioned(sum(sizes), shares)]
    weights = [corpus.weight for corpus in data.train.corpora.values()] or [None]
    return [
        # The exact decimal value: with 0.1, ten epochs draw every pair exactly once.
        size * Fraction(repr(float(1 if weight is None else weight)))
        for size, weight in zip(sizes, weights, strict=True)
    ]


def apportioned(total: int, shares: Sequence[float | Fraction]) -> list[int]:
    """Splits `total` in proportion to shares: the nearest whole numbers with this sum."""
    exact = [Fraction(share) for share in shares]
    quotas = [total * share / sum(exact) for share in exact]
    counts = [math.floor(quota) for quota in quotas]
    by_rest = sorted(range(len(quotas)), key=lambda place: (counts[place] - quotas[place], place))
    for place in by_rest[: total - sum(counts)]:
        counts[place] += 1
    return counts


def _drawn(draws: Fraction, epochs: int) -> int:
    """Returns the number of pairs drawn in `epochs` epochs."""
    return math.floor(epochs * draws + Fraction(1, 2))
