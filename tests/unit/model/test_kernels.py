"""Every kernel against the reference: each score, hook and window, outputs and gradients."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from test_attention import assert_same_with_gradients, random
from torch import Tensor
from toy_positions import KINDS

from nmt.data.batches.batching import Layout
from nmt.model.attention import SCORES, Score
from nmt.model.backend import Attention, Pattern
from nmt.model.cpu.cached import CachedDecoderState
from nmt.model.cpu.padded import PaddedAttention
from nmt.model.positions import POSITIONS, T5, Positions, Relative, Shape
from nmt.model.reference import naive_attention

HEADS, WIDTH, LAYER = 2, 4, 1
LENGTHS = [[1], [7, 1, 1, 2, 13]]
ENCODINGS = [None, "turning", "distances", "shaw", "rotary", "relative", "t5", "alibi"]

OPTIONS = {"t5": T5.Options(8, 12), "relative": Relative.Options(clip=3)}


def pattern_of(score: Score, queries: list[int], keys: list[int] | None = None, **rules: Any) -> Pattern:
    layout = Layout.of(queries)
    other = layout if keys is None else Layout.of(keys)
    return Pattern(layout, other, HEADS, WIDTH, score.scale, **rules)


def padded(pattern: Pattern, overhead: int = 60) -> Attention:
    """The overhead yields several groups; one test has the extremes."""
    return PaddedAttention(pattern, overhead * HEADS)


def encoding(name: str | None, causal: bool) -> Positions | None:
    if name is None:
        return None
    shape = Shape(HEADS * WIDTH, HEADS, LAYER + 1, causal, WIDTH**-0.5)
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
            state = state.advanced()
        for found, expected in (
            (targets, naive(*qkv.unbind(1), own, score)),
            (source, naive(qkv[:, 0], *memory.unbind(1), cross, score)),
        ):
            together = torch.stack(found, 1).flatten(0, 1)
            torch.testing.assert_close(together, expected, rtol=0, atol=1e-12)


@pytest.mark.parametrize("causal", [True, False])
def test_gradcheck_of_a_bias_that_learns_and_relative_values(causal: bool) -> None:
    score, positions = score_of("scaled_dot"), encoding("shaw", causal)
    attention = padded(pattern_of(score, [3, 1, 4], causal=causal, positions=positions))
    inputs = [random(8, 3, HEADS, WIDTH), *learnt(positions)]
    assert torch.autograd.gradcheck(lambda x, *_: attention.self_attend(x, score, LAYER), inputs)


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


def test_windows_need_no_square_of_scores(monkeypatch: pytest.MonkeyPatch) -> None:
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
