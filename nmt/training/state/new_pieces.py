"""The weights of the new pieces of an extended vocabulary, in a warm start."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import torch
from torch import Tensor

from nmt.config import Tie
from nmt.data.subwords.extension import replaced_pieces
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.model import Seq2Seq, build_model

FEW_PIECES = 300
"""Size of the vocabulary of a model that is built for the names of its weights alone."""


def with_new_pieces(
    weights: Mapping[str, Tensor], model: Seq2Seq, old: Tokenizer, new: Tokenizer
) -> dict[str, Tensor]:
    """Returns weights with rows for the new pieces, after those of the old ones.

    The row of a new piece is the mean of the rows of the old pieces that were written in its place.

    Args:
        weights: those of the model that the training starts from.
        model: the model with the vocabulary `new`.
        old: the vocabulary of the weights.
        new: an extension of `old`.
    """
    sides = {"source": (old.source, new.source), "target": (old.target, new.target)}
    replaced = {
        side: [*replaced_pieces(before, after.names[before.size :])]
        for side, (before, after) in sides.items()
    }
    extended = dict(weights)
    for name, side in sides_of_weights(model).items():
        if name in weights:
            extended[name] = torch.cat([weights[name], _means(weights[name], replaced[side])])
    return extended


def sides_of_weights(model: Seq2Seq) -> dict[str, str]:
    """Returns the side, `source` or `target`, of each weight that has a row for each piece, by its name."""
    if model.config.tie is Tie.all:  # one matrix is for both sides, which have the same pieces
        sizes = {FEW_PIECES: "target"}
        probe = build_model(model.config, FEW_PIECES, FEW_PIECES)
    else:
        sizes = {FEW_PIECES: "source", FEW_PIECES + 1: "target"}
        probe = build_model(model.config, *sizes)
    state = model.state_dict()
    return {
        name: sizes[len(weight)]
        for name, weight in probe.state_dict().items()
        if weight.dim() and weight.shape != state[name].shape and len(weight) in sizes
    }


def _means(weight: Tensor, groups: Iterable[list[int]]) -> Tensor:
    """Returns the mean of each group of rows, in fp32 before it is rounded."""
    rows = [weight[ids].float().mean(0) for ids in groups]
    return torch.stack(rows).to(weight.dtype) if rows else weight[:0]
