"""The key-value cache of the decoder, and its attention in one step of a search.

A beam search reorders its hypotheses after each step. To copy their keys and values each time costs more than
attention. So the hypotheses of a sentence share one cache, in which nothing moves: in each step hypothesis k
writes to slot k. `ancestors` names the slot of each token of a hypothesis, and a mask hides the other slots.
One matrix product then takes all hypotheses of a sentence as queries. The work grows with the square of the
number of hypotheses, so wide beams have a cache per hypothesis, which is copied.

Shapes: B sentences, K hypotheses per sentence, H heads, E width of a head, S tokens of the longest source, T
target tokens so far, N decoder layers, C slots of a token, G caches: B if hypotheses share one, else B * K.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import cached_property

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.data.batches.batching import Layout
from nmt.model.attention import Score, attention_weights, normalised
from nmt.model.positions import TARGET_MARGIN, Places, Positions
from nmt.runtime.fp32_products import plain_fp32_products

_CHUNK = 32  # the cache has room for at least this number of further target tokens when it grows
_SHARED = 8  # the hypotheses of a sentence share a cache up to this number


@dataclass(frozen=True, eq=False)
class CachedDecoderState:
    """The keys and values of the sources and of the targets so far; `Transformer.start` creates it.

    A step overwrites the memory of the state that it reads, so that state can't be used again.

    Attributes:
        cross: (N, 2, B, H, S, E), keys and values of the sources, stored once per sentence.
        mask: (B, H, 1, S), -inf at padding, otherwise 0; None if there is no padding.
        cache: (N, 2, G, H, T or more, C, E), keys and values of the targets. Unused slots of the T tokens are
            finite.
        num_hypotheses: K.
        length: T.
        source_lengths: (B,) int64.
        positions: the positional encoding of the decoder.
        window: the number of predecessors that a token sees; None: all.
        ancestors: (B, K, T) int64, the slot of each token of a hypothesis; None if C is 1. During a step, T
            counts the newest token.
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
    ancestors: Tensor | None = None
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
        cache = cross.new_empty(layers, two, sentences, heads, 0, 1, width)
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
        cross, mask, lengths, cache, ancestors = self._sentences(rows)
        slots, wanted = cache.shape[5], rows.shape[1]
        own = self.num_hypotheses == 1 or ancestors is not None  # each sentence has its own cache
        if own and 1 < max(slots, wanted) <= _SHARED:
            if ancestors is None:
                ancestors = rows.new_zeros(len(rows), 1, self.length)
            # All hypotheses of a sentence are in its row, so their places there suffice.
            places = rows % self.num_hypotheses
            ancestors = ancestors.gather(1, places[:, :, None].expand(-1, -1, self.length))
            if wanted > slots:
                cache = _widened(cache, self.length, wanted)
        elif ancestors is not None:
            cache, ancestors = _separated(cache, ancestors, rows % self.num_hypotheses), None
        elif not (own and wanted == 1):
            cache = _copied(self.cache, rows.flatten(), self.length)
        return replace(
            self,
            cross=cross,
            mask=mask,
            source_lengths=lengths,
            cache=cache,
            ancestors=ancestors,
            num_hypotheses=wanted,
        )

    def _sentences(self, rows: Tensor) -> tuple[Tensor, Tensor | None, Tensor, Tensor, Tensor | None]:
        """Returns `cross`, `mask`, `source_lengths`, `cache`, `ancestors` of the sentences of `rows`.

        Those that remain in their place are not copied: the others are moved, in the memory of this state. A
        cache per hypothesis is returned unchanged.
        """
        unchanged = self.cross, self.mask, self.source_lengths, self.cache, self.ancestors
        if len(rows) == self.num_sentences:
            return unchanged
        sentences = rows[:, 0] // self.num_hypotheses
        moved = (sentences != torch.arange(len(rows), device=rows.device)).nonzero()[:, 0]
        sources, cache = sentences[moved], self.cache
        if self.num_hypotheses == 1 or self.ancestors is not None:
            cache = cache[:, :, : len(rows)]
            used = self.cache[:, :, :, :, : self.length]
            used[:, :, moved] = used.index_select(2, sources)
        cross = self.cross[:, :, : len(rows)]
        cross[:, :, moved] = self.cross.index_select(2, sources)
        mask = None if self.mask is None else self.mask.index_select(0, sentences)
        ancestors = None if self.ancestors is None else self.ancestors.index_select(0, sentences)
        return cross, mask, self.source_lengths.index_select(0, sentences), cache, ancestors

    def recording(self) -> CachedDecoderState:
        """Returns the state with recording: the next step fills `attention`."""
        return replace(self, attention={})

    def grown(self) -> CachedDecoderState:
        """Returns the state with room for one more token."""
        cache, ancestors, length = self.cache, self.ancestors, self.length
        if length == cache.shape[4]:
            cache = F.pad(cache, (0, 0, 0, 0, 0, max(_CHUNK, length // 2)))
        if ancestors is not None and self.num_hypotheses < cache.shape[5]:
            cache[:, :, :, :, length, self.num_hypotheses :] = 0
        if ancestors is not None:
            newest = torch.arange(self.num_hypotheses, device=cache.device)[:, None]
            newest = newest.expand(self.num_sentences, -1, -1)
            ancestors = torch.cat((ancestors, newest), 2)
        return replace(self, cache=cache, ancestors=ancestors)

    def advanced(self) -> CachedDecoderState:
        """Returns the state for the next step, after all layers have added the newest token."""
        return replace(self, length=self.length + 1)

    @cached_property
    def places(self) -> Places:
        """The positions of the newest tokens, one per hypothesis."""
        rows, device = self.num_sentences * self.num_hypotheses, self.cache.device
        positions = torch.full((rows,), self.length, device=device)
        # The function must not refer to this state, which holds it. The cycle would retain the caches of all
        # steps until the garbage collector runs.
        lengths, count = self.source_lengths, self.num_hypotheses
        return Places(positions, self.length + 1, lambda: (lengths + TARGET_MARGIN).repeat_interleave(count))

    @cached_property
    def hidden_slots(self) -> Tensor | None:
        """(G, H, K, L * C), -inf at the slots of other hypotheses, otherwise 0; None if C is 1.

        L is the number of target tokens that the newest token sees.
        """
        if self.ancestors is None:
            return None
        slots, heads = self.cache.shape[5], self.cache.shape[3]
        own = self.ancestors[:, :, self._first :, None] == torch.arange(slots, device=self.cache.device)
        mask = torch.where(own, 0.0, -math.inf).to(self.cache.dtype).flatten(2)
        return mask[:, None].expand(-1, heads, -1, -1).contiguous()

    @property
    def _first(self) -> int:
        """The first target token that the newest token sees."""
        return 0 if self.window is None else max(0, self.length - self.window)

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
        groups, heads, slots = self.cache.shape[2], self.cache.shape[3], self.cache.shape[5]
        count = len(q) // groups  # hypotheses of a cache
        grouped = (groups, count, *q.shape[1:])
        self.cache[layer, 0, :, :, self.length, :count] = k.view(grouped).transpose(1, 2)
        self.cache[layer, 1, :, :, self.length, :count] = v.view(grouped).transpose(1, 2)
        seen = self.cache[layer, :, :, :, self._first : self.length + 1]  # (2, G, H, L, C, E)
        keys, values = seen.flatten(3, 4)
        folded = q.reshape(grouped).transpose(1, 2)  # (G, H, K or 1, E)
        if self.positions is None or not self.positions.acts_on_scores:
            with plain_fp32_products():
                outputs: Tensor = _weights(folded, keys, self.hidden_slots, score) @ values
            return outputs.transpose(1, 2).flatten(0, 1).flatten(1)
        places = torch.arange(self._first, self.length + 1, device=q.device)
        added = self.hidden_slots
        bias = self.positions.bias(q[:, :, None], places[-1:], places, layer)
        if bias is not None:
            bias = bias.expand(len(q), heads, 1, len(places)).reshape(*grouped[:3], -1).transpose(1, 2)
            bias = bias[..., None].expand(-1, -1, -1, -1, slots).flatten(3)
            added = bias if added is None else added + bias
        with plain_fp32_products():
            weights = _weights(folded, keys, added, score)
            outputs = (weights @ values).transpose(1, 2).flatten(0, 1)  # (B * K, H, E)
        by_token = weights.view(*weights.shape[:3], -1, slots).sum(-1).transpose(1, 2).flatten(0, 1)
        extra = self.positions.values(by_token[:, :, None], places[-1:], places, layer)
        return (outputs if extra is None else outputs + extra[:, :, 0].to(outputs.dtype)).flatten(1)

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
        with plain_fp32_products():
            weights = _weights(folded, keys, self.mask, score)
            outputs: Tensor = weights @ values
        if self.attention is not None:
            self.attention[layer] = weights
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


def _copied(cache: Tensor, rows: Tensor, length: int) -> Tensor:
    """Returns the caches `rows`, (G',) int64, with room for further tokens."""
    layers, two, _, heads, _, slots, width = cache.shape
    copy = cache.new_empty(layers, two, len(rows), heads, length + _CHUNK, slots, width)
    copy[:, :, :, :, :length] = cache[:, :, :, :, :length].index_select(2, rows)
    return copy


def _widened(cache: Tensor, length: int, slots: int) -> Tensor:
    """Returns the cache with more slots per token."""
    layers, two, count, heads, _, old, width = cache.shape
    wider = cache.new_empty(layers, two, count, heads, length + _CHUNK, slots, width)
    wider[:, :, :, :, :length, :old] = cache[:, :, :, :, :length]
    wider[:, :, :, :, :length, old:] = 0
    return wider


def _separated(cache: Tensor, ancestors: Tensor, places: Tensor) -> Tensor:
    """Returns a cache per hypothesis, with one slot, from a cache per sentence.

    Args:
        cache: (N, 2, B, H, T or more, C, E).
        ancestors: (B, K, T).
        places: (B, K'), the hypotheses to select, below K.
    """
    layers, two, count, heads, _, _, width = cache.shape
    length, wanted = ancestors.shape[2], places.shape[1]
    slots = ancestors.gather(1, places[:, :, None].expand(-1, -1, length)).flatten(0, 1)  # (B * K', T)
    rows = torch.arange(count, device=cache.device).repeat_interleave(wanted)
    used = cache[:, :, :, :, :length].index_select(2, rows)
    index = slots.view(1, 1, -1, 1, length, 1, 1).expand(layers, two, -1, heads, -1, 1, width)
    return F.pad(used.gather(5, index), (0, 0, 0, 0, 0, _CHUNK))
