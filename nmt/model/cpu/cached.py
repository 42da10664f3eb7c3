"""The key-value cache of the decoder, and its attention in one step of a search.

A beam search reorders its hypotheses after each step. To copy their keys and values each time costs more than
attention. So the hypotheses of a sentence share one cache, in which nothing moves: in each step hypothesis k
writes to slot k. `ancestors` names the slot of each token of a hypothesis, and a mask hides the other slots.
One matrix product then takes all hypotheses of a sentence as queries. The work grows with the square of the
number of hypotheses, so wide beams have a cache per hypothesis, which is copied.

Keys and values share one tensor of the wider of their widths, W. The rest of the narrower ones is not read.

Shapes: B sentences, K hypotheses per sentence, H heads, E width of the queries and keys of a head, Ev of its
values, W = max(E, Ev), S tokens of the longest source, T target tokens so far, N decoder layers, C slots of a
token, G caches: B if hypotheses share one, else B * K.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import torch
import torch.nn.functional as F
from torch import Tensor

from nmt.data.batches.batching import Layout
from nmt.model.attention import (
    FEWEST_KEYS,
    Attention,
    Projected,
    Score,
    attention_weights,
    normalised,
    separated,
)
from nmt.model.positions import TARGET_MARGIN, Places, Positions
from nmt.runtime.fp32_products import plain_fp32_products
from nmt.runtime.lazy import cached_property

_CHUNK = 16  # the cache has room for at least this number of further target tokens when it grows
_SHARED = 8  # the hypotheses of a sentence share a cache up to this number


@dataclass(frozen=True, eq=False)
class CachedDecoderState(Attention):
    """The keys and values of the sources and of the targets so far; `Transformer.start` creates it.

    A step overwrites the memory of the state that it reads, so that state can't be used again.

    Attributes:
        cross: (N, 2, B, H, S, W), keys and values of the sources, stored once per sentence; S is at least
            `_fewest_keys`.
        mask: (B, H, 1, S), -inf at padding, otherwise 0; None if there is no padding.
        cache: (N, 2, T or more, C, G, H, W), keys and values of the targets: a step writes to one piece of
            memory in each layer. Unused slots of the T tokens, and all among the first `_fewest_keys`, are
            finite.
        num_hypotheses: K.
        length: T.
        source_lengths: (B,) int64.
        longest: number of tokens of the longest source at the start of the search.
        value_width: Ev.
        positions: the positional encoding of the decoder.
        window: the number of predecessors that a token sees; None: all.
        ancestors: (B, K, T) int64, the slot of each token of a hypothesis; None if C is 1. During a step, T
            counts the newest token.
        attention: by decoder layer, (B, H, K, longest), the cross-attention weights of the newest tokens; 0
            at padding. None if they are not recorded.
        newest: (B, K) int64, the id that each hypothesis read last; None before the first step.
    """

    cross: Tensor
    mask: Tensor | None
    cache: Tensor
    num_hypotheses: int
    length: int
    source_lengths: Tensor
    longest: int
    value_width: int
    positions: Positions | None = None
    window: int | None = None
    ancestors: Tensor | None = None
    attention: dict[int, Tensor] | None = None
    newest: Tensor | None = None

    @classmethod
    def start(
        cls,
        keys_values: Sequence[Projected],
        source: Layout,
        positions: Positions | None = None,
        window: int | None = None,
    ) -> CachedDecoderState:
        """Returns the state of one empty hypothesis per sentence.

        `keys_values` are those of each layer, projected from the output of the encoder.
        """
        flats = [_of_one_width(each) for each in keys_values]
        first = flats[0]
        device, (_, two, heads, width) = first.device, first.shape
        num_places = max(source.max_len, _fewest_keys(device))
        lengths = torch.tensor(source.lengths, device=device)
        places = torch.arange(num_places, device=device)
        last = lengths.cumsum(0)[:, None] - 1
        tokens = torch.minimum(last - lengths[:, None] + 1 + places, last)  # padding repeats the last token
        part = torch.arange(two, device=device)[:, None, None, None]
        head = torch.arange(heads, device=device)[:, None]
        rows = ((tokens[:, None] * two + part) * heads + head).flatten()  # (2, B, H, S), of W values each
        cross = first.new_empty(len(keys_values), two, len(lengths), heads, num_places, width)
        for padded, flat in zip(cross, flats, strict=True):
            torch.index_select(flat.flatten(0, 2), 0, rows, out=padded.view(-1, width))
        mask = None
        if min(source.lengths) < num_places:
            mask = torch.zeros(len(lengths), heads, 1, num_places, dtype=cross.dtype, device=device)
            mask.masked_fill_((places >= lengths[:, None])[:, None, None], -math.inf)
        cache = cross.new_empty(len(cross), two, 0, 1, len(lengths), heads, width)
        return cls(
            cross,
            mask,
            cache,
            num_hypotheses=1,
            length=0,
            source_lengths=lengths,
            longest=source.max_len,
            value_width=separated(keys_values[0])[1].shape[-1],
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
        slots, wanted = cache.shape[3], rows.shape[1]
        own = self.num_hypotheses == 1 or ancestors is not None  # each sentence has its own cache
        if own and 1 < max(slots, wanted) <= _SHARED:
            if ancestors is None:
                ancestors = rows.new_zeros(len(rows), 1, self.length)
            # All hypotheses of a sentence are in its row, so their places there suffice.
            places = rows % self.num_hypotheses
            ancestors = ancestors.gather(1, places[:, :, None].expand(-1, -1, self.length))
            if wanted > slots:
                cache = _enlarged(cache, self.length, wanted)
        elif ancestors is not None:
            cache, ancestors = _separated(cache, ancestors, rows % self.num_hypotheses), None
        elif not (own and wanted == 1):
            cache = _enlarged(self.cache, self.length, slots, rows.flatten())
        return replace(
            self,
            cross=cross,
            mask=mask,
            source_lengths=lengths,
            cache=cache,
            ancestors=ancestors,
            num_hypotheses=wanted,
            newest=None if self.newest is None else self.newest.flatten()[rows],
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
            cache = cache[:, :, :, :, : len(rows)]
            _move(self.cache[:, :, : self.length], 4, sources, moved)
        cross = self.cross[:, :, : len(rows)]
        _move(self.cross, 2, sources, moved)
        mask = None if self.mask is None else self.mask.index_select(0, sentences)
        ancestors = None if self.ancestors is None else self.ancestors.index_select(0, sentences)
        return cross, mask, self.source_lengths.index_select(0, sentences), cache, ancestors

    def recording(self) -> CachedDecoderState:
        """Returns the state with recording: the next step fills `attention`."""
        return replace(self, attention={})

    def grown(self) -> CachedDecoderState:
        """Returns the state with room for one more token."""
        cache, ancestors, length = self.cache, self.ancestors, self.length
        if length == cache.shape[2]:
            cache = _enlarged(cache, length, cache.shape[3])
        if ancestors is not None and self.num_hypotheses < cache.shape[3]:
            cache[:, :, length, self.num_hypotheses :] = 0
        if ancestors is not None:
            newest = torch.arange(self.num_hypotheses, device=cache.device)[:, None]
            newest = newest.expand(self.num_sentences, -1, -1)
            ancestors = torch.cat((ancestors, newest), 2)
        return replace(self, cache=cache, ancestors=ancestors)

    def advanced(self, ids: Tensor) -> CachedDecoderState:
        """Returns the state for the next step, after all layers have added the newest `ids`, (B, K)."""
        return replace(self, length=self.length + 1, newest=ids)

    @cached_property
    def places(self) -> Places:
        """The positions of the newest tokens, one per hypothesis."""
        rows, device = self.num_sentences * self.num_hypotheses, self.cache.device
        positions = torch.full((rows,), self.length, device=device)
        # The function must not refer to this state, which holds it. The cycle would retain the caches of all
        # steps until the garbage collector runs.
        lengths, count = self.source_lengths, self.num_hypotheses
        newest = None if self.newest is None else self.newest.flatten()
        return Places(
            positions,
            self.length + 1,
            lambda: (lengths + TARGET_MARGIN).repeat_interleave(count),
            previous=newest,
        )

    @cached_property
    def hidden_slots(self) -> Tensor | None:
        """(G or 1, H or 1, K or 1, L * C), -inf at slots that the newest tokens must not see, otherwise 0.

        L is the number of target tokens in `_seen`. None if all slots are seen.
        """
        seen, cache = self._seen, self.cache
        slots, heads, unused = cache.shape[3], cache.shape[5], seen.stop - self.length - 1
        if self.ancestors is None:
            if not unused:
                return None
            mask = cache.new_zeros(1, 1, 1, seen.stop - seen.start)
            mask[..., -unused:] = -math.inf
            return mask
        own = self.ancestors[:, :, seen, None] == torch.arange(slots, device=cache.device)
        mask = torch.where(own, 0.0, -math.inf).to(cache.dtype).flatten(2)
        mask = F.pad(mask, (0, unused * slots), value=-math.inf) if unused else mask
        return mask[:, None].expand(-1, heads, -1, -1).contiguous()

    @cached_property
    def _seen(self) -> slice:
        """The target tokens whose keys the newest token multiplies: those that it sees, or a few more."""
        first = 0 if self.window is None else max(0, self.length - self.window)
        fewest = 0 if first else math.ceil(_fewest_keys(self.cache.device) / self.cache.shape[3])
        return slice(first, max(self.length + 1, fewest))

    def self_attend(self, qkv: Projected, score: Score, layer: int) -> Tensor:
        """Adds the keys and values of the newest tokens to the cache and attends to all target tokens so far.

        The cache must have room for one more token; see `grown`.

        `qkv` are queries, keys and values of the newest tokens: B * K of each.

        Returns:
            (B * K, H * Ev).
        """
        if self.positions is not None and self.positions.rotates:
            q, k, v = separated(qkv)
            qkv = (*self.positions.rotate(q, k, self.places.positions), v)
        kv = qkv[:, 1:] if isinstance(qkv, Tensor) else _of_one_width(qkv[1:])
        q, groups, cache = separated(qkv)[0], self.cache.shape[4], self.cache[layer]
        newest = kv.view(groups, -1, *kv.shape[1:])  # (G, K or 1, 2, H, W)
        cache[:, self.length, : newest.shape[1]] = newest.permute(2, 1, 0, 3, 4)
        keys, values = cache[:, self._seen].flatten(1, 2).permute(0, 2, 3, 1, 4).unbind()  # (G, H, L * C, W)
        keys, values = _narrowed(keys, q.shape[-1]), _narrowed(values, self.value_width)
        grouped, added = q.view(groups, -1, *q.shape[1:]).transpose(1, 2), self.hidden_slots
        if self.positions is not None and self.positions.acts_on_scores:
            added = self._with_bias(added, q, self.positions, layer)
        with plain_fp32_products():
            weights = _weights(grouped, keys, added, score)  # (G * H, K or 1, L * C)
            outputs = _per_hypothesis(weights @ values.flatten(0, 1), groups)
        if self.positions is not None and self.positions.acts_on_scores:
            by_token = weights.view(*weights.shape[:2], -1, cache.shape[2]).sum(-1)
            by_token = _per_hypothesis(by_token, groups)  # (B * K, H, L)
            extra = self.positions.values(by_token[:, :, None], *self._distances, layer)
            outputs = outputs if extra is None else outputs + extra[:, :, 0].to(outputs.dtype)
        return outputs.flatten(1)

    def _with_bias(self, mask: Tensor | None, q: Tensor, positions: Positions, layer: int) -> Tensor | None:
        """Adds the bias of the positional encoding to a mask; see `hidden_slots`.

        The mask broadcasts to (G, H, K or 1, L * C), and `q` is (B * K, H, E).
        """
        bias = positions.bias(q[:, :, None], *self._distances, layer)
        if bias is None:
            return mask
        slots, groups, heads = self.cache.shape[3:6]
        bias = bias.expand(len(q), heads, 1, -1).reshape(groups, -1, heads, bias.shape[-1]).transpose(1, 2)
        bias = bias[..., None].expand(-1, -1, -1, -1, slots).flatten(3)
        return bias if mask is None else bias + mask

    @cached_property
    def _distances(self) -> tuple[Tensor, Tensor]:
        """The positions of the newest token, (1,), and of the tokens in `_seen`, (L,)."""
        places = torch.arange(self._seen.start, self._seen.stop, device=self.cache.device)
        return torch.full((1,), self.length, device=places.device), places

    def cross_attend(self, q: Tensor, keys_values: Projected | None, score: Score, layer: int) -> Tensor:
        """Attends to the sources; one matrix product takes all hypotheses of a sentence as queries.

        `q` is (B * K, H, E), and `keys_values` None, since `cross` holds them.

        Returns:
            (B * K, H * Ev).
        """
        keys, values = self.cross[layer]
        keys, values = _narrowed(keys, q.shape[-1]), _narrowed(values, self.value_width)
        folded = q.view(self.num_sentences, self.num_hypotheses, *q.shape[1:]).transpose(1, 2)
        with plain_fp32_products():
            weights = _weights(folded, keys, self.mask, score)
            outputs = weights @ values.flatten(0, 1)
        if self.attention is not None:
            self.attention[layer] = weights.view(*folded.shape[:3], -1)[..., : self.longest]
        return _per_hypothesis(outputs, self.num_sentences).flatten(1)


def _fewest_keys(device: torch.device) -> int:
    """The number of keys that a query multiplies at least; the products of fewer are slow on the CPU, too."""
    return FEWEST_KEYS if device.type == "cpu" else 0


def _of_one_width(keys_values: Projected) -> Tensor:
    """Returns keys and values as (N, 2, H, W); zeros follow the narrower ones."""
    if isinstance(keys_values, Tensor):
        return keys_values
    width = max(each.shape[-1] for each in keys_values)
    # `pad` copies, even if it adds nothing.
    wide = (x if x.shape[-1] == width else F.pad(x, (0, width - x.shape[-1])) for x in keys_values)
    return torch.stack([*wide], 1)


def _narrowed(x: Tensor, width: int) -> Tensor:
    return x if x.shape[-1] == width else x[..., :width]


def _weights(q: Tensor, k: Tensor, added: Tensor | None, score: Score) -> Tensor:
    """Queries (B, H, Lq, E) and keys (B, H, Lk, E) → attention weights (B * H, Lq, Lk)."""
    if score.scale is None:
        scores = score(q, k)
        return normalised(scores if added is None else scores + added.to(q.dtype)).flatten(0, 1)
    if added is not None:
        added = added.to(q.dtype).expand(*q.shape[:2], *added.shape[-2:]).flatten(0, 1)
    return attention_weights(q.flatten(0, 1), k.flatten(0, 1), score.scale, added)


def _move(x: Tensor, dim: int, sources: Tensor, places: Tensor) -> None:
    """Copies the rows `sources` of a dimension to `places`, which are other rows of it."""
    if x.device.type != "cpu":
        x.index_copy_(dim, places, x.index_select(dim, sources))
        return
    # They are few, and these copies are up to four times as fast.
    for place, source in zip(places.tolist(), sources.tolist(), strict=True):
        x.select(dim, place).copy_(x.select(dim, source))


def _per_hypothesis(x: Tensor, groups: int) -> Tensor:
    """(G * H, K or 1, M) → (B * K, H, M)."""
    return x.view(groups, -1, *x.shape[1:]).transpose(1, 2).flatten(0, 1)


def _enlarged(cache: Tensor, length: int, slots: int, rows: Tensor | None = None) -> Tensor:
    """Returns a cache of `length` tokens with room for more, and with `slots` slots; or its `rows`."""
    layers, two, _, old_slots, count, heads, width = cache.shape
    fewest = math.ceil(_fewest_keys(cache.device) / slots)
    size = max(length + max(_CHUNK, length // 2), fewest)
    count = count if rows is None else len(rows)
    new = cache.new_empty(layers, two, size, slots, count, heads, width)
    new[:, :, length:fewest] = 0
    used = cache[:, :, :length]
    new[:, :, :length, :old_slots] = used if rows is None else used.index_select(4, rows)
    if slots > old_slots:
        new[:, :, :length, old_slots:] = 0
    return new


def _separated(cache: Tensor, ancestors: Tensor, places: Tensor) -> Tensor:
    """Returns a cache per hypothesis, with one slot, from a cache per sentence.

    Args:
        cache: (N, 2, T or more, C, B, H, W).
        ancestors: (B, K, T).
        places: (B, K'), the hypotheses to select, below K.
    """
    layers, two, _, _, count, heads, width = cache.shape
    length, wanted = ancestors.shape[2], places.shape[1]
    slots = ancestors.gather(1, places[:, :, None].expand(-1, -1, length)).flatten(0, 1)  # (B * K', T)
    rows = torch.arange(count, device=cache.device).repeat_interleave(wanted)
    used = cache[:, :, :length].index_select(4, rows)
    index = slots.t()[None, None, :, None, :, None, None].expand(layers, two, -1, 1, -1, heads, width)
    return _enlarged(used.gather(3, index), length, 1)
