"""Biases on the scores that depend on the distance alone: learnt (T5), or fixed (ALiBi)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.model.positions.base import Positions, Shape, distances, spread


class T5(Positions):
    """A learnt bias per head and bucket of distances (Raffel et al. 2020, section 2.1).

    All layers share it. Half of the buckets hold one distance each, the others grow logarithmically up to
    `max_distance`. In the encoder each direction has half of the buckets.
    """

    @dataclass(frozen=True)
    class Options:
        """The options, with types and defaults."""

        buckets: int = 32
        max_distance: int = 128

        def __post_init__(self) -> None:
            """Checks the values."""
            if not 4 <= self.buckets <= 10_000 or self.buckets % 4:
                raise ValueError(f"buckets={self.buckets}: must be a multiple of 4, at most 10,000.")
            if not self.buckets // 2 < self.max_distance <= 1_000_000:
                least = self.buckets // 2 + 1
                raise ValueError(f"max_distance={self.max_distance}: must be between {least} and 1,000,000.")

    def __init__(self, options: Options, shape: Shape) -> None:
        super().__init__(options, shape)
        self.table = nn.Parameter(torch.randn(options.buckets, shape.heads) * shape.d_model**-0.5)

    def bias(self, q: Tensor, query_positions: Tensor, key_positions: Tensor, layer: int) -> Tensor:
        """See `Positions.bias`."""
        buckets = self._buckets(distances(query_positions, key_positions))
        return spread(self.table.index_select(0, buckets).T, len(query_positions))

    def _buckets(self, distance: Tensor) -> Tensor:
        """The bucket of each distance, key - query."""
        options: T5.Options = self.options
        if self.shape.causal:
            first, buckets, far = torch.zeros_like(distance), options.buckets, (-distance).clamp(min=0)
        else:
            buckets, far = options.buckets // 2, distance.abs()
            first = (distance > 0) * buckets
        exact = buckets // 2
        share = (far.clamp(min=1).double() / exact).log() / math.log(options.max_distance / exact)
        large = (exact + (share * (buckets - exact)).long()).clamp(max=buckets - 1)
        return first + torch.where(far < exact, far, large)


class ALiBi(Positions):
    """A penalty in proportion to the distance, with a fixed slope per head (Press et al. 2022).

    In the encoder it is symmetric. It has nothing to learn, and its authors use it for longer sentences than
    those of training.
    """

    def __init__(self, options: object, shape: Shape) -> None:
        super().__init__(options, shape)
        self.register_buffer("slopes", slopes(shape.heads), persistent=False)
        self.slopes: Tensor

    def bias(self, q: Tensor, query_positions: Tensor, key_positions: Tensor, layer: int) -> Tensor:
        """See `Positions.bias`."""
        far = distances(query_positions, key_positions).abs().to(q.dtype)
        return spread(-self.slopes.to(q.dtype)[:, None] * far, len(query_positions))


def slopes(heads: int) -> Tensor:
    """(heads,), 2^(-8/heads) and its powers; other numbers than powers of 2 borrow from the next one."""
    power = 2 ** math.floor(math.log2(heads))
    found = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    found += [2.0 ** (-4 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)]
    return torch.tensor(found[:heads])
