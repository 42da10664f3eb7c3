"""A random permutation that is computed, not stored, so that any part of it is available without memory."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from nmt.runtime.seeds import mix

Numbers = np.ndarray[Any, np.dtype[np.uint64]]

_ROUNDS = 4  # pairs of half-rounds
_MIN_EXTENT = 4  # a smaller grid would not reach all permutations equally often
_CHUNK = 8192  # places; fits into the processor's cache


class Shuffle:
    """A permutation of the rows 0..size-1, at most 2**32, chosen by a seed and computed on demand.

    A Feistel network over the smallest grid that holds `size` cells (Black & Rogaway 2002, "Ciphers with
    arbitrary finite domains"). Each half-round adds a hash of one coordinate to the other. This is
    invertible, so no two places get the same row. Values outside 0..size-1 pass through the network again.
    """

    def __init__(self, size: int, seed: int) -> None:
        assert 0 <= size <= 2**32
        self._size = size
        self._height = max(_MIN_EXTENT, math.isqrt(size))
        self._width = max(_MIN_EXTENT, -(-size // self._height))
        self._keys = [np.uint64(mix(seed, half)) for half in range(2 * _ROUNDS)]

    def rows(self, start: int, stop: int) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Returns the rows at places `start` to `stop` (excluded) of the permutation: (stop - start,)."""
        assert 0 <= start <= stop <= self._size
        return self.at(np.arange(start, stop))

    def at(self, places: np.ndarray[Any, np.dtype[np.int64]]) -> np.ndarray[Any, np.dtype[np.int64]]:
        """Returns the rows at any places of the permutation: (n,) to (n,)."""
        rows = np.empty(len(places), np.int64)
        for at in range(0, len(places), _CHUNK):
            cells = self._permute(places[at : at + _CHUNK].astype(np.uint64))
            while len(outside := np.flatnonzero(cells >= self._size)):
                cells[outside] = self._permute(cells[outside])
            rows[at : at + len(cells)] = cells
        return rows

    def _permute(self, cells: Numbers) -> Numbers:
        width, height = np.uint64(self._width), np.uint64(self._height)
        y, x = np.divmod(cells, width)
        for first, second in zip(self._keys[::2], self._keys[1::2], strict=True):
            y += _hash(x + first, height)
            y -= height * (y >= height)
            x += _hash(y + second, width)
            x -= width * (x >= width)
        return y * width + x


def _hash(values: Numbers, bound: np.uint64) -> Numbers:
    """Hashes each value to a number below `bound`: the finaliser of MurmurHash3, its upper half scaled."""
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xFF51AFD7ED558CCD)
    values = (values ^ (values >> np.uint64(33))) * np.uint64(0xC4CEB9FE1A85EC53)
    return (values >> np.uint64(32)) * bound >> np.uint64(32)
