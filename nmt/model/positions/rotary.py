"""Rotary position embedding (Su et al. 2021, RoFormer)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.errors import UserError
from nmt.model.positions.base import Places, Positions, Shape


class Rotary(Positions):
    """Rotates pairs of dimensions of queries and keys by angles proportional to the position.

    The product of a query and a key then depends on their distance. Dimensions i and i + E/2 form a pair,
    rotated by the angle pos * base^(-2i/E). The paper pairs neighbouring dimensions instead, which is
    equivalent up to a permutation of the rows of the projections.
    """

    needs_products = True

    @dataclass(frozen=True)
    class Options:
        """The options, with types and defaults."""

        base: float = 10000.0

        def __post_init__(self) -> None:
            """Checks the values."""
            if not 1 < self.base <= 1e12:
                raise ValueError(f"base={self.base}: must be above 1 and at most 1e12.")

    def __init__(self, options: Options, shape: Shape) -> None:
        super().__init__(options, shape)
        self._width = shape.d_model // shape.heads
        if self._width % 2:
            raise UserError(
                f"model.positions: rotary needs heads of an even width, not {self._width}. "
                "Change model.heads or model.d_model."
            )
        # (length, E): the cosines of each position, then its sines. Not saved with the model.
        self.register_buffer("table", self._table(256, options.base), persistent=False)
        self.table: Tensor

    def embed(self, embedded: Tensor, places: Places) -> Tensor:
        """Returns the embeddings unchanged; extends the table if a sentence is longer than it."""
        if places.max_len > len(self.table):
            size = 2 ** math.ceil(math.log2(places.max_len))
            self.table = self._table(size, self.options.base).to(self.table)
        return embedded

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """See `Positions.rotate`."""
        table = self.table.index_select(0, positions)[:, None].to(q.dtype)
        cos, sin = table.chunk(2, -1)
        return _rotated(q, cos, sin), _rotated(k, cos, sin)

    def _table(self, length: int, base: float) -> Tensor:
        exponents = torch.arange(0, self._width, 2, dtype=torch.float64) / self._width
        angles = torch.arange(length, dtype=torch.float64)[:, None] / base**exponents
        return torch.cat([angles.cos(), angles.sin()], 1).float()


def _rotated(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    left, right = x.chunk(2, -1)
    return torch.cat([left * cos - right * sin, right * cos + left * sin], -1)
