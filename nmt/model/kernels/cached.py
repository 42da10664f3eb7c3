"""The key-value cache of the decoder, and its attention in one step of a search.

Shapes: B sentences, K hypotheses per sentence, H heads, E width of a head, S tokens of the longest source, T
target tokens so far, N decoder layers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
from torch import Tensor

from nmt.data.batches.batching import Layout
from nmt.model.attention import Score, attention_weights, normalised
from nmt.model.positions import TARGET_MARGIN, Places, Positions

_CHUNK = 32  # the cache grows by this number of target tokens


@dataclass(frozen=True, eq=False)
class CachedDecoderState:
    """The keys and values of the sources and of the targets so far; `Transformer.start` creates it.

    A step overwrites the memory of the state that it reads, so that state can't be used again.

    Attributes:
        cross: (N, 2, B, H, S, E), keys and values of the sources, stored once per sentence.
        mask: (B, H, 1, S), -inf at padding, otherwise 0; None if there is no padding.
        cache: (T or more, N, 2, B * K, H, E), keys and values of the targets. Time is the first dimension, so
            that growing and reordering copy whole rows.
        num_hypotheses: K.
        length: T.
        source_lengths: (B,) int64.
        positions: the positional encoding of the decoder.
        window: the number of predecessors that a token sees; None: all.
        attention: by decoder layer, (B, H, K, S), the cross-attention weights of the newest tokens; 0 at
            padding. None if they are not recorded.
    """

    cross: Tensor
    mask: Tensor | None
    cache: Tensor
    num_hypotheses: int
    length: int
    source_lengths: Tensor
    positions: Positions | None = None
    window: int | None = None
    attention: dict[int, Tensor] | None = None

    @classmethod
    def start(
        cls,
        keys_values: Tensor,
        source: Layout,
        positions: Positions | None = None,
        window: int | None = None,
    ) -> CachedDecoderState:
        """Returns the state of one empty hypothesis per sentence.

        Args:
            keys_values: (N, flat source tokens, 2, H, E), the keys and values of each layer, projected from
                the output of the encoder.
            source: the layout of the source tokens.
            positions: see the attributes.
            window: see the attributes.
        """
        device = keys_values.device
        lengths = torch.tensor(source.lengths, device=device)
        places = torch.arange(source.max_len, device=device)
        last = lengths.cumsum(0)[:, None] - 1
        tokens = torch.minimum(last - lengths[:, None] + 1 + places, last)  # padding repeats the last token
        padded = keys_values.index_select(1, tokens.flatten())
        padded = padded.view(len(keys_values), *tokens.shape, *keys_values.shape[2:])  # (N, B, S, 2, H, E)
        cross = padded.permute(0, 3, 1, 4, 2, 5).contiguous()
        layers, two, sentences, heads, longest, width = cross.shape
        mask = None
        if min(source.lengths) < source.max_len:
            mask = torch.zeros(sentences, heads, 1, longest, dtype=cross.dtype, device=device)
            mask.masked_fill_((places >= lengths[:, None])[:, None, None], -math.inf)
        cache = cross.new_empty(0, layers, two, sentences, heads, width)
        return cls(
            cross,
            mask,
            cache,
            num_hypotheses=1,
            length=0,
            source_lengths=lengths,
            positions=positions,
            window=window,
        )

    @property
    def num_sentences(self) -> int:
        """B."""
        return self.cross.shape[2]

    def select(self, rows: Tensor) -> CachedDecoderState:
        """See `DecoderState.select`."""
        cross, mask, lengths = self.cross, self.mask, self.source_lengths
        if len(rows) < self.num_sentences:
            sentences = rows[:, 0] // self.num_hypotheses
            cross = cross.index_select(2, sentences)
            mask = None if mask is None else mask.index_select(0, sentences)
            lengths = lengths.index_select(0, sentences)
        return replace(
            self,
            cross=cross,
            mask=mask,
            source_lengths=lengths,
            cache=self._selected(rows.flatten()),
            num_hypotheses=rows.shape[1],
        )

    def _selected(self, rows: Tensor) -> Tensor:
        """Returns the cache of the hypotheses `rows`, (B' * K',) int64, with room for the next token."""
        length, layers, two, old, heads, width = self.length, *self.cache.shape[1:]
        cache = self.cache.new_empty(length + 1, layers, two, len(rows), heads, width)
        blocks = torch.arange(0, length * layers * two * old, old, device=rows.device)
        places = (blocks[:, None] + rows).flatten()
        flat = self.cache[:length].view(-1, heads * width)
        torch.index_select(flat, 0, places, out=cache[:length].view(-1, heads * width))
        return cache

    def recording(self) -> CachedDecoderState:
        """Returns the state with recording: the next step fills `attention`."""
        return replace(self, attention={})

    def grown(self) -> CachedDecoderState:
        """Returns the state with room for one more token."""
        if self.length < len(self.cache):
            return self
        cache = self.cache.new_empty(self.length + _CHUNK, *self.cache.shape[1:])
        cache[: self.length] = self.cache
        return replace(self, cache=cache)

    def advanced(self) -> CachedDecoderState:
        """Returns the state for the next step, after all layers have added the newest token."""
        return replace(self, length=self.length + 1)

    @cached_property
    def places(self) -> Places:
        """The positions of the newest tokens, one per hypothesis."""
        rows, device = self.cache.shape[3], self.cache.device
        positions = torch.full((rows,), self.length, device=device)
        # The function must not refer to this state, which holds it. The cycle would retain the caches of all
        # steps until the garbage collector runs.
        lengths, count = self.source_lengths, self.num_hypotheses
        return Places(positions, self.length + 1, lambda: (lengths + TARGET_MARGIN).repeat_interleave(count))

    def attend_targets(self, layer: int, qkv: Tensor, score: Score) -> Tensor:
        """Adds the keys and values of the newest tokens to the cache and attends to all target tokens so far.

        The cache must have room for one more token; see `grown`.

        Args:
            layer: index of the decoder layer.
            qkv: (B * K, 3, H, E), queries, keys and values of the newest tokens.
            score: the score of the layer.

        Returns:
            (B * K, H * E).
        """
        q, k, v = qkv.unbind(1)
        if self.positions is not None and self.positions.rotates:
            q, k = self.positions.rotate(q, k, self.places.positions)
        self.cache[self.length, layer, 0] = k
        self.cache[self.length, layer, 1] = v
        first = 0 if self.window is None else max(0, self.length - self.window)
        seen = self.cache[first : self.length + 1, layer]
        keys, values = seen.permute(1, 2, 3, 0, 4)  # (B * K, H, T, E) each
        if self.positions is None or not self.positions.acts_on_scores:
            outputs: Tensor = _weights(q[:, :, None], keys, None, score) @ values
            return outputs.flatten(1)
        places = torch.arange(first, self.length + 1, device=q.device)
        bias = self.positions.bias(q[:, :, None], places[-1:], places, layer)
        weights = _weights(q[:, :, None], keys, bias, score)
        outputs = weights @ values
        added = self.positions.values(weights, places[-1:], places, layer)
        return (outputs if added is None else outputs + added.to(outputs.dtype)).flatten(1)

    def attend_source(self, layer: int, q: Tensor, keys_values: Tensor | None, score: Score) -> Tensor:
        """Attends to the sources; one matrix product takes all hypotheses of a sentence as queries.

        Args:
            layer: index of the decoder layer.
            q: (B * K, H, E), queries.
            keys_values: None, since `cross` holds them.
            score: the score of the layer.

        Returns:
            (B * K, H * E).
        """
        keys, values = self.cross[layer]
        folded = q.view(self.num_sentences, self.num_hypotheses, *q.shape[1:]).transpose(1, 2)
        weights = _weights(folded, keys, self.mask, score)
        if self.attention is not None:
            self.attention[layer] = weights
        outputs: Tensor = weights @ values
        return outputs.transpose(1, 2).flatten(0, 1).flatten(1)


def _weights(q: Tensor, k: Tensor, added: Tensor | None, score: Score) -> Tensor:
    """Queries (B, H, Lq, E) and keys (B, H, Lk, E) → attention weights (B, H, Lq, Lk)."""
    shape = (*q.shape[:3], k.shape[2])
    if score.scale is None:
        scores = score(q, k)
        return normalised(scores if added is None else scores + added.to(q.dtype))
    if added is not None:
        added = added.to(q.dtype).expand(*shape[:2], *added.shape[-2:]).flatten(0, 1)
    return attention_weights(q.flatten(0, 1), k.flatten(0, 1), score.scale, added).view(shape)
