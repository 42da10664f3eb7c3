"""Relative position representations (Shaw et al. 2018)."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.model.positions.base import Positions, Shape


class Relative(Positions):
    """A learnt vector per clipped distance, added to the keys, and another one added to the values.

    Each layer has its vectors; its heads share them (section 3.3 of Shaw et al.). Scores gain q a_ij, outputs
    gain sum_j w_ij b_ij, both without a tensor of (Lq, Lk, E): queries are multiplied with all vectors and
    then looked up, weights are summed by distance and then multiplied.
    """

    needs_products = True

    @dataclass(frozen=True)
    class Options:
        """The options, with types and defaults."""

        clip: int = 16
        """Distances beyond it share a vector."""
        values: bool = True
        """Whether values have vectors, too."""

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
        places = self._places(query_positions, key_positions)
        return products.gather(-1, places.expand(*q.shape[:2], *places.shape))

    def values(
        self, weights: Tensor, query_positions: Tensor, key_positions: Tensor, layer: int
    ) -> Tensor | None:
        """See `Positions.values`."""
        if self.outputs is None:
            return None
        places = self._places(query_positions, key_positions).expand_as(weights)
        sums = weights.new_zeros(*weights.shape[:3], 2 * self.clip + 1).scatter_add(-1, places, weights)
        return sums @ self.outputs[layer].to(weights.dtype)

    def _places(self, query_positions: Tensor, key_positions: Tensor) -> Tensor:
        """(Lq, Lk), the number of the vector of each distance."""
        return (key_positions - query_positions[:, None]).clamp(-self.clip, self.clip) + self.clip


def _xavier(layers: int, rows: int, width: int) -> Tensor:
    bound = (6 / (rows + width)) ** 0.5
    return torch.empty(layers, rows, width).uniform_(-bound, bound)
