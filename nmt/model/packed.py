"""Packed streams: the input of torch's recurrent networks.

Shapes: N tokens of a stream (S source tokens), B sentences, L tokens of the longest sentence, D width.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.data.batches.batching import Layout
from nmt.model.cpu.padded import gathered


@dataclass(frozen=True)
class Packing:
    """The permutation between a flat stream and a packed stream.

    A packed stream has the first tokens of all sentences, then the second tokens, and so on. Within each step
    the longest sentence comes first.

    Attributes:
        to_packed: (N,) int64, the flat row of each packed row.
        to_flat: (N,) int64, the packed row of each flat row.
        batch_sizes: (L,) int64 on the CPU, the number of sentences with a token at each step.
        order: the indices of the sentences that have tokens, the longest first.
    """

    to_packed: Tensor
    to_flat: Tensor
    batch_sizes: Tensor
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
        return cls(packed, flat, torch.from_numpy(sizes), order)

    def packed(self, x: Tensor) -> Tensor:
        """(N, D), flat → packed."""
        return gathered(x, self.to_packed, self.to_flat, None)

    def flat(self, x: Tensor) -> Tensor:
        """(N, D), packed → flat."""
        return gathered(x, self.to_flat, self.to_packed, None)
