"""Encodings that are added to the embeddings: learnt vectors, and the naive ones that textbooks reject."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor, nn

from nmt.errors import UserError
from nmt.model.positions.base import Places, Positions, Shape


class NoPositions(Positions):
    """Tells nothing. The encoder reads a bag of words; the causal decoder sees order even so."""


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
        # As large as the embeddings once they are scaled, so that words and places weigh the same.
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
    """Adds the position itself to every dimension. It is unbounded, so late positions drown the words."""

    def embed(self, embedded: Tensor, places: Places) -> Tensor:
        """See `Positions.embed`."""
        return embedded + places.positions.to(embedded.dtype)[:, None]


class Normalised(Positions):
    """Adds position / length, from 0 to below 1. The same step means another distance in every sentence.

    The decoder does not know the length of the target: it divides by that of the source plus 50.
    """

    def embed(self, embedded: Tensor, places: Places) -> Tensor:
        """See `Positions.embed`."""
        return embedded + (places.positions / places.lengths).to(embedded.dtype)[:, None]


class Binary(Positions):
    """Adds bit i of the position to dimension i: bounded and unique, but 7 and 8 differ in all bits."""

    def embed(self, embedded: Tensor, places: Places) -> Tensor:
        """See `Positions.embed`."""
        width = embedded.shape[1]
        exponents = torch.arange(min(width, 62), device=embedded.device)
        bits = (places.positions[:, None] >> exponents) & 1
        return embedded + nn.functional.pad(bits, (0, width - len(exponents))).to(embedded.dtype)
