"""Packed streams, the input format of torch's recurrent networks.

Shapes: N tokens of a stream (S source tokens), B sentences, L tokens of the longest sentence, D width.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.data.batches.batching import Layout


@dataclass(frozen=True)
class Packing:
    """The permutation between a flat stream and a packed stream.

    A packed stream has the first tokens of all sentences, then the second tokens, and so on. Within each step
    the longest sentence comes first.

    Attributes:
        to_packed: (N,) int64, the flat row of each packed row.
        to_flat: (N,) int64, the packed row of each flat row.
        batch_sizes: (L,) int64 on the CPU, the number of sentences with a token at each step.
        sizes: `batch_sizes` as a list.
        order: the indices of the sentences that have tokens, the longest first.
    """

    to_packed: Tensor
    to_flat: Tensor
    batch_sizes: Tensor
    sizes: list[int]
    order: np.ndarray[Any, np.dtype[np.int64]]

    @classmethod
    def of(cls, layout: Layout) -> Packing:
        """Packs the sentences of a layout; empty sentences, which fill a batch up, have no rows."""
        lengths = np.array(layout.lengths, np.int64)
        order = np.argsort(-lengths, kind="stable")[: int((lengths > 0).sum())]
        starts = (np.cumsum(lengths) - lengths)[order]
        sizes = (lengths[order][:, None] > np.arange(layout.max_len)).sum(0)
        rows = np.concatenate([starts[:size] + step for step, size in enumerate(sizes)])
        to_flat = np.empty_like(rows)
        to_flat[rows] = np.arange(len(rows))
        device = layout.positions.device
        packed, flat = (torch.from_numpy(array).to(device) for array in (rows, to_flat))
        return cls(packed, flat, torch.from_numpy(sizes), sizes.tolist(), order)

    def packed(self, x: Tensor) -> Tensor:
        """(N, D), flat → packed."""
        return _permuted(x, self.to_packed, self.to_flat)

    def flat(self, x: Tensor) -> Tensor:
        """(N, D), packed → flat."""
        return _permuted(x, self.to_flat, self.to_packed)


class _Permuted(torch.autograd.Function):
    """Permutes rows; the gradient is the inverse permutation.

    The gradient of `index_select` would be the slower `index_add_`, because autograd does not know that the
    indices are distinct.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor) -> Tensor:
        ctx.inverse = inverse
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return grad.index_select(0, ctx.inverse), None, None


class _Rows(torch.autograd.Function):
    """Rows (S, D) and row indices (B, L) → (B, L, D); padding repeats indices."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, rows: Tensor) -> Tensor:
        ctx.save_for_backward(rows)
        ctx.shape = x.shape
        return x.index_select(0, rows.flatten()).view(*rows.shape, -1)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (rows,) = ctx.saved_tensors
        found = grad.new_zeros(ctx.shape)
        return found.index_add_(0, rows.flatten(), grad.flatten(0, 1)), None


_permuted: Callable[..., Tensor] = _Permuted.apply
padded_rows: Callable[..., Tensor] = _Rows.apply
"""Rows (S, D) and row indices (B, L) → (B, L, D); indices may repeat."""
