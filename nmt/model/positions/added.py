"""Encodings that are added to the embeddings: sinusoidal (section 3.5 of the paper), learnt, naive ones."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor, nn

from nmt.errors import UserError
from nmt.model.positions.base import Places, Positions, Shape


class SineOrder(Enum):
    """The order of sines and cosines, and their frequencies, for i = 0, ..., d/2 - 1 and d = d_model."""

    interleaved = "interleaved"
    """Sines in even dimensions, cosines in odd dimensions, frequencies base^(-2i/d), as in the paper."""
    halves = "halves"
    """Sines in the first half, cosines in the second half, frequencies base^(-2i/d)."""
    tensor2tensor = "tensor2tensor"
    """Sines in the first half, cosines in the second half, frequencies base^(-i/(d/2 - 1)), as in the program
    of the authors, Tensor2Tensor."""


class Sinusoidal(Positions):
    """Sines and cosines with wavelengths in a geometric progression, added to the embeddings.

    PE(pos, 2i) = sin(pos / base^(2i/d_model)), PE(pos, 2i+1) = cos(pos / base^(2i/d_model)).
    """

    @dataclass(frozen=True)
    class Options:
        """The options, with types and defaults."""

        layout: SineOrder = SineOrder.interleaved
        base: float = 10000.0

        def __post_init__(self) -> None:
            """Checks the values."""
            if not 1 < self.base <= 1e12:
                raise ValueError(f"base={self.base}: must be above 1 and at most 1e12.")

    def __init__(self, options: Options, shape: Shape) -> None:
        super().__init__(options, shape)
        # (length, d_model). Not saved with the model; extended when a sentence is longer than it.
        self.register_buffer("table", self._table(256), persistent=False)
        self.table: Tensor

    def embed(self, embedded: Tensor, places: Places) -> Tensor:
        """Adds the encoding; see `Positions.embed`."""
        return embedded + self.rows(places).index_select(0, places.positions).to(embedded.dtype)

    def rows(self, places: Places) -> Tensor:
        """Returns the encodings of positions 0 to at least the last one of `places`: (length, d_model)."""
        if places.max_len > len(self.table):
            self.table = self._table(2 ** math.ceil(math.log2(places.max_len))).to(self.table)
        return self.table

    def _table(self, length: int) -> Tensor:
        options: Sinusoidal.Options = self.options
        return sinusoids(length, self.shape.d_model, options.layout, options.base)


def sinusoids(
    length: int, d_model: int, layout: SineOrder = SineOrder.interleaved, base: float = 10000.0
) -> Tensor:
    """Returns the encoding of positions 0 to length - 1: (length, d_model) fp32, computed in float64."""
    sines = -(-d_model // 2)  # if d_model is odd, there is one cosine less
    if layout is SineOrder.tensor2tensor:
        exponents = torch.arange(sines, dtype=torch.float64) / max(sines - 1, 1)
    else:
        exponents = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    angles = torch.arange(length, dtype=torch.float64)[:, None] / base**exponents
    table = torch.empty(length, d_model, dtype=torch.float64)
    if layout is SineOrder.interleaved:
        table[:, 0::2] = angles.sin()
        table[:, 1::2] = angles[:, : d_model // 2].cos()
    else:
        table[:, :sines] = angles.sin()
        table[:, sines:] = angles[:, : d_model // 2].cos()
    return table.float()


class NoPositions(Positions):
    """No encoding. The encoder reads a bag of words; the causal mask still shows the decoder the order."""


class Learned(Positions):
    """A learnt vector per position (Gehring et al. 2017; compared in section 3.5 of the paper)."""

    @dataclass(frozen=True)
    class Options:
        """The options, with types and defaults."""

        max_positions: int = 1024

        def __post_init__(self) -> None:
            """Checks the values."""
            if not 1 <= self.max_positions <= 1_000_000:
                raise ValueError(f"max_positions={self.max_positions}: must be between 1 and 1,000,000.")

    def __init__(self, options: Options, shape: Shape) -> None:
        super().__init__(options, shape)
        self.max_len = options.max_positions
        # Variance 1, as that of the scaled embeddings: words and positions have equal weight.
        self.table = nn.Parameter(torch.randn(options.max_positions, shape.d_model))

    def embed(self, embedded: Tensor, places: Places) -> Tensor:
        """Adds the vectors; see `Positions.embed`.

        Raises:
            UserError: a sentence is longer than `max_positions`.
        """
        if places.max_len > len(self.table):
            side = "target" if self.shape.causal else "source"
            raise UserError(
                f"model.positions: a {side} sentence has {places.max_len:,} tokens, but the learned encoding "
                f"has {len(self.table):,} positions. Set max_positions in its options, or "
                "data.cleaning.max_pieces."
            )
        return embedded + self.table.index_select(0, places.positions).to(embedded.dtype)


class Integer(Positions):
    """Adds the position pos to every dimension. It is unbounded, so late positions dominate the words."""

    def embed(self, embedded: Tensor, places: Places) -> Tensor:
        """See `Positions.embed`."""
        return embedded + places.positions.to(embedded.dtype)[:, None]


class Normalised(Positions):
    """Adds pos / length, a value in [0, 1). The step between neighbours depends on the sentence length.

    The length of the target is unknown: the decoder divides by the length of the source plus 50.
    """

    def embed(self, embedded: Tensor, places: Places) -> Tensor:
        """See `Positions.embed`."""
        return embedded + (places.positions / places.lengths).to(embedded.dtype)[:, None]


class Binary(Positions):
    """Adds bit i of pos to dimension i. It is bounded and unique, but 7 and 8 differ in all 4 bits."""

    def embed(self, embedded: Tensor, places: Places) -> Tensor:
        """See `Positions.embed`."""
        width = embedded.shape[1]
        exponents = torch.arange(min(width, 62), device=embedded.device)
        bits = (places.positions[:, None] >> exponents) & 1
        return embedded + nn.functional.pad(bits, (0, width - len(exponents))).to(embedded.dtype)
