"""Attention over padded groups of sentences, forward and backward.

Scaled products take one autograd node for all groups of a batch. Everything else that the equation allows
(other scores, a bias, relative values, a window) goes group by group, each group one node beside those of its
hooks. Shapes: see `nmt.model.kernels.padding`; G = B * H, Lq queries and Lk keys of a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nmt.model.attention import Score, attention_weights, normalised
from nmt.model.kernels.padding import PaddingMap, Pattern
from nmt.model.kernels.windows import Window


def attend_padded(q: Tensor, kv: Tensor | None, pattern: Pattern, score: Score, layer: int) -> Tensor:
    """Attends within sentences.

    Args:
        q: (N, 1, H, E), queries; (N, 3, H, E), queries, keys and values of the same stream.
        kv: (N of the other stream, 2, H, E), keys and values, if they are not in `q`.
        pattern: which tokens see which.
        score: of the layer.
        layer: its number, from 0.

    Returns:
        (N, 1, H, E).
    """
    if score.scale is not None and pattern.window is None and not pattern.acts_on_scores:
        return _attend_products(q, kv, pattern, score.scale)
    if q.device.type != "cpu":
        return _attend_groups(q, kv, pattern, score, layer)
    with _small_products():
        wide = None if kv is None else _widened(kv)
        return _attend_groups(_widened(q), wide, pattern, score, layer).to(q.dtype)


def _attend_groups(q: Tensor, kv: Tensor | None, pattern: Pattern, score: Score, layer: int) -> Tensor:
    """Pads, attends group by group, and unpads; differentiable throughout."""
    if kv is None:
        inputs = [(group[0], group[1], group[2]) for group in _padded(q, pattern.self_map)]
    else:
        pairs = zip(_padded(q, pattern.query_map), _padded(kv, pattern.key_value_map), strict=True)
        inputs = [(query[0], key[0], key[1]) for query, key in pairs]
    outputs = []
    for number, (group, (qs, ks, vs)) in enumerate(zip(pattern.groups, inputs, strict=True)):
        if pattern.window is not None and qs.shape[1] > pattern.window + 1:
            window = Window(pattern, group)
            blocks = window.queries(qs), window.keys(ks), window.keys(vs)
            mask = pattern.once(("window", number, qs.dtype), partial(window.mask, qs.dtype))
            places = window.places()
            outputs.append(window.joined(_attend_group(blocks, mask, places, pattern, score, layer)))
        else:
            whole, places = pattern.masks(qs.dtype)[number], (_counted(qs), _counted(ks))
            outputs.append(_attend_group((qs, ks, vs), whole, places, pattern, score, layer))
    rows = torch.cat([output.reshape(-1, q.shape[-1]) for output in outputs])
    shape = torch.Size((len(q), 1, *q.shape[2:]))
    return _unpad(rows, pattern.query_map, shape)


def _counted(x: Tensor) -> Tensor:
    """The positions of (G, L, E)."""
    return torch.arange(x.shape[1], device=x.device)


def _attend_group(
    inputs: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    places: tuple[Tensor, Tensor],
    pattern: Pattern,
    score: Score,
    layer: int,
) -> Tensor:
    """(G, Lq, E) queries, (G, Lk, E) keys and values → (G, Lq, E)."""
    qs, ks, vs = inputs
    heads, positions = pattern.heads, pattern.positions

    def apart(x: Tensor) -> Tensor:
        return x.view(-1, heads, *x.shape[1:])

    bias = None if positions is None else positions.bias(apart(qs), *places, layer)
    if score.scale is None:
        scores = score(apart(qs), apart(ks))
        bias = scores if bias is None else scores + bias
        outputs, weights = _attend_one(None, None, vs, mask, bias, heads, 1.0)
    else:
        outputs, weights = _attend_one(qs, ks, vs, mask, bias, heads, score.scale)
    values = None if positions is None else positions.values(apart(weights), *places, layer)
    return outputs if values is None else outputs + values.to(outputs.dtype).reshape(outputs.shape)


class _Products(torch.autograd.Function):
    """All groups, forward and backward, in one node; it keeps the softmaxes and recomputes nothing."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor | None, pattern: Pattern, scale: float) -> Tensor:
        ctx.dtype, ctx.scale = q.dtype, scale
        if q.device.type == "cpu":
            with _small_products():
                return _Products._forward(ctx, _widened(q), None if kv is None else _widened(kv), pattern)
        return _Products._forward(ctx, q, kv, pattern)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if grad.device.type == "cpu":
            with _small_products():
                return _Products._backward(ctx, grad)
        return _Products._backward(ctx, grad)

    @staticmethod
    def _forward(ctx: Any, q: Tensor, kv: Tensor | None, pattern: Pattern) -> Tensor:
        shape = torch.Size((len(q), 1, *q.shape[2:]))
        if kv is None:
            inputs = [(group[0], group[1], group[2]) for group in pattern.self_map.pad(q)]
        else:
            pairs = zip(pattern.query_map.pad(q), pattern.key_value_map.pad(kv), strict=True)
            inputs = [(query[0], key[0], key[1]) for query, key in pairs]
        rows, outputs = pattern.query_map.empty(q)
        saved: list[Tensor] = []
        for (qs, ks, vs), out, mask in zip(inputs, outputs, pattern.masks(q.dtype), strict=True):
            weights = attention_weights(qs, ks, ctx.scale, mask)
            torch.bmm(weights, vs, out=out[0])
            saved += [qs, ks, vs, weights]
        ctx.save_for_backward(*saved)
        ctx.pattern, ctx.q_shape, ctx.kv_shape = pattern, q.shape, None if kv is None else kv.shape
        return pattern.query_map.unpad(rows, shape)

    @staticmethod
    def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        pattern, saved = ctx.pattern, ctx.saved_tensors
        if ctx.kv_shape is None:
            rows, groups = pattern.self_map.empty(grad)
            grads = [(group[0], group[1], group[2]) for group in groups]
        else:
            q_rows, q_groups = pattern.query_map.empty(grad)
            kv_rows, kv_groups = pattern.key_value_map.empty(grad)
            grads = [(query[0], key[0], key[1]) for query, key in zip(q_groups, kv_groups, strict=True)]
        # Zeros keep padded queries out of the sums over queries, in the gradients of keys and values.
        outputs = pattern.query_map.pad(grad, zeros=True)
        for i, (out, (grad_q, grad_k, grad_v)) in enumerate(zip(outputs, grads, strict=True)):
            qs, ks, vs, weights = saved[4 * i : 4 * i + 4]
            torch.bmm(weights.transpose(1, 2), out[0], out=grad_v)
            grad_weights = torch.bmm(out[0], vs.transpose(1, 2))
            grad_scores = _softmax_backward(grad_weights, weights).mul_(ctx.scale)
            torch.bmm(grad_scores, ks, out=grad_q)
            torch.bmm(grad_scores.transpose(1, 2), qs, out=grad_k)
        if ctx.kv_shape is None:
            return pattern.self_map.unpad(rows, ctx.q_shape).to(ctx.dtype), None, None, None
        grad_q = pattern.query_map.unpad(q_rows, ctx.q_shape).to(ctx.dtype)
        return grad_q, pattern.key_value_map.unpad(kv_rows, ctx.kv_shape).to(ctx.dtype), None, None


