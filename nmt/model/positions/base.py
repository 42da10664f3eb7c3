"""The interface of positional encodings, and the register of them.

Shapes: N tokens of a stream, B sentences, H heads, E width of a head, Lq queries, Lk keys.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
from torch import Tensor, nn

from nmt.config import PositionsConfig, typed_options
from nmt.data.batches.batching import Batch, Layout
from nmt.errors import UserError
from nmt.runtime import Registry

TARGET_MARGIN = 50
"""Tokens by which a translation may exceed its source (section 6.1 of the paper)."""


@dataclass(frozen=True)
class Shape:
    """The model that an encoding is part of.

    Attributes:
        d_model: width of the embeddings.
        heads: H.
        layers: number of layers of the encoder, or of the decoder.
        causal: whether no token sees its successors: true in the decoder.
        scale: factor on the products of queries and keys, 1 / sqrt(E) in the paper.
    """

    d_model: int
    heads: int
    layers: int
    causal: bool
    scale: float


class Places:
    """Where the tokens of a stream stand in their sentences.

    Args:
        positions: (N,) int64, the place of each token, from 0.
        max_len: more than every one of `positions`, known without a device synchronisation.
        lengths: computes `lengths`; called only by an encoding that asks.
    """

    def __init__(self, positions: Tensor, max_len: int, lengths: Callable[[], Tensor]) -> None:
        self.positions, self.max_len, self._lengths = positions, max_len, lengths

    @cached_property
    def lengths(self) -> Tensor:
        """(N,) int64, the length of each token's sentence, EOS included.

        A target's length is unknown while it is written: there it is the length of the source plus
        `TARGET_MARGIN`, in training and in a search alike.
        """
        return self._lengths()

    @classmethod
    def of_sources(cls, source: Layout) -> Places:
        """The tokens of the sources that `source` lays out."""
        return cls(source.positions, source.max_len, lambda: _repeated(source, source, 0))

    @classmethod
    def of_targets(cls, batch: Batch) -> Places:
        """The tokens of the targets of a batch."""
        target = batch.target
        return cls(target.positions, target.max_len, lambda: _repeated(batch.source, target, TARGET_MARGIN))


def _repeated(counted: Layout, stream: Layout, margin: int) -> Tensor:
    """For each token of `stream`, the length of its sentence in `counted`, plus `margin`."""
    device = stream.positions.device
    lengths, times = (torch.tensor(layout.lengths, device=device) for layout in (counted, stream))
    return (lengths + margin).repeat_interleave(times, output_size=len(stream.positions))


class Positions(nn.Module, ABC):
    """Tells a model where tokens stand. A subclass overrides one or more of the four hooks.

    The encoder and the decoder have an instance each. Its parameters learn and are saved with the model; it
    initialises them itself. Training, the cached decoder and compiled layers call the same hooks. The last
    three act in self-attention alone.

    Args:
        options: an instance of `Options`.
        shape: the model it is part of.

    Attributes:
        needs_products: whether it presumes that scores are products of queries and keys. Scores of another
            kind are refused with it.
        max_len: tokens of the longest sentence that it can encode; None: any length. Training refuses longer
            sentences, and translation cuts them.
    """

    needs_products = False
    max_len: int | None = None

    @dataclass(frozen=True)
    class Options:
        """The options, with types and defaults; `model.positions.options` sets them."""

    def __init__(self, options: Any, shape: Shape) -> None:
        super().__init__()
        self.options, self.shape = options, shape

    def embed(self, embedded: Tensor, places: Places) -> Tensor:
        """Changes the input of the first layer.

        Args:
            embedded: (N, d_model), embeddings of N tokens, scaled by sqrt(d_model).
            places: where they stand.

        Returns:
            (N, d_model), of the type of `embedded`.
        """
        return embedded

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Changes the queries and keys of each layer.

        Args:
            q: (N, H, E), queries.
            k: (N, H, E), keys.
            positions: (N,) int64, where the tokens stand.

        Returns:
            Both, with shapes and types unchanged.
        """
        return q, k

    def bias(self, q: Tensor, query_positions: Tensor, key_positions: Tensor, layer: int) -> Tensor | None:
        """A bias on the scaled scores.

        Args:
            q: (B, H, Lq, E), queries.
            query_positions: (Lq,) int64, counting up by 1.
            key_positions: (Lk,) int64, counting up by 1.
            layer: number of the layer, from 0.

        Returns:
            Something that broadcasts to (B, H, Lq, Lk), or None. It may depend on `q` and on parameters:
            both get gradients.
        """
        return None

    def values(
        self, weights: Tensor, query_positions: Tensor, key_positions: Tensor, layer: int
    ) -> Tensor | None:
        """What is added to the outputs of the heads.

        Args:
            weights: (B, H, Lq, Lk), the softmax of the scores.
            query_positions: (Lq,) int64.
            key_positions: (Lk,) int64.
            layer: number of the layer, from 0.

        Returns:
            (B, H, Lq, E), or None.
        """
        return None

    @property
    def rotates(self) -> bool:
        """Whether `rotate` is overridden."""
        return type(self).rotate is not Positions.rotate

    @property
    def acts_on_scores(self) -> bool:
        """Whether `bias` or `values` is overridden."""
        kind = type(self)
        return kind.bias is not Positions.bias or kind.values is not Positions.values


def distances(query_positions: Tensor, key_positions: Tensor) -> Tensor:
    """(Lq + Lk - 1,), all distances from a query to a key, key - query, ascending."""
    count = len(query_positions) + len(key_positions) - 1
    lowest = key_positions[0] - query_positions[-1]
    return lowest + torch.arange(count, device=query_positions.device)


def spread(values: Tensor, num_queries: int) -> Tensor:
    """(..., Lq + Lk - 1) values by distance, as `distances` orders them → (..., Lq, Lk)."""
    num_keys = values.shape[-1] - num_queries + 1
    return values.unfold(-1, num_keys, 1).flip(-2)


POSITIONS: Registry[type[Positions]] = Registry("positional encoding")
"""The encodings by the name that `model.positions.name` selects."""


def build_positions(config: PositionsConfig, shape: Shape) -> Positions:
    """Builds the encoding of the encoder, or where `shape.causal`, of the decoder.

    Args:
        config: the `model.positions` section.
        shape: the model it is part of.

    Raises:
        UserError: no encoding of that name is registered, or it does not take its options.
    """
    kind, options = _chosen(config, decoder=shape.causal)
    return kind(options, shape)


def _chosen(config: PositionsConfig, *, decoder: bool) -> tuple[type[Positions], Any]:
    """The class of one side, and its options."""
    if config.decoder is None and config.decoder_options:
        raise UserError(
            "model.positions.decoder_options: model.positions.decoder names no encoding. Name one, or set "
            "model.positions.options, which both sides share."
        )
    if decoder and config.decoder is not None:
        name, key, given = config.decoder, "decoder", config.decoder_options
        section = "decoder_options"
    else:
        name, key, given, section = config.name, "name", config.options, "options"
    owner = f"model.positions.{key}={name}"
    kind = POSITIONS.find(name, owner)
    return kind, typed_options(kind.Options, given, f"model.positions.{section}", owner)
