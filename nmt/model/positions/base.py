"""The interface of positional encodings, and their registry.

Shapes: N tokens of a stream, B sentences, H heads, E width of the queries and keys of a head, Ev of its
values, Lq queries, Lk keys.
"""

from __future__ import annotations

from abc import ABC
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from nmt.config import PositionsConfig, typed_options
from nmt.data.batches.batching import Batch, Layout
from nmt.runtime.lazy import cached_property
from nmt.runtime.plugins import Registry

TARGET_MARGIN = 50
"""The number of tokens by which a translation may exceed its source (section 6.1 of the paper)."""


@dataclass(frozen=True)
class Shape:
    """The properties of the encoder or decoder that an encoding belongs to.

    Attributes:
        d_model: width of the embeddings.
        heads: H.
        layers: number of layers of the encoder or of the decoder.
        causal: whether self-attention is causal: true in the decoder.
        scale: factor on the products of queries and keys, 1 / sqrt(E) in the paper.
        key_width: E; 0: d_model / heads.
        value_width: Ev; 0: d_model / heads.
    """

    d_model: int
    heads: int
    layers: int
    causal: bool
    scale: float
    key_width: int = 0
    value_width: int = 0

    @property
    def head_widths(self) -> tuple[int, int]:
        """E and Ev."""
        equal = self.d_model // self.heads
        return self.key_width or equal, self.value_width or equal


class Places:
    """The positions of the tokens of a stream in their sentences.

    Args:
        positions: (N,) int64, the position of each token, from 0.
        max_len: larger than all `positions`; a number on the host, so that no device synchronisation is
            needed.
        lengths: computes the attribute `lengths`; called on its first use.
        cut: see `Layout`.
        previous: (N,) int64, the id before each token, whatever it is for a first one; None: the stream has
            it, just before.
    """

    def __init__(
        self,
        positions: Tensor,
        max_len: int,
        lengths: Callable[[], Tensor],
        cut: Tensor | None = None,
        previous: Tensor | None = None,
    ) -> None:
        self.positions, self.max_len, self._lengths = positions, max_len, lengths
        self.cut, self.previous = cut, previous

    @cached_property
    def lengths(self) -> Tensor:
        """(N,) int64, the length of the sentence of each token, EOS included.

        The length of a target is unknown during a search. So for targets this is the length of the source
        plus `TARGET_MARGIN`, in training too.
        """
        return self._lengths()

    @classmethod
    def of_sources(cls, source: Layout) -> Places:
        """Returns the places of the source tokens of a batch."""
        return cls(source.positions, source.max_len, lambda: _length_per_token(source, source, 0), source.cut)

    @classmethod
    def of_targets(cls, batch: Batch) -> Places:
        """Returns the places of the target tokens of a batch."""
        target = batch.target
        return cls(
            target.positions,
            target.max_len,
            lambda: _length_per_token(batch.source, target, TARGET_MARGIN),
            target.cut,
        )


def _length_per_token(counted: Layout, stream: Layout, margin: int) -> Tensor:
    """Returns, for each token of `stream`, the length of its sentence in `counted` plus `margin`."""
    device = stream.positions.device
    lengths, times = (torch.tensor(layout.lengths, device=device) for layout in (counted, stream))
    return (lengths + margin).repeat_interleave(times, output_size=len(stream.positions))


class Positions(nn.Module, ABC):
    """A positional encoding. A subclass overrides one or more of four hooks.

    The hooks are `embed`, `rotate`, `bias` and `values`. The last three act only in self-attention. Training
    and the cached decoder call the same hooks.

    The encoder and the decoder have one instance each. Its parameters are trained, and saved with the model.
    Its constructor must initialise them.

    Args:
        options: an instance of `Options`.
        shape: properties of the encoder or decoder.

    Attributes:
        needs_products: whether the encoding requires scores that are products of queries and keys. Other
            scores are then rejected.
        max_len: the maximum number of tokens of a sentence; None: no limit. Training rejects longer
            sentences, translation cuts them.
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
            embedded: (N, d_model), embeddings scaled by sqrt(d_model).
            places: the positions of the tokens.

        Returns:
            (N, d_model), of the dtype of `embedded`.
        """
        return embedded

    def rotate(self, q: Tensor, k: Tensor, positions: Tensor) -> tuple[Tensor, Tensor]:
        """Changes the queries and keys of each layer.

        Args:
            q: (N, H, E), queries.
            k: (N, H, E), keys.
            positions: (N,) int64, the positions of the tokens.

        Returns:
            Queries and keys of the same shapes and dtypes.
        """
        return q, k

    def bias(self, q: Tensor, query_positions: Tensor, key_positions: Tensor, layer: int) -> Tensor | None:
        """Returns a bias on the scaled scores.

        Args:
            q: (B, H, Lq, E), queries.
            query_positions: (Lq,) int64, consecutive.
            key_positions: (Lk,) int64, consecutive.
            layer: index of the layer, from 0.

        Returns:
            A tensor that broadcasts to (B, H, Lq, Lk), or None. It may depend on `q` and on parameters; both
            get gradients.
        """
        return None

    def values(
        self, weights: Tensor, query_positions: Tensor, key_positions: Tensor, layer: int
    ) -> Tensor | None:
        """Returns a term that is added to the outputs of the heads.

        Args:
            weights: (B, H, Lq, Lk), the softmax of the scores.
            query_positions: (Lq,) int64, consecutive.
            key_positions: (Lk,) int64, consecutive.
            layer: index of the layer, from 0.

        Returns:
            (B, H, Lq, Ev), or None.
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
    """Returns all distances key - query between consecutive positions, ascending: (Lq + Lk - 1,)."""
    count = len(query_positions) + len(key_positions) - 1
    lowest = key_positions[0] - query_positions[-1]
    return lowest + torch.arange(count, device=query_positions.device)


def by_pair(values: Tensor, num_queries: int) -> Tensor:
    """Values by distance, (..., Lq + Lk - 1) in the order of `distances` → values by pair, (..., Lq, Lk)."""
    num_keys = values.shape[-1] - num_queries + 1
    return values.unfold(-1, num_keys, 1).flip(-2)


POSITIONS: Registry[type[Positions]] = Registry("positional encoding")
"""The encodings by name; `model.positions.name` selects one."""


def build_positions(config: PositionsConfig, shape: Shape) -> Positions:
    """Builds the encoding of the encoder or, if `shape.causal`, of the decoder.

    Raises:
        UserError: no encoding of that name is registered, or an option is unknown or has a wrong value.
    """
    name, key, options, section = config.name, "name", config.options, "options"
    if shape.causal and config.decoder is not None:
        name, key, options, section = config.decoder, "decoder", config.decoder_options, "decoder_options"
    owner = f"model.positions.{key}={name}"
    kind = POSITIONS.find(name, owner)
    return kind(typed_options(kind.Options, options, f"model.positions.{section}", owner), shape)
