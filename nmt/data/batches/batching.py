"""Flat batches: sentences laid end to end without padding.

Shapes: B sentences, S source tokens, T target tokens, N tokens of either side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.data.arrays import Array, Side, offsets_of
from nmt.data.subwords.tokenizer import BOS_ID, EOS_ID


@dataclass(frozen=True, eq=False)
class Layout:
    """Where sentences lie in a flat stream of tokens.

    Attributes:
        cu_seqlens: (B + 1,) int32; sentence b is tokens `cu_seqlens[b]` to `cu_seqlens[b + 1]`.
        positions: (N,) int64, each token's place in its sentence, from 0.
        lengths: the B lengths on the host, whatever device the tensors are on.
        max_len: the largest of them, 0 if there are none.
    """

    cu_seqlens: Tensor
    positions: Tensor
    lengths: tuple[int, ...]
    max_len: int

    @classmethod
    def of(cls, lengths: Sequence[int] | Array) -> Layout:
        """The layout of sentences of these lengths, in this order."""
        sizes = np.asarray(lengths, np.int64)
        offsets = offsets_of(sizes)
        positions = np.arange(offsets[-1]) - np.repeat(offsets[:-1], sizes)
        cu_seqlens = torch.from_numpy(offsets.astype(np.int32))
        return cls(cu_seqlens, torch.from_numpy(positions), tuple(sizes.tolist()), int(sizes.max(initial=0)))

    def twice(self) -> Layout:
        """The layout of all sentences and then all of them again."""
        cu_seqlens = torch.cat([self.cu_seqlens, self.cu_seqlens[1:] + self.cu_seqlens[-1]])
        return Layout(cu_seqlens, self.positions.repeat(2), self.lengths * 2, self.max_len)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Layout:
        """The same on another device."""
        cu_seqlens = self.cu_seqlens.to(device, non_blocking=non_blocking)
        positions = self.positions.to(device, non_blocking=non_blocking)
        return Layout(cu_seqlens, positions, self.lengths, self.max_len)

    def pin_memory(self) -> Layout:
        """The same in page-locked memory."""
        return Layout(self.cu_seqlens.pin_memory(), self.positions.pin_memory(), self.lengths, self.max_len)


@dataclass(frozen=True, eq=False)
class Batch:
    """Sentence pairs, one flat stream a side.

    Attributes:
        source_ids: (S,) int64, every sentence ending in EOS.
        target_in: (T,) int64, every sentence beginning with BOS.
        target_out: (T,) int64, the same shifted by one: every sentence ending in EOS.
        source: layout of `source_ids`.
        target: layout of `target_in` and `target_out`.
        filling: tokens of the last pair, source and target, if it stands there only to fill up; else 0, 0.
    """

    source_ids: Tensor
    target_in: Tensor
    target_out: Tensor
    source: Layout
    target: Layout
    filling: tuple[int, int] = (0, 0)

    @classmethod
    def of(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Batch:
        """The batch of these pairs (ids without BOS and EOS), in the order given."""
        return cls.of_sides(Side.of(sources), Side.of(targets))

    @classmethod
    def of_sides(cls, source: Side, target: Side) -> Batch:
        """The batch of pairs laid flat already (ids without BOS and EOS)."""
        assert len(source) == len(target)
        return cls(
            source_ids=torch.from_numpy(_joined(source, EOS_ID, at_end=True)),
            target_in=torch.from_numpy(_joined(target, BOS_ID, at_end=False)),
            target_out=torch.from_numpy(_joined(target, EOS_ID, at_end=True)),
            source=Layout.of(source.lengths() + 1),
            target=Layout.of(target.lengths() + 1),
        )

    @property
    def num_sentences(self) -> int:
        """Number of pairs, filling left out."""
        return len(self.target.lengths) - (self.filling != (0, 0))

    @property
    def num_target_tokens(self) -> int:
        """Number of target tokens, EOS counted and filling, which comes after them, left out."""
        return len(self.target_out) - self.filling[1]

    def filled(self, multiple: int) -> Batch:
        """With a pair of no meaning at the end, so that the tokens of either side are a multiple of this.

        Where matrix products are compiled for their shape (oneDNN in bf16), a new number of tokens costs as
        much as computing with it, and its kernels stay in memory.
        """
        sizes = len(self.source_ids), len(self.target_out)
        if not any(size % multiple for size in sizes):
            return self
        source, target = (-size % multiple or multiple for size in sizes)  # a pair has two sides
        return Batch(
            torch.cat([self.source_ids, torch.full((source,), EOS_ID)]),
            torch.cat([self.target_in, torch.full((target,), BOS_ID)]),
            torch.cat([self.target_out, torch.full((target,), EOS_ID)]),
            Layout.of((*self.source.lengths, source)),
            Layout.of((*self.target.lengths, target)),
            (source, target),
        )

    def twice(self) -> Batch:
        """All pairs, filling too, and then all of them again."""
        ids = (self.source_ids.repeat(2), self.target_in.repeat(2), self.target_out.repeat(2))
        return Batch(*ids, self.source.twice(), self.target.twice())

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """The same on another device."""
        return Batch(
            self.source_ids.to(device, non_blocking=non_blocking),
            self.target_in.to(device, non_blocking=non_blocking),
            self.target_out.to(device, non_blocking=non_blocking),
            self.source.to(device, non_blocking),
            self.target.to(device, non_blocking),
            self.filling,
        )

    def pin_memory(self) -> Batch:
        """The same in page-locked memory, from which a GPU copies while it computes."""
        return Batch(
            self.source_ids.pin_memory(),
            self.target_in.pin_memory(),
            self.target_out.pin_memory(),
            self.source.pin_memory(),
            self.target.pin_memory(),
            self.filling,
        )


def _joined(side: Side, mark: int, *, at_end: bool) -> np.ndarray[Any, np.dtype[np.int64]]:
    """(N + B,) the sentences with `mark` before or after each."""
    ids = side.flat()
    offsets = side.offsets.astype(np.int64) - int(side.offsets[0])
    return np.insert(ids.astype(np.int64), offsets[1:] if at_end else offsets[:-1], mark)
