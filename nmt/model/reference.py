"""A naive Transformer: the equations of the paper for one sentence, computed from a mapping of weights.

Only tests use it. They compare the outputs and gradients of every fast implementation with it.

Shapes: S source tokens and T target tokens of one sentence pair, D d_model, V vocabulary; Lq queries, Lk
keys, H heads, E width of the queries and keys of a head, Ev of its values.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor

from nmt.config import Activation, ModelConfig, Norm, NormKind, Tie
from nmt.data.subwords.vocabulary import PAD_ID
from nmt.model.attention import Additive, Score
from nmt.model.positions import Positions

Weights = Mapping[str, Tensor]


def naive_hidden(weights: Weights, config: ModelConfig, source: list[int], target: list[int]) -> Tensor:
    """Returns the (T, D) hidden states of one pair.

    `weights` are as in `Transformer.state_dict`. `source` has S ids, the last one EOS, and `target` T ids,
    the first one BOS.
    """

    def sublayer(at: str, x: Tensor, function: Callable[..., Tensor], *more: Any) -> Tensor:
        residual = x if config.residual else torch.zeros_like(x)
        if config.norm is Norm.pre:
            return residual + function(weights, config, at, _norm(weights, config, f"{at}_norm", x), *more)
        return _norm(weights, config, f"{at}_norm", residual + function(weights, config, at, x, *more))

    def entered(at: str, x: Tensor, embedded: Tensor) -> Tensor:
        return x + weights[f"{at}.skip.weight"] * embedded if f"{at}.skip.weight" in weights else x

    name = "target_embedding" if config.tie is Tie.all else "source_embedding"
    x = _embed(weights, name, "source_bigrams", source)
    first: list[Tensor] = []
    x0 = x
    for i in range(config.encoder_layers):
        x = entered(f"encoder.{i}", x, x0)
        x = sublayer(f"encoder.{i}.self_attention", x, _self_attention, first)
        x = sublayer(f"encoder.{i}.feed_forward", x, _feed_forward)
    if config.norm is Norm.pre:
        x = _norm(weights, config, "encoder_norm", x)
    y = _embed(weights, "target_embedding", "target_bigrams", target)
    y0, first = y, []
    for i in range(config.decoder_layers):
        y = entered(f"decoder.{i}", y, y0)
        y = sublayer(f"decoder.{i}.self_attention", y, _causal_attention, first)
        y = sublayer(f"decoder.{i}.cross_attention", y, _cross_attention, x)
        y = sublayer(f"decoder.{i}.feed_forward", y, _feed_forward)
    return _norm(weights, config, "decoder_norm", y) if config.norm is Norm.pre else y


def naive_log_probs(weights: Weights, config: ModelConfig, hidden: Tensor) -> Tensor:
    """(T, D) hidden states → (T, V) log-probabilities."""
    matrix = weights["output.weight" if config.tie is Tie.none else "target_embedding.weight"]
    bias = weights["logit_bias"] if config.output_bias else 0.0
    logits = hidden @ matrix.T + bias
    if config.logit_cap is not None:
        logits = config.logit_cap * (logits / config.logit_cap).tanh()
    return logits.log_softmax(-1)


def naive_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    *,
    causal: bool,
    score: Score | None = None,
    positions: Positions | None = None,
    window: int | None = None,
    layer: int = 0,
) -> Tensor:
    """Attention in one sentence, score by score: the naive version of each `nmt.model.attention.Attention`.

    Args:
        q: (Lq, H, E), queries.
        k: (Lk, H, E), keys.
        v: (Lk, H, Ev), values.
        causal: whether a query sees only the keys up to its position.
        score: None: the scaled dot product.
        positions: a positional encoding that acts in attention.
        window: the number of keys that a query sees on either side; None: all.
        layer: index of the layer, for `positions`.

    Returns:
        (Lq, H * Ev).
    """
    places = torch.arange(len(q)), torch.arange(len(k))
    weights = naive_weights(q, k, causal=causal, score=score, positions=positions, window=window, layer=layer)
    outputs = torch.stack([weights[head] @ v[:, head] for head in range(q.shape[1])])
    values = None if positions is None else positions.values(weights[None], *places, layer)
    if values is not None:
        outputs = outputs + values[0]
    return outputs.transpose(0, 1).flatten(1)


def naive_weights(
    q: Tensor,
    k: Tensor,
    *,
    causal: bool,
    score: Score | None = None,
    positions: Positions | None = None,
    window: int | None = None,
    layer: int = 0,
) -> Tensor:
    """Returns the weights of `naive_attention`, (H, Lq, Lk); the arguments are the same."""
    places = torch.arange(len(q)), torch.arange(len(k))
    bias = None
    if positions is not None:
        q, k = positions.rotate(q, k, places[0])
        bias = positions.bias(q.transpose(0, 1)[None], *places, layer)
    scores = torch.stack(
        [
            torch.stack([_scores(q[i, head], k[:, head], head, score) for i in range(len(q))])
            for head in range(q.shape[1])
        ]
    )
    if bias is not None:
        scores = scores + bias.expand(1, *scores.shape)[0]
    for i in range(len(q)):
        for j in range(len(k)):
            if (causal and j > i) or (window is not None and abs(i - j) > window):
                scores[:, i, j] = -math.inf
    return scores.softmax(-1)


def _scores(q: Tensor, keys: Tensor, head: int, score: Score | None) -> Tensor:
    """Query (E,) and keys (Lk, E) → scores (Lk,); the equation of each score that is not a product."""
    if score is None:
        return torch.stack([q @ k / math.sqrt(len(q)) for k in keys])
    if score.scale is not None:
        return torch.stack([q @ k * score.scale for k in keys])
    assert isinstance(score, Additive)
    return torch.stack([score.v[head] @ (q + k).tanh() for k in keys])


def naive_positions(length: int, width: int) -> Tensor:
    """Sinusoidal encoding, (length, width) float64, element by element (section 3.5 of the paper)."""
    table = torch.zeros(length, width, dtype=torch.float64)
    for pos in range(length):
        for i in range(width):
            angle = pos / 10000 ** ((i - i % 2) / width)
            table[pos, i] = math.cos(angle) if i % 2 else math.sin(angle)
    return table


def _embed(weights: Weights, name: str, bigrams: str, ids: list[int]) -> Tensor:
    matrix, pairs = weights[f"{name}.weight"], weights.get(f"{bigrams}.weight")
    width = matrix.shape[1]
    rows = [matrix[i] for i in ids]
    if pairs is not None:
        before = [PAD_ID, *ids[:-1]]
        rows = [
            row + pairs[(a * 2_654_435_761 + b) % len(pairs)]
            for row, a, b in zip(rows, before, ids, strict=True)
        ]
    # The model stores its encoding in fp32 for every dtype of the weights.
    positions = naive_positions(len(ids), width).float()
    return torch.stack(rows) * math.sqrt(width) + positions.to(matrix.dtype)


def _norm(weights: Weights, config: ModelConfig, at: str, x: Tensor) -> Tensor:
    if config.norm_kind is NormKind.rms:
        return _rms_norm(weights, at, x)
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt() * weights[f"{at}.weight"] + weights[f"{at}.bias"]


def _rms_norm(weights: Weights, at: str, x: Tensor) -> Tensor:
    return x / ((x**2).mean(-1, keepdim=True) + 1e-5).sqrt() * weights[f"{at}.weight"]


def _linear(weights: Weights, at: str, x: Tensor) -> Tensor:
    return x @ weights[f"{at}.weight"].T + weights[f"{at}.bias"]


def _self_attention(
    weights: Weights, config: ModelConfig, at: str, x: Tensor, first: list[Tensor], *, causal: bool = False
) -> Tensor:
    """`first` has the values of the first layer, or is empty in that."""
    key_width, value_width = config.head_widths
    sizes = [config.heads * width for width in (key_width, key_width, value_width)]
    parts = torch.split(_linear(weights, f"{at}.qkv", x), sizes, -1)
    q, k, v = (part.reshape(len(x), config.heads, -1) for part in parts)
    q, k = _of_heads(weights, config, at, q, k)
    first[:] = first or [v]
    if f"{at}.skip.weight" in weights:
        share = weights[f"{at}.skip.weight"]
        v = (1 - share) * v + share * first[0]
    return _linear(weights, f"{at}.out", naive_attention(q, k, v, causal=causal))


def _causal_attention(
    weights: Weights, config: ModelConfig, at: str, x: Tensor, first: list[Tensor]
) -> Tensor:
    return _self_attention(weights, config, at, x, first, causal=True)


def _cross_attention(weights: Weights, config: ModelConfig, at: str, x: Tensor, memory: Tensor) -> Tensor:
    q = _linear(weights, f"{at}.q", x).reshape(len(x), config.heads, -1)
    sizes = [config.heads * width for width in config.head_widths]
    parts = torch.split(_linear(weights, f"{at}.kv", memory), sizes, -1)
    k, v = (part.reshape(len(memory), config.heads, -1) for part in parts)
    q, k = _of_heads(weights, config, at, q, k)
    return _linear(weights, f"{at}.out", naive_attention(q, k, v, causal=False))


def _of_heads(weights: Weights, config: ModelConfig, at: str, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    if not config.query_key_norm:
        return q, k
    return _rms_norm(weights, f"{at}.norm.query", q), _rms_norm(weights, f"{at}.norm.key", k)


def _feed_forward(weights: Weights, config: ModelConfig, at: str, x: Tensor) -> Tensor:
    inner, *linear = torch.split(_linear(weights, f"{at}.inner", x), config.d_ff, -1)
    if config.activation is Activation.relu:
        inner = inner.clamp(min=0)
    elif config.activation is Activation.gelu:
        inner = 0.5 * inner * (1 + torch.erf(inner / math.sqrt(2)))
    elif config.activation is Activation.silu:
        inner = inner * torch.sigmoid(inner)
    else:
        inner = inner.clamp(min=0) ** 2
    if config.gated:
        inner = inner * linear[0]
    return _linear(weights, f"{at}.outer", inner)
