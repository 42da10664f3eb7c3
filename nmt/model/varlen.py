"""Attention over flat batches in one CUDA kernel: an adapter to `torch.nn.attention.varlen`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from nmt.data.batching import Layout

try:
    from torch.nn.attention import varlen
except ImportError:  # a torch built without it
    _varlen_attn: Callable[..., Any] | None = None
else:
    _varlen_attn = varlen.varlen_attn


def supports_varlen(x: Tensor) -> bool:
    """Whether the kernel takes (..., E) tensors such as `x`: bf16 or fp16 on a CUDA device that has it."""
    return (
        x.is_cuda
        and x.dtype in (torch.bfloat16, torch.float16)
        and x.shape[-1] % 8 == 0
        and x.shape[-1] <= 256
        and _varlen_attn is not None
        and torch.cuda.get_device_capability(x.device) >= (8, 0)
    )


def attend_varlen(q: Tensor, k: Tensor, v: Tensor, queries: Layout, keys: Layout, *, causal: bool) -> Tensor:
    """Attends within sentences.

    Args:
        q: (Nq, H, E), queries.
        k: (Nk, H, E), keys.
        v: (Nk, H, E), values.
        queries: layout of `q`.
        keys: layout of `k` and `v`.
        causal: whether a query sees only keys up to its own position.

    Returns:
        (Nq, H, E).
    """
    assert _varlen_attn is not None
    out = _varlen_attn(
        q, k, v, queries.cu_seqlens, keys.cu_seqlens, queries.max_len, keys.max_len, **causal_argument(causal)
    )
    assert isinstance(out, Tensor)
    return out


@cache
def causal_argument(causal: bool) -> dict[str, Any]:
    """How this torch is told to be causal: by `is_causal` up to 2.10, by a one-sided window since."""
    assert _varlen_attn is not None
    if not causal:
        return {}
    names = inspect.signature(_varlen_attn).parameters
    return {"window_size": (-1, 0)} if "window_size" in names else {"is_causal": True}
