"""A random order of any size, of which any part can be computed alone, in no memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nmt.runtime import mix

Numbers = np.ndarray[Any, np.dtype[np.uint64]]

_ROUNDS = 4  # pairs of half-rounds
_LEAST = 4  # a smaller grid would not reach all permutations alike
_CHUNK = 8192  # stays within the processor's cache


class Shuffle:
    """A permutation of 0..size-1 chosen by a seed; what stands at each place is computed, not stored.

    A Feistel network over a grid that just holds `size` cells (Black & Rogaway 2002, "Ciphers with arbitrary
    finite domains"): each half-round adds to one coordinate a hash of the other, which can be undone, so no
    two places get the same row; what falls outside 0..size-1 goes through again.
    """

    def __init__(self, size: int, seed: int) -> None:
        """Takes the number of rows, at most 2**32, and the seed."""
        assert 0 <= size <= 2**32
        self._size = size
        self._height = max(_LEAST, math.isqrt(size))
        self._width = max(_LEAST, -(-size // self._height))
        self._keys = [np.uint64(mix(seed, half)) for half in range(2 * _ROUNDS)]

    def rows(self, start: int, stop: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The rows at places `start` to `stop` of the order: (stop - start,)."""
        assert 0 <= start <= stop <= self._size
        return self.at(np.arange(start, stop))

    def at(self, places: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """The rows at any places of the order: (n,) to (n,)."""
        rows = np.empty(len(places), np.int64)
        for at in range(0, len(places), _CHUNK):
            cells = self._permuted(places[at : at + _CHUNK].astype(np.uint64))
            while len(outside := np.flatnonzero(cells >= self._size)):
                cells[outside] = self._permuted(cells[outside])
            rows[at : at + len(cells)] = cells
        return rows

    def _permuted(self, cells: Numbers) -> Numbers:
        width, height = np.uint64(self._width), np.uint64(self._height)
        y, x = np.divmod(cells, width)
        for first, second in zip(self._keys[::2], self._keys[1::2], strict=True):
            y += _hash(x + first, height)
            y -= height * (y >= height)
            x += _hash(y + second, width)
            x -= width * (x >= width)
        return y * width + x


def _hash(values: Numbers, bound: np.uint64) -> Numbers:
    """A number below `bound` from each value (the finaliser of MurmurHash3, its upper half scaled down)."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return (values >> np.uint64(32)) * bound >> np.uint64(32)
