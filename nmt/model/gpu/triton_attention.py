"""Attention over flat batches by Triton kernels of nmt, with its gradient; see `attention_kernels`.

This module needs Triton, so it is imported only where the kernels are used.

Shapes: N tokens of a stream, Nq of the queries and Nk of the keys; H heads, E width of a head, C parts of a
product with H * E columns each.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache, partial
from typing import Any, NamedTuple

import torch
from torch import Tensor

from nmt.model.attention import Pattern, Projected, Score
from nmt.model.gpu import attention_kernels
from nmt.model.gpu.attention import FlatAttention
from nmt.model.gpu.kernel import attends_right, right


@cache
def runs(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether the kernels of nmt run on this device for heads of this width, tried once.

    Triton may be installed but unable to compile, because it lacks a C compiler.
    """
    return right(
        "attention kernels",
        f"{device} with heads of {width}",
        lambda: attends_right(attend_joined, device, dtype, width),
    )


@cache
def sums_biases(device: torch.device, dtype: torch.dtype, width: int) -> bool:
    """Whether the kernels also sum gradients over tokens on this device, tried once; see `runs`."""
    gradient = ProductGradient(3)

    def is_right() -> bool:
        if not attends_right(partial(attend_joined, gradient=gradient), device, dtype, width):
            return False
        _, sums = gradient.take(gradient.whole) or (None, torch.zeros(3))
        # Equal keys: the gradients of queries and keys are 0, and those of the values add up to 2.
        if sums.view(3, -1)[:, 0].tolist() != [0.0, 0.0, 2.0]:
            raise ValueError("its sums are wrong")
        return True

    return right("sums of attention kernels", f"{device} with heads of {width}", is_right)


class TritonAttention(FlatAttention):
    """The kernels of nmt; see `nmt.model.gpu.attention_kernels`."""

    def self_attend(
        self, qkv: Projected, score: Score, layer: int, gradient: ProductGradient | None = None
    ) -> Tensor:
        """See `Attention.self_attend`; receives its gradient in `gradient`, if that is given."""
        assert isinstance(qkv, Tensor)  # the pattern has one width
        if self.pattern.rotates:
            return super().self_attend(qkv, score, layer)
        return attend_joined(qkv, self.pattern, gradient).flatten(1)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, slots: Sequence[Slot | None] = ()) -> Tensor:
        """See `FlatAttention.attend`; the gradients of q, k and v are written to `slots`, if given."""
        inputs = [_adjacent(x) for x in (q, k, v)]
        # Without a gradient, nothing would take it from there.
        used = [slot if x.requires_grad else None for x, slot in zip(inputs, slots, strict=False)]
        out: Tensor = _attend(self.pattern, used, *inputs)
        return out


def attend_joined(qkv: Tensor, pattern: Pattern, gradient: ProductGradient | None = None) -> Tensor:
    """Self-attention within sentences, without the rotation of a positional encoding.

    `qkv` is contiguous. `gradient` receives its gradient and the sums of it; None: they are not computed.

    Returns:
        (N, H, E).
    """
    used = gradient if qkv.requires_grad else None
    out: Tensor = _attend(pattern, [] if used is None else [Slot(used, part) for part in range(3)], qkv)
    return out


def _adjacent(x: Tensor) -> Tensor:
    """Returns (N, H, E) with the values of a token adjacent, as the kernels need them."""
    return x if x.stride()[1:] == (x.shape[2], 1) else x.contiguous()


class _Attend(torch.autograd.Function):
    """Attention of queries, keys and values. If they are one tensor, so is their gradient."""

    @staticmethod
    def forward(ctx: Any, pattern: Pattern, slots: Sequence[Slot | None], *tensors: Tensor) -> Tensor:
        (q, k, v), options = _three(tensors), _options(pattern)
        out, sums = attention_kernels.flat_attention(
            q, k, v, pattern.queries.sentences, pattern.keys.cu_seqlens, *options
        )
        ctx.save_for_backward(*tensors, out, sums)
        ctx.pattern, ctx.slots = pattern, slots
        return out

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        *tensors, out, sums = ctx.saved_tensors
        (q, k, v), pattern = _three(tensors), ctx.pattern
        added = [q.new_empty(0, q.shape[1:].numel(), dtype=torch.float32)] * 3
        if any(ctx.slots):
            slots = [slot or Slot(ProductGradient(1), 0) for slot in ctx.slots]
            places = [slot.gradient.begin(slot.part, x) for slot, x in zip(slots, (q, k, v), strict=True)]
            gradients, added = ([place[i] for place in places] for i in (0, 1))
            wholes = gradients if len(tensors) == 3 else [slots[0].gradient.whole]
        else:
            wholes = [x.new_empty(x.shape) for x in tensors]
            gradients = list(_three(wholes))
        attention_kernels.flat_attention_backward(
            *(grad.contiguous(), out, sums, q, k, v, pattern.queries.sentences, pattern.queries.cu_seqlens),
            *(pattern.keys.sentences, pattern.keys.cu_seqlens, *_options(pattern), *gradients, *added),
        )
        return None, None, *wholes


_attend: Callable[..., Any] = _Attend.apply


def _three(tensors: Sequence[Tensor]) -> tuple[Tensor, Tensor, Tensor]:
    """Returns queries, keys and values, which may be parts of one tensor."""
    q, k, v = tensors[0].unbind(1) if len(tensors) == 1 else tensors
    return q, k, v


def _options(pattern: Pattern) -> tuple[bool, int, float]:
    assert pattern.scale is not None
    return pattern.causal, -1 if pattern.window is None else pattern.window, pattern.scale


class ProductGradient:
    """The gradient of a product, (N, C * H * E), and its sums over groups of tokens.

    Attentions that read parts of the product write to it: the gradient of a linear layer's bias is the sum of
    the product's gradient over tokens, and the kernels hold that gradient when they compute it. If several
    attentions read one product, each of them writes to its part of one tensor.

    `num_parts` is C.
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

        `x`, (N, H, E), is the part.

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

        The backward pass of the product receives `grads`: one gradient of all parts, or one for each.

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
