"""The weights of the new pieces of an extended vocabulary, in a warm start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from nmt.config import ModelConfig, Tie
from nmt.data.subwords.extension import replaced_pieces
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.model import build_model

FEW_PIECES = 300
"""Size of the vocabulary of a model that is built for the names of its weights alone."""


def with_new_pieces(
    weights: Mapping[str, Tensor], config: ModelConfig, old: Tokenizer, new: Tokenizer
) -> dict[str, Tensor]:
    """Returns weights with rows for the new pieces, after those of the old ones.

    The row of a new piece is the mean of the rows of the old pieces that were written in its place.

    Args:
        weights: those of the model that the training starts from.
        config: the `model` section of both models.
        old: the vocabulary of the weights.
        new: an extension of `old`.
    """
    sides = {"source": (old.source, new.source), "target": (old.target, new.target)}
    replaced = {
        side: [*replaced_pieces(before, after.names[before.size :])]
        for side, (before, after) in sides.items()
    }
    extended = dict(weights)
    for name, side in sides_of_weights(config).items():
        if name in weights:
            extended[name] = torch.cat([weights[name], _means(weights[name], replaced[side])])
    return extended


def sides_of_weights(config: ModelConfig) -> dict[str, str]:
    """Returns the side, `source` or `target`, of each weight that has a row for each piece, by its name."""
    shapes = _shapes(config, 0, 0)
    if config.tie is Tie.all:  # one matrix is for both sides, which have the same pieces
        larger = {"target": _shapes(config, 1, 1)}
    else:
        larger = {"source": _shapes(config, 1, 0), "target": _shapes(config, 0, 1)}
    return {name: side for side, others in larger.items() for name in shapes if shapes[name] != others[name]}


def _shapes(config: ModelConfig, source: int, target: int) -> dict[str, torch.Size]:
    """Returns the shape of each weight in a model with few pieces, and some more of each side."""
    model = build_model(config, FEW_PIECES + source, FEW_PIECES + target)
    return {name: weight.shape for name, weight in model.state_dict().items()}


def _means(weight: Tensor, groups: Iterable[list[int]]) -> Tensor:
    """Returns the mean of each group of rows, in fp32 before it is rounded."""
    rows = [weight[ids].float().mean(0) for ids in groups]
    return torch.stack(rows).to(weight.dtype) if rows else weight[:0]
