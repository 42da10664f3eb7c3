"""Sentences as flat arrays of ids with offsets."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import Any

import numpy as np

Array = np.ndarray[Any, np.dtype[Any]]


@dataclass(frozen=True, eq=False)
class Side:
    """One side of n sentence pairs: the sentences concatenated into one array. Indexing returns views.

    Attributes:
        ids: (N,) of any integer dtype.
        offsets: (n + 1,) integers; sentence i is `ids[offsets[i]:offsets[i + 1]]`.
    """

    ids: Array
    offsets: Array

    @classmethod
    def of(cls, sentences: Sequence[Sequence[int]], dtype: Any = np.int64) -> Side:
        """Concatenates sentences, in the given order."""
        lengths = np.fromiter(map(len, sentences), np.int64, len(sentences))
        ids = np.fromiter(chain.from_iterable(sentences), dtype, int(lengths.sum()))
        return cls(ids, offsets_of(lengths))

    @classmethod
    def of_lines(cls, lines: Iterable[str]) -> Side:
        """Encodes lines as UTF-8 bytes, each with a newline at its end."""
        encoded = [line.encode() + b"\n" for line in lines]
        lengths = np.fromiter(map(len, encoded), np.int64, len(encoded))
        return cls(np.frombuffer(b"".join(encoded), np.uint8), offsets_of(lengths))

    @classmethod
    def concatenated(cls, sides: Sequence[Side]) -> Side:
        """Concatenates several sides, at least one."""
        ids = np.concatenate([side.flat() for side in sides])
        return cls(ids, offsets_of(np.concatenate([side.lengths() for side in sides])))

    def __len__(self) -> int:
        return len(self.offsets) - 1

    def __getitem__(self, row: int) -> Array:
        return self.ids[int(self.offsets[row]) : int(self.offsets[row + 1])]

    def __iter__(self) -> Iterator[Array]:
        offsets = self.offsets.tolist()
        return (self.ids[begin:end] for begin, end in zip(offsets, offsets[1:], strict=False))

    def lengths(self) -> Array:
        """Returns the number of ids of each sentence: (n,) int64."""
        return np.diff(self.offsets.astype(np.int64))

    def flat(self) -> Array:
        """Returns the ids of all sentences, as a view."""
        return self.ids[int(self.offsets[0]) : int(self.offsets[-1])]

    def lines(self) -> list[str]:
        """Reverses `of_lines`; the lines must not contain a newline."""
        return self.flat().tobytes().decode().split("\n")[:-1]

    def take(self, rows: Array) -> Side:
        """Copies the sentences at `rows` (n',), in that order."""
        starts = self.offsets[rows].astype(np.int64)
        lengths = self.offsets[rows + 1].astype(np.int64) - starts
        offsets = offsets_of(lengths)
        return Side(self.ids[np.repeat(starts - offsets[:-1], lengths) + np.arange(offsets[-1])], offsets)


def offsets_of(lengths: Array) -> Array:
    """Returns the cumulative sums of lengths (n,), starting at 0: (n + 1,) int64."""
    offsets = np.zeros(len(lengths) + 1, np.int64)
    np.cumsum(lengths, out=offsets[1:])
    return offsets


def smallest_dtype(largest: int) -> np.dtype[Any]:
    """Returns the smallest of uint16, uint32 and uint64 that can hold `largest`."""
    return np.dtype("<u2" if largest < 2**16 else "<u4" if largest < 2**32 else "<u8")
