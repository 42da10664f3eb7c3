"""Encodings that are added to the embeddings: learnt vectors, and naive encodings for comparison."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.errors import UserError
from nmt.model.positions.base import Places, Positions, Shape


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
