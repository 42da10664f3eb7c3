"""The peak speed of matrix products on this machine: the ceiling for the MFU of training."""

from __future__ import annotations

import time

import torch
from torch import Tensor

from nmt.config import Precision
from nmt.training.update.precision import product_dtype

_SMALLEST, _LARGEST = 512, 8192  # below, call overhead is visible; above, the speed does not increase
_LONG_ENOUGH = 0.01  # seconds
_WARM = 0.1  # seconds of work until a GPU has raised its clock rate from idle


def measured_ceiling(device: torch.device, precision: Precision) -> float:
    """Returns the operations per second of a large product in `precision`; a multiply-add counts as two.

    Multiplies square matrices of doubling size, until a product takes long enough to fill the device. This
    takes a tenth of a second, on a GPU half a second. A separate random generator leaves the global one
    unchanged.
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
