"""Number formats: autocast for matrix products, fast fp32 products on the CPU, and the loss scale of fp16."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from typing import Any, Protocol

import torch

from nmt.config import Precision, TrainingConfig

_DTYPES = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}
_GROWTH_INTERVAL = 2000
_FIRST_SCALE = 128.0  # the loss is a sum over tokens; fairseq begins with the same scale
_LARGEST_SCALE = 65536.0


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Returns a context manager that computes matrix products in `precision`; with fp32 it does nothing."""
    if precision is Precision.fp32:
        return nullcontext()
    return torch.autocast(device.type, _DTYPES[precision])


def speed_up_fp32_products(wanted: bool) -> bool:
    """Lets oneDNN compute the fp32 matrix products of this process on the CPU, if that costs no accuracy.

    With bf16 allowed, oneDNN uses its own kernels. A processor with matrix units (AMX) then rounds to bf16.
    Other processors still compute in fp32, up to twice as fast as torch's default. The error is measured: if
    it is larger than that of fp32, the setting is reverted.

    Args:
        wanted: False: restores torch's default.

    Returns:
        Whether oneDNN computes them.
    """
    available: Callable[[], bool] = torch.backends.mkldnn.is_available
    matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
    if not available() or not hasattr(matmul, "fp32_precision"):
        return False
    matmul.fp32_precision = "bf16" if wanted else "none"
    if wanted and max(map(_error_of_products, _SHAPES)) > _FP32_ERROR:
        wanted, matmul.fp32_precision = False, "none"
    return wanted


_SHAPES = [(256, 512, 1024), (1000, 128, 128), (64, 2048, 512)]
_FP32_ERROR = 1e-6  # fp32 has an error of 2e-7 to 6e-7, TF32 of 3e-4, bf16 of 2e-3


def _error_of_products(shape: tuple[int, int, int]) -> float:
    """Returns the relative root mean square error of an (m, k) by (k, n) product."""
    m, k, n = shape
    generator = torch.Generator().manual_seed(1)
    x, weight = torch.randn(m, k, generator=generator), torch.randn(n, k, generator=generator)
    exact = x.double() @ weight.double().T
    error = torch.nn.functional.linear(x, weight).double() - exact
    return float(error.norm() / exact.norm())


def product_dtype(precision: Precision) -> torch.dtype:
    """Returns the number format of matrix products."""
    return _DTYPES.get(precision, torch.float32)


def residual_dtype(options: TrainingConfig) -> torch.dtype | None:
    """Returns the number format of hidden states between sub-layers; None: that of the weights."""
    return product_dtype(options.precision) if options.half_residual else None


def first_loss_scale(precision: Precision) -> float:
    """Returns the initial loss scale of a run."""
    return _FIRST_SCALE if precision is Precision.fp16 else 1.0


class HoldsLossScale(Protocol):
    """The loss scale of a run, and the number of finite updates since its last change."""

    loss_scale: float
    finite_in_a_row: int


def adapt_loss_scale(progress: HoldsLossScale, precision: Precision, finite: bool) -> bool:
    """Halves the scale after an overflow; doubles it after 2000 finite updates (Micikevicius et al. 2018).

    Args:
        progress: holds the scale; changed in place.
        precision: of the run.
        finite: whether the gradient of the last update was finite.

    Returns:
        Whether the scale can be the cause of a non-finite update, so that a smaller one may avoid it.
    """
    if precision is not Precision.fp16:
        return False
    if not finite:
        explained = progress.loss_scale > 1.0
        progress.loss_scale = max(1.0, progress.loss_scale / 2)
        progress.finite_in_a_row = 0
        return explained
    progress.finite_in_a_row += 1
    if progress.finite_in_a_row >= _GROWTH_INTERVAL:
        progress.loss_scale = min(_LARGEST_SCALE, progress.loss_scale * 2)
        progress.finite_in_a_row = 0
    return False
