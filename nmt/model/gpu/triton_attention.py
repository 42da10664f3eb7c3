"""Attention over flat batches by Triton kernels of nmt, with its gradient; see `attention_kernels`.

This module needs Triton, so it is imported only where the kernels are used.

Shapes: N tokens of a stream, Nq of the queries and Nk of the keys; H heads, E width of a head, C parts of a
product with H * E columns each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.data.batches.batching import Layout
from nmt.model.attention import Score
from nmt.model.gpu import attention_kernels
from nmt.model.gpu.attention import FlatAttention
from nmt.model.gpu.kernel import failure, report


@cache
def runs(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether the kernels of nmt run on this device, tried once.

    Triton may be installed but unable to compile, because it lacks a C compiler.

    Args:
        device: of the tensors.
        dtype: of the tensors.
        width: E.
    """

    def attend(qkv: Tensor, layout: Layout) -> Tensor:
        return attend_joined(qkv, layout, causal=True, window=None, scale=1.0)

    reason = failure(attend, device, dtype, width)
    report("attention kernels", f"{device} with heads of {width}", reason)
    return reason is None


@cache
def sums_biases(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether the kernels also sum gradients over tokens on this device, tried once; see `runs`."""
    gradient = ProductGradient(3)

    def attend(qkv: Tensor, layout: Layout) -> Tensor:
        return attend_joined(qkv, layout, causal=True, window=None, scale=1.0, gradient=gradient)

    reason = failure(attend, device, dtype, width)
    if reason is None:
        _, sums = gradient.take(gradient.whole) or (None, torch.zeros(3))
        # Equal keys: the gradients of queries and keys are 0, and those of the values add up to 2.
        reason = None if sums.view(3, -1)[:, 0].tolist() == [0.0, 0.0, 2.0] else "its sums are wrong"
    report("sums of attention kernels", f"{device} with heads of {width}", reason)
    return reason is None


class TritonAttention(FlatAttention):
    """The kernels of nmt; see `nmt.model.gpu.attention_kernels`."""

    def self_attend(
        self, qkv: Tensor, score: Score, layer: int, gradient: ProductGradient | None = None
    ) -> Tensor:
        """See `Attention.self_attend`; receives its gradient in `gradient`, if that is given."""
        pattern = self.pattern
        if pattern.rotates:
            return super().self_attend(qkv, score, layer)
        assert pattern.scale is not None
        return attend_joined(
            qkv,
            pattern.queries,
            causal=pattern.causal,
            window=pattern.window,
            scale=pattern.scale,
            gradient=gradient,
        ).flatten(1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, slots: Sequence[Slot | None] = ()) -> Tensor:
        """See `FlatAttention.attend`; the gradients of q, k and v are written to `slots`, if given."""
        pattern = self.pattern
        window, scale = -1 if pattern.window is None else pattern.window, pattern.scale
        q, k, v = (_adjacent(x) for x in (q, k, v))
        # Without a gradient, nothing would take it from there.
        used = [slot if x.requires_grad else None for x, slot in zip((q, k, v), slots, strict=False)]
        out: Tensor = _attend(q, k, v, pattern.queries, pattern.keys, pattern.causal, window, scale, used)
        return out


def attend_joined(
    qkv: Tensor,
    layout: Layout,
    *,
    causal: bool,
    window: int | None,
    scale: float,
    gradient: ProductGradient | None = None,
) -> Tensor:
    """Self-attention within sentences.

    Args:
        qkv: (N, 3, H, E), contiguous; queries, keys and values.
        layout: of the stream.
        causal: whether a query sees only the keys up to its position.
        window: the number of keys that a query sees on either side; None: all.
        scale: factor on the dot products.
        gradient: receives the gradient of `qkv` and its sums; None: the sums are not computed.

    Returns:
        (N, H, E).
    """
    gradient = gradient if qkv.requires_grad else None
    out: Tensor = _self_attend(qkv, layout, causal, -1 if window is None else window, scale, gradient)
    return out


def _adjacent(x: Tensor) -> Tensor:
    """Returns (N, H, E) with the values of a token adjacent, as the kernels need them."""
    return x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous()


class _SelfAttend(torch.autograd.Function):
    """`attend_joined`; the gradient is one tensor, like the input."""

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
        inputs, gradient = qkv.unbind(1), ctx.gradient
        if gradient is None:
            whole = torch.empty_like(qkv)
            places = [(part, None) for part in whole.unbind(1)]
        else:
            places = [gradient.begin(part, x) for part, x in enumerate(inputs)]
            whole = gradient.whole
        _write_gradients(grad, out, sums, inputs, places, ctx.layout, ctx.layout, ctx.options)
        return whole, None, None, None, None, None


class _Attend(torch.autograd.Function):
    """`TritonAttention.attend`."""

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
        slots: Sequence[Slot | None],
    ) -> Tensor:
        out, sums = attention_kernels.flat_attention(
            q, k, v, queries.sentences, keys.cu_seqlens, causal, window, scale
        )
        ctx.save_for_backward(q, k, v, out, sums)
        ctx.queries, ctx.keys, ctx.options, ctx.slots = queries, keys, (causal, window, scale), slots
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        q, k, v, out, sums = ctx.saved_tensors
        inputs, slots = (q, k, v), ctx.slots or (None,) * 3
        if any(slots):
            slots = [slot or Slot(ProductGradient(1), 0) for slot in slots]
            places = [slot.gradient.begin(slot.part, x) for slot, x in zip(slots, inputs, strict=True)]
        else:
            places = [(x.new_empty(x.shape), None) for x in inputs]
        _write_gradients(grad, out, sums, inputs, places, ctx.queries, ctx.keys, ctx.options)
        return *(gradient for gradient, _ in places), *(None,) * 6


def _write_gradients(
    grad: Tensor,
    out: Tensor,
    sums: Tensor,
    inputs: Sequence[Tensor],
    places: Sequence[tuple[Tensor, Tensor | None]],
    queries: Layout,
    keys: Layout,
    options: tuple[bool, int, float],
) -> None:
    """Writes the gradients of queries, keys and values to their places, and the sums to those that exist."""
    q, k, v = inputs
    causal, window, scale = options
    gradients, added = zip(*places, strict=True)
    no_sums = q.new_empty(0, q.shape[1:].numel(), dtype=torch.float32)
    attention_kernels.flat_attention_backward(
        *(grad.contiguous(), out, sums, q, k, v, queries.sentences, queries.cu_seqlens),
        *(keys.sentences, keys.cu_seqlens, causal, window, scale, *gradients),
        *(no_sums if each is None else each for each in added),
    )


_self_attend: Callable[..., Any] = _SelfAttend.apply
_attend: Callable[..., Any] = _Attend.apply


class ProductGradient:
    """The gradient of a product, (N, C * H * E), and its sums over groups of tokens.

    Attentions that read parts of the product write to it: the gradient of a linear layer's bias is the sum of
    the product's gradient over tokens, and the kernels hold that gradient when they compute it. If several
    attentions read one product, each of them writes to its part of one tensor.

    Args:
        num_parts: C.
    """

    def __init__(self, num_parts: int) -> None:
        self._num_parts = num_parts
        self._begun: set[int] = set()
        self._whole: Tensor | None = None
        self._sums: Tensor | None = None

    @property
    def whole(self) -> Tensor:
        """(N, C, H, E), to which all parts are written."""
        assert self._whole is not None
        return self._whole

    def begin(self, part: int, x: Tensor) -> tuple[Tensor, Tensor]:
        """Returns where the gradient of a part and its sums are to be written.

        Every backward pass has memory of its own, also if one of them did not reach `take`.

        Args:
            part: number of the part.
            x: (N, H, E), the part.

        Returns:
            (N, H, E) like `x`, and (P, H * E) fp32, for P tiles of tokens.
        """
        if self._whole is None or self._sums is None or part in self._begun:
            self._begun.clear()
            self._whole = x.new_empty(len(x), self._num_parts, *x.shape[1:])
            shape = attention_kernels.num_tiles(x), self._num_parts, x.shape[1:].numel()
            self._sums = x.new_empty(shape, dtype=torch.float32)
        self._begun.add(part)
        return self._whole[:, part], self._sums[:, part]

    def take(self, *grads: Tensor) -> tuple[Tensor, Tensor] | None:
        """Returns the gradient and its sum over tokens, and forgets both.

        Args:
            grads: what the backward pass of the product receives: one gradient of all parts, or one for each.

        Returns:
            (N, C * H * E), and (C * H * E,) fp32. None if `grads` are not what was written, for example
            because something else reads the product, too.
        """
        whole, sums = self._whole, self._sums
        complete = len(self._begun) == self._num_parts
        self._whole = self._sums = None
        if whole is None or sums is None or not complete:
            return None
        written = [whole.flatten(1)] if len(grads) == 1 else whole.unbind(1)
        if len(written) != len(grads) or not all(map(_same_memory, written, grads)):
            return None
        return whole.flatten(1), sums.sum(0).flatten()


class Slot(NamedTuple):
    """The place of a gradient: a part of a `ProductGradient`."""

    gradient: ProductGradient
    part: int


def _same_memory(a: Tensor, b: Tensor) -> bool:
    """Whether two tensors are the same memory, in whatever shape."""
    if a.untyped_storage()._cdata != b.untyped_storage()._cdata or a.numel() != b.numel():
        return False
    b = b if b.shape == a.shape else b.view(a.shape)
    return a.storage_offset() == b.storage_offset() and a.stride() == b.stride()
