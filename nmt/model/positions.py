"""Positional encodings, by the name `model.positions.name` gives them."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor, nn

from nmt.config import PositionsConfig
from nmt.runtime import Registry


def build_positions(config: PositionsConfig, d_model: int) -> Positions:
    """Builds the encoding that `config` names.

    Args:
        config: the `model.positions` section.
        d_model: width of the embeddings.

    Raises:
        UserError: no encoding of that name is registered.
    """
    return positions_class(config)(d_model)


def positions_class(config: PositionsConfig) -> type[Positions]:
    """The class that `config` names.

    Raises:
        UserError: no encoding of that name is registered.
    """
    return POSITIONS.find(config.name, f"model.positions.name={config.name}")


class Positions(nn.Module, ABC):
    """Tells tokens where in their sentence they stand; any length, none is too long.

    Args:
        d_model: width of the embeddings.
    """

    def __init__(self, d_model: int) -> None:
        super().__init__()
        self.d_model = d_model

    @abstractmethod
    def forward(self, embedded: Tensor, positions: Tensor, max_len: int) -> Tensor:
        """Returns the embeddings with their positions.

        Args:
            embedded: (N, d_model), scaled embeddings of N tokens.
            positions: (N,) int64, each token's place in its sentence, from 0.
            max_len: more than every one of `positions`, known without asking the device.

        Returns:
            (N, d_model), of the type of `embedded`.
        """


class Sinusoidal(Positions):
    """Sines and cosines of geometrically spaced wavelengths, added (section 3.5 of the paper).

    PE[pos, 2i] = sin(pos / 10000^(2i/d_model)), PE[pos, 2i+1] = cos(of the same angle).
    """

    def __init__(self, d_model: int) -> None:
        super().__init__(d_model)
        # Not a weight: recomputed wherever the model is loaded, and longer when a longer sentence comes.
        self.register_buffer("table", sinusoids(256, d_model), persistent=False)
        self.table: Tensor

    def forward(self, embedded: Tensor, positions: Tensor, max_len: int) -> Tensor:
        """Adds the encoding; see `Positions.forward`."""
        if max_len > len(self.table):
            self.table = sinusoids(2 ** math.ceil(math.log2(max_len)), self.d_model).to(self.table)
        return embedded + self.table.index_select(0, positions).to(embedded.dtype)


def sinusoids(length: int, d_model: int) -> Tensor:
    """The encoding of positions 0..length-1: (length, d_model) fp32, computed in float64."""
    angles = torch.arange(length, dtype=torch.float64)[:, None] / 10000.0 ** (
        torch.arange(0, d_model, 2, dtype=torch.float64) / d_model
    )
    table = torch.empty(length, d_model, dtype=torch.float64)
    table[:, 0::2] = angles.sin()
    table[:, 1::2] = angles[:, : d_model // 2].cos()  # an odd width ends in a sine without its cosine
    return table.float()


POSITIONS: Registry[type[Positions]] = Registry("positional encoding")
"""The encodings by the name that `model.positions.name` selects."""

POSITIONS["sinusoidal"] = Sinusoidal
