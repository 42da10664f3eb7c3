"""Groups of sentences padded to one length, and the mapping between padded groups and a flat stream.

Shapes: N tokens of a stream, P projections (3: queries, keys and values; 2: keys and values; 1: queries), H
heads, E width of a head; B sentences of a group, padded to L tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from nmt.data.batches.batching import Layout
from nmt.model.backend import Pattern
from nmt.model.packed import selected
from nmt.runtime.lazy import cached_property

T = TypeVar("T")
Array = np.ndarray[Any, np.dtype[np.int64]]


class PaddedGroups:
    """The sentences of a batch in padded groups; created once per batch and used by all layers.

    Args:
        pattern: the keys that each query sees.
        overhead: the call overhead of one more group, in units of the work for one query, key and head.
    """

    def __init__(self, pattern: Pattern, overhead: int) -> None:
        self.pattern, self._overhead = pattern, overhead

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
    def key_value_map(self) -> PaddingMap:
        """The padding map of a stream (N, 2, H, E) of keys and values."""
        return self._map(self.pattern.keys, [group.keys for group in self.groups], 2)

    @cached_property
    def self_map(self) -> PaddingMap:
        """The padding map of a stream (N, 3, H, E) of queries, keys and values."""
        return self._map(self.pattern.queries, [group.queries for group in self.groups], 3)

    def masks(self, dtype: torch.dtype) -> list[Tensor | None]:
        """Returns the mask of each group: (B * H or 1, Lq or 1, Lk), 0 or -inf; None if it would be all 0."""
        return self.cached(dtype, lambda: [self._mask(group, dtype) for group in self.groups])

    def cached(self, key: Any, make: Callable[[], T]) -> T:
        """Returns `make()`, computed once per `key` and shared by all layers."""
        if key not in self._cache:
            self._cache[key] = make()
        value: T = self._cache[key]
        return value

    @cached_property
    def _cache(self) -> dict[Any, Any]:
        return {}

    def _mask(self, group: Group, dtype: torch.dtype) -> Tensor | None:
        longest = int(group.keys.max())
        if self.pattern.causal:  # padding comes after all tokens of its sentence, so this masks padding too
            masked = np.triu(np.ones((1, longest, longest), bool), 1)
        else:
            masked = (np.arange(longest) >= group.keys.repeat(self.pattern.heads)[:, None])[:, None]
        if not masked.any():
            return None
        return self.mask_of(masked, dtype)

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

        Args:
            firsts: for each group, (B,) the indices of the first tokens of its sentences.
            lengths: for each group, (B,) the lengths of its sentences.
            parts: P.
            heads: H.
            device: the device of the stream.
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

        Args:
            flat: the stream.
            zeros: whether to fill padding with 0; otherwise it holds finite values.
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
