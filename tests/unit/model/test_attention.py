"""Attention against the reference: each score, hook and window, with gradients; and groups of sentences."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toy_positions import KINDS

from nmt.data.batches.batching import Layout
from nmt.model.attention import SCORES, Attention, Pattern, ScaledDot, Score, normalised, normalised_backward
from nmt.model.backend import Backend
from nmt.model.cpu.cached import CachedDecoderState
from nmt.model.cpu.padded import split
from nmt.model.positions import POSITIONS, T5, Positions, Relative, Shape
from nmt.model.reference import naive_attention

HEADS, WIDTH, LAYER = 2, 4, 1
SCORE = ScaledDot(HEADS, WIDTH)
LENGTHS = [[1], [7, 1, 1, 2, 13]]
ENCODINGS = [None, "turning", "distances", "shaw", "rotary", "relative", "t5", "alibi"]

OPTIONS = {"t5": T5.Options(8, 12), "relative": Relative.Options(clip=3)}


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


def pattern_of(score: Score, queries: list[int], keys: list[int] | None = None, **rules: Any) -> Pattern:
    layout = Layout.of(queries)
    other = layout if keys is None else Layout.of(keys)
    return Pattern(layout, other, HEADS, WIDTH, score.scale, **rules)


def padded(pattern: Pattern, overhead: float = 60) -> Attention:
    """The overhead yields several groups; one test has the extremes."""
    backend = Backend(torch.device("cpu"))
    backend.group_overhead = int(overhead * HEADS)
    return backend.attention(pattern, torch.float64)


def encoding(name: str | None, causal: bool, value_width: int = WIDTH) -> Positions | None:
    if name is None:
        return None
    shape = Shape(HEADS * WIDTH, HEADS, LAYER + 1, causal, WIDTH**-0.5, value_width=value_width)
    torch.manual_seed(1)
    kind = KINDS.get(name) or POSITIONS[name]
    options = OPTIONS[name] if name in OPTIONS else kind.Options()
    return kind(options, shape).double()


def score_of(name: str) -> Score:
    return SCORES[name](HEADS, WIDTH).double()


def naive(q: Tensor, k: Tensor, v: Tensor, pattern: Pattern, score: Score) -> Tensor:
    parts = zip(
        *(q.split(pattern.queries.lengths), k.split(pattern.keys.lengths), v.split(pattern.keys.lengths)),
        strict=True,
    )
    rules = {"score": score, "positions": pattern.positions, "window": pattern.window, "layer": LAYER}
    return torch.cat([naive_attention(*part, causal=pattern.causal, **rules) for part in parts])


def learnt(*modules: torch.nn.Module | None) -> list[Tensor]:
    return [parameter for module in modules if module is not None for parameter in module.parameters()]


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("score_name", SCORES)
@pytest.mark.parametrize("window", [None, 1, 4])
def test_self_attention(score_name: str, name: str | None, window: int | None, causal: bool) -> None:
    for lengths in LENGTHS:
        score, positions = score_of(score_name), encoding(name, causal)
        pattern = pattern_of(score, lengths, causal=causal, positions=positions, window=window)
        qkv = random(sum(lengths), 3, HEADS, WIDTH)
        fast = padded(pattern).self_attend(qkv, score, LAYER)
        slow = naive(*qkv.unbind(1), pattern, score)
        assert_same_with_gradients(fast, slow, [qkv, *learnt(score, positions)], atol=1e-11)


@pytest.mark.parametrize("overhead", [0, 10**9], ids=["every sentence alone", "one group"])
@pytest.mark.parametrize("window", [None, 3, 100])
def test_any_grouping(window: int | None, overhead: int) -> None:
    score, positions = score_of("scaled_dot"), encoding("shaw", False)
    pattern = pattern_of(score, [7, 30, 1, 13], positions=positions, window=window)
    qkv = random(51, 3, HEADS, WIDTH)
    fast = padded(pattern, overhead).self_attend(qkv, score, LAYER)
    slow = naive(*qkv.unbind(1), pattern, score)
    assert_same_with_gradients(fast, slow, [qkv, *learnt(positions)], atol=1e-11)


@pytest.mark.parametrize("score_name", SCORES)
def test_cross_attention(score_name: str) -> None:
    for lengths in LENGTHS:
        other = [max(1, length // 2 + 3 * (i % 2)) for i, length in enumerate(lengths)]
        score = score_of(score_name)
        pattern = pattern_of(score, lengths, other)
        q, kv = random(sum(lengths), HEADS, WIDTH), random(sum(other), 2, HEADS, WIDTH)
        fast = padded(pattern).cross_attend(q, kv, score, LAYER)
        slow = naive(q, *kv.unbind(1), pattern, score)
        assert_same_with_gradients(fast, slow, [q, kv, *learnt(score)], atol=1e-11)


@pytest.mark.parametrize("value_width", [3, 6])
@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("score_name", SCORES)
def test_values_of_another_width(score_name: str, name: str | None, value_width: int) -> None:
    for window, causal in ((None, True), (4, False)):
        score, positions = score_of(score_name), encoding(name, causal, value_width)
        rules = {"positions": positions, "window": window, "value_width": value_width}
        pattern = pattern_of(score, LENGTHS[1], causal=causal, **rules)
        qkv = random(24, HEADS, WIDTH), random(24, HEADS, WIDTH), random(24, HEADS, value_width)
        fast = padded(pattern).self_attend(qkv, score, LAYER)
        assert_same_with_gradients(
            fast, naive(*qkv, pattern, score), [*qkv, *learnt(score, positions)], 1e-11
        )
    pattern = pattern_of(score, LENGTHS[1], [2, 5, 3, 1, 4], value_width=value_width)
    keys_values = random(15, HEADS, WIDTH), random(15, HEADS, value_width)
    fast = padded(pattern).cross_attend(qkv[0], keys_values, score, LAYER)
    inputs = [qkv[0], *keys_values, *learnt(score)]
    assert_same_with_gradients(fast, naive(qkv[0], *keys_values, pattern, score), inputs, 1e-11)


@pytest.mark.parametrize("window", [None, 1, 4])
@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("score_name", SCORES)
def test_a_step_of_a_search(score_name: str, name: str | None, window: int | None) -> None:
    """Token by token equals the whole sentence, in self-attention and with sources of other lengths."""
    length, sources = 7, [5, 2]
    score, positions = score_of(score_name), encoding(name, True)
    qkv = random(2 * length, 3, HEADS, WIDTH).detach()
    own = pattern_of(score, [length, length], causal=True, positions=positions, window=window)
    cross = pattern_of(score, [length, length], sources)
    memory = random(sum(sources), 2, HEADS, WIDTH).detach()
    keys_values = torch.stack([torch.zeros_like(memory), memory])
    state = CachedDecoderState.start(keys_values, Layout.of(sources), positions, window)
    targets, source = [], []
    with torch.no_grad():
        for place in range(length):
            state = state.grown()
            newest = qkv[[place, length + place]]
            targets.append(state.self_attend(newest, score, LAYER))
            source.append(state.cross_attend(newest[:, 0], None, score, LAYER))
            state = state.advanced(torch.zeros(2, 1, dtype=torch.int64))
        for found, expected in (
            (targets, naive(*qkv.unbind(1), own, score)),
            (source, naive(qkv[:, 0], *memory.unbind(1), cross, score)),
        ):
            together = torch.stack(found, 1).flatten(0, 1)
            torch.testing.assert_close(together, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("name", ["distances", "shaw"])
@pytest.mark.parametrize("causal", [True, False])
def test_bf16_on_the_cpu_is_computed_in_fp32(name: str, causal: bool) -> None:
    positions, score = encoding(name, causal), SCORES["scaled_dot"](HEADS, WIDTH)
    assert positions is not None
    pattern = pattern_of(score, [7, 3], causal=causal, positions=positions.float())
    qkv = random(10, 3, HEADS, WIDTH, dtype=torch.bfloat16)
    with torch.autocast("cpu", torch.bfloat16):
        found = padded(pattern).self_attend(qkv, score, LAYER)
    wide = qkv.detach().float().requires_grad_()
    expected = naive(*wide.unbind(1), pattern, score)
    assert found.dtype is torch.bfloat16
    torch.testing.assert_close(found.float(), expected, rtol=0.01, atol=0.01)
    found.sum().backward()
    expected.sum().backward()
    torch.testing.assert_close(qkv.grad.float(), wide.grad, rtol=0.02, atol=0.02)


class Watching(torch.overrides.TorchFunctionMode):
    """Appends to a list the size of every tensor that a torch function returns."""

    def __init__(self, sizes: list[int]) -> None:
        super().__init__()
        self.sizes = sizes

    def __torch_function__(self, function: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = function(*args, **(kwargs or {}))
        if isinstance(out, Tensor):
            self.sizes.append(out.numel())
        return out


def test_windows_need_no_square_of_scores() -> None:
    """The largest tensor of a forward and backward pass grows with the length, not with its square."""
    largest: dict[int, int] = {}
    for length in (128, 256):
        score = score_of("scaled_dot").float()
        qkv = random(length, 3, HEADS, WIDTH, dtype=torch.float32)
        seen: list[int] = []
        with Watching(seen):
            padded(pattern_of(score, [length], window=8)).self_attend(qkv, score, LAYER)
        largest[length] = max(seen)
    assert largest[256] <= 2.2 * largest[128]


@given(
    st.lists(st.tuples(st.integers(1, 12), st.integers(1, 12)), min_size=1, max_size=8), st.integers(0, 200)
)
def test_any_lengths_and_any_grouping(lengths: list[tuple[int, int]], overhead: int) -> None:
    queries, keys = ([pair[i] for pair in lengths] for i in (0, 1))
    q, kv = random(sum(queries), HEADS, WIDTH), random(sum(keys), 2, HEADS, WIDTH)
    pattern = pattern_of(SCORE, queries, keys)
    fast = padded(pattern, overhead / HEADS).cross_attend(q, kv, SCORE, LAYER)
    assert_same_with_gradients(fast, naive(q, *kv.unbind(1), pattern, SCORE), [q, kv])


def test_padding_is_never_seen_even_where_it_is_not_finite_elsewhere() -> None:
    """A sentence of infinities does not affect its neighbours, forward or backward."""
    pattern, qkv = pattern_of(SCORE, [3, 2]), random(5, 3, HEADS, WIDTH).detach()
    qkv[3:] = torch.inf
    qkv.requires_grad_()
    out = padded(pattern).self_attend(qkv, SCORE, LAYER)
    (grad,) = torch.autograd.grad(out[:3].sum(), qkv)
    assert out[:3].isfinite().all() and grad[:3].isfinite().all()


def test_attention_of_bf16_is_in_fp32() -> None:
    """In bf16, sums of 300 equal weights would have errors of several percent."""
    pattern = pattern_of(SCORE, [300, 299])
    qkv = torch.zeros(599, 3, HEADS, WIDTH, dtype=torch.bfloat16)
    qkv[:, 2] = 1
    out = padded(pattern).self_attend(qkv.requires_grad_(), SCORE, LAYER)
    torch.testing.assert_close(out.float(), torch.ones(599, HEADS * WIDTH), rtol=0, atol=1e-5)
    out.sum().backward()
    assert qkv.grad.dtype is torch.bfloat16


def test_empty_sentences_at_the_end_are_left_out() -> None:
    """Layouts with a fixed number of sentences end in empty ones."""
    qkv = random(5, 3, HEADS, WIDTH)
    found = padded(pattern_of(SCORE, [2, 3, 0, 0], causal=True)).self_attend(qkv, SCORE, LAYER)
    expected = naive(*qkv.unbind(1), pattern_of(SCORE, [2, 3], causal=True), SCORE)
    torch.testing.assert_close(found, expected)


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
