"""Self-attention and cross-attention of flat batches, against a twin that takes one sentence at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from nmt.data.batches.batching import Layout
from nmt.model.attention import ScaledDot, normalised, normalised_backward
from nmt.model.backend import Pattern
from nmt.model.cpu.padded import PaddedAttention
from nmt.model.cpu.padding import split
from nmt.model.reference import naive_attention

HEADS, WIDTH = 2, 3

OVERHEADS = {"every sentence alone": 0, "some groups": 10, "one group": 10**9}
LENGTHS = [[1], [4], [3, 3, 3], [1, 5, 2, 2, 9], [7, 1, 1, 1, 1, 30, 31]]


def pattern_of(queries: list[int], keys: list[int] | None = None, *, causal: bool = False) -> Pattern:
    layout = Layout.of(queries)
    other = layout if keys is None else Layout.of(keys)
    return Pattern(layout, other, HEADS, WIDTH, WIDTH**-0.5, causal=causal)


def self_attend(qkv: Tensor, pattern: Pattern, overhead: int = 0) -> Tensor:
    attention = PaddedAttention(pattern, overhead * HEADS)
    return attention.self_attend(qkv, ScaledDot(HEADS, WIDTH), 0)


def cross_attend(q: Tensor, kv: Tensor, pattern: Pattern, overhead: int = 0) -> Tensor:
    attention = PaddedAttention(pattern, overhead * HEADS)
    return attention.cross_attend(q, kv, ScaledDot(HEADS, WIDTH), 0)


def naive(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern) -> Tensor:
    parts = zip(
        q.split(pattern.queries.lengths),
        k.split(pattern.keys.lengths),
        v.split(pattern.keys.lengths),
        strict=True,
    )
    return torch.cat([naive_attention(*part, causal=pattern.causal) for part in parts])


def random(*shape: int, dtype: torch.dtype = torch.float64) -> Tensor:
    generator = torch.Generator().manual_seed(sum(shape))
    return torch.randn(*shape, generator=generator, dtype=torch.float64).to(dtype).requires_grad_()


def assert_same_with_gradients(fast: Tensor, slow: Tensor, inputs: list[Tensor], atol: float = 1e-12) -> None:
    torch.testing.assert_close(fast, slow, rtol=0, atol=atol)
    grad = random(*fast.shape, dtype=fast.dtype).detach()
    for got, expected in zip(
        torch.autograd.grad(fast, inputs, grad), torch.autograd.grad(slow, inputs, grad), strict=True
    ):
        torch.testing.assert_close(got, expected, rtol=0, atol=atol)


@pytest.mark.parametrize("overhead", OVERHEADS.values(), ids=OVERHEADS)
@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("lengths", LENGTHS)
def test_self_attention_is_the_naive_one(lengths: list[int], causal: bool, overhead: int) -> None:
    pattern, qkv = pattern_of(lengths, causal=causal), random(sum(lengths), 3, HEADS, WIDTH)
    fast = self_attend(qkv, pattern, overhead)
    assert_same_with_gradients(fast, naive(*qkv.unbind(1), pattern), [qkv])


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=8), st.integers(0, 200)
)
def test_any_lengths_and_any_grouping(lengths: list[tuple[int, int]], overhead: int) -> None:
    queries, keys = ([pair[i] for pair in lengths] for i in (0, 1))
    q, kv = random(sum(queries), HEADS, WIDTH), random(sum(keys), 2, HEADS, WIDTH)
    pattern = pattern_of(queries, keys)
    fast = cross_attend(q, kv, pattern, overhead)
    assert_same_with_gradients(fast, naive(q, *kv.unbind(1), pattern), [q, kv])


def test_gradcheck() -> None:
    own, cross = pattern_of([3, 1, 4], causal=True), pattern_of([3, 1, 4], [2, 5, 1])
    assert torch.autograd.gradcheck(lambda x: self_attend(x, own), [random(8, 3, HEADS, WIDTH)])
    inputs = [random(8, HEADS, WIDTH), random(8, 2, HEADS, WIDTH)]
    assert torch.autograd.gradcheck(lambda q, kv: cross_attend(q, kv, cross), inputs)


def test_padding_is_never_seen_even_where_it_is_not_finite_elsewhere() -> None:
    """A sentence of infinities does not affect its neighbours, forward or backward."""
    pattern, qkv = pattern_of([3, 2]), random(5, 3, HEADS, WIDTH).detach()
    qkv[3:] = torch.inf
    qkv.requires_grad_()
    out = self_attend(qkv, pattern)
    (grad,) = torch.autograd.grad(out[:3].sum(), qkv)
    assert out[:3].isfinite().all() and grad[:3].isfinite().all()


def test_attention_of_bf16_is_in_fp32() -> None:
    """In bf16, sums of 300 equal weights would have errors of several percent."""
    pattern = pattern_of([300, 299])
    qkv = torch.zeros(599, 3, HEADS, WIDTH, dtype=torch.bfloat16)
    qkv[:, 2] = 1
    out = self_attend(qkv.requires_grad_(), pattern)
    torch.testing.assert_close(out.float(), torch.ones(599, HEADS * WIDTH), rtol=0, atol=1e-5)
    out.sum().backward()
    assert qkv.grad.dtype is torch.bfloat16


def test_empty_sentences_at_the_end_are_left_out() -> None:
    """Layouts with a fixed number of sentences end in empty ones."""
    qkv = random(5, 3, HEADS, WIDTH)
    found = self_attend(qkv, pattern_of([2, 3, 0, 0], causal=True))
    torch.testing.assert_close(found, naive(*qkv.unbind(1), pattern_of([2, 3], causal=True)))


@given(
    st.lists(st.tuples(st.integers(1, 100), st.integers(1, 100)), min_size=1, max_size=60),
    st.integers(0, 5000),
)
def test_ranges_cover_all_sentences_and_cost_no_more_than_one(
    lengths: list[tuple[int, int]], overhead: int
) -> None:
    q, k = np.array(sorted(lengths)).T
    ranges = split(q, k, overhead)
    assert [i for a, b in ranges for i in range(a, b)] == list(range(len(q)))
    cost = sum((b - a) * int(q[a:b].max()) * int(k[a:b].max()) + overhead for a, b in ranges)
    assert cost <= len(q) * int(q.max()) * int(k.max()) + overhead


def test_a_long_sentence_does_not_pad_the_short_ones() -> None:
    assert split(np.array([3] * 50 + [90]), np.array([3] * 50 + [90]), 1000.0) == [(0, 50), (50, 51)]
    assert split(np.array([3] * 50 + [4]), np.array([3] * 50 + [4]), 1000.0) == [(0, 51)]
    assert split(np.array([], np.int64), np.array([], np.int64), 1000.0) == []


@pytest.mark.parametrize("keys", [1, 2, 7, 15, 16, 17, 40])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_softmax_of_few_values_is_padded(keys: int, dtype: torch.dtype) -> None:
    scores = random(5, 3, keys, dtype=dtype)
    hidden = scores.detach().argmin(-1, keepdim=True) if keys > 1 else torch.empty(5, 3, 0, dtype=torch.int64)
    masked = scores.masked_fill(torch.zeros_like(scores, dtype=torch.bool).scatter(-1, hidden, True), -np.inf)
    weights, expected = normalised(masked), masked.softmax(-1)
    assert weights.shape == scores.shape and weights.dtype is dtype
    exact = {"rtol": 0.0, "atol": 1e-6 if dtype is torch.float32 else 1e-14}
    torch.testing.assert_close(weights, expected, **exact)
    grad = random(5, 3, keys + 1, dtype=dtype).detach()[..., 1:]
    [wanted] = torch.autograd.grad(expected, masked, grad, retain_graph=True)
    [through_torch] = torch.autograd.grad(weights, masked, grad, retain_graph=True)
    torch.testing.assert_close(through_torch, wanted, **exact)
    torch.testing.assert_close(normalised_backward(grad, weights.detach()), wanted, **exact)
