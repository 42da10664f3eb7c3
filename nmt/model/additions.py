"""What later papers add to the Transformer. All of it is off by default.

Shapes: N tokens of a stream, D d_model, F d_ff; H heads, E width of the queries and keys of a head, Ev of
its values.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config import Activation, ModelConfig, NormKind
from nmt.data.subwords.vocabulary import PAD_ID
from nmt.model.attention import Projected, joined, separated
from nmt.model.positions import Places


class RmsNorm(nn.Module):
    """x / sqrt(mean(x^2) + eps) * weight (Zhang and Sennrich 2019), computed in fp32 or wider.

    `width` is that of the vectors.
    """

    def __init__(self, width: int, eps: float = 1e-5) -> None:
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(width)), eps

    def forward(self, x: Tensor) -> Tensor:
        """(..., width) → (..., width), of the wider number format of the two factors."""
        wide = x.to(torch.promote_types(x.dtype, torch.float32))
        y = F.rms_norm(wide, self.weight.shape, self.weight.to(wide.dtype), self.eps)
        return y.to(torch.promote_types(x.dtype, self.weight.dtype))


def build_norm(config: ModelConfig) -> nn.Module:
    """Builds a norm of hidden states, (N, D) → (N, D), by `model.norm_kind`."""
    return RmsNorm(config.d_model) if config.norm_kind is NormKind.rms else nn.LayerNorm(config.d_model)


class QueryKeyNorm(nn.Module):
    """Normalises the queries and keys of each head before a positional encoding rotates them.

    As in Henry et al. 2020 ("Query-Key Normalization for Transformers"), the scores of a head then
    depend on the angle of query and key, and on learned scales. These are here the weights of an RMSNorm, one
    per dimension, which the heads of a layer share.

    `width` is E.
    """

    def __init__(self, width: int) -> None:
        super().__init__()
        self.query, self.key = RmsNorm(width), RmsNorm(width)

    def forward(self, projected: Projected) -> Projected:
        """Queries, keys and values, or keys and values → the same, queries and keys normalised."""
        *queries, keys, values = separated(projected)
        return joined([*map(self.of_queries, queries), self.key(keys).to(keys.dtype), values])

    def of_queries(self, q: Tensor) -> Tensor:
        """(N, H, E) → (N, H, E)."""
        normal: Tensor = self.query(q).to(q.dtype)
        return normal


def query_key_norm(config: ModelConfig) -> QueryKeyNorm | None:
    """Builds the norm of one attention layer; None without `model.query_key_norm`."""
    return QueryKeyNorm(config.head_widths[0]) if config.query_key_norm else None


def bigram_table(config: ModelConfig) -> nn.Embedding | None:
    """Builds the vectors of the pairs of one side; None without `model.bigram_rows`."""
    return nn.Embedding(config.bigram_rows, config.d_model) if config.bigram_rows else None


def embedded(table: nn.Embedding, bigrams: nn.Embedding | None, ids: Tensor, places: Places) -> Tensor:
    """Returns the vectors of tokens, plus those of each token with the one before it.

    Pairs whose hash is the same share a row of `bigrams`, as in Huang et al. 2025 ("Over-Tokenized
    Transformer"). Pairs with the same first id do so only if the second ones differ by a multiple of the
    number of rows.

    Args:
        table: the vectors of tokens.
        bigrams: the vectors of pairs; None: only those of tokens.
        ids: (N,) int64.
        places: their places. The first token of a sentence, and one after a token that is cut out, follow the
            id of padding.

    Returns:
        (N, D).
    """
    x: Tensor = table(ids)
    if bigrams is None:
        return x
    previous = ids.roll(1) if places.previous is None else places.previous
    hidden = places.positions == 0
    if places.cut is not None:
        hidden = hidden | places.cut.roll(1)
    previous = previous.masked_fill(hidden, PAD_ID)
    pairs: Tensor = bigrams((previous * _MULTIPLIER + ids) % bigrams.num_embeddings)
    return x + pairs


_MULTIPLIER = 2_654_435_761
"""A prime above every number of rows, near 2^32 / golden ratio (Knuth, vol. 3, section 6.4)."""


@dataclass
class Skips:
    """What the layers of one pass through encoder or decoder read besides the output of the layer before.

    Attributes:
        embedded: (N, D), the input of the first layer.
        values: (N, H, Ev), those of its self-attention; None until it has computed them.
    """

    embedded: Tensor
    values: Tensor | None = None


class EmbeddingSkip(nn.Module):
    """Adds the input of the first layer to that of a later one: x + w x0, with w = 0 at the start.

    The speed runs of modded-nanogpt (Jordan et al. 2024) have such a connection.
    """

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.zeros(1))

    def forward(self, x: Tensor, skips: Skips | None) -> Tensor:
        """(N, D) → (N, D)."""
        assert skips is not None
        return torch.addcmul(x, skips.embedded, self.weight.to(x.dtype))


class ValueSkip(nn.Module):
    """Mixes the values V1 of the first self-attention into those of a later one: (1 - w) V + w V1.

    This is ResFormer with a learned weight for each layer (Zhou et al. 2024), which is 1/2 at the
    start. Cross-attention has no need of it: all layers project the same memory, so one projection can be
    any mean of two.

    `number` is the index of the layer, from 0.
    """

    def __init__(self, number: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.full((1,), 0.5)) if number else None

    def forward(self, qkv: Projected, skips: Skips | None) -> Projected:
        """Queries, keys and values → the same with mixed values; the first layer only notes its values."""
        assert skips is not None
        *others, values = separated(qkv)
        if self.weight is None:
            skips.values = values
            return qkv
        assert skips.values is not None
        return joined([*others, torch.lerp(values, skips.values, self.weight.to(values.dtype))])


def feed_forward_function(config: ModelConfig) -> Callable[[Tensor], Tensor]:
    """Returns the function between the two products of a feed-forward network.

    It is the activation f. With `model.gated` the first product has two parts, g and h, and the function is
    f(g) * h (Shazeer 2020, "GLU Variants Improve Transformer", equation 6): ReGLU, GEGLU or SwiGLU.

    Returns:
        (N, F), or (N, 2 F) if gated → (N, F). It may overwrite its input.
    """
    if config.gated:
        return partial(_gated, _ACTIVATIONS[config.activation])
    return torch.relu_ if config.activation is Activation.relu else _ACTIVATIONS[config.activation]


def _gated(activation: Callable[[Tensor], Tensor], x: Tensor) -> Tensor:
    gate, linear = x.chunk(2, -1)
    return activation(gate) * linear


def _squared_relu(x: Tensor) -> Tensor:
    """max(0, x)^2 (So et al. 2021, "Primer")."""
    return torch.relu(x).square()


_ACTIVATIONS: dict[Activation, Callable[[Tensor], Tensor]] = {
    Activation.relu: torch.relu,
    Activation.gelu: F.gelu,
    Activation.silu: F.silu,
    Activation.relu2: _squared_relu,
}
