"""Attention over groups of sentences padded to one length, forward and backward: dot products of all keys.

`nmt.model.cpu.variants` has the other scores, encodings that act on scores, windows, and values of another
width than the keys.

Shapes: N tokens of a stream, P projections (3: queries, keys and values; 2: keys and values; 1: one of them),
H heads, E width of the queries and keys of a head, Ev of its values; B sentences of a group, padded to L
tokens; G = B * H, Lq queries and Lk keys.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.data.batches.batching import Layout
from nmt.model.attention import (
    Attention,
    Pattern,
    Projected,
    Score,
    attention_weights,
    normalised_backward,
    separated,
)
from nmt.runtime.fp32_products import plain_fp32_products
from nmt.runtime.lazy import cached_property

Array = np.ndarray[Any, np.dtype[np.int64]]
Triple = tuple[Tensor, Tensor, Tensor]
"""Queries (G, Lq, E), keys (G, Lk, E) and values (G, Lk, Ev) of a group, or their gradients."""


class PaddedAttention(Attention):
    """Attention over padded groups; one autograd node for all groups of a batch. See `Attention`.

    Args:
        pattern: the keys that each query sees.
        overhead: the call overhead of one more group, in units of the work for one query, key and head.
    """

    def __init__(self, pattern: Pattern, overhead: int) -> None:
        self.pattern, self._overhead = pattern, overhead
        self._masks: dict[torch.dtype, list[Tensor | None]] = {}

    def self_attend(self, qkv: Projected, score: Score, layer: int) -> Tensor:
        """See `Attention.self_attend`."""
        if self.pattern.rotates:
            q, k, v = separated(qkv)
            qkv = (*self.pattern.rotated(q, k), v)
        return self.attend(self._streams(qkv), score, layer).flatten(1)

    def cross_attend(self, q: Tensor, keys_values: Projected | None, score: Score, layer: int) -> Tensor:
        """See `Attention.cross_attend`."""
        assert keys_values is not None
        return self.attend([q[:, None], *self._streams(keys_values)], score, layer).flatten(1)

    def _streams(self, projected: Projected) -> list[Tensor]:
        """Returns projections of a stream as one tensor, or as one for each if their widths differ."""
        if isinstance(projected, Tensor):
            return [projected]
        if self.pattern.has_one_width:
            return [torch.stack(projected, 1)]
        return [each[:, None] for each in projected]

    def attend(self, streams: Sequence[Tensor], score: Score, layer: int) -> Tensor:
        """Attends within sentences.

        Args:
            streams: (N, 3, H, E), queries, keys and values of one stream; or two streams: (N, 1, H, E),
                queries, and (S, 2, H, E), keys and values. If the widths differ, three: the last one is
                (S, 1, H, Ev).
            score: the score of the layer.
            layer: index of the layer, from 0.

        Returns:
            (N, 1, H, Ev).
        """
        assert self.pattern.scale is not None
        return _attend(self, self.pattern.scale, *streams)

    @cached_property
    def groups(self) -> list[Group]:
        """The sentences in groups of similar length; each group is padded to one length."""
        q, k = np.array(self.pattern.queries.lengths), np.array(self.pattern.keys.lengths)
        order = np.argsort(q + k, kind="stable")
        ranges = split(q[order], k[order], self._overhead / self.pattern.heads)
        return [Group(order[a:b], q[order[a:b]], k[order[a:b]]) for a, b in ranges]

    @cached_property
    def query_map(self) -> PaddingMap:
        """The padding map of a stream (N, 1, H, E) of queries."""
        return self._map(self.pattern.queries, [group.queries for group in self.groups], 1)

    @cached_property
    def _key_value_map(self) -> PaddingMap:
        return self._map(self.pattern.keys, [group.keys for group in self.groups], 2)

    @cached_property
    def _key_map(self) -> PaddingMap:
        return self._map(self.pattern.keys, [group.keys for group in self.groups], 1)

    @cached_property
    def _joined_map(self) -> PaddingMap:
        return self._map(self.pattern.queries, [group.queries for group in self.groups], 3)

    def maps(self, num_streams: int) -> Iterator[PaddingMap]:
        """Yields the padding maps of the streams of `attend`."""
        if num_streams == 1:
            yield self._joined_map
        elif num_streams == 2:
            yield from (self.query_map, self._key_value_map)
        else:
            yield from (self.query_map, self._key_map, self._key_map)

    def masks(self, dtype: torch.dtype) -> list[Tensor | None]:
        """Returns the mask of each group: (B * H or 1, Lq or 1, Lk), 0 or -inf; None if it would be all 0."""
        if dtype not in self._masks:
            self._masks[dtype] = [self._mask(group, dtype) for group in self.groups]
        return self._masks[dtype]

    def _mask(self, group: Group, dtype: torch.dtype) -> Tensor | None:
        longest = int(group.keys.max())
        if self.pattern.causal:  # padding comes after all tokens of its sentence, so this masks padding too
            masked = np.triu(np.ones((1, longest, longest), bool), 1)
        else:
            masked = (np.arange(longest) >= group.keys.repeat(self.pattern.heads)[:, None])[:, None]
        return self.mask_of(masked, dtype) if masked.any() else None

    def mask_of(self, masked: np.ndarray[Any, np.dtype[np.bool_]], dtype: torch.dtype) -> Tensor:
        """Returns a mask on the device of the batch: -inf where `masked` is true, otherwise 0."""
        mask = torch.zeros(masked.shape, dtype=dtype)
        return _to_device(mask.masked_fill_(torch.from_numpy(masked), -math.inf), self.device)

    def _map(self, layout: Layout, lengths: list[Array], parts: int) -> PaddingMap:
        starts = np.cumsum((0, *layout.lengths))
        firsts = [starts[group.sentences] for group in self.groups]
        return PaddingMap.of(firsts, lengths, parts, self.pattern.heads, self.device)

    @property
    def device(self) -> torch.device:
        """The device of the batch."""
        return self.pattern.queries.positions.device


class _Attend(torch.autograd.Function):
    """Attention of all groups in one autograd node; saves the attention weights and recomputes nothing."""

    @staticmethod
    def forward(ctx: Any, attention: PaddedAttention, scale: float, *streams: Tensor) -> Tensor:
        ctx.attention, ctx.scale = attention, scale
        ctx.dtype, ctx.shapes = streams[0].dtype, [stream.shape for stream in streams]
        saved: list[Tensor] = []
        with fp32_products(streams[0].device):
            wide = [at_least_fp32(stream) for stream in streams]
            maps = zip(attention.maps(len(wide)), wide, strict=True)
            inputs = triples([padding_map.pad(stream) for padding_map, stream in maps])
            rows, outputs = attention.query_map.empty(wide[0])
            masks = attention.masks(wide[0].dtype)
            for (qs, ks, vs), out, mask in zip(inputs, outputs, masks, strict=True):
                weights = attention_weights(qs, ks, scale, mask)
                torch.bmm(weights, vs, out=out[0])
                saved += [qs, ks, vs, weights]
        ctx.save_for_backward(*saved)
        length, _, *head = streams[0].shape
        return attention.query_map.unpad(rows, torch.Size((length, 1, *head)))

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        saved, maps = ctx.saved_tensors, list(ctx.attention.maps(len(ctx.shapes)))
        with fp32_products(grad.device):
            rows, views = zip(*(padding_map.empty(grad) for padding_map in maps), strict=True)
            # The gradients of keys and values sum over queries: padded queries must contribute 0.
            outputs = ctx.attention.query_map.pad(grad, zeros=True)
            for i, (out, grads) in enumerate(zip(outputs, triples(views), strict=True)):
                qs, ks, vs, weights = saved[4 * i : 4 * i + 4]
                torch.bmm(weights.transpose(1, 2), out[0], out=grads[2])
                grad_weights = torch.bmm(out[0], vs.transpose(1, 2))
                grad_scores = normalised_backward(grad_weights, weights).mul_(ctx.scale)
                torch.bmm(grad_scores, ks, out=grads[0])
                torch.bmm(grad_scores.transpose(1, 2), qs, out=grads[1])
        unpadded = zip(maps, rows, ctx.shapes, strict=True)
        return None, None, *(each.unpad(part, shape).to(ctx.dtype) for each, part, shape in unpadded)


_attend: Callable[..., Tensor] = _Attend.apply


def triples(streams: Sequence[Sequence[Tensor]]) -> list[Triple]:
    """Padded groups of each stream of `PaddedAttention.attend`, (P, G, L, E) → those of each group."""
    if len(streams) == 1:
        return [(group[0], group[1], group[2]) for group in streams[0]]
    if len(streams) == 2:
        return [(query[0], key[0], key[1]) for query, key in zip(*streams, strict=True)]
    return [(query[0], key[0], value[0]) for query, key, value in zip(*streams, strict=True)]


def at_least_fp32(x: Tensor) -> Tensor:
    """Returns a tensor of the CPU in fp32 or wider; another one as it is."""
    return x.to(torch.promote_types(x.dtype, torch.float32)) if x.device.type == "cpu" else x


@contextmanager
def fp32_products(device: torch.device) -> Iterator[None]:
    """On the CPU, disables autocast, and oneDNN in fp32 matrix products."""
    if device.type != "cpu":
        yield
        return
    with torch.autocast("cpu", enabled=False), plain_fp32_products():
        yield


@dataclass(frozen=True)
class Group:
    """Sentences that are padded to one length.

    Attributes:
        sentences: (B,) their indices in the batch.
        queries: (B,) number of queries of each.
        keys: (B,) number of keys of each.
    """

    sentences: Array
    queries: Array
    keys: Array


@dataclass(frozen=True)
class PaddingMap:
    """The mapping between a flat stream (N, P, H, E) and its padded groups (P, B, H, L, E).

    Rows have E values. Except for padding, the mapping is one to one. So each direction is a gather of rows,
    and the backward of one direction is the other direction. Autograd would use the slower `index_add_`,
    because it does not know that the indices are distinct.
    """

    to_padded: Tensor
    """(padded rows,) int64, the flat row of each padded row; padding repeats the last token of a sentence."""
    to_flat: Tensor
    """(flat rows,) int64, the padded row of each flat row."""
    padding: Tensor
    """int64, the indices of the padded rows that are padding."""
    shapes: list[tuple[int, int, int]]
    """(P, B * H, L) of each group."""

    @classmethod
    def of(
        cls, firsts: list[Array], lengths: list[Array], parts: int, heads: int, device: torch.device
    ) -> PaddingMap:
        """Builds the mapping.

        `firsts` are the indices of the first tokens of the sentences of each group, and `lengths` their
        lengths, (B,) each. `parts` is P.
        """
        rows, real, shapes = [], [], []
        for first, length in zip(firsts, lengths, strict=True):
            place = np.arange(length.max())
            token = first[:, None] + np.minimum(place, length[:, None] - 1)  # (B, L)
            part, head = np.arange(parts)[:, None, None, None], np.arange(heads)[:, None]
            row = (token[:, None] * parts + part) * heads + head  # (P, B, H, L)
            rows.append(row.reshape(-1))
            real.append(np.broadcast_to((place < length[:, None])[:, None], row.shape).reshape(-1))
            shapes.append((parts, len(length) * heads, len(place)))
        to_padded, is_real = np.concatenate(rows), np.concatenate(real)
        to_flat = np.empty(int(is_real.sum()), np.int64)
        to_flat[to_padded[is_real]] = np.flatnonzero(is_real)
        padding = np.flatnonzero(~is_real)
        moved = [_to_device(torch.from_numpy(array), device) for array in (to_padded, to_flat, padding)]
        return cls(moved[0], moved[1], moved[2], shapes)

    def pad(self, flat: Tensor, *, zeros: bool = False) -> list[Tensor]:
        """(N, P, H, E) → (P, B * H, L, E) for each group.

        With `zeros`, padding is 0; otherwise it holds finite values.
        """
        rows = flat.reshape(-1, flat.shape[-1])
        return self.views(selected(rows, self.to_padded, self.padding if zeros else None))

    def empty(self, like: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Returns uninitialised padded rows, and their views by group, to be filled before `unpad`."""
        rows = like.new_empty(len(self.to_padded), like.shape[-1])
        return rows, self.views(rows)

    def views(self, rows: Tensor) -> list[Tensor]:
        """Padded rows → (P, B * H, L, E) for each group."""
        sizes = [math.prod(shape) for shape in self.shapes]
        return [
            part.view(*shape, -1) for part, shape in zip(torch.split(rows, sizes), self.shapes, strict=True)
        ]

    def unpad(self, rows: Tensor, shape: torch.Size) -> Tensor:
        """Padded rows → the flat stream of `shape` (N, P, H, E)."""
        return rows.index_select(0, self.to_flat).view(shape)


