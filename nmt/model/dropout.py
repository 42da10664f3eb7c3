"""Dropout that is a pure function of a seed and the order of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 65536  # a decision costs 16 random bits; the rate is rounded to 1/65536


class DropoutSource:
    """The random numbers that all dropouts of a model share.

    On the CPU they come from a small generator of their own: torch's dropout is serial and several times
    slower, which shows in the profile of a small model. On CUDA the device's own generator is seeded.
    """

    def __init__(self) -> None:
        self.seed(0)

    def seed(self, seed: int, device: torch.device | None = None) -> None:
        """Starts the sequence that belongs to `seed` (any integer of 63 bits)."""
        self._generator = np.random.Generator(np.random.SFC64(seed))
        if device is not None and device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)

    def kept(self, shape: torch.Size, threshold: int) -> Tensor:
        """A mask on the CPU: uint8 of `shape`, 0 with probability `threshold` / 65536, otherwise 1."""
        count = shape.numel()
        words = self._generator.integers(0, 2**64, size=-(-count // 4), dtype=np.uint64)
        kept = words.view(np.uint16)[:count] >= threshold
        return torch.from_numpy(kept.view(np.uint8)).view(shape)


class Dropout(nn.Module):
    """Zeroes values at a rate and scales the rest, so that the mean stays (section 5.4 of the paper).

    Args:
        rate: share of the values that become zero; rounded to 1/65536.
        source: where the random numbers come from, shared by the whole model.
        rows: zero whole rows, each value of a row having the fate of the others.
    """

    def __init__(self, rate: float, source: DropoutSource, *, rows: bool = False) -> None:
        super().__init__()
        self.rate = rate
        self.rows = rows
        self.threshold = round(rate * _LEVELS)
        self.source = source

    def forward(self, x: Tensor, residual: Tensor | None = None, kept: Tensor | None = None) -> Tensor:
        """Returns dropout(x), or `residual` + dropout(x) in one go; shapes alike, (N, D) for `rows`.

        `kept` is a mask drawn beforehand, where this is compiled: the CPU's generator can't be.
        """
        if kept is not None:
            x = x * kept * self.scale
            return x if residual is None else residual + x
        if not self.training or self.threshold == 0:
            return x if residual is None else residual + x
        shape = torch.Size((len(x), 1)) if self.rows else x.shape
        if x.device.type != "cpu":
            dropped = x * F.dropout(x.new_ones(shape), self.rate) if self.rows else F.dropout(x, self.rate)
            return dropped if residual is None else residual + dropped
        kept = self.source.kept(shape, self.threshold)
        return _drop(x, residual, kept, self.scale)

    @property
    def scale(self) -> float:
        """Factor on the values that stay."""
        return _LEVELS / (_LEVELS - self.threshold)

    def extra_repr(self) -> str:
        """Says the rate."""
        return f"rate={self.rate}" + (", rows" if self.rows else "")


class _MaskedScale(torch.autograd.Function):
    """x * mask * scale (+ residual), saving one byte a value for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, kept: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(kept)
        ctx.scale, ctx.x_dtype = scale, x.dtype
        ctx.residual_dtype = None if residual is None else residual.dtype
        dropped = x * kept
        return dropped.mul_(scale) if residual is None else torch.add(residual, dropped, alpha=scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (kept,) = ctx.saved_tensors
        grad_x = (grad * kept).mul_(ctx.scale).to(ctx.x_dtype)
        return grad_x, None if ctx.residual_dtype is None else grad.to(ctx.residual_dtype), None, None


_drop: Callable[..., Tensor] = _MaskedScale.apply
