"""The paper's equations once more, a sentence at a time, from a table of weights: slow and plain to see."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping

import torch
from torch import Tensor

from nmt.config import Activation, ModelConfig, Norm, Tie

Weights = Mapping[str, Tensor]


def naive_hidden(weights: Weights, config: ModelConfig, source: list[int], target: list[int]) -> Tensor:
    """(T, D) hidden states of one pair; `source` ends in EOS, `target` begins with BOS."""

    def sublayer(at: str, x: Tensor, function: Callable[..., Tensor], *more: Tensor) -> Tensor:
        if config.norm is Norm.pre:
            return x + function(weights, config, at, _norm(weights, f"{at}_norm", x), *more)
        return _norm(weights, f"{at}_norm", x + function(weights, config, at, x, *more))

    name = "target_embedding" if config.tie is Tie.all else "source_embedding"
    x = _embed(weights[f"{name}.weight"], source)
    for i in range(config.encoder_layers):
        x = sublayer(f"encoder.{i}.self_attention", x, _self_attention)
        x = sublayer(f"encoder.{i}.feed_forward", x, _feed_forward)
    if config.norm is Norm.pre:
        x = _norm(weights, "encoder_norm", x)
    y = _embed(weights["target_embedding.weight"], target)
    for i in range(config.decoder_layers):
        y = sublayer(f"decoder.{i}.self_attention", y, _causal_attention)
        y = sublayer(f"decoder.{i}.cross_attention", y, _cross_attention, x)
        y = sublayer(f"decoder.{i}.feed_forward", y, _feed_forward)
    return _norm(weights, "decoder_norm", y) if config.norm is Norm.pre else y


def naive_log_probs(weights: Weights, config: ModelConfig, hidden: Tensor) -> Tensor:
    """(T, V)"""
    matrix = weights["output.weight" if config.tie is Tie.none else "target_embedding.weight"]
    return (hidden @ matrix.T).log_softmax(-1)


def naive_attention(q: Tensor, k: Tensor, v: Tensor, *, causal: bool) -> Tensor:
    """(Lq, H, E), (Lk, H, E), (Lk, H, E) of one sentence → (Lq, H * E)."""
    outputs = []
    for head in range(q.shape[1]):
        scores = q[:, head] @ k[:, head].T / math.sqrt(q.shape[2])
        if causal:
            for i in range(len(q)):
                for j in range(i + 1, len(k)):
                    scores[i, j] = -math.inf
        outputs.append(scores.softmax(-1) @ v[:, head])
    return torch.cat(outputs, 1)


def naive_positions(length: int, width: int) -> Tensor:
    """(length, width), number by number."""
    table = torch.zeros(length, width, dtype=torch.float64)
    for pos in range(length):
        for i in range(width):
            angle = pos / 10000 ** ((i - i % 2) / width)
            table[pos, i] = math.cos(angle) if i % 2 else math.sin(angle)
    return table


def _embed(matrix: Tensor, ids: list[int]) -> Tensor:
    width = matrix.shape[1]
    # The model keeps its encoding in fp32, whatever the weights are.
    positions = naive_positions(len(ids), width).float()
    return torch.stack([matrix[i] for i in ids]) * math.sqrt(width) + positions.to(matrix.dtype)


def _norm(weights: Weights, at: str, x: Tensor) -> Tensor:
    mean = x.mean(-1, keepdim=True)
    variance = ((x - mean) ** 2).mean(-1, keepdim=True)
    return (x - mean) / (variance + 1e-5).sqrt() * weights[f"{at}.weight"] + weights[f"{at}.bias"]


def _linear(weights: Weights, at: str, x: Tensor) -> Tensor:
    return x @ weights[f"{at}.weight"].T + weights[f"{at}.bias"]


def _self_attention(
    weights: Weights, config: ModelConfig, at: str, x: Tensor, *, causal: bool = False
) -> Tensor:
    parts = _linear(weights, f"{at}.qkv", x).chunk(3, -1)
    q, k, v = (part.reshape(len(x), config.heads, -1) for part in parts)
    return _linear(weights, f"{at}.out", naive_attention(q, k, v, causal=causal))


def _causal_attention(weights: Weights, config: ModelConfig, at: str, x: Tensor) -> Tensor:
    return _self_attention(weights, config, at, x, causal=True)


def _cross_attention(weights: Weights, config: ModelConfig, at: str, x: Tensor, memory: Tensor) -> Tensor:
    q = _linear(weights, f"{at}.q", x).reshape(len(x), config.heads, -1)
    parts = _linear(weights, f"{at}.kv", memory).chunk(2, -1)
    k, v = (part.reshape(len(memory), config.heads, -1) for part in parts)
    return _linear(weights, f"{at}.out", naive_attention(q, k, v, causal=False))


def _feed_forward(weights: Weights, config: ModelConfig, at: str, x: Tensor) -> Tensor:
    inner = _linear(weights, f"{at}.inner", x)
    if config.activation is Activation.relu:
        inner = inner.clamp(min=0)
    elif config.activation is Activation.gelu:
        inner = 0.5 * inner * (1 + torch.erf(inner / math.sqrt(2)))
    else:
        inner = inner * torch.sigmoid(inner)
    return _linear(weights, f"{at}.outer", inner)
