"""Triton kernels of attention over flat streams; `triton_attention` calls them.

A program computes a tile of adjacent queries of one head, whatever sentences they belong to. The keys that
a query sees are an interval of the stream of keys, so a tile reads the keys between the smallest and the
largest of its intervals, and masks the others. Kernels that compute each sentence by itself round its length
up to a tile of 128. Translation has sentences of about 30 tokens, so most of their work is for nothing.

The softmax is computed block by block of keys (Dao et al. 2022, "FlashAttention", algorithm 1), in fp32. The
gradients are computed by two kernels, one for queries and one for keys and values, from the log of each row's
sum of exponentials. Nothing is added up by several programs, so results are equal in every run.

This module needs Triton, so it is imported only where the kernels are used.

Shapes: N tokens of a stream, Nq of the queries and Nk of the keys; B sentences, H heads, E width of a head.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from nmt.model.gpu.kernel import operator

_TILE, _BLOCK = 64, 32  # rows of a tile, and columns of a block that it reads at a time; measured on an H100
_LOG2_E = 1.4426950408889634  # exponentials are powers of 2, which a GPU computes itself


@operator(lambda q, k, *_: (_outputs(q), _rows(q)))
def flat_attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_sentences: Tensor,
    k_seqlens: Tensor,
    causal: bool,
    window: int,
    scale: float,
) -> tuple[Tensor, Tensor]:
    """Computes attention within sentences.

    Args:
        q: (Nq, H, E), queries; a token's H * E values are adjacent, here and in `k` and `v`.
        k: (Nk, H, E), keys.
        v: (Nk, H, E), values.
        q_sentences: (Nq,) int32, the sentence of each query.
        k_seqlens: (B + 1,) int32, where the keys of each sentence begin, and where the last ones end.
        causal: whether a query sees only the keys up to its place in the stream; Nq is Nk.
        window: the number of keys that a query sees on either side, then Nq is Nk; -1: all.
        scale: factor on the dot products.

    Returns:
        (Nq, H, E), the outputs of the heads. (H, Nq) fp32, the logarithm to base 2 of each row's sum of
        exponentials.
    """
    _check(q, k, v)
    out, sums = _outputs(q), _rows(q)
    if len(q):
        _attend[_grid(q)](
            *(q, k, v, out, sums, q_sentences, k_seqlens, len(q)),
            *(q.stride(0), k.stride(0), v.stride(0), window, scale * _LOG2_E),
            CAUSAL=causal,
            **_sizes(q),
        )
    return out, sums


@operator(lambda *_: None, mutates=("grad_q", "grad_k", "grad_v", "added_q", "added_k", "added_v"))
def flat_attention_backward(
    grad: Tensor,
    out: Tensor,
    sums: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    q_sentences: Tensor,
    q_seqlens: Tensor,
    k_sentences: Tensor,
    k_seqlens: Tensor,
    causal: bool,
    window: int,
    scale: float,
    grad_q: Tensor,
    grad_k: Tensor,
    grad_v: Tensor,
    added_q: Tensor,
    added_k: Tensor,
    added_v: Tensor,
) -> None:
    """Computes the gradients of `flat_attention` and, on request, their sums over each tile of tokens.

    `grad`, `out` and `sums` are its results and the gradient of the first; `grad` is contiguous. All
    arguments from `q` to `scale` are as in `flat_attention`; `q_seqlens` and `k_sentences` are the same for
    the other stream. `grad_q`, `grad_k` and `grad_v` receive the gradients of `q`, `k` and `v`, and have
    their shapes; a token's values are adjacent. `added_q`, `added_k` and `added_v`, (P, H * E) fp32, receive
    their sums; P is `num_tiles`, and the values of a row are adjacent. If all three are (0, H * E), no sums
    are computed.
    """
    _check(q, k, v)
    _check(grad_q, grad_k, grad_v)
    has_sums = any(map(len, (added_q, added_k, added_v)))
    for added, x in ((added_q, q), (added_k, k), (added_v, v)):
        assert added.shape == (num_tiles(x) if has_sums else 0, x.shape[1:].numel())
        assert added.stride(1) == 1
        assert added.dtype is torch.float32
    assert grad.shape == out.shape == q.shape and grad.is_contiguous() and out.is_contiguous()
    along = torch.empty_like(sums)
    if len(q):
        _gradient_of_queries[_grid(q)](
            *(grad, out, sums, along, q, k, v, grad_q, added_q, q_sentences, k_seqlens, len(q)),
            *(q.stride(0), k.stride(0), v.stride(0), grad_q.stride(0), added_q.stride(0)),
            *(window, scale * _LOG2_E, scale),
            CAUSAL=causal,
            SUMS=has_sums,
            **_sizes(q),
        )
    if len(k):
        _gradient_of_keys[_grid(k)](
            *(grad, sums, along, q, k, v, grad_k, grad_v, added_k, added_v, k_sentences, q_seqlens),
            *(len(q), len(k), q.stride(0), k.stride(0), v.stride(0)),
            *(grad_k.stride(0), grad_v.stride(0), added_k.stride(0), added_v.stride(0)),
            *(window, scale * _LOG2_E, scale),
            CAUSAL=causal,
            SUMS=has_sums,
            **_sizes(q),
        )


def _outputs(q: Tensor) -> Tensor:
    return q.new_empty(q.shape)


def _rows(q: Tensor) -> Tensor:
    return q.new_empty(q.shape[1], len(q), dtype=torch.float32)


def _check(q: Tensor, k: Tensor, v: Tensor) -> None:
    """Checks what a kernel can't: shapes and memory layout of queries, keys and values."""
    assert k.shape == v.shape and q.shape[1:] == k.shape[1:]
    for tensor in (q, k, v):
        assert tensor.stride()[1:] == (tensor.shape[2], 1), "the values of a token are not adjacent"


