"""What the decoder remembers between the steps of a search.

Shapes: B sentences, K hypotheses a sentence, H heads, E width of a head, S longest source, T target tokens so
far, N decoder layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from nmt.data.batching import Layout

_CHUNK = 32  # target tokens the cache grows by


@dataclass(frozen=True, eq=False)
class CachedDecoderState:
    """Keys and values of what has been read and written; made by `Transformer.start`.

    A step writes into the memory of the state it is taken from and so uses that state up.

    Attributes:
        cross: (N, 2, B, H, S, E), keys and values of the sources, once a sentence.
        hidden: (B, 1, 1, S), added to scores: 0, or -inf where a source has ended; None if none ends early.
        cache: (T or more, N, 2, B * K, H, E), keys and values of the targets. Time comes first: growing and
            reordering copy whole rows then.
        num_hypotheses: K.
        length: T.
        attention: for each decoder layer, (B, H, K, S), the weights with which the newest tokens attended to
            the sources; None if they are not recorded. Padding of a source has the weight 0.
    """

    cross: Tensor
    hidden: Tensor | None
    cache: Tensor
    num_hypotheses: int
    length: int
    attention: dict[int, Tensor] | None = None

    @classmethod
    def start(cls, keys_values: Tensor, source: Layout) -> CachedDecoderState:
        """The state of one empty hypothesis a sentence.

        Args:
            keys_values: (N, flat source tokens, 2, H, E), each layer's projections of the encoder's output.
            source: where sentences stand in them.
        """
        device = keys_values.device
        lengths = torch.tensor(source.lengths, device=device)
        places = torch.arange(source.max_len, device=device)
        last = lengths.cumsum(0)[:, None] - 1
        tokens = torch.minimum(last - lengths[:, None] + 1 + places, last)  # padding shows the last token
        padded = keys_values.index_select(1, tokens.flatten())
        padded = padded.view(len(keys_values), *tokens.shape, *keys_values.shape[2:])  # (N, B, S, 2, H, E)
        cross = padded.permute(0, 3, 1, 4, 2, 5).contiguous()
        hidden = None
        if min(source.lengths) < source.max_len:
            hidden = torch.zeros(tokens.shape, dtype=cross.dtype, device=device)
            hidden = hidden.masked_fill_(places >= lengths[:, None], -math.inf)[:, None, None]
        layers, two, sentences, heads, _, width = cross.shape
        cache = cross.new_empty(0, layers, two, sentences, heads, width)
        return cls(cross, hidden, cache, num_hypotheses=1, length=0)

    @property
    def num_sentences(self) -> int:
        """B."""
        return self.cross.shape[2]

    def select(self, rows: Tensor) -> CachedDecoderState:
        """See `DecoderState.select`."""
        cross, hidden = self.cross, self.hidden
        if len(rows) < self.num_sentences:
            sentences = rows[:, 0] // self.num_hypotheses
            cross = cross.index_select(2, sentences)
            hidden = None if hidden is None else hidden.index_select(0, sentences)
        return replace(
            self,
            cross=cross,
            hidden=hidden,
            cache=self._selected(rows.flatten()),
            num_hypotheses=rows.shape[1],
        )

    def _selected(self, rows: Tensor) -> Tensor:
        """The cache of some hypotheses, with room for the next token."""
        length, layers, two, old, heads, width = self.length, *self.cache.shape[1:]
        cache = self.cache.new_empty(length + 1, layers, two, len(rows), heads, width)
        blocks = torch.arange(0, length * layers * two * old, old, device=rows.device)
        places = (blocks[:, None] + rows).flatten()
        flat = self.cache[:length].view(-1, heads * width)
        torch.index_select(flat, 0, places, out=cache[:length].view(-1, heads * width))
        return cache

    def recording(self) -> CachedDecoderState:
        """The same state; the step that reads it records its attention to the sources."""
        return replace(self, attention={})

    def grown(self) -> CachedDecoderState:
        """The state with room for one more token."""
        if self.length < len(self.cache):
            return self
        cache = self.cache.new_empty(self.length + _CHUNK, *self.cache.shape[1:])
        cache[: self.length] = self.cache
        return replace(self, cache=cache)

    def advanced(self) -> CachedDecoderState:
        """The state once all layers have added the newest token."""
        return replace(self, length=self.length + 1)

    def attend_targets(self, layer: int, q: Tensor, k: Tensor, v: Tensor) -> Tensor:
        """Adds the newest token's key and value and attends to all so far; there must be room.

        Args:
            layer: number of the decoder layer.
            q: (B * K, H, E), queries.
            k: (B * K, H, E), keys.
            v: (B * K, H, E), values.

        Returns:
            (B * K, H * E).
        """
        self.cache[self.length, layer, 0] = k
        self.cache[self.length, layer, 1] = v
        keys, values = self.cache[: self.length + 1, layer].permute(1, 2, 3, 0, 4)  # (B * K, H, T, E) each
        weights = _weights(q[:, :, None], keys, None)
        outputs: Tensor = weights.to(values.dtype) @ values
        return outputs.flatten(1)

    def attend_source(self, layer: int, q: Tensor) -> Tensor:
        """Attends to the sources; the hypotheses of a sentence are the queries of one product.

        Args:
            layer: number of the decoder layer.
            q: (B * K, H, E), queries.

        Returns:
            (B * K, H * E).
        """
        keys, values = self.cross[layer]
        folded = q.view(self.num_sentences, self.num_hypotheses, *q.shape[1:]).transpose(1, 2)
        weights = _weights(folded, keys, self.hidden)
        if self.attention is not None:
            self.attention[layer] = weights
        outputs: Tensor = weights.to(values.dtype) @ values
        return outputs.transpose(1, 2).flatten(0, 1).flatten(1)


def _weights(q: Tensor, k: Tensor, hidden: Tensor | None) -> Tensor:
    """Softmax over padded keys, (B, H, Lq, Lk), in fp32 at least; `hidden` is added to the scores."""
    scores = (q / math.sqrt(q.shape[-1])) @ k.transpose(2, 3)
    if hidden is not None:
        scores = scores + hidden
    return scores.softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32))
