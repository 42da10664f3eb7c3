"""The weights of transformers' Marian under their names there, and under those here.

Marian's sinusoids have the sines in the first half of the dimensions and the cosines in the second. Those of
the paper alternate. A permutation of the dimensions of hidden states between sub-layers turns one into the
other: embeddings, norms, and the sides of the matrices that read or write these states are permuted. The sums
of a product have another order then, so results agree up to rounding.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import torch
from torch import Tensor

from nmt.config import ModelConfig

LAYOUT_KEY = "nmt_position_layout"
"""Key in config.json of an export: the layout of the sinusoids of the model that was exported. An import
reverses the permutation."""


class Module(NamedTuple):
    """A matrix with its bias, or a norm.

    Attributes:
        ours: its name here.
        theirs: its names there; several of theirs are one of ours, one after the other.
        reads: whether the columns of its matrix read hidden states. Otherwise its rows write them.
    """

    ours: str
    theirs: tuple[str, ...]
    reads: bool


def modules(config: ModelConfig) -> Iterator[Module]:
    """Yields the modules of all layers."""
    for side, count in (("encoder", config.encoder_layers), ("decoder", config.decoder_layers)):
        for number in range(count):
            ours, theirs = f"{side}.{number}.", f"model.{side}.layers.{number}."
            attentions = {"self_attn": "self_attention"}
            parts = tuple(f"{theirs}self_attn.{one}_proj" for one in "qkv")
            yield Module(f"{ours}self_attention.qkv", parts, reads=True)
            if side == "decoder":
                attentions["encoder_attn"] = "cross_attention"
                yield Module(f"{ours}cross_attention.q", (f"{theirs}encoder_attn.q_proj",), reads=True)
                parts = tuple(f"{theirs}encoder_attn.{one}_proj" for one in "kv")
                yield Module(f"{ours}cross_attention.kv", parts, reads=True)
            for name, attention in attentions.items():
                yield Module(f"{ours}{attention}.out", (f"{theirs}{name}.out_proj",), reads=False)
                yield Module(f"{ours}{attention}_norm", (f"{theirs}{name}_layer_norm",), reads=False)
            yield Module(f"{ours}feed_forward.inner", (f"{theirs}fc1",), reads=True)
            yield Module(f"{ours}feed_forward.outer", (f"{theirs}fc2",), reads=False)
            yield Module(f"{ours}feed_forward_norm", (f"{theirs}final_layer_norm",), reads=False)


def theirs_of(config: ModelConfig, ours: Mapping[str, Tensor], order: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights of all layers under their names.

    Args:
        config: of the model.
        ours: the weights under our names.
        order: (D,), for each of their dimensions ours.
    """
    for module in modules(config):
        for kind in ("weight", "bias"):
            parts = ours[f"{module.ours}.{kind}"].chunk(len(module.theirs))
            for name, part in zip(module.theirs, parts, strict=True):
                if not module.reads:
                    part = part[order]
                elif kind == "weight":
                    part = part[:, order]
                yield f"{name}.{kind}", part


def ours_of(config: ModelConfig, theirs: Mapping[str, Tensor], order: Tensor) -> Iterator[tuple[str, Tensor]]:
    """Yields the weights of all layers under our names; reverses `theirs_of`."""
    back = torch.argsort(order)
    for module in modules(config):
        for kind in ("weight", "bias"):
            found = torch.cat([theirs[f"{name}.{kind}"] for name in module.theirs])
            if not module.reads:
                found = found[back]
            elif kind == "weight":
                found = found[:, back]
            yield f"{module.ours}.{kind}", found


def halves_order(d_model: int) -> Tensor:
    """Returns for each dimension of Marian's order that of the paper: 0, 2, 4, ..., 1, 3, 5, ...; (D,)."""
    return torch.cat([torch.arange(0, d_model, 2), torch.arange(1, d_model, 2)])
