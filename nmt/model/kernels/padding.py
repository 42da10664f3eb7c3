"""Groups of sentences padded to one length, and the map between them and a flat stream.

Shapes: N tokens of a stream, P projections side by side (queries, keys and values: 3; keys and values: 2), H
heads, E width of a head; B sentences padded to L tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, TypeVar

import numpy as np
import torch
from torch import Tensor

from nmt.data.batches.batching import Layout
from nmt.model.positions import Positions

T = TypeVar("T")
Array = np.ndarray[Any, np.dtype[np.int64]]


class Pattern:
    """Which tokens see which (those of the same sentence), and how positions act on that.

    Made once a batch and used by all layers.

    Args:
        queries: where sentences stand in the stream of the queries.
        keys: where they stand in that of the keys; as many, in the same order.
        heads: H.
        causal: whether a query sees only keys up to its own position (the streams are one then).
        positions: the encoding whose hooks act in attention; None: none does.
        window: a query sees at most so many keys to either side (the streams are one then); None: all.
    """

    def __init__(
        self,
        queries: Layout,
        keys: Layout,
        heads: int,
        *,
        causal: bool,
        positions: Positions | None = None,
        window: int | None = None,
    ) -> None:
        self.queries, self.keys, self.heads, self.causal = queries, keys, heads, causal
        self.positions, self.window = positions, window
        self.acts_on_scores = positions is not None and positions.acts_on_scores

    @cached_property
    def groups(self) -> list[Group]:
        """Sentences of like length, to be padded together."""
        q, k = np.array(self.queries.lengths), np.array(self.keys.lengths)
        order = np.argsort(q + k, kind="stable")
        ranges = split(q[order], k[order], _group_overhead(self._device) / self.heads)
        return [Group(order[a:b], q[order[a:b]], k[order[a:b]]) for a, b in ranges]

    @cached_property
    def query_map(self) -> PaddingMap:
        """Where a stream of (N, 1, H, E) lies when padded."""
        return self._map(self.queries, [group.queries for group in self.groups], 1)

    @cached_property
    def key_value_map(self) -> PaddingMap:
        """The same for (N, 2, H, E)."""
        return self._map(self.keys, [group.keys for group in self.groups], 2)

    @cached_property
    def self_map(self) -> PaddingMap:
        """The same for (N, 3, H, E)."""
        return self._map(self.queries, [group.queries for group in self.groups], 3)

    def masks(self, dtype: torch.dtype) -> list[Tensor | None]:
        """The mask of each group: (B * H or 1, Lq or 1, Lk), 0 or -inf; None where each token sees all."""
        return self.once(dtype, lambda: [self._mask(group, dtype) for group in self.groups])

    def once(self, key: Any, make: Callable[[], T]) -> T:
        """What `make` returns, called for each `key` in the first layer alone."""
        if key not in self._made:
            self._made[key] = make()
        made: T = self._made[key]
        return made

    @cached_property
    def _made(self) -> dict[Any, Any]:
        return {}

    def _mask(self, group: Group, dtype: torch.dtype) -> Tensor | None:
        longest = int(group.keys.max())
        if self.causal:  # a sentence's padding comes after all its tokens, so this hides it too
            banned = np.triu(np.ones((1, longest, longest), bool), 1)
        else:
            banned = (np.arange(longest) >= group.keys.repeat(self.heads)[:, None])[:, None]
        if not banned.any():
            return None
        return self.mask_of(banned, dtype)

    def mask_of(self, banned: np.ndarray[Any, np.dtype[np.bool_]], dtype: torch.dtype) -> Tensor:
        """-inf where `banned` is true and else 0, on the device of the batch."""
        mask = torch.zeros(banned.shape, dtype=dtype)
        return _sent(mask.masked_fill_(torch.from_numpy(banned), -math.inf), self._device)

    def _map(self, layout: Layout, lengths: list[Array], parts: int) -> PaddingMap:
        starts = np.cumsum((0, *layout.lengths))
        firsts = [starts[group.sentences] for group in self.groups]
        return PaddingMap.of(firsts, lengths, parts, self.heads, self._device)

    @property
    def _device(self) -> torch.device:
        return self.queries.positions.device


@dataclass(frozen=True)
class Group:
    """Sentences padded together: their numbers in the batch and their lengths on both sides, (B,) each."""

    sentences: Array
    queries: Array
    keys: Array


@dataclass(frozen=True)
class PaddingMap:
    """The map between a flat stream (N, P, H, E) and its padded groups (P, B, H, L, E), one after the other.

    It is one to one but for the padding. So either way is a gather of rows of E values, and the backward of
    one way is the other way; autograd, which cannot know, would add rows up by index, and that is slow.
    """

    to_padded: Tensor
    """For each padded row, the flat row it shows; padding shows its sentence's last token."""
    to_flat: Tensor
    """For each flat row, its place among the padded ones."""
    padding: Tensor
    """The padded rows that are padding."""
    shapes: list[tuple[int, int, int]]
    """(P, B * H, L) of each group."""

    @classmethod
    def of(
        cls, firsts: list[Array], lengths: list[Array], parts: int, heads: int, device: torch.device
    ) -> PaddingMap:
        """Maps groups of sentences that begin at the tokens `firsts` and have `lengths`."""
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
        moved = [_sent(torch.from_numpy(array), device) for array in (to_padded, to_flat, padding)]
        return cls(moved[0], moved[1], moved[2], shapes)

    def pad(self, flat: Tensor, *, zeros: bool = False) -> list[Tensor]:
        """(N, P, H, E) → (P, B * H, L, E) of each group. Padding is zero, or if not asked for, finite."""
        return self.views(self.rows(flat, zeros=zeros))

    def rows(self, flat: Tensor, *, zeros: bool = False) -> Tensor:
        """(N, P, H, E) → (padded rows, E); see `pad`."""
        rows = flat.reshape(-1, flat.shape[-1]).index_select(0, self.to_padded)
        if zeros and len(self.padding):
            rows.index_fill_(0, self.padding, 0)
        return rows

    def empty(self, like: Tensor) -> tuple[Tensor, list[Tensor]]:
        """Padded rows, uninitialised, and the views of the groups into them, to be filled before `unpad`."""
        rows = like.new_empty(len(self.to_padded), like.shape[-1])
        return rows, self.views(rows)

    def views(self, rows: Tensor) -> list[Tensor]:
        """Padded rows → (P, B * H, L, E) of each group."""
        sizes = [math.prod(shape) for shape in self.shapes]
        return [
            part.view(*shape, -1) for part, shape in zip(torch.split(rows, sizes), self.shapes, strict=True)
        ]

    def unpad(self, rows: Tensor, shape: torch.Size) -> Tensor:
        """Padded rows → the flat stream of `shape` (N, P, H, E)."""
        return rows.index_select(0, self.to_flat).view(shape)


def _sent(here: Tensor, device: torch.device) -> Tensor:
    """Copies to `device`; to a GPU from page-locked memory, without a synchronisation."""
    if device.type == "cuda" and here.numel():
        return here.pin_memory().to(device, non_blocking=True)
    return here.to(device)


def _group_overhead(device: torch.device) -> int:
    """What one more group costs in calls, in units of the work of one query, key and head.

    Measured on a CPU; estimated for a GPU, where work is cheap and calls are not.
    """
    return 3_200_000 if device.type == "cuda" else 32_000


def split(query_lengths: Array, key_lengths: Array, overhead: float) -> list[tuple[int, int]]:
    """Cuts sentences, in order of length, into ranges to be padded together.

    Each cut is the one that saves most padding, as long as that is worth a group's `overhead`.

    Args:
        query_lengths: (B,) tokens of each sentence, 1 or more.
        key_lengths: (B,) the same of the other side.
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
