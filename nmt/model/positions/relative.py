"""Relative position representations (Shaw et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.model.positions.base import Positions, Shape


class Relative(Positions):
    """Learnt vectors per clipped distance, a_ij added to the keys and b_ij to the values.

    score_ij = q_i (k_j + a_ij) * scale (equation 4 of Shaw et al.) and output_i = sum_j w_ij (v_j + b_ij)
    (equation 3). The vectors differ between layers; the heads of a layer share them (section 3.3).

    Neither term needs a tensor of (Lq, Lk, E). For the scores, queries are multiplied by the vectors of all
    distances, and the products are then looked up. For the outputs, weights are first summed by distance, and
    then multiplied by the vectors.
    """

    needs_products = True

    @dataclass(frozen=True)
    class Options:
        """The options, with types and defaults."""

        clip: int = 16
        """The maximum distance (k in the paper); longer distances are clipped to it."""
        values: bool = True
        """Whether vectors are added to the values too."""

        def __post_init__(self) -> None:
            """Checks the values."""
            if not 1 <= self.clip <= 100_000:
                raise ValueError(f"clip={self.clip}: must be between 1 and 100,000.")

    def __init__(self, options: Options, shape: Shape) -> None:
        super().__init__(options, shape)
        self.clip = options.clip
        size = shape.layers, 2 * options.clip + 1, shape.d_model // shape.heads
        self.keys = nn.Parameter(_xavier(*size))
        self.outputs = nn.Parameter(_xavier(*size)) if options.values else None

    def bias(self, q: Tensor, query_positions: Tensor, key_positions: Tensor, layer: int) -> Tensor:
        """See `Positions.bias`."""
        products = (q * self.shape.scale) @ self.keys[layer].T.to(q.dtype)  # (B, H, Lq, distances)
        places = self._vector_indices(query_positions, key_positions)
        return products.gather(-1, places.expand(*q.shape[:2], *places.shape))

    def values(
        self, weights: Tensor, query_positions: Tensor, key_positions: Tensor, layer: int
    ) -> Tensor | None:
        """See `Positions.values`."""
        if self.outputs is None:
            return None
        places = self._vector_indices(query_positions, key_positions).expand_as(weights)
        sums = weights.new_zeros(*weights.shape[:3], 2 * self.clip + 1).scatter_add(-1, places, weights)
        return sums @ self.outputs[layer].to(weights.dtype)

    def _vector_indices(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """Returns the index of the vector for each pair, (Lq, Lk) int64."""
        return (key_positions - query_positions[:, None]).clamp(-self.clip, self.clip) + self.clip


def _xavier(layers: int, rows: int, width: int) -> Tensor:
    bound = (6 / (rows + width)) ** 0.5
    return torch.empty(layers, rows, width).uniform_(-bound, bound)
