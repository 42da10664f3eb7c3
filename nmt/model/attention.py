"""The equation of attention (section 3.2 of the paper) and its scores.

`nmt.model.kernels` applies it to flat batches and in a search; `nmt.model.reference` is the plain twin.
Shapes: B sentences, H heads, G = B * H, Lq queries and Lk keys of a sentence, E width of a head.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from nmt.config import ModelConfig
from nmt.runtime import Registry


def attention_weights(q: Tensor, k: Tensor, scale: float, added: Tensor | None = None) -> Tensor:
    """softmax(scale q k^T + added): equation 1 of the paper, before it is multiplied by the values.

    Args:
        q: (G, Lq, E), queries.
        k: (G, Lk, E), keys.
        scale: 1 / sqrt(E) in the paper.
        added: broadcasts to (G, Lq, Lk); a mask (0, or -inf where a query does not see a key), a bias, or the
            sum of both.

    Returns:
        (G, Lq, Lk), of the type of `q`; the softmax is computed in fp32 at least.
    """
    if added is None:
        scores = torch.baddbmm(q.new_empty(1, 1, 1), q, k.transpose(1, 2), beta=0, alpha=scale)
    else:
        scores = torch.baddbmm(added, q, k.transpose(1, 2), alpha=scale)
    return normalised(scores)


def normalised(scores: Tensor) -> Tensor:
    """The softmax of scores over the keys, computed in fp32 at least."""
    return scores.softmax(-1, dtype=torch.promote_types(scores.dtype, torch.float32)).to(scores.dtype)


class Score(nn.Module):
    """How well a key fits a query. Each attention layer has an instance; its parameters learn.

    A score that is a multiple of the dot product overrides `factor`, which all kernels know. Any other one
    overrides `forward`.

    Args:
        heads: H.
        width: E.

    Attributes:
        scale: `factor` of the width.
    """

    def __init__(self, heads: int, width: int) -> None:
        super().__init__()
        self.heads, self.width = heads, width
        self.scale = self.factor(width)

    @classmethod
    def factor(cls, width: int) -> float | None:
        """The factor on the dot product for heads of this width; None: `forward` computes the scores."""
        return None

    def forward(self, q: Tensor, k: Tensor) -> Tensor:
        """Queries (B, H, Lq, E) and keys (B, H, Lk, E) → scores (B, H, Lq, Lk)."""
        assert self.scale is not None, "a score without a factor computes its scores here"
        return q @ k.transpose(-2, -1) * self.scale


class ScaledDot(Score):
    """q k / sqrt(E) (section 3.2.1 of the paper)."""

    @classmethod
    def factor(cls, width: int) -> float | None:
        """See `Score.factor`."""
        return 1 / math.sqrt(width)


class Dot(Score):
    """q k without a scale; the paper warns that large widths saturate the softmax (section 3.2.1)."""

    @classmethod
    def factor(cls, width: int) -> float | None:
        """See `Score.factor`."""
        return 1.0


class Additive(Score):
    """v tanh(q + k), a feed-forward network with one hidden layer (Bahdanau et al. 2015, appendix A.1.2).

    The projections of queries and keys are the network's first layer. It takes memory for B H Lq Lk E values.
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
"""The scores by the name that `model.attention` selects."""

SCORES["scaled_dot"] = ScaledDot
SCORES["dot"] = Dot
SCORES["additive"] = Additive


def score_class(config: ModelConfig) -> type[Score]:
    """The class that `model.attention` names.

    Raises:
        UserError: no score of that name is registered.
    """
    return SCORES.find(config.attention, f"model.attention={config.attention}")


def build_score(config: ModelConfig) -> Score:
    """The score of one attention layer."""
    return score_class(config)(config.heads, config.d_model // config.heads)
