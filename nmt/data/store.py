"""Prepared sentence pairs: ids in memory-mapped shards, of which only what is touched takes memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data.arrays import (
    Array,
    DamagedFile,
    Side,
    map_safetensors,
    offsets_of,
    safetensors_bytes,
    smallest_dtype,
)
from nmt.data.cache import write_file
from nmt.errors import UserError


@dataclass(frozen=True, eq=False)
class Shard:
    """The content of a file: two sides of equally many pairs, ids or bytes of text, and what goes with them.

    Attributes:
        source: one side.
        target: the other.
        more: arrays beside them.
        facts: anything JSON holds.
        path: of the file that it is mapped from. To another process it travels as that alone.
    """

    source: Side
    target: Side
    more: Mapping[str, Array] = field(default_factory=dict)
    facts: Any = None
    path: Path | None = None

    def __reduce__(self) -> tuple[Callable[..., Shard], tuple[Any, ...]]:
        """What another process makes it from."""
        if self.path is not None:
            return Shard.open, (self.path,)
        return Shard, (self.source, self.target, self.more, self.facts)

    def write(self, path: Path) -> None:
        """Writes a safetensors file whole or not at all.

        Raises:
            UserError: it can't be written.
        """
        arrays = dict(self.more)
        for name, side in (("source", self.source), ("target", self.target)):
            offsets = side.offsets - side.offsets[0]
            arrays[name] = side.flat()
            arrays[f"{name}_offsets"] = offsets.astype(smallest_dtype(int(offsets[-1])))
        write_file(path, safetensors_bytes(arrays, self.facts))

    @classmethod
    def open(cls, path: Path) -> Shard:
        """Maps a file that `write` wrote.

        Raises:
            UserError: it is missing or damaged.
        """
        try:
            arrays, facts = map_safetensors(path)
            source, target = (Side(arrays.pop(n), arrays.pop(f"{n}_offsets")) for n in ("source", "target"))
        except (DamagedFile, KeyError) as error:
            raise UserError(f"{path} is damaged: start again, and it is made again ({error})") from error
        return cls(source, target, arrays, facts, path)


class Store:
    """Sentence pairs as ids, without BOS and EOS.

    Attributes:
        num_pairs: number of pairs; rows go from 0 to it.
        sizes: number of pairs of each corpus, which lie end to end.
    """

    def __init__(self, shards: Iterable[Shard], sizes: Sequence[int] | None = None) -> None:
        """Joins shards, at least one, end to end; without `sizes` they are one corpus."""
        self._shards = list(shards)
        self._starts = offsets_of(np.array([len(shard.source) for shard in self._shards], np.int64))
        self.num_pairs = int(self._starts[-1])
        self.sizes = (self.num_pairs,) if sizes is None else tuple(sizes)
        assert sum(self.sizes) == self.num_pairs

    @classmethod
    def of(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Store:
        """A store in memory."""
        assert len(sources) == len(targets)
        return cls([Shard(Side.of(sources), Side.of(targets))])

    @classmethod
    def open(cls, paths: Iterable[Path]) -> Store:
        """The store of these shards, mapped.

        Raises:
            UserError: one is missing or damaged.
        """
        return cls(map(Shard.open, paths))

    @classmethod
    def joined(cls, stores: Sequence[Store]) -> Store:
        """The corpora of several stores, at least one, end to end."""
        shards = [shard for store in stores for shard in store._shards]
        return cls(shards, [size for store in stores for size in store.sizes])

    @property
    def source_lengths(self) -> Array:
        """(num_pairs,) pieces of each source, EOS not counted, in the smallest dtype that holds them."""
        return np.concatenate([_lengths(shard.source) for shard in self._shards])

    @property
    def target_lengths(self) -> Array:
        """(num_pairs,) pieces of each target, EOS not counted."""
        return np.concatenate([_lengths(shard.target) for shard in self._shards])

    @property
    def num_source_tokens(self) -> int:
        """Pieces of all sources, EOS not counted."""
        return sum(len(shard.source.ids) for shard in self._shards)

    @property
    def num_target_tokens(self) -> int:
        """Pieces of all targets, EOS not counted."""
        return sum(len(shard.target.ids) for shard in self._shards)

    def count_longer(self, max_source: int, max_target: int) -> int:
        """Number of pairs of which a side has more pieces, EOS not counted; a shard at a time."""
        return sum(
            int(((shard.source.lengths() > max_source) | (shard.target.lengths() > max_target)).sum())
            for shard in self._shards
        )

    def sides(self) -> Iterator[tuple[Side, Side]]:
        """Sources and targets, a shard at a time, in the order of the rows."""
        return ((shard.source, shard.target) for shard in self._shards)

    def more(self) -> Iterator[Mapping[str, Array]]:
        """The arrays beside the sides, a shard at a time."""
        return (shard.more for shard in self._shards)

    def source(self, row: int) -> Array:
        """Ids of one source."""
        shard, local = self._place(row)
        return shard.source[local]

    def target(self, row: int) -> Array:
        """Ids of one target."""
        shard, local = self._place(row)
        return shard.target[local]

    def take(self, rows: Array) -> tuple[Side, Side]:
        """Copies the pairs at `rows` (n,), in that order; each shard is read front to back."""
        order = np.argsort(rows, kind="stable")
        ascending = rows[order]
        cuts = np.searchsorted(ascending, self._starts)
        places = [
            (self._shards[k], ascending[cuts[k] : cuts[k + 1]] - self._starts[k])
            for k in np.flatnonzero(np.diff(cuts))
        ] or [(self._shards[0], ascending)]
        back = np.empty_like(order)
        back[order] = np.arange(len(order))
        return (
            Side.concatenated([shard.source.take(local) for shard, local in places]).take(back),
            Side.concatenated([shard.target.take(local) for shard, local in places]).take(back),
        )

    def _place(self, row: int) -> tuple[Shard, int]:
        if not 0 <= row < self.num_pairs:
            raise IndexError(f"row {row} of {self.num_pairs}")
        k = int(np.searchsorted(self._starts, row, "right")) - 1
        return self._shards[k], row - int(self._starts[k])


def _lengths(side: Side) -> Array:
    lengths = side.lengths()
    return lengths.astype(smallest_dtype(int(lengths.max(initial=0))))
