"""The attention weights of one sentence pair: every layer and head, for everybody who wants to look at them.

Shapes: S source and T target tokens of the pair; L layers, H heads, E width of the keys of a head, Ev of its
values; Lq queries and Lk keys.
"""

from __future__ import annotations

import copy
import math
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nmt.data.batches.batching import Batch
from nmt.model.attention import Attention, Pattern, Projected, Score, separated
from nmt.model.backend import Backend


@dataclass(frozen=True, eq=False)
class AttentionWeights:
    """The weights of a pair in fp32 or wider; those of a query sum to 1.

    Attributes:
        cross: (L, H, T, S), of each target token to the source.
        encoder: (L, H, S, S), of each source token to the source; None: the model has no such attention.
        decoder: (L, H, T, T), of each target token to those before it and to itself; None: as `encoder`.
    """

    cross: Tensor
    encoder: Tensor | None = None
    decoder: Tensor | None = None


class WeighedAttention(Attention):
    """The attention of one sentence, computed as equation 1 of the paper is written, and its weights.

    It has every score, positional encoding and window of the `pattern`, without the speed of the other kinds.
    """

    def __init__(self, pattern: Pattern) -> None:
        assert len(pattern.queries.lengths) == 1
        self._pattern = pattern
        self._weights: dict[int, Tensor] = {}
        places = pattern.queries.positions[:, None], pattern.keys.positions
        distances = places[1] - places[0]
        farthest = math.inf if pattern.window is None else pattern.window
        self._hidden = (distances > (0 if pattern.causal else farthest)) | (distances < -farthest)

    @property
    def weights(self) -> Tensor:
        """(L, H, Lq, Lk), the weights of all layers that have used it."""
        return torch.stack([self._weights[layer] for layer in sorted(self._weights)])

    def self_attend(self, qkv: Projected, score: Score, layer: int) -> Tensor:
        """See `Attention.self_attend`."""
        q, k, v = separated(qkv)
        return self._attend(*self._pattern.rotated(q, k), v, score, layer)

    def cross_attend(self, q: Tensor, keys_values: Projected | None, score: Score, layer: int) -> Tensor:
        """See `Attention.cross_attend`."""
        k, v = separated(keys_values)
        return self._attend(q, k, v, score, layer)

    def _attend(self, q: Tensor, k: Tensor, v: Tensor, score: Score, layer: int) -> Tensor:
        """Queries (Lq, H, E), keys (Lk, H, E) and values (Lk, H, Ev) → (Lq, H * Ev)."""
        pattern, positions = self._pattern, self._pattern.positions
        places = pattern.queries.positions, pattern.keys.positions
        given, wide = q.dtype, torch.promote_types(q.dtype, torch.float32)
        q, k, v = (x.to(wide).transpose(0, 1)[None] for x in (q, k, v))
        scores: Tensor = score(q, k)
        if positions is not None and (bias := positions.bias(q, *places, layer)) is not None:
            scores = scores + bias
        weights = scores.masked_fill(self._hidden, -math.inf).softmax(-1)
        outputs = weights @ v
        if positions is not None and (values := positions.values(weights, *places, layer)) is not None:
            outputs = outputs + values
        self._weights[layer] = weights[0]
        return outputs[0].transpose(0, 1).flatten(1).to(given)


class _Weighing(Backend):
    """The backend of a model whose attentions are retained, in the order in which it asked for them."""

    def __init__(self, device: torch.device) -> None:
        super().__init__(device)
        self.attentions: list[WeighedAttention] = []

    def attention(self, pattern: Pattern, dtype: torch.dtype) -> Attention:
        """See `Backend.attention`."""
        self.attentions.append(WeighedAttention(pattern))
        return self.attentions[-1]


@torch.no_grad()
def weighed(model: Any, batch: Batch) -> list[WeighedAttention]:
    """Computes a batch of one pair with a model in evaluation mode; returns the attentions that it used.

    The model itself is not changed, so other threads may use it at the same time.
    """
    observed = copy.copy(model)  # with the same weights
    observed.backend = _Weighing(model.backend.device)
    observed(batch)
    attentions: list[WeighedAttention] = observed.backend.attentions
    return attentions
