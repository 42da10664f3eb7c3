"""Biases on the scores that depend only on the distance: learnt (T5) or fixed (ALiBi)."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.model.positions.base import Positions, Shape, distances, spread


class T5(Positions):
    """score_ij + b[head, bucket(j - i)] with learnt biases b (Raffel et al. 2020, section 2.1).

    All layers share the biases. Half of the buckets hold one distance each. The sizes of the other buckets
    grow logarithmically up to `max_distance`. In the encoder each direction has half of the buckets.
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
        """Returns the bucket of each distance, key - query; int64 of the same shape."""
        options: T5.Options = self.options
        if self.shape.causal:
            first, buckets, magnitude = torch.zeros_like(distance), options.buckets, (-distance).clamp(min=0)
        else:
            buckets, magnitude = options.buckets // 2, distance.abs()
            first = (distance > 0) * buckets
        exact = buckets // 2
        share = (magnitude.clamp(min=1).double() / exact).log() / math.log(options.max_distance / exact)
        large = (exact + (share * (buckets - exact)).long()).clamp(max=buckets - 1)
        return first + torch.where(magnitude < exact, magnitude, large)


class ALiBi(Positions):
    """score_ij - slope[head] |j - i| with fixed slopes (Press et al. 2022).

    In the encoder the penalty is symmetric. There are no parameters. The authors use it for sentences longer
    than those in training.
    """

    def __init__(self, options: object, shape: Shape) -> None:
        super().__init__(options, shape)
        self.register_buffer("slopes", slopes(shape.heads), persistent=False)
        self.slopes: Tensor

    def bias(self, q: Tensor, query_positions: Tensor, key_positions: Tensor, layer: int) -> Tensor:
        """See `Positions.bias`."""
        magnitude = distances(query_positions, key_positions).abs().to(q.dtype)
        return spread(-self.slopes.to(q.dtype)[:, None] * magnitude, len(query_positions))


def slopes(heads: int) -> Tensor:
    """Returns the slopes, (heads,): 2^(-8 i / heads) for i = 1, ..., heads, if `heads` is a power of 2.

    Otherwise: the slopes of the next lower power of 2, then every second slope of the next higher power.
    """
    power = 2 ** math.floor(math.log2(heads))
    found = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    found += [2.0 ** (-4 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)]
    return torch.tensor(found[:heads])