_attend_products: Callable[..., Tensor] = _Products.apply


class _Group(torch.autograd.Function):
    """One group, with a bias that gets a gradient and weights that are returned."""

    @staticmethod
    def forward(
        ctx: Any,
        q: Tensor | None,
        k: Tensor | None,
        v: Tensor,
        mask: Tensor | None,
        bias: Tensor | None,
        heads: int,
        scale: float,
    ) -> tuple[Tensor, Tensor]:
        """Without queries and keys, the bias holds the scores."""
        added = _sum(mask, bias, len(v) // heads, heads, v.dtype)
        if q is None or k is None:
            assert added is not None
            weights = normalised(added)
        else:
            weights = attention_weights(q, k, scale, added)
        ctx.save_for_backward(q, k, v, weights)
        ctx.heads, ctx.scale = heads, scale
        ctx.bias = None if bias is None else (bias.shape, bias.dtype)
        ctx.set_materialize_grads(False)
        return torch.bmm(weights, v), weights

    @staticmethod
    def backward(ctx: Any, grad: Tensor, grad_weights: Tensor | None) -> tuple[Tensor | None, ...]:
        q, k, v, weights = ctx.saved_tensors
        with _small_products() if grad.device.type == "cpu" else nullcontext():
            grad_v = torch.bmm(weights.transpose(1, 2), grad)
            through_values = torch.bmm(grad, v.transpose(1, 2))
            if grad_weights is not None:
                through_values = through_values + grad_weights
            grad_scores = _softmax_backward(through_values, weights)
            grad_bias = None
            if ctx.bias is not None and ctx.needs_input_grad[4]:
                shape, dtype = ctx.bias
                apart = grad_scores.view(-1, ctx.heads, *grad_scores.shape[1:])
                grad_bias = apart.sum_to_size(shape).to(dtype)
            if q is None:
                return None, None, grad_v, None, grad_bias, None, None
            scaled = grad_scores * ctx.scale
            grad_q, grad_k = torch.bmm(scaled, k), torch.bmm(scaled.transpose(1, 2), q)
        return grad_q, grad_k, grad_v, None, grad_bias, None, None


_attend_one: Callable[..., tuple[Tensor, Tensor]] = _Group.apply


def _sum(
    mask: Tensor | None, bias: Tensor | None, sentences: int, heads: int, dtype: torch.dtype
) -> Tensor | None:
    """A mask, (G or 1, Lq or 1, Lk), and a bias that broadcasts to (B, H, Lq, Lk): (G, Lq, Lk)."""
    if bias is None:
        return mask
    bias = bias.to(dtype)
    if mask is not None:
        bias = bias + (mask if len(mask) == 1 else mask.view(sentences, heads, *mask.shape[1:]))
    return bias.expand(sentences, heads, *bias.shape[-2:]).reshape(-1, *bias.shape[-2:])


class _Pad(torch.autograd.Function):
    """`PaddingMap.pad` of a stream, as rows; padding gets no gradient from the scores, so it is left out."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, padding_map: PaddingMap) -> Tensor:
        ctx.map, ctx.shape = padding_map, flat.shape
        return padding_map.rows(flat)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        padding_map: PaddingMap = ctx.map
        return padding_map.unpad(grad, ctx.shape), None


class _Unpad(torch.autograd.Function):
    """`PaddingMap.unpad`; its backward is `pad` with zeros, which keep padded queries out of all sums."""

    @staticmethod
    def forward(ctx: Any, rows: Tensor, padding_map: PaddingMap, shape: torch.Size) -> Tensor:
        ctx.map = padding_map
        return padding_map.unpad(rows, shape)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        padding_map: PaddingMap = ctx.map
        return padding_map.rows(grad, zeros=True), None, None


_pad: Callable[..., Tensor] = _Pad.apply
_unpad: Callable[..., Tensor] = _Unpad.apply


def _padded(flat: Tensor, padding_map: PaddingMap) -> list[Tensor]:
    """(N, P, H, E) → (P, G, L, E) of each group."""
    return padding_map.views(_pad(flat, padding_map))


def _softmax_backward(grad: Tensor, weights: Tensor) -> Tensor:
    return torch._softmax_backward_data(grad, weights, -1, weights.dtype)


def _widened(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


@contextmanager
def _small_products() -> Iterator[None]:
    """Batched products on the CPU as small as attention's are done in plain fp32.

    They are as fast so, and oneDNN, to whom torch gives those in bf16 and in fp32 with leave to take bf16,
    compiles a kernel for every new shape: in training that took five times as long as the products, and a
    gigabyte.
    """
    matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
    before = getattr(matmul, "fp32_precision", None)
    with torch.autocast("cpu", enabled=False):
        if before in (None, "none", "ieee"):
            yield
            return
        matmul.fp32_precision = "ieee"
        try:
            yield
        finally:
            matmul.fp32_precision = before
