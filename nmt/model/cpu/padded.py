"""Attention over padded groups of sentences, forward and backward: all scores, encodings and windows.

Dot-product scores without a bias take one autograd node for all groups of a batch. The other variants (other
scores, a bias, relative values, a window) take one node per group, plus the nodes of score and encoding.

Shapes: see `nmt.model.cpu.padding`; G = B * H, Lq queries and Lk keys of a sentence, n blocks of a window.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.model.attention import Score, attention_weights, normalised, normalised_backward
from nmt.model.backend import Attention, KeysValues, Pattern
from nmt.model.cpu.padding import Group, PaddedGroups, PaddingMap
from nmt.model.packed import gathered
from nmt.runtime.fp32_products import plain_fp32_products


class PaddedAttention(Attention):
    """See `Attention`; the arguments are those of `PaddedGroups`."""

    def __init__(self, pattern: Pattern, overhead: int) -> None:
        self._batch = PaddedGroups(pattern, overhead)

    def self_attend(self, qkv: Tensor, score: Score, layer: int) -> Tensor:
        """See `Attention.self_attend`."""
        pattern = self._batch.pattern
        if pattern.rotates:
            q, k, v = qkv.unbind(1)
            qkv = torch.stack((*pattern.rotated(q, k), v), 1)
        return self._attend(qkv, None, score, layer).flatten(1)

    def cross_attend(self, q: Tensor, keys_values: KeysValues | None, score: Score, layer: int) -> Tensor:
        """See `Attention.cross_attend`."""
        assert keys_values is not None
        kv = torch.stack(keys_values, 1) if isinstance(keys_values, tuple) else keys_values
        return self._attend(q[:, None], kv, score, layer).flatten(1)

    def _attend(self, q: Tensor, kv: Tensor | None, score: Score, layer: int) -> Tensor:
        """Attends within sentences.

        Args:
            q: (N, 1, H, E), queries; or (N, 3, H, E), queries, keys and values of the same stream.
            kv: (S, 2, H, E), keys and values; None if they are in `q`.
            score: the score of the layer.
            layer: index of the layer, from 0.

        Returns:
            (N, 1, H, E).
        """
        batch, pattern = self._batch, self._batch.pattern
        if pattern.scale is not None and pattern.window is None and not pattern.acts_on_scores:
            return _attend_products(q, kv, batch, pattern.scale)
        if q.device.type != "cpu":
            return _attend_groups(q, kv, batch, score, layer)
        with _fp32_products():
            wide_kv = None if kv is None else _at_least_fp32(kv)
            return _attend_groups(_at_least_fp32(q), wide_kv, batch, score, layer).to(q.dtype)


def _attend_groups(q: Tensor, kv: Tensor | None, batch: PaddedGroups, score: Score, layer: int) -> Tensor:
    """Pads, attends group by group, and unpads; see `PaddedAttention`. Differentiable."""
    pattern = batch.pattern
    if kv is None:
        inputs = [(group[0], group[1], group[2]) for group in _padded(q, batch.self_map)]
    else:
        pairs = zip(_padded(q, batch.query_map), _padded(kv, batch.key_value_map), strict=True)
        inputs = [(query[0], key[0], key[1]) for query, key in pairs]
    outputs = []
    for number, (group, (qs, ks, vs)) in enumerate(zip(batch.groups, inputs, strict=True)):
        if pattern.window is not None and qs.shape[1] > pattern.window + 1:
            window = Window(batch, group)
            blocks = window.queries(qs), window.keys(ks), window.keys(vs)
            mask = batch.cached(("window", number, qs.dtype), partial(window.mask, qs.dtype))
            places = window.places()
            outputs.append(window.joined(_attend_group(blocks, mask, places, pattern, score, layer)))
        else:
            whole, places = batch.masks(qs.dtype)[number], (_positions(qs), _positions(ks))
            outputs.append(_attend_group((qs, ks, vs), whole, places, pattern, score, layer))
    rows = torch.cat([output.reshape(-1, q.shape[-1]) for output in outputs])
    shape = torch.Size((len(q), 1, *q.shape[2:]))
    to_flat, to_padded, padding = batch.query_map.to_flat, batch.query_map.to_padded, batch.query_map.padding
    # The gradient of padded queries is 0, so that they contribute 0 to all sums.
    return gathered(rows, to_flat, to_padded, padding).view(shape)


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
    def forward(ctx: Any, q: Tensor, kv: Tensor | None, batch: PaddedGroups, scale: float) -> Tensor:
        ctx.dtype, ctx.scale = q.dtype, scale
        if q.device.type == "cpu":
            with _fp32_products():
                return _Products._forward(
                    ctx, _at_least_fp32(q), None if kv is None else _at_least_fp32(kv), batch
                )
        return _Products._forward(ctx, q, kv, batch)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if grad.device.type == "cpu":
            with _fp32_products():
                return _Products._backward(ctx, grad)
        return _Products._backward(ctx, grad)

    @staticmethod
    def _forward(ctx: Any, q: Tensor, kv: Tensor | None, batch: PaddedGroups) -> Tensor:
        shape = torch.Size((len(q), 1, *q.shape[2:]))
        if kv is None:
            inputs = [(group[0], group[1], group[2]) for group in batch.self_map.pad(q)]
        else:
            pairs = zip(batch.query_map.pad(q), batch.key_value_map.pad(kv), strict=True)
            inputs = [(query[0], key[0], key[1]) for query, key in pairs]
        rows, outputs = batch.query_map.empty(q)
        saved: list[Tensor] = []
        for (qs, ks, vs), out, mask in zip(inputs, outputs, batch.masks(q.dtype), strict=True):
            weights = attention_weights(qs, ks, ctx.scale, mask)
            torch.bmm(weights, vs, out=out[0])
            saved += [qs, ks, vs, weights]
        ctx.save_for_backward(*saved)
        ctx.batch, ctx.q_shape, ctx.kv_shape = batch, q.shape, None if kv is None else kv.shape
        return batch.query_map.unpad(rows, shape)

    @staticmethod
    def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        batch, saved = ctx.batch, ctx.saved_tensors
        if ctx.kv_shape is None:
            rows, groups = batch.self_map.empty(grad)
            grads = [(group[0], group[1], group[2]) for group in groups]
        else:
            q_rows, q_groups = batch.query_map.empty(grad)
            kv_rows, kv_groups = batch.key_value_map.empty(grad)
            grads = [(query[0], key[0], key[1]) for query, key in zip(q_groups, kv_groups, strict=True)]
        # The gradients of keys and values sum over queries: padded queries must contribute 0.
        outputs = batch.query_map.pad(grad, zeros=True)
        for i, (out, (grad_q, grad_k, grad_v)) in enumerate(zip(outputs, grads, strict=True)):
            qs, ks, vs, weights = saved[4 * i : 4 * i + 4]
            torch.bmm(weights.transpose(1, 2), out[0], out=grad_v)
            grad_weights = torch.bmm(out[0], vs.transpose(1, 2))
            grad_scores = normalised_backward(grad_weights, weights).mul_(ctx.scale)
            torch.bmm(grad_scores, ks, out=grad_q)
            torch.bmm(grad_scores.transpose(1, 2), qs, out=grad_k)
        if ctx.kv_shape is None:
            return batch.self_map.unpad(rows, ctx.q_shape).to(ctx.dtype), None, None, None
        grad_q = batch.query_map.unpad(q_rows, ctx.q_shape).to(ctx.dtype)
        return grad_q, batch.key_value_map.unpad(kv_rows, ctx.kv_shape).to(ctx.dtype), None, None


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


def _padded(flat: Tensor, padding_map: PaddingMap) -> list[Tensor]:
    """(N, P, H, E) → (P, G, L, E) for each group. The gradient drops that of padding, which is 0."""
    rows = flat.reshape(-1, flat.shape[-1])
    return padding_map.views(gathered(rows, padding_map.to_padded, padding_map.to_flat, None))


def _at_least_fp32(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


@contextmanager
def _fp32_products() -> Iterator[None]:
    """Disables autocast on the CPU, and oneDNN in fp32 matrix products."""
    with torch.autocast("cpu", enabled=False), plain_fp32_products():
        yield


class Window:
    """The blocks of one padded group, for restricted self-attention (section 4 of the paper).

    A sentence of L tokens is cut into n blocks of r tokens. The queries of a block see only keys of their
    block and of its neighbours. So a block is computed as a short sentence of r queries and 2 r (causal) or
    3 r keys, in time O(L r).

    Args:
        batch: its pattern gives r = `window`, and `causal`.
        group: the sentences of the group.
    """

    def __init__(self, batch: PaddedGroups, group: Group) -> None:
        assert batch.pattern.window is not None
        self._batch, self._pattern, self._lengths = batch, batch.pattern, group.queries
        self._size, self._length = batch.pattern.window, int(group.queries.max())
        self._blocks = -(-self._length // self._size)
        self._sides = 2 if batch.pattern.causal else 3

    def queries(self, x: Tensor) -> Tensor:
        """(B * H, L, E) → (B * n * H, r, E)."""
        return self._cut(F.pad(x, (0, 0, 0, self._padding)))

    def keys(self, x: Tensor) -> Tensor:
        """(B * H, L, E) → (B * n * H, 2 r or 3 r, E), each block with its neighbours."""
        after = 0 if self._pattern.causal else self._size
        x = F.pad(x, (0, 0, self._size, self._padding + after))
        total = self._blocks * self._size
        shifted = [x[:, side * self._size :][:, :total] for side in range(self._sides)]
        return torch.cat([self._cut(each) for each in shifted], 1)

    def joined(self, x: Tensor) -> Tensor:
        """(B * n * H, r, E) → (B * H, L, E)."""
        heads, blocks = self._pattern.heads, self._blocks
        x = x.view(-1, blocks, heads, self._size, x.shape[-1]).transpose(1, 2)
        return x.reshape(-1, blocks * self._size, x.shape[-1])[:, : self._length]

    def mask(self, dtype: torch.dtype) -> Tensor:
        """Returns the mask, (B * n * H, r, 2 r or 3 r): -inf where a query must not see a key, else 0."""
        size = self._size
        block = np.arange(self._blocks)[:, None, None] * size
        query = block + np.arange(size)[:, None]
        key = block - size + np.arange(self._sides * size)
        seen = (np.abs(query - key) <= size) & (key >= 0)
        if self._pattern.causal:
            seen &= key <= query
        lengths = self._lengths[:, None, None, None]
        # Padded queries see all keys: the softmax of a row without a visible key would be NaN.
        masked = ~((seen & (key < lengths)) | (query >= lengths))  # (B, n, r, keys)
        masked = np.repeat(masked.reshape(-1, *masked.shape[2:]), self._pattern.heads, axis=0)
        return self._batch.mask_of(masked, dtype)

    def places(self) -> tuple[Tensor, Tensor]:
        """Returns the positions of the queries, (r,), and keys, (2 r or 3 r,), counted from the first key."""
        device = self._batch.device
        queries = torch.arange(self._size, 2 * self._size, device=device)
        return queries, torch.arange(self._sides * self._size, device=device)

    @property
    def _padding(self) -> int:
        return self._blocks * self._size - self._length

    def _cut(self, x: Tensor) -> Tensor:
        """(B * H, n * r, E) → (B * n * H, r, E)."""
        heads, width = self._pattern.heads, x.shape[-1]
        x = x.reshape(-1, heads, self._blocks, self._size, width).transpose(1, 2)
        return x.reshape(-1, self._size, width)
