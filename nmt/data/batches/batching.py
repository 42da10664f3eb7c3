"""Flat batches: concatenated sentences without padding.

Shapes: B sentences, S source tokens, T target tokens, N tokens of one side.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import chain
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID
from nmt.runtime.arrays import Array, Side, offsets_of

IGNORED_ID = -1
"""The target id of padding that has no loss."""

_SHORT = 64  # tokens of a padding sentence of `Batch.padded`, at most

Longest = tuple[int | None, int | None]
"""The largest numbers of tokens of a source and of a target that a model can read; None: no limit."""


@dataclass(frozen=True, eq=False)
class Layout:
    """The positions of sentences in a flat sequence of tokens.

    Attributes:
        cu_seqlens: (B + 1,) int32; sentence b is tokens `cu_seqlens[b]` to `cu_seqlens[b + 1]`.
        positions: (N,) int64, the position of each token in its sentence, from 0.
        sentences: (N,) int32, the sentence of each token, from 0.
        lengths: the B lengths, always on the host.
        max_len: the largest length, 0 if there are no sentences.
        cut: (N,) bool, the tokens whose embeddings a model replaces by zero, if `Seq2Seq.cuts_tokens`; None:
            no token.
    """

    cu_seqlens: Tensor
    positions: Tensor
    sentences: Tensor
    lengths: tuple[int, ...]
    max_len: int
    cut: Tensor | None = None

    @classmethod
    def of(cls, lengths: Sequence[int] | Array, capacity: int = 0) -> Layout:
        """Returns the layout of sentences with these lengths, in this order.

        `cu_seqlens` has at least `capacity` elements; its last one is repeated.
        """
        sizes = np.asarray(lengths, np.int64)
        offsets = offsets_of(sizes)
        cu_seqlens = np.full(max(capacity, len(offsets)), offsets[-1], np.int32)
        cu_seqlens[: len(offsets)] = offsets
        sentences = np.repeat(np.arange(len(sizes), dtype=np.int32), sizes)
        positions = np.arange(offsets[-1]) - offsets[sentences]
        return cls(
            torch.from_numpy(cu_seqlens),
            torch.from_numpy(positions),
            torch.from_numpy(sentences),
            tuple(sizes.tolist()),
            int(sizes.max(initial=0)),
        )

    def twice(self) -> Layout:
        """Returns the layout of the sentences followed by a copy of all of them."""
        cu_seqlens = torch.cat([self.cu_seqlens, self.cu_seqlens[1:] + self.cu_seqlens[-1]])
        sentences = torch.cat([self.sentences, self.sentences + len(self.lengths)])
        return Layout(cu_seqlens, self.positions.repeat(2), sentences, self.lengths * 2, self.max_len)

    def to(self, device: torch.device | str) -> Layout:
        """Returns the layout on another device."""
        return self.with_tensors(*(x.to(device) for x in self.tensors()))

    def tensors(self) -> tuple[Tensor, Tensor, Tensor]:
        """Returns `positions`, `cu_seqlens` and `sentences`."""
        return self.positions, self.cu_seqlens, self.sentences

    def with_tensors(self, positions: Tensor, cu_seqlens: Tensor, sentences: Tensor) -> Layout:
        """Returns the layout with other tensors of the same shapes."""
        return replace(self, positions=positions, cu_seqlens=cu_seqlens, sentences=sentences)


@dataclass(frozen=True, eq=False)
class Batch:
    """Sentence pairs, one flat sequence of ids per side.

    Attributes:
        source_ids: (S,) int64; every sentence ends with EOS.
        target_in: (T,) int64; every sentence begins with BOS.
        target_out: (T,) int64; the same shifted by one: every sentence ends with EOS.
        source: layout of `source_ids`.
        target: layout of `target_in` and `target_out`.
        filling: number of source and target tokens of the last pairs, which are padding; see `filled` and
            `padded`.
        num_filling: the number of these pairs.
        memory: uint8, the memory of all tensors, one after the other; None: they are separate.
    """

    source_ids: Tensor
    target_in: Tensor
    target_out: Tensor
    source: Layout
    target: Layout
    filling: tuple[int, int] = (0, 0)
    num_filling: int = 0
    memory: Tensor | None = None

    @classmethod
    def of(cls, sources: Sequence[Sequence[int]], targets: Sequence[Sequence[int]]) -> Batch:
        """Returns the batch of these pairs (ids without BOS and EOS), in the given order."""
        return cls.of_sides(Side.of(sources), Side.of(targets))

    @classmethod
    def of_sides(cls, source: Side, target: Side) -> Batch:
        """Returns the batch of pairs that are already flat (ids without BOS and EOS)."""
        assert len(source) == len(target)
        return cls(
            source_ids=torch.from_numpy(_with_marks(source, EOS_ID, at_end=True)),
            target_in=torch.from_numpy(_with_marks(target, BOS_ID, at_end=False)),
            target_out=torch.from_numpy(_with_marks(target, EOS_ID, at_end=True)),
            source=Layout.of(source.lengths() + 1),
            target=Layout.of(target.lengths() + 1),
        )

    @property
    def shape(self) -> tuple[int, int]:
        """S and T; with `padded` they determine the shapes of all tensors."""
        return len(self.source_ids), len(self.target_out)

    @property
    def num_sentences(self) -> int:
        """Number of pairs without padding."""
        return len(self.target.lengths) - self.num_filling

    @property
    def num_target_tokens(self) -> int:
        """Number of target tokens, EOS counted, without padding, which comes last."""
        return len(self.target_out) - self.filling[1]

    def filled(self, multiple: int, longest: Longest = (None, None)) -> Batch:
        """Appends a padding pair so that the number of tokens of each side is a multiple of `multiple`.

        There are several pairs if one would be longer than `longest`, the limits of the model.

        oneDNN compiles matrix products in bf16 for each shape. The compilation for a new number of tokens
        takes as long as the computation, and the kernels stay in memory.
        """
        sizes = self.shape
        if not any(size % multiple for size in sizes):
            return self
        missing = [-size % multiple or multiple for size in sizes]  # a pair has two sides
        while min(missing) < (count := _fewest(missing, longest)):
            missing[missing.index(min(missing))] += multiple
        source, target = (_divided(size, count) for size in missing)
        return self._with_padding(source, target, EOS_ID)

    def padded(self, steps: tuple[int, int], longest: Longest = (None, None)) -> Batch:
        """Appends padding pairs so that batches have few different shapes, for CUDA graphs.

        No pair is longer than `longest`, the limits of the model.

        The numbers of source and of target tokens become multiples of `steps`. The targets of the padding are
        `IGNORED_ID`, and `cu_seqlens` has a size that depends on the numbers of tokens alone.
        """
        missing = [-size % step for size, step in zip(self.shape, steps, strict=True)]
        # Short sentences, because a long one takes longer, and encodings may have a longest position.
        short = min([_SHORT, *(limit for limit in longest if limit is not None)])
        count = max(-(-size // short) for size in missing)
        source, target = (_divided(size, count) for size in missing)
        num_source, num_target = (size + more for size, more in zip(self.shape, missing, strict=True))
        # A pair of the batch has a target token, and one of the padding `short` tokens of either side.
        return self._with_padding(source, target, IGNORED_ID, num_target + num_source // short + 2)

    def _with_padding(
        self, source: Sequence[int], target: Sequence[int], target_id: int, capacity: int = 0
    ) -> Batch:
        num_source, num_target = sum(source), sum(target)
        return Batch(
            torch.cat([self.source_ids, torch.full((num_source,), EOS_ID)]),
            torch.cat([self.target_in, torch.full((num_target,), BOS_ID)]),
            torch.cat([self.target_out, torch.full((num_target,), target_id)]),
            Layout.of((*self.source.lengths, *source), capacity),
            Layout.of((*self.target.lengths, *target), capacity),
            (num_source, num_target),
            len(source),
        )

    def twice(self) -> Batch:
        """Returns the pairs followed by a copy of all of them, the padding pair included."""
        ids = (self.source_ids.repeat(2), self.target_in.repeat(2), self.target_out.repeat(2))
        return Batch(*ids, self.source.twice(), self.target.twice())

    def to(self, device: torch.device | str, non_blocking: bool = False) -> Batch:
        """Returns the batch on another device; see `pin_memory`."""
        if self.memory is None:
            return self._of([x.to(device, non_blocking=non_blocking) for x in self._tensors()])
        return self._in(self.memory.to(device, non_blocking=non_blocking))

    def pin_memory(self) -> Batch:
        """Returns the batch in one piece of page-locked memory.

        One copy then takes it to a GPU, while that computes.
        """
        return self._in(torch.cat([x.view(torch.uint8) for x in self._tensors()]).pin_memory())

    def _tensors(self) -> list[Tensor]:
        """Returns all tensors. Those of int64 come first, so that each is aligned in one piece of memory."""
        ids = (self.source_ids, self.target_in, self.target_out)
        sides = zip(self.source.tensors(), self.target.tensors(), strict=True)
        return [*ids, *chain.from_iterable(sides)]

    def _of(self, tensors: Sequence[Tensor], memory: Tensor | None = None) -> Batch:
        """Returns the batch with other tensors of the same shapes, in the order of `_tensors`."""
        source_ids, target_in, target_out, *sides = tensors
        return replace(
            self,
            source_ids=source_ids,
            target_in=target_in,
            target_out=target_out,
            source=self.source.with_tensors(*sides[::2]),
            target=self.target.with_tensors(*sides[1::2]),
            memory=memory,
        )

    def _in(self, memory: Tensor) -> Batch:
        tensors = self._tensors()
        pieces = torch.split(memory, [x.numel() * x.element_size() for x in tensors])
        return self._of([a.view(x.dtype) for a, x in zip(pieces, tensors, strict=True)], memory)


def _with_marks(side: Side, mark: int, *, at_end: bool) -> np.ndarray[Any, np.dtype[np.int64]]:
    """Returns the ids (N + B,) of the sentences with the id `mark` before or after each."""
    ids = side.flat()
    offsets = side.offsets.astype(np.int64) - int(side.offsets[0])
    return np.insert(ids.astype(np.int64), offsets[1:] if at_end else offsets[:-1], mark)


def _fewest(sizes: Sequence[int], longest: Longest) -> int:
    """Returns the fewest pairs with these numbers of tokens in all, none of which is too long."""
    return max(1 if limit is None else -(-size // limit) for size, limit in zip(sizes, longest, strict=True))


def _divided(size: int, count: int) -> list[int]:
    """Returns `count` numbers of nearly the same size whose sum is `size`."""
    return [size * i // count - size * (i - 1) // count for i in range(1, count + 1)]
