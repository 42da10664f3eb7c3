"""Number formats: autocast for the matrix products, and the loss scale that fp16 needs."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from nmt.config import Precision
from nmt.training.progress import Progress

_DTYPES = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}
_GROWTH_INTERVAL = 2000
_LARGEST_SCALE = 65536.0


def autocast(device: torch.device, precision: Precision) -> AbstractContextManager[object]:
    """Within, matrix products are done in `precision`; fp32 leaves everything as it is."""
    if precision is Precision.fp32:
        return nullcontext()
    return torch.autocast(device.type, _DTYPES[precision])


def product_dtype(precision: Precision) -> torch.dtype:
    """The number format of matrix products."""
    return _DTYPES.get(precision, torch.float32)


def first_loss_scale(precision: Precision) -> float:
    """The loss scale a run begins with."""
    return _LARGEST_SCALE if precision is Precision.fp16 else 1.0


def adapt_loss_scale(progress: Progress, precision: Precision, finite: bool) -> bool:
    """Halves the scale after an overflow, doubles it after many updates without (Micikevicius et al. 2018).

    Args:
        progress: holds the scale; changed.
        precision: of the run.
        finite: whether the gradient of the last update was finite.

    Returns:
        Whether the scale explains what was not finite, so that a smaller one may mend it.
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
