"""Rows in other orders: packed streams, the input of torch's recurrent networks, and gathers of rows.

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
        return gathered(x, self.to_packed, self.to_flat, None)

    def flat(self, x: Tensor) -> Tensor:
        """(N, D), packed → flat."""
        return gathered(x, self.to_flat, self.to_packed, None)


class _Gathered(torch.autograd.Function):
    """See `gathered`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor, zeroed: Tensor | None) -> Tensor:
        ctx.inverse, ctx.zeroed = inverse, zeroed
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return selected(grad, ctx.inverse, ctx.zeroed), None, None, None


gathered: Callable[..., Tensor] = _Gathered.apply
"""(x, order, inverse, zeroed): the rows `order` of `x`; the gradient is `selected` with the other arguments.

That of `index_select` is the slower `index_add_`: autograd does not know that real rows are distinct."""


def selected(x: Tensor, order: Tensor, zeroed: Tensor | None = None) -> Tensor:
    """Returns the rows `order` of `x`, and 0 in the rows `zeroed` of the result."""
    rows = x.index_select(0, order)
    return rows if zeroed is None or not len(zeroed) else rows.index_fill_(0, zeroed, 0)
