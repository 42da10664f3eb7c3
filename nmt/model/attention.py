"""Multi-head attention over flat batches (section 3.2 of the paper).

Only this file knows where sentences begin. Shapes: N tokens of a stream, P projections side by side (queries,
keys and values: 3; keys and values: 2), H heads, E width of a head; B sentences padded to L tokens.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import torch
from torch import Tensor

from nmt.data.batching import Layout
from nmt.model.varlen import attend_varlen, supports_varlen

Array = np.ndarray[Any, np.dtype[np.int64]]


def self_attend(qkv: Tensor, pattern: Pattern) -> Tensor:
    """Attends from tokens of a stream to tokens of the same sentence.

    Args:
        qkv: (N, 3, H, E), contiguous; queries, keys and values.
        pattern: who sees whom.

    Returns:
        (N, H * E), the heads' outputs side by side.
    """
    if supports_varlen(qkv):
        q, k, v = qkv.unbind(1)
        return attend_varlen(q, k, v, pattern.queries, pattern.keys, causal=pattern.causal).flatten(1)
    return _attend(qkv, None, pattern).flatten(1)


def cross_attend(q: Tensor, kv: Tensor, pattern: Pattern) -> Tensor:
    """Attends from tokens of one stream to tokens of the same sentence in another.

    Args:
        q: (N, 1, H, E), contiguous; queries.
        kv: (N of the other stream, 2, H, E), contiguous; keys and values.
        pattern: who sees whom.

    Returns:
        (N, H * E), the heads' outputs side by side.
    """
    if supports_varlen(q):
        k, v = kv.unbind(1)
        return attend_varlen(q[:, 0], k, v, pattern.queries, pattern.keys, causal=pattern.causal).flatten(1)
    return _attend(q, kv, pattern).flatten(1)


class Pattern:
    """Which tokens see which: those of the same sentence, and where causal, none that follows.

    Made once a batch and used by all layers.

    Args:
        queries: where sentences stand in the stream of the queries.
        keys: where they stand in that of the keys; as many, in the same order.
        heads: H.
        causal: whether a query sees only keys up to its own position (the streams are one then).
    """

    def __init__(self, queries: Layout, keys: Layout, heads: int, *, causal: bool) -> None:
        self.queries, self.keys, self.heads, self.causal = queries, keys, heads, causal

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

    def hidden(self, dtype: torch.dtype) -> list[Tensor | None]:
        """What is added to the scores of each group: (B * H, Lq or 1, Lk), or None where each sees all."""
        if dtype not in self._hidden:
            self._hidden[dtype] = [self._hide(group, dtype) for group in self.groups]
        return self._hidden[dtype]

    @cached_property
    def _hidden(self) -> dict[torch.dtype, list[Tensor | None]]:
        return {}

    def _hide(self, group: Group, dtype: torch.dtype) -> Tensor | None:
        longest = int(group.keys.max())
        if self.causal:  # a sentence's padding comes after all its tokens, so this hides it too
            banned = np.triu(np.ones((1, longest, longest), bool), 1)
        else:
            banned = (np.arange(longest) >= group.keys.repeat(self.heads)[:, None])[:, None]
        if not banned.any():
            return None
        hidden = torch.zeros(banned.shape, dtype=dtype)
        return _sent(hidden.masked_fill_(torch.from_numpy(banned), -math.inf), self._device)

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
        rows = flat.reshape(-1, flat.shape[-1]).index_select(0, self.to_padded)
        if zeros and len(self.padding):
            rows.index_fill_(0, self.padding, 0)
        return self.views(rows)

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
    """On `device`; from page-locked memory, so that nobody waits for what a GPU is doing."""
    if device.type == "cuda" and here.numel():
        return here.pin_memory().to(device, non_blocking=True)
    return here.to(device)


class _Attention(torch.autograd.Function):
    """All groups, forward and backward, in one node; it keeps the softmaxes and recomputes nothing."""

    @staticmethod
    def forward(ctx: Any, q: Tensor, kv: Tensor | None, pattern: Pattern) -> Tensor:
        ctx.dtype = q.dtype
        if q.device.type == "cpu":
            with _small_products():
                return _Attention._forward(ctx, _widened(q), None if kv is None else _widened(kv), pattern)
        return _Attention._forward(ctx, q, kv, pattern)

    @staticmethod
    def backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        if grad.device.type == "cpu":
            with _small_products():
                return _Attention._backward(ctx, grad)
        return _Attention._backward(ctx, grad)

    @staticmethod
    def _forward(ctx: Any, q: Tensor, kv: Tensor | None, pattern: Pattern) -> Tensor:
        shape = torch.Size((len(q), 1, *q.shape[2:]))
        if kv is None:
            inputs = [(group[0], group[1], group[2]) for group in pattern.self_map.pad(q)]
        else:
            pairs = zip(pattern.query_map.pad(q), pattern.key_value_map.pad(kv), strict=True)
            inputs = [(query[0], key[0], key[1]) for query, key in pairs]
        rows, outputs = pattern.query_map.empty(q)
        saved: list[Tensor] = []
        for (qs, ks, vs), out, hidden in zip(inputs, outputs, pattern.hidden(q.dtype), strict=True):
            weights = _weights(qs, ks, hidden)
            torch.bmm(weights, vs, out=out[0])
            saved += [qs, ks, vs, weights]
        ctx.save_for_backward(*saved)
        ctx.pattern, ctx.q_shape, ctx.kv_shape = pattern, q.shape, None if kv is None else kv.shape
        return pattern.query_map.unpad(rows, shape)

    @staticmethod
    def _backward(ctx: Any, grad: Tensor) -> tuple[Tensor | None, ...]:
        pattern, saved = ctx.pattern, ctx.saved_tensors
        if ctx.kv_shape is None:
            rows, groups = pattern.self_map.empty(grad)
            grads = [(group[0], group[1], group[2]) for group in groups]
        else:
            q_rows, q_groups = pattern.query_map.empty(grad)
            kv_rows, kv_groups = pattern.key_value_map.empty(grad)
            grads = [(query[0], key[0], key[1]) for query, key in zip(q_groups, kv_groups, strict=True)]
        # Zeros keep padded queries out of the sums over queries, in the gradients of keys and values.
        outputs = pattern.query_map.pad(grad, zeros=True)
        scale = 1 / math.sqrt(grad.shape[-1])
        for i, (out, (grad_q, grad_k, grad_v)) in enumerate(zip(outputs, grads, strict=True)):
            qs, ks, vs, weights = saved[4 * i : 4 * i + 4]
            torch.bmm(weights.transpose(1, 2), out[0], out=grad_v)
            grad_weights = torch.bmm(out[0], vs.transpose(1, 2))
            grad_scores = torch._softmax_backward_data(grad_weights, weights, -1, weights.dtype).mul_(scale)
            torch.bmm(grad_scores, ks, out=grad_q)
            torch.bmm(grad_scores.transpose(1, 2), qs, out=grad_k)
        if ctx.kv_shape is None:
            return pattern.self_map.unpad(rows, ctx.q_shape).to(ctx.dtype), None, None
        grad_q = pattern.query_map.unpad(q_rows, ctx.q_shape).to(ctx.dtype)
        return grad_q, pattern.key_value_map.unpad(kv_rows, ctx.kv_shape).to(ctx.dtype), None


_attend: Callable[..., Tensor] = _Attention.apply


def _widened(x: Tensor) -> Tensor:
    return x.to(torch.promote_types(x.dtype, torch.float32))


@contextmanager
def _small_products() -> Iterator[None]:
    """Batched products on the CPU as small as attention's are done in plain fp32.

    They are as fast so, and oneDNN, to whom torch gives those in bf16 and in fp32 with leave to take bf16,
    compiles a kernel for every new shape: in training that took five times as long as the products, and a
    gigabyte.
    """
    matmul: Any = getattr(torch.backends.mkldnn, "matmul", None)
    before = getattr(matmul, "fp32_precision", None)
    with torch.autocast("cpu", enabled=False):
        if before in (None, "none", "ieee"):
            yield
            return
        matmul.fp32_precision = "ieee"
        try:
            yield
        finally:
            matmul.fp32_precision = before


def _weights(q: Tensor, k: Tensor, hidden: Tensor | None) -> Tensor:
    """Softmax of the scaled products of (B * H, L, E): (B * H, Lq, Lk), summed up in fp32 at least."""
    scale = 1 / math.sqrt(q.shape[-1])
    if hidden is None:
        scores = torch.baddbmm(q.new_empty(1, 1, 1), q, k.transpose(1, 2), beta=0, alpha=scale)
    else:
        scores = torch.baddbmm(hidden, q, k.transpose(1, 2), alpha=scale)
    return scores.softmax(-1, dtype=torch.promote_types(q.dtype, torch.float32)).to(q.dtype)


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
