"""Naive encodings that exercise every hook; they share no code with the encodings under test."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from nmt.model.positions import Places, Positions, Shape


class Lengths(Positions):
    """Adds the relative position of a token in its sentence: needs lengths."""

    def embed(self, embedded: Tensor, places: Places) -> Tensor:
        return embedded + ((places.positions + 1) / places.lengths).to(embedded.dtype)[:, None]


class Turning(Positions):
    """Rotates the first two values of queries and keys, and scales the keys."""

    needs_products = True

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        angles = positions.to(torch.float64)[:, None, None] * 0.3
        cos, sin = angles.cos().to(q.dtype), angles.sin().to(q.dtype)
        return turned(q, cos, sin), turned(k, cos, sin) * 1.5


def turned(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right, rest = x[..., 0:1], x[..., 1:2], x[..., 2:]
    return torch.cat([left * cos - right * sin, left * sin + right * cos, rest], -1)


class Distances(Positions):
    """A learnt bias for each head, layer and clipped distance; the same for all sentences."""

    def __init__(self, options: object, shape: Shape) -> None:
        super().__init__(options, shape)
        self.table = nn.Parameter(torch.randn(shape.layers, shape.heads, 7))

    def bias(self, q: Tensor, query_positions: Tensor, key_positions: Tensor, layer: int) -> Tensor:
        distances = (key_positions[None] - query_positions[:, None]).clamp(-3, 3) + 3
        return self.table[layer, :, distances]


class Shaw(Positions):
    """Learnt vectors for clipped distances, added to keys and values (Shaw et al. 2018)."""

    needs_products = True

    def __init__(self, options: object, shape: Shape) -> None:
        super().__init__(options, shape)
        width, value_width = shape.head_widths
        self.keys = nn.Parameter(torch.randn(shape.layers, 5, width))
        self.outputs = nn.Parameter(torch.randn(shape.layers, 5, value_width))

    def bias(self, q: Tensor, query_positions: Tensor, key_positions: Tensor, layer: int) -> Tensor:
        near = self.keys[layer, self._distances(query_positions, key_positions)]  # (Lq, Lk, E)
        return torch.einsum("bhqe,qke->bhqk", q, near.to(q.dtype)) * self.shape.scale

    def values(self, weights: Tensor, query_positions: Tensor, key_positions: Tensor, layer: int) -> Tensor:
        near = self.outputs[layer, self._distances(query_positions, key_positions)]
        return torch.einsum("bhqk,qke->bhqe", weights, near.to(weights.dtype))

    @staticmethod
    def _distances(query_positions: Tensor, key_positions: Tensor) -> Tensor:
        return (key_positions[None] - query_positions[:, None]).clamp(-2, 2) + 2


KINDS = {"lengths": Lengths, "turning": Turning, "distances": Distances, "shaw": Shaw}
