"""Sinusoidal positional encoding (section 3.5 of the paper)."""

from __future__ import annotations

import math
from dataclasses import dataclass
from enum import Enum

import torch
from torch import Tensor

from nmt.model.positions.base import Places, Positions, Shape


class Layout(Enum):
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

        layout: Layout = Layout.interleaved
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
    length: int, d_model: int, layout: Layout = Layout.interleaved, base: float = 10000.0
) -> Tensor:
    """Returns the encoding of positions 0 to length - 1: (length, d_model) fp32, computed in float64."""
    sines = -(-d_model // 2)  # if d_model is odd, there is one cosine less
    if layout is Layout.tensor2tensor:
        exponents = torch.arange(sines, dtype=torch.float64) / max(sines - 1, 1)
    else:
        exponents = torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    angles = torch.arange(length, dtype=torch.float64)[:, None] / base**exponents
    table = torch.empty(length, d_model, dtype=torch.float64)
    if layout is Layout.interleaved:
        table[:, 0::2] = angles.sin()
        table[:, 1::2] = angles[:, : d_model // 2].cos()
    else:
        table[:, :sines] = angles.sin()
        table[:, sines:] = angles[:, : d_model // 2].cos()
    return table.float()
