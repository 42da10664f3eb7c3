"""Number formats: autocast for matrix products, and the loss scale of fp16."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from typing import Protocol

import torch

from nmt.config import Exchange, Precision, TrainingConfig

_DTYPES = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}
_GROWTH_INTERVAL = 2000
_FIRST_SCALE = 128.0  # the loss is a sum over tokens; fairseq begins with the same scale
_LARGEST_SCALE = 65536.0


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Returns a context manager that computes matrix products in `precision`; with fp32 it does nothing."""
    if precision is Precision.fp32:
        return nullcontext()
    return torch.autocast(device.type, _DTYPES[precision])


def product_dtype(precision: Precision) -> torch.dtype:
    """Returns the number format of matrix products."""
    return _DTYPES.get(precision, torch.float32)


def residual_dtype(options: TrainingConfig) -> torch.dtype | None:
    """Returns the number format of hidden states between sub-layers; None: that of the weights."""
    return product_dtype(options.precision) if options.half_residual else None


def exchange_dtype(exchange: Exchange) -> torch.dtype:
    """Returns the number format in which processes exchange gradients."""
    return torch.bfloat16 if exchange is Exchange.bf16 else torch.float32


def first_loss_scale(precision: Precision) -> float:
    """Returns the initial loss scale of a run."""
    return _FIRST_SCALE if precision is Precision.fp16 else 1.0


class HoldsLossScale(Protocol):
    """The loss scale of a run, and the number of finite updates since its last change."""

    loss_scale: float
    finite_in_a_row: int


def adapt_loss_scale(progress: HoldsLossScale, precision: Precision, finite: bool) -> bool:
    """Halves the scale after an overflow; doubles it after 2000 finite updates (Micikevicius et al. 2018).

    `finite` says whether the gradient of the last update was finite.

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