def num_tiles(x: Tensor) -> int:
    """Returns the number of tiles of (N, H, E), queries or keys."""
    return -(-len(x) // _TILE)


def _grid(x: Tensor) -> tuple[int, int]:
    return num_tiles(x), x.shape[1]


def _sizes(q: Tensor) -> dict[str, Any]:
    return {"HEADS": q.shape[1], "WIDTH": q.shape[2], "TILE": _TILE, "BLOCK": _BLOCK, "num_warps": 4}


# Triton compiles the functions below and accepts no annotations except constexpr.
@triton.jit
def _interval(tokens, sentences, other_seqlens, count, window, CAUSAL: tl.constexpr, KEYS: tl.constexpr):
    """Returns the interval of the other stream that each token attends to, or is attended from.

    Tokens from `count` on have empty intervals. With KEYS the tokens are queries and the others keys.
    """
    inside = tokens < count
    sentence = tl.load(sentences + tokens, mask=inside, other=0)
    begin = tl.load(other_seqlens + sentence, mask=inside, other=0)
    end = tl.load(other_seqlens + sentence + 1, mask=inside, other=0)
    if CAUSAL:
        if KEYS:
            end = tl.where(inside, tokens + 1, 0)
        else:
            begin = tl.where(inside, tokens, 0)
    if window >= 0:
        begin = tl.where(inside, tl.maximum(begin, tokens - window), 0)
        end = tl.where(inside, tl.minimum(end, tokens + window + 1), 0)
    first = tl.min(tl.where(inside, begin, 2147483647), 0)
    return begin, end, first, tl.max(end, 0)


@triton.jit
def _attend(
    q,
    k,
    v,
    out,
    sums,
    q_sentences,
    k_seqlens,
    num_queries,
    q_stride,
    k_stride,
    v_stride,
    window,
    scale,
    CAUSAL: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    head = tl.program_id(1)
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = rows < num_queries
    columns = head * WIDTH + tl.arange(0, WIDTH)
    begin, end, first, last = _interval(rows, q_sentences, k_seqlens, num_queries, window, CAUSAL, True)
    places = rows.to(tl.int64)[:, None]
    queries = tl.load(q + places * q_stride + columns[None, :], mask=inside[:, None], other=0.0)
    largest = tl.full((TILE,), float("-inf"), tl.float32)
    total = tl.zeros((TILE,), tl.float32)
    result = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(first, last, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        there = (keys < last)[:, None]
        key_places = keys.to(tl.int64)[:, None]
        block = tl.load(k + key_places * k_stride + columns[None, :], mask=there, other=0.0)
        scores = tl.dot(queries, tl.trans(block)) * scale
        seen = (keys[None, :] >= begin[:, None]) & (keys[None, :] < end[:, None])
        scores = tl.where(seen, scores, float("-inf"))
        highest = tl.maximum(largest, tl.max(scores, 1))
        base = tl.where(highest == float("-inf"), 0.0, highest)  # no key of the row so far
        weights = tl.exp2(scores - base[:, None])
        shrunk = tl.exp2(largest - base)
        total = total * shrunk + tl.sum(weights, 1)
        block = tl.load(v + key_places * v_stride + columns[None, :], mask=there, other=0.0)
        result = result * shrunk[:, None] + tl.dot(weights.to(block.dtype), block)
        largest = highest
    total = tl.where(total > 0, total, 1.0)  # a token that sees nothing has the output 0
    result /= total[:, None]
    addresses = out + places * (HEADS * WIDTH) + columns[None, :]
    tl.store(addresses, result.to(out.dtype.element_ty), mask=inside[:, None])
    largest = tl.where(largest == float("-inf"), 0.0, largest)
    tl.store(sums + head.to(tl.int64) * num_queries + rows, largest + tl.log2(total), mask=inside)


@triton.jit
def _gradient_of_queries(
    grad,
    out,
    sums,
    along,
    q,
    k,
    v,
    grad_q,
    added_q,
    q_sentences,
    k_seqlens,
    num_queries,
    q_stride,
    k_stride,
    v_stride,
    grad_stride,
    added_stride,
    window,
    scale,
    plain_scale,
    CAUSAL: tl.constexpr,
    SUMS: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    head = tl.program_id(1)
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = rows < num_queries
    columns = head * WIDTH + tl.arange(0, WIDTH)
    begin, end, first, last = _interval(rows, q_sentences, k_seqlens, num_queries, window, CAUSAL, True)
    places = rows.to(tl.int64)[:, None]
    own = places * (HEADS * WIDTH) + columns[None, :]
    outer = tl.load(grad + own, mask=inside[:, None], other=0.0)
    outputs = tl.load(out + own, mask=inside[:, None], other=0.0)
    # The gradient of a softmax subtracts its mean; that of the weights is the gradient along the output.
    mean = tl.sum(outer.to(tl.float32) * outputs.to(tl.float32), 1)
    of_head = head.to(tl.int64) * num_queries + rows
    tl.store(along + of_head, mean, mask=inside)
    log_sums = tl.load(sums + of_head, mask=inside, other=0.0)
    queries = tl.load(q + places * q_stride + columns[None, :], mask=inside[:, None], other=0.0)
    result = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(first, last, BLOCK):
        keys = start + tl.arange(0, BLOCK)
        there = (keys < last)[:, None]
        key_places = keys.to(tl.int64)[:, None]
        block = tl.load(k + key_places * k_stride + columns[None, :], mask=there, other=0.0)
        values = tl.load(v + key_places * v_stride + columns[None, :], mask=there, other=0.0)
        scores = tl.dot(queries, tl.trans(block)) * scale
        seen = (keys[None, :] >= begin[:, None]) & (keys[None, :] < end[:, None])
        weights = tl.where(seen, tl.exp2(scores - log_sums[:, None]), 0.0)
        inner = weights * (tl.dot(outer, tl.trans(values)) - mean[:, None])
        result += tl.dot(inner.to(block.dtype), block)
    result *= plain_scale
    addresses = grad_q + places * grad_stride + columns[None, :]
    tl.store(addresses, result.to(grad_q.dtype.element_ty), mask=inside[:, None])
    if SUMS:
        tl.store(added_q + tl.program_id(0) * added_stride + columns, tl.sum(result, 0))


@triton.jit
def _gradient_of_keys(
    grad,
    sums,
    along,
    q,
    k,
    v,
    grad_k,
    grad_v,
    added_k,
    added_v,
    k_sentences,
    q_seqlens,
    num_queries,
    num_keys,
    q_stride,
    k_stride,
    v_stride,
    grad_k_stride,
    grad_v_stride,
    added_k_stride,
    added_v_stride,
    window,
    scale,
    plain_scale,
    CAUSAL: tl.constexpr,
    SUMS: tl.constexpr,
    HEADS: tl.constexpr,
    WIDTH: tl.constexpr,
    TILE: tl.constexpr,
    BLOCK: tl.constexpr,
):
    head = tl.program_id(1)
    rows = tl.program_id(0) * TILE + tl.arange(0, TILE)
    inside = rows < num_keys
    columns = head * WIDTH + tl.arange(0, WIDTH)
    begin, end, first, last = _interval(rows, k_sentences, q_seqlens, num_keys, window, CAUSAL, False)
    places = rows.to(tl.int64)[:, None]
    keys = tl.load(k + places * k_stride + columns[None, :], mask=inside[:, None], other=0.0)
    values = tl.load(v + places * v_stride + columns[None, :], mask=inside[:, None], other=0.0)
    of_keys = tl.zeros((TILE, WIDTH), tl.float32)
    of_values = tl.zeros((TILE, WIDTH), tl.float32)
    for start in range(first, last, BLOCK):
        others = start + tl.arange(0, BLOCK)
        there = others < last
        query_places = others.to(tl.int64)[:, None]
        queries = tl.load(q + query_places * q_stride + columns[None, :], mask=there[:, None], other=0.0)
        own = query_places * (HEADS * WIDTH) + columns[None, :]
        outer = tl.load(grad + own, mask=there[:, None], other=0.0)
        of_head = head.to(tl.int64) * num_queries + others
        log_sums = tl.load(sums + of_head, mask=there, other=0.0)
        mean = tl.load(along + of_head, mask=there, other=0.0)
        scores = tl.dot(keys, tl.trans(queries)) * scale
        seen = (others[None, :] >= begin[:, None]) & (others[None, :] < end[:, None])
        weights = tl.where(seen, tl.exp2(scores - log_sums[None, :]), 0.0)
        of_values += tl.dot(weights.to(outer.dtype), outer)
        inner = weights * (tl.dot(values, tl.trans(outer)) - mean[None, :])
        of_keys += tl.dot(inner.to(queries.dtype), queries)
    of_keys *= plain_scale
    mask = inside[:, None]
    key_addresses = grad_k + places * grad_k_stride + columns[None, :]
    tl.store(key_addresses, of_keys.to(grad_k.dtype.element_ty), mask=mask)
    value_addresses = grad_v + places * grad_v_stride + columns[None, :]
    tl.store(value_addresses, of_values.to(grad_v.dtype.element_ty), mask=mask)
    if SUMS:
        tl.store(added_k + tl.program_id(0) * added_k_stride + columns, tl.sum(of_keys, 0))
        tl.store(added_v + tl.program_id(0) * added_v_stride + columns, tl.sum(of_values, 0))
