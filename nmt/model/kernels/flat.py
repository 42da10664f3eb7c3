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
from nmt.model.kernels.product_gradient import ProductGradient, gradient_of, note_gradient
from nmt.model.kernels.trial import failure, report

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
    gradient = ProductGradient(3)

    def attend(qkv: Tensor, layout: Layout) -> Tensor:
        note_gradient(qkv, gradient)
        return self_attend_flat(qkv, layout, causal=True, window=None, scale=1.0)

    reason = failure(attend, device, dtype, width)
    if reason is None:
        _, sums = gradient.take(gradient.whole) or (None, torch.zeros(3))
        # Equal keys: the gradients of queries and keys are 0, and those of the values add up to 2.
        reason = None if sums.view(3, -1)[:, 0].tolist() == [0.0, 0.0, 2.0] else "its sums are wrong"
    report("attention kernels", f"{device} with heads of {width}", reason)
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
    gradient, _ = (gradient_of(qkv) if qkv.requires_grad else None) or (None, 0)
    out: Tensor = _self_attend(qkv, layout, causal, -1 if window is None else window, scale, gradient)
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
    # Without a gradient, nothing would take it from there.
    places = [gradient_of(x) if x.requires_grad else None for x in (q, k, v)]
    out: Tensor = _attend(q, k, v, queries, keys, causal, -1 if window is None else window, scale, places)
    return out


def _adjacent(x: Tensor) -> Tensor:
    """Returns (N, H, E) with the values of a token adjacent, as the kernels need them."""
    return x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous()


class _SelfAttend(torch.autograd.Function):
    """`self_attend_flat`; the gradient is one tensor, like the input."""

    @staticmethod
    def forward(
        ctx: Any,
        qkv: Tensor,
        layout: Layout,
        causal: bool,
        window: int,
        scale: float,
        gradient: ProductGradient | None,
    ) -> Tensor:
        from nmt.model.kernels import attention_kernels  # a local import: it needs Triton

        q, k, v = qkv.unbind(1)
        out, sums = attention_kernels.flat_attention(
            q, k, v, layout.sentences, layout.cu_seqlens, causal, window, scale
        )
        ctx.save_for_backward(qkv, out, sums)
        ctx.layout, ctx.options, ctx.gradient = layout, (causal, window, scale), gradient
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        qkv, out, sums = ctx.saved_tensors
        gradient = ctx.gradient or ProductGradient(3)
        places = [(gradient, part) for part in range(3)]
        _gradients(grad, out, sums, qkv.unbind(1), places, ctx.layout, ctx.layout, ctx.options)
        return gradient.whole, None, None, None, None, None


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
        places: Sequence[tuple[ProductGradient, int] | None],
    ) -> Tensor:
        from nmt.model.kernels import attention_kernels

        out, sums = attention_kernels.flat_attention(
            q, k, v, queries.sentences, keys.cu_seqlens, causal, window, scale
        )
        ctx.save_for_backward(q, k, v, out, sums)
        ctx.queries, ctx.keys, ctx.options, ctx.places = queries, keys, (causal, window, scale), places
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, sums = ctx.saved_tensors
        places = [place or (ProductGradient(1), 0) for place in ctx.places]
        found = _gradients(grad, out, sums, (q, k, v), places, ctx.queries, ctx.keys, ctx.options)
        return *found, None, None, None, None, None, None


def _gradients(
    grad: Tensor,
    out: Tensor,
    sums: Tensor,
    inputs: Sequence[Tensor],
    places: Sequence[tuple[ProductGradient, int]],
    queries: Layout,
    keys: Layout,
    options: tuple[bool, int, float],
) -> list[Tensor]:
    """Writes the gradients of queries, keys and values to their places, and returns them, (N, H, E) each."""
    from nmt.model.kernels import attention_kernels

    q, k, v = inputs
    causal, window, scale = options
    begun = [
        gradient.begin(part, x, attention_kernels.num_tiles(x))
        for (gradient, part), x in zip(places, inputs, strict=True)
    ]
    found, added = zip(*begun, strict=True)
    attention_kernels.flat_attention_backward(
        *(grad.contiguous(), out, sums, q, k, v, queries.sentences, queries.cu_seqlens),
        *(keys.sentences, keys.cu_seqlens, causal, window, scale, *found, *added),
    )
    return [*found]


_self_attend: Callable[..., Any] = _SelfAttend.apply
_attend: Callable[..., Any] = _Attend.apply
