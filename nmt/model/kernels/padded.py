"""Attention over padded groups of sentences, forward and backward.

Dot-product scores without a bias take one autograd node for all groups of a batch. The other variants (other
scores, a bias, relative values, a window) take one node per group, plus the nodes of score and encoding.

Shapes: see `nmt.model.kernels.padding`; G = B * H, Lq queries and Lk keys of a sentence.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor

from nmt.model.attention import Score, attention_weights, normalised, normalised_backward
from nmt.model.kernels.padding import PaddingMap, Pattern
from nmt.model.kernels.windows import Window
from nmt.runtime.fp32_products import plain_fp32_products


def attend_padded(q: Tensor, kv: Tensor | None, pattern: Pattern, score: Score, layer: int) -> Tensor:
    """Attention within sentences.

    Args:
        q: (N, 1, H, E), queries; or (N, 3, H, E), queries, keys and values of the same stream.
        kv: (N of the other stream, 2, H, E), keys and values; None if they are in `q`.
        pattern: the keys that each query sees.
        score: the score of the layer.
        layer: index of the layer, from 0.

    Returns:
        (N, 1, H, E).
    """
    if score.scale is not None and pattern.window is None and not pattern.acts_on_scores:
        return _attend_products(q, kv, pattern, score.scale)
    if q.device.type != "cpu":
        return _attend_groups(q, kv, pattern, score, layer)
    with _fp32_products():
        wide_kv = None if kv is None else _at_least_fp32(kv)
        return _attend_groups(_at_least_fp32(q), wide_kv, pattern, score, layer).to(q.dtype)


def _attend_groups(q: Tensor, kv: Tensor | None, pattern: Pattern, score: Score, layer: int) -> Tensor:
    """Pads, attends group by group, and unpads. Arguments as in `attend_padded`; differentiable."""
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
            mask = pattern.cached(("window", number, qs.dtype), partial(window.mask, qs.dtype))
            places = window.places()
            outputs.append(window.joined(_attend_group(blocks, mask, places, pattern, score, layer)))
        else:
            whole, places = pattern.masks(qs.dtype)[number], (_positions(qs), _positions(ks))
            outputs.append(_attend_group((qs, ks, vs), whole, places, pattern, score, layer))
    rows = torch.cat([output.reshape(-1, q.shape[-1]) for output in outputs])
    shape = torch.Size((len(q), 1, *q.shape[2:]))
    return _unpad(rows, pattern.query_map, shape)


def _positions(x: Tensor) -> Tensor:
    """(G, L, E) → (L,), the positions 0 to L - 1."""
    return torch.arange(x.shape[1], device=x.device)


def _attend_group(
    inputs: tuple[Tensor, Tensor, Tensor],
    mask: Tensor | None,
    places: tuple[Tensor, Tensor],
    pattern: Pattern,
    score: Score,
    layer: int,
) -> Tensor:
    """Queries (G, Lq, E), keys and values (G, Lk, E) → (G, Lq, E)."""
    qs, ks, vs = inputs
    heads, positions = pattern.heads, pattern.positions

    def split_heads(x: Tensor) -> Tensor:
        return x.view(-1, heads, *x.shape[1:])

    bias = None if positions is None else positions.bias(split_heads(qs), *places, layer)
    if score.scale is None:
        scores = score(split_heads(qs), split_heads(ks))
        bias = scores if bias is None else scores + bias
        outputs, weights = _attend_one(None, None, vs, mask, bias, heads, 1.0)
    else:
        outputs, weights = _attend_one(qs, ks, vs, mask, bias, heads, score.scale)
    values = None if positions is None else positions.values(split_heads(weights), *places, layer)
    return outputs if values is None else outputs + values.to(outputs.dtype).reshape(outputs.shape)


class _Products(torch.autograd.Function):
    """Attention of all groups in one autograd node; saves the attention weights and recomputes nothing."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor | None, pattern: Pattern, scale: float) -> Tensor:
        ctx.dtype, ctx.scale = q.dtype, scale
        if q.device.type == "cpu":
            with _fp32_products():
                return _Products._forward(
                    ctx, _at_least_fp32(q), None if kv is None else _at_least_fp32(kv), pattern
                )
        return _Products._forward(ctx, q, kv, pattern)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if grad.device.type == "cpu":
            with _fp32_products():
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
        # The gradients of keys and values sum over queries: padded queries must contribute 0.
        outputs = pattern.query_map.pad(grad, zeros=True)
        for i, (out, (grad_q, grad_k, grad_v)) in enumerate(zip(outputs, grads, strict=True)):
            qs, ks, vs, weights = saved[4 * i : 4 * i + 4]
            torch.bmm(weights.transpose(1, 2), out[0], out=grad_v)
            grad_weights = torch.bmm(out[0], vs.transpose(1, 2))
            grad_scores = normalised_backward(grad_weights, weights).mul_(ctx.scale)
            torch.bmm(grad_scores, ks, out=grad_q)
            torch.bmm(grad_scores.transpose(1, 2), qs, out=grad_k)
        if ctx.kv_shape is None:
            return pattern.self_map.unpad(rows, ctx.q_shape).to(ctx.dtype), None, None, None
        grad_q = pattern.query_map.unpad(q_rows, ctx.q_shape).to(ctx.dtype)
        return grad_q, pattern.key_value_map.unpad(kv_rows, ctx.kv_shape).to(ctx.dtype), None, None


