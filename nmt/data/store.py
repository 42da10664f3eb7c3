"""The store of prepared sentence pairs: ids in memory-mapped shards; only the pages in use occupy memory."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from nmt.data.cache import write_file
from nmt.data.shuffle import Shuffle
from nmt.errors import UserError
from nmt.runtime.arrays import Array, Side, offsets_of, smallest_dtype
from nmt.runtime.tensors import DamagedFile, map_safetensors, safetensors_bytes


@dataclass(frozen=True, eq=False)
class Shard:
    """The content of a shard file: both sides of the pairs, as ids or bytes of text, and additional arrays.

    Attributes:
        source: the source side.
        target: the target side, with as many sentences.
        more: additional arrays, by name.
        facts: any value that JSON can hold.
        path: path of the mapped file, or None. A mapped shard is pickled as its path alone.
    """

    source: Side
    target: Side
    more: Mapping[str, Array] = field(default_factory=dict)
    facts: Any = None
    path: Path | None = None

    def __reduce__(self) -> tuple[Callable[..., Shard], tuple[Any, ...]]:
        if self.path is not None:
            return Shard.open, (self.path,)
        return Shard, (self.source, self.target, self.more, self.facts)

    def write(self, path: Path) -> None:
        """Writes a safetensors file atomically. Raises `UserError` if the file can't be written."""
        arrays = dict(self.more)
        for name, side in (("source", self.source), ("target", self.target)):
            offsets = side.offsets - side.offsets[0]
            arrays[name] = side.flat()
            arrays[f"{name}_offsets"] = offsets.astype(smallest_dtype(int(offsets[-1])))
        write_file(path, safetensors_bytes(arrays, self.facts))

    @classmethod
    def open(cls, path: Path) -> Shard:
        """Memory-maps a file that `write` wrote. Raises `UserError` if the file is missing or damaged."""
        try:
            arrays, facts = map_safetensors(path)
            source, target = (Side(arrays.pop(n), arrays.pop(f"{n}_offsets")) for n in ("source", "target"))
        except (DamagedFile, KeyError) as error:
            raise UserError(f"{path}: damaged ({error}). Start again to create it again.") from error
        return cls(source, target, arrays, facts, path)


class Store:
    """Sentence pairs as ids, without BOS and EOS: concatenated shards, at least one.

    Attributes:
        num_pairs: number of pairs; the rows are 0..num_pairs-1.
        sizes: number of pairs of each corpus; the corpora are concatenated. By default there is one.
    """

    def __init__(self, shards: Iterable[Shard], sizes: Sequence[int] | None = None) -> None:
        self._shards = list(shards)
        self._starts = offsets_of(np.array([len(shard.source) for shard in self._shards], np.int64))
        self.num_pairs = int(self._starts[-1])
        self.sizes = (self.num_pairs,) if sizes is None else tuple(sizes)
        assert sum(self.sizes) == self.num_pairs

    @classmethod
    def of(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Store:
        """Creates a store in memory."""
        assert len(sources) == len(targets)
        return cls([Shard(Side.of(sources), Side.of(targets))])

    @classmethod
    def open(cls, paths: Iterable[Path]) -> Store:
        """Opens the store of these shard files, memory-mapped.

        Raises:
            UserError: a file is missing or damaged.
        """
        return cls(map(Shard.open, paths))

    @classmethod
    def joined(cls, stores: Sequence[Store]) -> Store:
        """Concatenates the corpora of several stores, at least one."""
        shards = [shard for store in stores for shard in store._shards]
        return cls(shards, [size for store in stores for size in store.sizes])

    @property
    def num_source_tokens(self) -> int:
        """Number of pieces of all sources, without EOS."""
        return sum(len(shard.source.ids) for shard in self._shards)

    @property
    def num_target_tokens(self) -> int:
        """Number of pieces of all targets, without EOS."""
        return sum(len(shard.target.ids) for shard in self._shards)

    def count_longer(self, max_source: int, max_target: int) -> int:
        """Counts the pairs of which a side has more pieces, without EOS. Reads one shard at a time."""
        return sum(
            int(((shard.source.lengths() > max_source) | (shard.target.lengths() > max_target)).sum())
            for shard in self._shards
        )

    def sides(self) -> Iterator[tuple[Side, Side]]:
        """Yields the sources and targets of each shard, in the order of the rows."""
        return ((shard.source, shard.target) for shard in self._shards)

    def more(self) -> Iterator[Mapping[str, Array]]:
        """Yields the additional arrays of each shard."""
        return (shard.more for shard in self._shards)

    def pair(self, row: int) -> tuple[Array, Array]:
        """Returns the ids of the two sides of a pair."""
        if not 0 <= row < self.num_pairs:
            raise IndexError(f"row {row} is out of range: there are {self.num_pairs} pairs")
        number = int(np.searchsorted(self._starts, row, "right")) - 1
        shard, local = self._shards[number], row - int(self._starts[number])
        return shard.source[local], shard.target[local]

    def take(self, rows: Array) -> tuple[Side, Side]:
        """Copies the pairs at `rows` (n,), in that order. Reads each shard from front to back."""
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

    def first(self, count: int) -> Store:
        """Copies the first `count` pairs; 0, or as many as there are: this store."""
        if not count or count >= self.num_pairs:
            return self
        return Store([Shard(*self.take(np.arange(count)))])

    def sample(self, count: int, seed: int) -> tuple[Side, Side]:
        """Copies at most `count` pairs, chosen at random, in the order of the rows."""
        rows = Shuffle(self.num_pairs, seed).rows(0, min(count, self.num_pairs))
        return self.take(np.sort(rows))
