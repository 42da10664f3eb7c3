"""Attention over flat batches with one CUDA kernel: an adapter of `torch.nn.attention.varlen`."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cache
from typing import Any

import torch
from torch import Tensor

from nmt.data.batches.batching import Layout
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
    """Whether the kernel runs on this device, tried once on a sentence of two tokens, with its gradient.

    A build of torch may have the function but not the kernel, or not for the GPU at hand. The memory probe
    tries it first, so that the warning comes before the first batch.

    Args:
        device: of the tensors.
        dtype: of the tensors.
        width: E.
    """
    layout = Layout.of([2]).to(device)
    try:
        with torch.inference_mode(False), torch.enable_grad(), torch.autocast(device.type, enabled=False):
            q, k, v = (torch.ones(2, 1, width, dtype=dtype, device=device, requires_grad=True) for _ in "qkv")
            out = attend_varlen(q, k, v, layout, layout, causal=True)
            torch.autograd.grad(out, (q, k, v), torch.ones_like(out))
    except torch.OutOfMemoryError:
        raise
    except RuntimeError as error:
        log.warning(
            "this build of torch has no flash attention for %s with heads of %d on %s (%s). Attention pads "
            "the sentences of a batch instead, which is slower",
            *(f"{dtype}".removeprefix("torch."), width, device, str(error).partition("\n")[0]),
        )
        return False
    return True


def supports_window() -> bool:
    """Whether the kernel of the installed torch supports a window."""
    varlen_attn = kernel()
    return varlen_attn is not None and "window_size" in inspect.signature(varlen_attn).parameters


def attend_varlen(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Layout,
    keys: Layout,
    *,
    causal: bool,
    window: int | None = None,
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

    Returns:
        (Nq, H, E).
    """
    varlen_attn = kernel()
    assert varlen_attn is not None
    arguments = (
        causal_argument(causal) if window is None else {"window_size": (window, 0 if causal else window)}
    )
    out = varlen_attn(
        q, k, v, queries.cu_seqlens, keys.cu_seqlens, queries.max_len, keys.max_len, **arguments
    )
    assert isinstance(out, Tensor)
    return out


@cache
def causal_argument(causal: bool) -> dict[str, Any]:
    """Returns the keyword argument for causal attention: `is_causal` up to torch 2.10, later a window."""
    varlen_attn = kernel()
    assert varlen_attn is not None
    if not causal:
        return {}
    names = inspect.signature(varlen_attn).parameters
    return {"window_size": (-1, 0)} if "window_size" in names else {"is_causal": True}


@cache
def kernel() -> Callable[..., Any] | None:
    """Returns `varlen_attn` of the installed torch; None if it was built without."""
    try:
        # A local import: it also imports torch's compiler, which doubles the import time.
        from torch.nn.attention.varlen import varlen_attn
    except ImportError:
        return None
    return varlen_attn
