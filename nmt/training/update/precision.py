"""Number formats of training: autocast for matrix products, hidden states, and gradients that are sent."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext

import torch

from nmt.config import Exchange, Precision, TrainingConfig

_DTYPES = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}


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
