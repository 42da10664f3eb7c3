"""Fast implementations of attention; `nmt.model.reference` is the naive version of each.

- `padded`: groups of sentences of similar length, padded together; all scores, biases and windows.
- `flat`: CUDA kernels of nmt for flat batches; dot-product scores without a bias.
- `varlen`: torch's CUDA kernel for the same, without Triton or for wide heads.
- `cached`: one step of a search.

Shapes: N tokens of a stream, H heads, E width of a head.
"""

from __future__ import annotations

import torch
from torch import Tensor

from nmt.model.attention import ScaledDot, Score
from nmt.model.kernels.flat import attend_flat, self_attend_flat, supports_flat
from nmt.model.kernels.padded import attend_padded
from nmt.model.kernels.padding import Pattern
from nmt.model.kernels.varlen import attend_varlen, supports_varlen

__all__ = ["Pattern", "cross_attend", "self_attend"]


def self_attend(qkv: Tensor, pattern: Pattern, score: Score | None = None, layer: int = 0) -> Tensor:
    """Self-attention within each sentence of a stream.

    Args:
        qkv: (N, 3, H, E), contiguous; queries, keys and values.
        pattern: the keys that each query sees.
        score: the score of the layer; None: the scaled dot product.
        layer: index of the layer, from 0.

    Returns:
        (N, H * E), the concatenated outputs of the heads.
    """
    score = score or ScaledDot(*qkv.shape[2:])
    rotates = pattern.positions is not None and pattern.positions.rotates
    if not rotates and (scale := _flat_scale(qkv, pattern, score)) is not None:
        out = self_attend_flat(
            qkv, pattern.queries, causal=pattern.causal, window=pattern.window, scale=scale
        )
        return out.flatten(1)
    varlen = _varlen(qkv, pattern, score)
    if varlen or rotates:
        q, k, v = qkv.unbind(1)
        if rotates:
            assert pattern.positions is not None
            q, k = pattern.positions.rotate(q, k, pattern.queries.positions)
        if varlen:
            return _attend_varlen(q, k, v, pattern, score)
        qkv = torch.stack((q, k, v), 1)
    return attend_padded(qkv, None, pattern, score, layer).flatten(1)


def cross_attend(
    q: Tensor,
    kv: Tensor | tuple[Tensor, Tensor],
    pattern: Pattern,
    score: Score | None = None,
    layer: int = 0,
) -> Tensor:
    """Attention from each sentence of one stream to the same sentence in another stream.

    Args:
        q: (N, 1, H, E), contiguous; queries.
        kv: (N of the other stream, 2, H, E), contiguous; keys and values. Or a pair of (N, H, E).
        pattern: the keys that each query sees.
        score: the score of the layer; None: the scaled dot product.
        layer: index of the layer, from 0.

    Returns:
        (N, H * E), the concatenated outputs of the heads.
    """
    score = score or ScaledDot(*q.shape[2:])
    if _varlen(q, pattern, score):
        k, v = kv if isinstance(kv, tuple) else kv.unbind(1)
        return _attend_varlen(q.squeeze(1), k, v, pattern, score)
    kv = torch.stack(kv, 1) if isinstance(kv, tuple) else kv
    return attend_padded(q, kv, pattern, score, layer).flatten(1)


def _flat_scale(x: Tensor, pattern: Pattern, score: Score) -> float | None:
    """Returns the factor on the dot products for `flat`; None if that does not support the attention."""
    return score.scale if not pattern.acts_on_scores and supports_flat(x) else None


def _varlen(x: Tensor, pattern: Pattern, score: Score) -> bool:
    """Whether a kernel for flat batches can be used; `padded` computes everything else."""
    return score.scale is not None and not pattern.acts_on_scores and (supports_flat(x) or supports_varlen(x))


def _attend_varlen(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, score: Score) -> Tensor:
    queries, keys = pattern.queries, pattern.keys
    if (scale := _flat_scale(q, pattern, score)) is not None:
        out = attend_flat(q, k, v, queries, keys, causal=pattern.causal, window=pattern.window, scale=scale)
        return out.flatten(1)
    out = attend_varlen(
        q, k, v, queries, keys, causal=pattern.causal, window=pattern.window, scale=score.scale
    )
    return out.flatten(1)
