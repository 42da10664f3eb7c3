"""How fast this machine multiplies matrices: the ceiling that the speed of training is measured against."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from nmt.config import Precision
from nmt.training.update.precision import product_dtype

_SMALLEST, _LARGEST = 512, 8192  # below, calls show in the time; above, nothing gets faster
_LONG_ENOUGH = 0.01  # seconds
_WARM = 0.1  # seconds of work that a GPU needs to raise its clock from that of idleness


def measured_ceiling(device: torch.device, precision: Precision) -> float:
    """Operations a second of one large product in `precision`; one multiplication and addition counts two.

    Square matrices of doubling size, until a product takes long enough to fill the device; a tenth of a
    second in all, on a GPU half a second. The random numbers are its own, and training's are left alone.
    """
    dtype, best, size = product_dtype(precision), 0.0, _SMALLEST
    while True:
        numbers = torch.Generator(device).manual_seed(0)
        a = torch.randn(size, size, generator=numbers, device=device).to(dtype)
        tries = [_seconds_of_product(a) for _ in range(4)]
        while device.type == "cuda" and sum(tries) < _WARM:
            tries.append(_seconds_of_product(a))
        seconds = min(tries)
        best = max(best, 2 * size**3 / seconds)
        if seconds >= _LONG_ENOUGH or size == _LARGEST:
            return best
        size *= 2


def _seconds_of_product(a: Tensor) -> float:
    _wait_for(a.device)
    start = time.perf_counter()
    a @ a.T
    _wait_for(a.device)
    return max(time.perf_counter() - start, 1e-9)


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
