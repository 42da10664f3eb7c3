"""Reproducible dropout: a pure function of a seed and the order of calls."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor, nn

_LEVELS = 65536  # each value takes 16 random bits, so the rate is rounded to 1/65536


class DropoutSource:
    """The random number generator that all `Dropout` modules of a model share.

    On the CPU this is a NumPy generator (SFC64): torch's dropout is serial and several times slower, which is
    visible in the profile of a small model. On CUDA it is the default generator of the device.
    """

    def __init__(self) -> None:
        self._on_device: Tensor | None = None
        self.seed(0)

    def seed(self, seed: int, device: torch.device | None = None) -> None:
        """Seeds the generator of the CPU, and that of `device` if it is a CUDA device.

        The seed is any integer of 63 bits.
        """
        self._generator = np.random.Generator(np.random.SFC64(seed))
        self._seed = seed
        self.restart()
        if self._on_device is not None:
            self._on_device.fill_(seed)
        if device is not None and device.type == "cuda":
            with torch.cuda.device(device):
                torch.cuda.manual_seed(seed)

    def restart(self) -> None:
        """Numbers the masks of kernels from 1 again; see `draw_seed`."""
        self._calls = 0

    def draw_seed(self, device: torch.device) -> tuple[Tensor, int]:
        """Returns a seed for a kernel that computes a mask itself.

        Returns:
            (1,) int64 on `device`, the seed of all masks until `seed` is called, which overwrites it; and the
            number of the mask. A CUDA graph of the kernels then draws new masks whenever it runs.
        """
        self._calls += 1
        return self.on_device(device), self._calls

    def on_device(self, device: torch.device) -> Tensor:
        """Returns the seed as a tensor; see `draw_seed`."""
        if self._on_device is None or self._on_device.device != device:
            self._on_device = torch.full((1,), self._seed, device=device)
        return self._on_device

    def mask(self, shape: torch.Size, threshold: int) -> Tensor:
        """Draws a mask on the CPU: uint8 of `shape`, 0 with probability `threshold` / 65536, otherwise 1."""
        count = shape.numel()
        words = self._generator.integers(0, 2**64, size=-(-count // 4), dtype=np.uint64)
        mask = words.view(np.uint16)[:count] >= threshold
        return torch.from_numpy(mask.view(np.uint8)).view(shape)


class Dropout(nn.Module):
    """Zeroes each value with probability `rate` and scales the others by 1 / (1 - rate).

    The mean does not change. See Srivastava et al. 2014, and section 5.4 of "Attention Is All You Need".

    With `rows` it zeroes whole rows. The rate is rounded to 1/65536. The whole model shares the source of
    random numbers. `fixed` says whether `Seq2Seq.set_dropout` leaves the rate as it is.
    """

    def __init__(
        self, rate: float, source: DropoutSource, *, rows: bool = False, fixed: bool = False
    ) -> None:
        super().__init__()
        self.rows = rows
        self.fixed = fixed
        self.source = source
        self.set_rate(rate)

    def set_rate(self, rate: float) -> None:
        """Changes the rate of all later calls."""
        self.rate = rate
        self.threshold = round(rate * _LEVELS)

    def forward(self, x: Tensor, residual: Tensor | None = None) -> Tensor:
        """Returns dropout(x), or `residual` + dropout(x).

        `x` has any shape; with `rows` it is (N, D).
        """
        if not self.training or self.threshold == 0:
            return x if residual is None else residual + x
        shape = torch.Size((len(x), 1)) if self.rows else x.shape
        if x.device.type != "cpu":
            dropped = x * F.dropout(x.new_ones(shape), self.rate) if self.rows else F.dropout(x, self.rate)
            return dropped if residual is None else residual + dropped
        mask = self.source.mask(shape, self.threshold)
        return _drop(x, residual, mask, self.scale)

    @property
    def scale(self) -> float:
        """The factor on the values that are not zeroed: 1 / (1 - rate)."""
        return _LEVELS / (_LEVELS - self.threshold)

    def extra_repr(self) -> str:
        """Returns the options for `repr`."""
        return f"rate={self.rate}" + (", rows" if self.rows else "")


def cut_out(x: Tensor, cut: Tensor | None) -> Tensor:
    """Returns `x`, (N, D), with zeros in the rows `cut`, (N,) bool; None: no row."""
    return x if cut is None else x.masked_fill(cut[:, None], 0.0)


class _MaskedScale(torch.autograd.Function):
    """x * mask * scale (+ residual); saves one byte per value for the backward pass."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, residual: Tensor | None, mask: Tensor, scale: float) -> Tensor:
        ctx.save_for_backward(mask)
        ctx.scale, ctx.x_dtype = scale, x.dtype
        ctx.residual_dtype = None if residual is None else residual.dtype
        dropped = x * mask
        return dropped.mul_(scale) if residual is None else torch.add(residual, dropped, alpha=scale)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        (mask,) = ctx.saved_tensors
        grad_x = (grad * mask).mul_(ctx.scale).to(ctx.x_dtype)
        return grad_x, None if ctx.residual_dtype is None else grad.to(ctx.residual_dtype), None, None


_drop: Callable[..., Tensor] = _MaskedScale.apply
