"""Attention over flat batches with one CUDA kernel: the flash attention that is part of torch.

`torch.nn.attention.varlen` calls the same operator. But in Python, once more for the gradient, and with a
kernel that fills a tensor which nothing reads. On an H100 that took 0.4 ms of the host per layer and update.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from nmt.data.batches.batching import Layout
from nmt.model.kernels.trial import failure
from nmt.runtime import log


def supports_varlen(x: Tensor) -> bool:
    """Whether the kernel supports tensors like `x`, (..., E): bf16 or fp16 on a CUDA device that has it."""
    return (
        x.is_cuda
        and x.dtype in (torch.bfloat16, torch.float16)
        and x.shape[-1] % 8 == 0
        and x.shape[-1] <= 256
        and torch.cuda.get_device_capability(x.device) >= (8, 0)
        and kernel() is not None
        and runs(x.device, x.dtype, x.shape[-1])
    )


@cache
def runs(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether the kernel runs on this device, tried once.

    A build of torch may have the operator but not the kernel, or not for the GPU at hand. The memory probe
    tries it first, so that the warning comes before the first batch.

    Args:
        device: of the tensors.
        dtype: of the tensors.
        width: E.
    """

    def attend(qkv: Tensor, layout: Layout) -> Tensor:
        q, k, v = qkv.unbind(1)
        return attend_varlen(q, k, v, layout, layout, causal=True)

    reason = failure(attend, device, dtype, width)
    if reason is not None:
        log.warning(
            "this build of torch has no flash attention for %s with heads of %d on %s (%s). Attention pads "
            "the sentences of a batch instead, which is slower",
            *(f"{dtype}".removeprefix("torch."), width, device, reason),
        )
    return reason is None


def attend_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Layout,
    keys: Layout,
    *,
    causal: bool,
    window: int | None = None,
    scale: float | None = None,
) -> Tensor:
    """Attention within sentences.

    Args:
        q: (Nq, H, E), queries.
        k: (Nk, H, E), keys.
        v: (Nk, H, E), values.
        queries: layout of `q`.
        keys: layout of `k` and `v`.
        causal: whether a query sees only the keys up to its position.
        window: the number of keys that a query sees on either side; None: all.
        scale: factor on the dot products; None: 1 / sqrt(E).

    Returns:
        (Nq, H, E).
    """
    attend = kernel()
    assert attend is not None
    before = -1 if window is None else window  # keys that a query sees; -1: all
    out: Tensor = attend(
        *(q, k, v, queries.cu_seqlens, keys.cu_seqlens, queries.max_len, keys.max_len),
        *(
            0.0,
            causal and window is None,
            False,
        ),  # dropout, causality without a window, a matrix for debugging
        scale=scale,
        window_size_left=before,
        window_size_right=0 if causal else before,
    )[0]
    return out


@cache
def kernel() -> Callable[..., Any] | None:
    """Returns the operator of the installed torch; None if it has none."""
    found = getattr(torch.ops.aten, "_flash_attention_forward", None)
    return None if found is None else found.default
