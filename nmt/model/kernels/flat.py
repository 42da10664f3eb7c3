"""Attention over flat batches by Triton kernels of nmt, with its gradient; see `attention_kernels`.

Shapes: N tokens of a stream, Nq of the queries and Nk of the keys; H heads, E width of a head.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from importlib.util import find_spec
from typing import Any

import torch
from torch import Tensor

from nmt.data.batches.batching import Layout
from nmt.model.kernels.trial import failure
from nmt.runtime import log

_WIDTHS = (16, 32, 64, 128)


def supports_flat(x: Tensor) -> bool:
    """Whether the kernels support tensors like `x`, (..., E): bf16 or fp16 on a CUDA device."""
    return (
        x.is_cuda
        and x.dtype in (torch.bfloat16, torch.float16)
        and x.shape[-1] in _WIDTHS
        and torch.cuda.get_device_capability(x.device) >= (8, 0)
        and find_spec("triton") is not None
        and runs(x.device, x.dtype, x.shape[-1])
    )


@cache
def runs(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether the kernels run on this device, tried once.

    Triton may be installed but unable to compile, because it lacks a C compiler.

    Args:
        device: of the tensors.
        dtype: of the tensors.
        width: E.
    """

    def attend(qkv: Tensor, layout: Layout) -> Tensor:
        return self_attend_flat(qkv, layout, causal=True, window=None, scale=1.0)

    reason = failure(attend, device, dtype, width)
    if reason is not None:
        log.warning(
            "the attention kernels of nmt do not run on %s with heads of %d (%s). Those of torch are used "
            "instead, which are slower",
            *(device, width, reason),
        )
    return reason is None


def self_attend_flat(
    qkv: Tensor, layout: Layout, *, causal: bool, window: int | None, scale: float
) -> Tensor:
    """Self-attention within sentences.

    Args:
        qkv: (N, 3, H, E), contiguous; queries, keys and values.
        layout: of the stream.
        causal: whether a query sees only the keys up to its position.
        window: the number of keys that a query sees on either side; None: all.
        scale: factor on the dot products.

    Returns:
        (N, H, E).
    """
    out: Tensor = _self_attend(qkv, layout, causal, -1 if window is None else window, scale)
    return out


def attend_flat(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    queries: Layout,
    keys: Layout,
    *,
    causal: bool,
    window: int | None,
    scale: float,
) -> Tensor:
    """Attention within sentences.

    Args:
        q: (Nq, H, E), queries.
        k: (Nk, H, E), keys.
        v: (Nk, H, E), values.
        queries: layout of `q`.
        keys: layout of `k` and `v`.
        causal: see `self_attend_flat`.
        window: see `self_attend_flat`.
        scale: see `self_attend_flat`.

    Returns:
        (Nq, H, E).
    """
    q, k, v = (_adjacent(x) for x in (q, k, v))
    out: Tensor = _attend(q, k, v, queries, keys, causal, -1 if window is None else window, scale)
    return out


def _adjacent(x: Tensor) -> Tensor:
    """Returns (N, H, E) with the values of a token adjacent, as the kernels need them."""
    return x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous()


class _SelfAttend(torch.autograd.Function):
    """`self_attend_flat`; the gradient is one tensor, like the input."""

    @staticmethod
    def forward(ctx: Any, qkv: Tensor, layout: Layout, causal: bool, window: int, scale: float) -> Tensor:
        from nmt.model.kernels import attention_kernels  # a local import: it needs Triton

        q, k, v = qkv.unbind(1)
        out, sums = attention_kernels.flat_attention(
            q, k, v, layout.sentences, layout.cu_seqlens, causal, window, scale
        )
        ctx.save_for_backward(qkv, out, sums)
        ctx.layout, ctx.options = layout, (causal, window, scale)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        qkv, out, sums = ctx.saved_tensors
        found = torch.empty_like(qkv)
        _gradients(grad, out, sums, qkv.unbind(1), found.unbind(1), ctx.layout, ctx.layout, ctx.options)
        return found, None, None, None, None


class _Attend(torch.autograd.Function):
    """`attend_flat`."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor,
        k: Tensor,
        v: Tensor,
        queries: Layout,
        keys: Layout,
        causal: bool,
        window: int,
        scale: float,
    ) -> Tensor:
        from nmt.model.kernels import attention_kernels

        out, sums = attention_kernels.flat_attention(
            q, k, v, queries.sentences, keys.cu_seqlens, causal, window, scale
        )
        ctx.save_for_backward(q, k, v, out, sums)
        ctx.queries, ctx.keys, ctx.options = queries, keys, (causal, window, scale)
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, sums = ctx.saved_tensors
        found = [x.new_empty(x.shape) for x in (q, k, v)]
        _gradients(grad, out, sums, (q, k, v), found, ctx.queries, ctx.keys, ctx.options)
        return *found, None, None, None, None, None


def _gradients(
    grad: Tensor,
    out: Tensor,
    sums: Tensor,
    inputs: Sequence[Tensor],
    found: Sequence[Tensor],
    queries: Layout,
    keys: Layout,
    options: tuple[bool, int, float],
) -> None:
    """Writes the gradients of queries, keys and values to `found`."""
    from nmt.model.kernels import attention_kernels

    q, k, v = inputs
    grad_q, grad_k, grad_v = found
    causal, window, scale = options
    attention_kernels.flat_attention_backward(
        *(grad.contiguous(), out, sums, q, k, v, queries.sentences, queries.cu_seqlens),
        *(keys.sentences, keys.cu_seqlens, causal, window, scale, grad_q, grad_k, grad_v),
    )


_self_attend: Callable[..., Any] = _SelfAttend.apply
_attend: Callable[..., Any] = _Attend.apply
