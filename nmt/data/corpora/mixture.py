"""How often each corpus is drawn, and the order of every epoch over all of them: computed, not stored."""

from __future__ import annotations

import math
from collections.abc import Sequence
from fractions import Fraction

import numpy as np

from nmt.config import DataConfig
from nmt.data.arrays import Array, offsets_of
from nmt.data.shuffle import Shuffle
from nmt.errors import UserError
from nmt.runtime import mix

_EPOCH, _PASS = 0, 4  # what a seed is used for; nmt.data.batches.blocks has 1 to 3
_MOST_DRAWS = 2**32  # an epoch, the largest `Shuffle`


class Mixture:
    """Corpora, laid end to end, of which every epoch draws a set number of pairs each.

    Each corpus is gone through in an endless sequence of passes, every pass a permutation of it, and an epoch
    takes the next `draws` of them: all pairs of a corpus are drawn equally often, up to one. What an epoch
    takes of all corpora is then shuffled together.
    """

    def __init__(self, sizes: Sequence[int], draws: Sequence[Fraction]) -> None:
        """Takes how many pairs each corpus has, and how many an epoch draws of it on average.

        Raises:
            UserError: an epoch would be longer than 2**32 draws.
        """
        assert len(sizes) == len(draws) and all(sizes)
        if sum(draws) + len(draws) > _MOST_DRAWS:
            raise UserError(f"data.train.corpora: the weights make an epoch of {float(sum(draws)):.3g} pairs")
        self._sizes = list(sizes)
        self._draws = list(draws)
        self._starts = offsets_of(np.array(sizes, np.int64))

    @classmethod
    def of(cls, sizes: Sequence[int], data: DataConfig) -> Mixture:
        """The mixture that the options ask for, of corpora of these sizes."""
        return cls(sizes, mean_draws(sizes, data))

    def counts(self, epoch: int) -> list[int]:
        """How many pairs of each corpus an epoch draws.

        It is the average, rounded, and what rounding took away or added is carried over to the next epochs.
        """
        return [_drawn(draws, epoch + 1) - _drawn(draws, epoch) for draws in self._draws]

    def num_draws(self, epoch: int) -> int:
        """How many pairs an epoch draws in all."""
        return sum(self.counts(epoch))

    def rows(self, seed: int, epoch: int, start: int, stop: int) -> Array:
        """The rows drawn at places `start` to `stop` of an epoch, a pure function of all four.

        Returns:
            (stop - start,) int64 rows of the corpora laid end to end.
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

    def _corpus_rows(self, corpus: int, seed: int, epoch: int, places: Array) -> Array:
        """The rows of an epoch's draws of one corpus, counted from 0."""
        size, draws = self._sizes[corpus], self._draws[corpus]
        first, last = _drawn(draws, epoch), _drawn(draws, epoch + 1)
        passes, rows = np.divmod(places + first, size)
        # A pass that lies in this epoch as a whole needs no order of its own: the epoch shuffles it.
        for number in {first // size, (last - 1) // size}:
            if number * size < first or last < (number + 1) * size:
                chosen = np.flatnonzero(passes == number)
                rows[chosen] = Shuffle(size, mix(seed, _PASS, corpus, number)).at(rows[chosen])
        shifted: Array = rows + self._starts[corpus]
        return shifted


def mean_draws(sizes: Sequence[int], data: DataConfig) -> list[Fraction]:
    """How many pairs of each corpus an epoch draws on average, by the weights or the temperature."""
    if data.temperature is not None:
        shares = [size ** (1.0 / data.temperature) for size in sizes]
        return [Fraction(count) for count in apportioned(sum(sizes), shares)]
    weights = [corpus.weight for corpus in data.train.corpora.values()] or [None]
    return [
        # By its decimal digits: 0.1 is a tenth, so that ten epochs draw every pair exactly once.
        size * Fraction(repr(float(1 if weight is None else weight)))
        for size, weight in zip(sizes, weights, strict=True)
    ]


def apportioned(total: int, shares: Sequence[float | Fraction]) -> list[int]:
    """Splits a number in proportion to shares: the nearest whole numbers that add up to it."""
    exact = [Fraction(share) for share in shares]
    quotas = [total * share / sum(exact) for share in exact]
    counts = [math.floor(quota) for quota in quotas]
    by_rest = sorted(range(len(quotas)), key=lambda place: (counts[place] - quotas[place], place))
    for place in by_rest[: total - sum(counts)]:
        counts[place] += 1
    return counts


def _drawn(draws: Fraction, epochs: int) -> int:
    """How many pairs so many epochs have drawn."""
    return math.floor(epochs * draws + Fraction(1, 2))