_attend_products: Callable[..., Tensor] = _Products.apply


class _Group(torch.autograd.Function):
    """Attention of one group, with a gradient for the bias; also returns the attention weights."""

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
        """If `q` and `k` are None, `bias` holds the scores."""
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
        with _fp32_products() if grad.device.type == "cpu" else nullcontext():
            grad_v = torch.bmm(weights.transpose(1, 2), grad)
            through_values = torch.bmm(grad, v.transpose(1, 2))
            if grad_weights is not None:
                through_values = through_values + grad_weights
            grad_scores = normalised_backward(through_values, weights)
            grad_bias = None
            if ctx.bias is not None and ctx.needs_input_grad[4]:
                shape, dtype = ctx.bias
                split = grad_scores.view(-1, ctx.heads, *grad_scores.shape[1:])
                grad_bias = split.sum_to_size(shape).to(dtype)
            if q is None:
                return None, None, grad_v, None, grad_bias, None, None
            scaled = grad_scores * ctx.scale
            grad_q, grad_k = torch.bmm(scaled, k), torch.bmm(scaled.transpose(1, 2), q)
        return grad_q, grad_k, grad_v, None, grad_bias, None, None


_attend_one: Callable[..., tuple[Tensor, Tensor]] = _Group.apply


def _sum(
    mask: Tensor | None, bias: Tensor | None, sentences: int, heads: int, dtype: torch.dtype
) -> Tensor | None:
    """Adds a mask, (G or 1, Lq or 1, Lk), and a bias that broadcasts to (B, H, Lq, Lk) → (G, Lq, Lk)."""
    if bias is None:
        return mask
    bias = bias.to(dtype)
    if mask is not None:
        bias = bias + (mask if len(mask) == 1 else mask.view(sentences, heads, *mask.shape[1:]))
    return bias.expand(sentences, heads, *bias.shape[-2:]).reshape(-1, *bias.shape[-2:])


class _Pad(torch.autograd.Function):
    """`PaddingMap.rows`; backward drops the gradients of padding, which are 0."""

    @staticmethod
    def forward(ctx: Any, flat: Tensor, padding_map: PaddingMap) -> Tensor:
        ctx.map, ctx.shape = padding_map, flat.shape
        return padding_map.rows(flat)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        padding_map: PaddingMap = ctx.map
        return padding_map.unpad(grad, ctx.shape), None


class _Unpad(torch.autograd.Function):
    """`PaddingMap.unpad`; backward pads with zeros, so that padded queries contribute 0 to all sums."""

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
    """(N, P, H, E) → (P, G, L, E) for each group."""
    return padding_map.views(_pad(flat, padding_map))


def _at_least_fp32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


@contextmanager
def _fp32_products() -> Iterator[None]:
    """Disables autocast on the CPU, and oneDNN in fp32 matrix products."""
    with torch.autocast("cpu", enabled=False), plain_fp32_products():
        yield
