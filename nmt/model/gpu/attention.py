"""Attention over flat batches on GPUs, without padding: by Triton kernels of nmt, or by flash attention.

Flash attention is part of torch. `torch.nn.attention.varlen` calls the same operator. But in Python, once
more for the gradient, and with a kernel that fills a tensor which nothing reads. On an H100 that took 0.4 ms
of the host per layer and update.

Shapes: N tokens of a stream, Nq of the queries and Nk of the keys; H heads, E width of a head, C parts of a
product with H * E columns each.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.data.batches.batching import Layout
from nmt.model.attention import Score
from nmt.model.backend import Attention, KeysValues, Pattern
from nmt.model.gpu.kernel import failure, has_triton, report
from nmt.runtime import log

_WIDTHS = (16, 32, 64, 128)
_HALF = (torch.bfloat16, torch.float16)


def attention_without_padding(pattern: Pattern, device: torch.device, dtype: torch.dtype) -> Attention | None:
    """Returns the fastest attention without padding that computes a pattern; None if there is none.

    Args:
        pattern: the keys that each query sees.
        device: a CUDA device.
        dtype: of queries, keys and values.
    """
    if pattern.scale is None or pattern.acts_on_scores:
        return None
    if supports_triton(device, dtype, pattern.width):
        return TritonAttention(pattern)
    return FlashAttention(pattern) if supports_flash(device, dtype, pattern.width) else None


def supports_triton(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether the kernels of nmt run for heads of this width."""
    return (
        dtype in _HALF
        and width in _WIDTHS
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and has_triton()
        and triton_runs(device, dtype, width)
    )


def supports_flash(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether the flash attention of torch runs for heads of this width."""
    return (
        dtype in _HALF
        and width % 8 == 0
        and width <= 256
        and torch.cuda.get_device_capability(device) >= (8, 0)
        and flash_kernel() is not None
        and flash_runs(device, dtype, width)
    )


@cache
def triton_runs(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether the kernels of nmt run on this device, tried once.

    Triton may be installed but unable to compile, because it lacks a C compiler.

    Args:
        device: of the tensors.
        dtype: of the tensors.
        width: E.
    """
    gradient = ProductGradient(3)

    def attend(qkv: Tensor, layout: Layout) -> Tensor:
        return attend_joined(qkv, layout, causal=True, window=None, scale=1.0, gradient=gradient)

    reason = failure(attend, device, dtype, width)
    if reason is None:
        _, sums = gradient.take(gradient.whole) or (None, torch.zeros(3))
        # Equal keys: the gradients of queries and keys are 0, and those of the values add up to 2.
        reason = None if sums.view(3, -1)[:, 0].tolist() == [0.0, 0.0, 2.0] else "its sums are wrong"
    report("attention kernels", f"{device} with heads of {width}", reason)
    return reason is None


@cache
def flash_runs(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether flash attention runs on this device, tried once.

    A build of torch may have the operator but not the kernel, or not for the GPU at hand. The memory probe
    tries it first, so that the warning comes before the first batch.

    Args:
        device: of the tensors.
        dtype: of the tensors.
        width: E.
    """

    def attend(qkv: Tensor, layout: Layout) -> Tensor:
        q, k, v = qkv.unbind(1)
        return attend_flash(q, k, v, Pattern(layout, layout, 1, width, 1 / width**0.5, causal=True))

    reason = failure(attend, device, dtype, width)
    if reason is not None:
        log.warning(
            "this build of torch has no flash attention for %s with heads of %d on %s (%s). Attention pads "
            "the sentences of a batch instead, which is slower",
            *(f"{dtype}".removeprefix("torch."), width, device, reason),
        )
    return reason is None


class FlatAttention(Attention):
    """Attention that reads queries, keys and values of a batch without padding.

    Args:
        pattern: the keys that each query sees.
    """

    def __init__(self, pattern: Pattern) -> None:
        self.pattern = pattern

    def self_attend(self, qkv: Tensor, score: Score, layer: int) -> Tensor:
        """See `Attention.self_attend`."""
        q, k, v = qkv.unbind(1)
        return self.attend(*self.pattern.rotated(q, k), v).flatten(1)

    def cross_attend(self, q: Tensor, keys_values: KeysValues | None, score: Score, layer: int) -> Tensor:
        """See `Attention.cross_attend`."""
        assert keys_values is not None
        k, v = keys_values if isinstance(keys_values, tuple) else keys_values.unbind(1)
        return self.attend(q, k, v).flatten(1)

    @abstractmethod
    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Queries (Nq, H, E), keys and values (Nk, H, E) → (Nq, H, E)."""


class FlashAttention(FlatAttention):
    """The flash attention that is part of torch."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """See `FlatAttention.attend`."""
        return attend_flash(q, k, v, self.pattern)


def attend_flash(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern) -> Tensor:
    """Queries (Nq, H, E), keys and values (Nk, H, E) → (Nq, H, E)."""
    attend = flash_kernel()
    assert attend is not None
    queries, keys, window = pattern.queries, pattern.keys, pattern.window
    before = -1 if window is None else window  # keys that a query sees; -1: all
    out: Tensor = attend(
        *(q, k, v, queries.cu_seqlens, keys.cu_seqlens, queries.max_len, keys.max_len),
        # dropout, causality without a window, a matrix for debugging
        *(0.0, pattern.causal and window is None, False),
        scale=pattern.scale,
        window_size_left=before,
        window_size_right=0 if pattern.causal else before,
    )[0]
    return out


@cache
def flash_kernel() -> Callable[..., Any] | None:
    """Returns the operator of the installed torch; None if it has none."""
    operator = getattr(torch.ops.aten, "_flash_attention_forward", None)
    return None if operator is None else operator.default


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
        from nmt.model.gpu import attention_kernels  # a local import: it needs Triton

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
        from nmt.model.gpu import attention_kernels  # a local import: it needs Triton

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
    from nmt.model.gpu import attention_kernels  # a local import: it needs Triton

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
        from nmt.model.gpu.attention_kernels import num_tiles  # a local import: it needs Triton

        if self._whole is None or self._sums is None or part in self._begun:
            self._begun.clear()
            self._whole = x.new_empty(len(x), self._num_parts, *x.shape[1:])
            shape = num_tiles(x), self._num_parts, x.shape[1:].numel()
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
