"""Encodings that act in attention: rotary, relative (Shaw et al.), T5 and ALiBi."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.errors import UserError
from nmt.model.positions.base import Places, Positions, Shape, by_pair, distances


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
        self._width, _ = shape.head_widths
        if self._width % 2:
            raise UserError(
                f"model.positions: rotary needs heads of an even width, not {self._width}. "
                "Change model.key_width, model.heads or model.d_model."
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
        size, (width, value_width) = (shape.layers, 2 * options.clip + 1), shape.head_widths
        self.keys = nn.Parameter(_xavier(*size, width))
        self.outputs = nn.Parameter(_xavier(*size, value_width)) if options.values else None

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
        return by_pair(self.table.index_select(0, buckets).T, len(query_positions))

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
        return by_pair(-self.slopes.to(q.dtype)[:, None] * magnitude, len(query_positions))


def slopes(heads: int) -> Tensor:
    """Returns the slopes, (heads,): 2^(-8 i / heads) for i = 1, ..., heads, if `heads` is a power of 2.

    Otherwise: the slopes of the next lower power of 2, then every second slope of the next higher power.
    """
    power = 2 ** math.floor(math.log2(heads))
    found = [2.0 ** (-8 * (i + 1) / power) for i in range(power)]
    found += [2.0 ** (-4 * (i + 1) / power) for i in range(0, 2 * (heads - power), 2)]
    return torch.tensor(found[:heads])
