"""Attention (Vaswani et al. 2017, section 3.2): its interface, its weights, and the scores to choose from.

Shapes: N tokens of a stream of queries and S of a stream of keys; B sentences, H heads, G = B * H, Lq queries
and Lk keys of a sentence; E width of the queries and keys of a head, Ev of its values, which is E by default.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from nmt.config import ModelConfig
from nmt.data.batches.batching import Layout
from nmt.model.positions import Positions
from nmt.runtime.plugins import Registry

Projected: TypeAlias = "Tensor | tuple[Tensor, ...]"
"""P projections of a stream: (N, P, H, E); or a tuple of (N, H, E) each, the last one (N, H, Ev)."""


@dataclass(frozen=True, eq=False)
class Pattern:
    """The keys that each query of a batch sees, all in the same sentence, and how scores are computed.

    Attributes:
        queries: layout of the stream of the queries.
        keys: layout of the stream of the keys: the same number of sentences, in the same order.
        heads: H.
        width: E.
        value_width: Ev; None: E.
        scale: factor on the dot products of queries and keys; None: the score of a layer computes them.
        causal: whether a query sees only the keys up to its position; requires that both streams are the
            same.
        positions: the positional encoding that acts in attention; None: no encoding does.
        window: the number of keys that a query sees on either side; requires that both streams are the same.
            None: all.
    """

    queries: Layout
    keys: Layout
    heads: int
    width: int
    scale: float | None
    causal: bool = False
    positions: Positions | None = None
    window: int | None = None
    value_width: int | None = None

    @property
    def has_one_width(self) -> bool:
        """Whether the values are as wide as the keys."""
        return self.value_width in (None, self.width)

    @property
    def acts_on_scores(self) -> bool:
        """Whether the positional encoding adds to scores or outputs."""
        return self.positions is not None and self.positions.acts_on_scores

    @property
    def is_plain(self) -> bool:
        """Whether each query sees all keys of its sentence, or those before it, by dot products alone.

        The values are as wide as the keys.
        """
        plain = self.scale is not None and self.window is None and not self.acts_on_scores
        return plain and self.has_one_width

    @property
    def rotates(self) -> bool:
        """Whether the positional encoding rotates queries and keys."""
        return self.positions is not None and self.positions.rotates

    def rotated(self, q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
        """Queries and keys, (N, H, E) each → the same, rotated by the positional encoding if it rotates."""
        if self.positions is None or not self.positions.rotates:
            return q, k
        return self.positions.rotate(q, k, self.queries.positions)


class Attention(ABC):
    """The attention of one pattern, or of one step of a search; all layers use the same object.

    Equation 1 of the paper for every sentence of a batch: softmax(score(Q, K)) V. Each device has members
    that are fast there; `nmt.model.reference` is the naive version of all.
    """

    @abstractmethod
    def self_attend(self, qkv: Projected, score: Score, layer: int) -> Tensor:
        """Self-attention.

        Args:
            qkv: queries, keys and values of a stream: (N, 3, H, E), contiguous, if the pattern has one width,
                else a tuple.
            score: the score of the layer.
            layer: index of the layer, from 0.

        Returns:
            (N, H * Ev), the concatenated outputs of the heads.
        """

    @abstractmethod
    def cross_attend(self, q: Tensor, keys_values: Projected | None, score: Score, layer: int) -> Tensor:
        """Attention from each sentence of one stream to the same sentence of another stream.

        Args:
            q: (N, H, E), queries.
            keys_values: keys and values of the other stream; None: this object has them already.
            score: the score of the layer.
            layer: index of the layer, from 0.

        Returns:
            (N, H * Ev), the concatenated outputs of the heads.
        """


class ObservedAttention(Attention):
    """Another cross-attention, whose weights are computed too, as autograd differentiates them.

    `queries` and `keys` are the layouts of their streams.
    """

    def __init__(self, attention: Attention, queries: Layout, keys: Layout) -> None:
        self._attention, self._queries, self._keys = attention, queries, keys
        self._weights: Tensor | None = None

    @property
    def weights(self) -> Tensor:
        """The weights of the layer; see `flat_attention_weights`."""
        assert self._weights is not None
        return self._weights

    def self_attend(self, qkv: Projected, score: Score, layer: int) -> Tensor:
        """See `Attention.self_attend`; without weights."""
        return self._attention.self_attend(qkv, score, layer)

    def cross_attend(self, q: Tensor, keys_values: Projected | None, score: Score, layer: int) -> Tensor:
        """See `Attention.cross_attend`."""
        keys, _ = separated(keys_values)
        self._weights = flat_attention_weights(q, keys, self._queries, self._keys, score)
        return self._attention.cross_attend(q, keys_values, score, layer)


def split(product: Tensor, heads: int, widths: Sequence[int]) -> Projected:
    """Splits the product of a stream, (N, H * sum(widths)), into its projections: heads of these widths."""
    if len(set(widths)) == 1:
        return product.view(len(product), len(widths), heads, -1)
    parts = torch.split(product, [heads * width for width in widths], -1)
    return tuple(part.view(len(part), heads, -1) for part in parts)


def separated(projected: Projected | None) -> tuple[Tensor, ...]:
    """Returns the projections of a stream one by one; those of a search's state, None, can't be."""
    assert projected is not None
    return projected if isinstance(projected, tuple) else projected.unbind(1)


def joined(parts: Sequence[Tensor]) -> Projected:
    """Reverses `separated`: (N, H, E) each → the projections of a stream."""
    return torch.stack([*parts], 1) if len({part.shape[-1] for part in parts}) == 1 else tuple(parts)


def attention_weights(q: Tensor, k: Tensor, scale: float, added: Tensor | None = None) -> Tensor:
    """Returns softmax(scale q k^T + added): equation 1 of the paper without the product with the values.

    Args:
        q: (G, Lq, E), queries.
        k: (G, Lk, E), keys.
        scale: 1 / sqrt(E) in the paper.
        added: broadcasts to (G, Lq, Lk); a mask (-inf where a query must not see a key, otherwise 0), a bias,
            or the sum of both.

    Returns:
        (G, Lq, Lk), of the dtype of `q`; the softmax is computed in fp32 or wider.
    """
    if added is None:
        scores = torch.baddbmm(q.new_empty(1, 1, 1), q, k.transpose(1, 2), beta=0, alpha=scale)
    else:
        scores = torch.baddbmm(added, q, k.transpose(1, 2), alpha=scale)
    return normalised(scores)


def flat_attention_weights(q: Tensor, k: Tensor, queries: Layout, keys: Layout, score: Score) -> Tensor:
    """Returns the weights of an attention between flat streams, as autograd differentiates them.

    `q` is (N, H, E), and `k` (M, H, E), of a stream with the same sentences; their layouts are `queries` and
    `keys`.

    Returns:
        (N, H, L) fp32 or wider; L is the length of the longest sentence of `keys`. A query has the weight 0
        on the places after the end of its sentence.
    """

    def padded(x: Tensor, layout: Layout) -> Tensor:
        rows = x.new_zeros(len(layout.lengths), layout.max_len, *x.shape[1:])
        return rows.index_put((layout.sentences, layout.positions), x).transpose(1, 2)

    scores: Tensor = score(padded(q, queries), padded(k, keys))
    lengths = keys.cu_seqlens.diff()[: len(keys.lengths), None, None, None]
    ended = torch.arange(keys.max_len, device=q.device) >= lengths
    scores = scores.to(torch.promote_types(scores.dtype, torch.float32)).masked_fill(ended, -math.inf)
    weights: Tensor = scores.softmax(-1)
    return weights[queries.sentences, :, queries.positions]


def normalised(scores: Tensor) -> Tensor:
    """Returns the softmax of scores over the keys, computed in fp32 or wider."""
    missing = FEWEST_KEYS - scores.shape[-1]
    if missing > 0 and scores.device.type == "cpu":
        return normalised(F.pad(scores, (0, missing), value=-math.inf))[..., :-missing]
    return scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(scores.dtype)


def normalised_backward(grad: Tensor, weights: Tensor) -> Tensor:
    """Returns the gradient of the scores.

    `grad` is the gradient of `weights`, the result of `normalised`, (..., Lk) both.
    """
    if weights.device.type == "cpu" and weights.shape[-1] < FEWEST_KEYS:
        product = grad * weights
        return product.addcmul_(weights, product.sum(-1, keepdim=True), value=-1)
    return torch._softmax_backward_data(grad, weights, -1, weights.dtype)


FEWEST_KEYS = 16
"""The softmax of fewer values takes torch up to 14 times as long on the CPU as that of 16, its gradient 20
times."""


class Score(nn.Module):
    """A score function of queries and keys. Each attention layer has an instance; its parameters are trained.

    A score that is a multiple of the dot product overrides `factor`; all kernels support it. Any other score
    overrides `forward`. `__init__` initialises the parameters.

    Attributes:
        scale: `factor(width)`.
    """

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.scale = self.factor(width)

    @classmethod
    def factor(cls, width: int) -> float | None:
        """Returns the factor on the dot product for heads of width E; None: `forward` computes the scores."""
        return None

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """Queries (B, H, Lq, E) and keys (B, H, Lk, E) → scores (B, H, Lq, Lk), of the dtype of `q`.

        Some vectors are padding, such as zeros. Their scores are masked by -inf afterwards, so scores and
        gradients must be finite for every finite vector. `q` may have fewer bits than the parameters: bf16 in
        a search, or on a GPU.
        """
        assert self.scale is not None, "a score without a factor must override forward"
        return q @ k.transpose(-2, -1) * self.scale


class ScaledDot(Score):
    """score(q, k) = q k / sqrt(E) (section 3.2.1 of the paper)."""

    @classmethod
    def factor(cls, width: int) -> float | None:
        """See `Score.factor`."""
        return 1 / math.sqrt(width)


class Dot(Score):
    """score(q, k) = q k. The paper warns that large widths E saturate the softmax (section 3.2.1)."""

    @classmethod
    def factor(cls, width: int) -> float | None:
        """See `Score.factor`."""
        return 1.0


class Additive(Score):
    """score(q, k) = v tanh(q + k), a feed-forward network (Bahdanau et al. 2015, appendix A.1.2).

    The network has one hidden layer, which consists of the projections of queries and keys. It takes memory
    for B H Lq Lk E values.
    """

    def __init__(self, heads: int, width: int) -> None:
        super().__init__(heads, width)
        self.v = nn.Parameter(torch.empty(heads, width).uniform_(-1, 1) / math.sqrt(width))

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """See `Score.forward`."""
        inner = torch.tanh(q[..., :, None, :] + k[..., None, :, :])
        scores: Tensor = (inner @ self.v.to(q.dtype)[:, None, :, None]).squeeze(-1)
        return scores


SCORES: Registry[type[Score]] = Registry("attention score")
"""The scores by name; `model.attention` selects one."""

SCORES["scaled_dot"] = ScaledDot
SCORES["dot"] = Dot
SCORES["additive"] = Additive


def score_class(config: ModelConfig) -> type[Score]:
    """Returns the class that `model.attention` names.

    Raises:
        UserError: no score of that name is registered.
    """
    return SCORES.find(config.attention, f"model.attention={config.attention}")


def build_score(config: ModelConfig) -> Score:
    """Builds the score of one attention layer."""
    return score_class(config)(config.heads, config.head_widths[0])