def _to_device(x: Tensor, device: torch.device) -> Tensor:
    """Copies a tensor to `device`; to a GPU through pinned memory, without a host synchronisation."""
    if device.type == "cuda" and x.numel():
        return x.pin_memory().to(device, non_blocking=True)
    return x.to(device)


def split(query_lengths: Array, key_lengths: Array, overhead: float) -> list[tuple[int, int]]:
    """Splits sentences, sorted by length, into ranges that are each padded to one length.

    Greedily splits a range where this saves most padding, if it saves more than `overhead`.

    Args:
        query_lengths: (B,) number of queries of each sentence, 1 or more.
        key_lengths: (B,) number of keys of each sentence.
        overhead: cost of one more group, in padded pairs of query and key.

    Returns:
        Ranges [first, end) that cover all sentences, in order.
    """
    pending, ranges = [(0, len(query_lengths))] if len(query_lengths) else [], []
    while pending:
        a, b = pending.pop()
        q, k = query_lengths[a:b], key_lengths[a:b]
        sizes = np.arange(1, b - a)
        head = sizes * np.maximum.accumulate(q)[:-1] * np.maximum.accumulate(k)[:-1]
        tail = (
            sizes[::-1] * np.maximum.accumulate(q[::-1])[::-1][1:] * np.maximum.accumulate(k[::-1])[::-1][1:]
        )
        both = head + tail
        cut = int(both.argmin()) + 1 if len(both) else 0
        if cut and (b - a) * int(q.max()) * int(k.max()) - int(both[cut - 1]) > overhead:
            pending += [(a + cut, b), (a, a + cut)]
        else:
            ranges.append((a, b))
    return ranges


class _Gathered(torch.autograd.Function):
    """See `gathered`."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, order: Tensor, inverse: Tensor, zeroed: Tensor | None) -> Tensor:
        ctx.inverse, ctx.zeroed = inverse, zeroed
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        return selected(grad, ctx.inverse, ctx.zeroed), None, None, None


gathered: Callable[..., Tensor] = _Gathered.apply
"""(x, order, inverse, zeroed): the rows `order` of `x`; the gradient is `selected` with the other arguments.

That of `index_select` is the slower `index_add_`: autograd does not know that real rows are distinct."""


def selected(x: Tensor, order: Tensor, zeroed: Tensor | None = None) -> Tensor:
    """Returns the rows `order` of `x`, and 0 in the rows `zeroed` of the result."""
    rows = x.index_select(0, order)
    return rows if zeroed is None or not len(zeroed) else rows.index_fill_(0, zeroed, 0)
