"""Attention over padded groups with other scores, encodings that act on scores, a window, or two widths.

It takes one autograd node per group, plus the nodes of score and encoding.

Shapes: see `nmt.model.cpu.padded`; n blocks of a window.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.model.attention import Pattern, Score, attention_weights, normalised, normalised_backward
from nmt.model.cpu.padded import (
    Group,
    PaddedAttention,
    PaddingMap,
    Triple,
    at_least_fp32,
    fp32_products,
    gathered,
    triples,
)


class VariantAttention(PaddedAttention):
    """See `PaddedAttention`."""

    def attend(self, streams: Sequence[Tensor], score: Score, layer: int) -> Tensor:
        """See `PaddedAttention.attend`."""
        with fp32_products(streams[0].device):
            maps = zip(self.maps(len(streams)), streams, strict=True)
            inputs = triples([_padded(at_least_fp32(stream), padding_map) for padding_map, stream in maps])
            outputs = [
                self._attend_in(number, padded, score, layer).reshape(-1, padded[2].shape[-1])
                for number, padded in enumerate(inputs)
            ]
            rows, query_map = torch.cat(outputs), self.query_map
            # The gradient of padded queries is 0, so that they contribute 0 to all sums.
            rows = gathered(rows, query_map.to_flat, query_map.to_padded, query_map.padding)
        return rows.view(len(streams[0]), 1, *streams[-1].shape[2:]).to(streams[0].dtype)

    def _attend_in(self, number: int, padded: Triple, score: Score, layer: int) -> Tensor:
        """Attends in a group: queries (G, Lq, E), keys (G, Lk, E) and values (G, Lk, Ev) → (G, Lq, Ev)."""
        (qs, ks, vs), window = padded, self._window(self.groups[number])
        mask = self.masks(qs.dtype)[number]
        if window is None:
            return self._attend_group(padded, mask, (_positions(qs), _positions(ks)), score, layer)
        blocks = window.queries(qs), window.keys(ks), window.keys(vs)
        return window.joined(self._attend_group(blocks, mask, window.places(qs.device), score, layer))

    def _mask(self, group: Group, dtype: torch.dtype) -> Tensor | None:
        window = self._window(group)
        return super()._mask(group, dtype) if window is None else self.mask_of(window.masked(), dtype)

    def _window(self, group: Group) -> Window | None:
        """Returns the blocks of a group, or None: its sentences are not longer than the window."""
        size = self.pattern.window
        return None if size is None or group.queries.max() <= size + 1 else Window(self.pattern, group, size)

    def _attend_group(
        self, inputs: Triple, mask: Tensor | None, places: tuple[Tensor, Tensor], score: Score, layer: int
    ) -> Tensor:
        """Queries (G, Lq, E), keys (G, Lk, E) and values (G, Lk, Ev) → (G, Lq, Ev).

        `places` are the positions of the queries and of the keys.
        """
        qs, ks, vs = inputs
        heads, positions = self.pattern.heads, self.pattern.positions

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
        with fp32_products(grad.device):
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


def _positions(x: Tensor) -> Tensor:
    """(G, L, E) → (L,), the positions 0 to L - 1."""
    return torch.arange(x.shape[1], device=x.device)


class Window:
    """The blocks of one padded group, for restricted self-attention (section 4 of the paper).

    A sentence of L tokens is cut into n blocks of r tokens. The queries of a block see only keys of their
    block and of its neighbours. So a block is computed as a short sentence of r queries and 2 r (causal) or
    3 r keys, in time O(L r).

    `size` is r.
    """

    def __init__(self, pattern: Pattern, group: Group, size: int) -> None:
        self._pattern, self._lengths = pattern, group.queries
        self._size, self._length = size, int(group.queries.max())
        self._blocks = -(-self._length // self._size)
        self._sides = 2 if self._pattern.causal else 3

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

    def masked(self) -> np.ndarray[Any, np.dtype[np.bool_]]:
        """Returns whether each query must not see each key: (B * n * H, r, 2 r or 3 r)."""
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
        return np.repeat(masked.reshape(-1, *masked.shape[2:]), self._pattern.heads, axis=0)

    def places(self, device: torch.device) -> tuple[Tensor, Tensor]:
        """Returns the positions of the queries, (r,), and keys, (2 r or 3 r,), counted from the first key."""
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
