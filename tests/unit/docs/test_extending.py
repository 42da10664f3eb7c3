"""The score and the backend of docs/extending.md compute what the equations say."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from doc_pages import ROOT, page

from nmt.config import ModelConfig, PositionsConfig
from nmt.data.batches.batching import Batch, Layout
from nmt.model import BACKENDS, Transformer, backend_of, build_positions
from nmt.model.attention import SCORES, Pattern, ScaledDot
from nmt.model.cpu.variants import VariantAttention
from nmt.model.positions import Shape
from nmt.model.reference import naive_attention

HEADS, WIDTH = 2, 4


def defined(name: str) -> dict[str, Any]:
    """Runs the example that defines a class, and returns what it defines."""
    page_blocks = page(ROOT / "docs" / "extending.md")[1]
    [text] = [block.text for block in page_blocks if f"class {name}(" in block.text]
    values: dict[str, Any] = {}
    exec(text, values)
    return values


@pytest.fixture
def score() -> Iterator[Any]:
    yield defined("Nearness")["Nearness"]
    del SCORES["nearness"]


@pytest.fixture
def backend() -> Iterator[Any]:
    yield defined("AppleBackend")
    del BACKENDS["mps"]


def test_a_score_is_higher_for_nearer_keys_and_a_search_computes_the_same(score: Any) -> None:
    q, k = torch.randn(1, HEADS, 3, WIDTH), torch.randn(1, HEADS, 5, WIDTH)
    expected = (-0.25 * torch.cdist(q, k).square()).softmax(-1)
    torch.testing.assert_close(score(HEADS, WIDTH)(q, k).softmax(-1), expected)

    config = ModelConfig(1, 2, 8, 16, HEADS, attention="nearness", attention_window=2)
    model = Transformer(config, 9, 9).double().eval()
    batch = Batch.of([[4, 5, 6], [7]], [[8, 7, 6, 5], [4, 5, 6, 7]])
    state, steps = model.start(batch), []
    with torch.no_grad():
        for ids in batch.target_in.view(2, 5).unbind(1):
            log_probs, state = model.step(ids[:, None], state)
            steps.append(log_probs)
        torch.testing.assert_close(torch.cat(steps, 1).flatten(0, 1), model.log_probs(model(batch)))


@pytest.mark.parametrize("rotary", [False, True])
@pytest.mark.parametrize("causal", [False, True])
def test_a_backend_computes_attention_and_leaves_the_rest_to_the_one_of_the_cpu(
    backend: dict[str, Any], causal: bool, rotary: bool
) -> None:
    apple = backend_of(torch.device("mps"))
    assert type(apple) is backend["AppleBackend"]
    names, other = PositionsConfig("rotary" if rotary else "none"), Layout.of([3, 2])
    positions = build_positions(names, Shape(HEADS * WIDTH, HEADS, 1, causal, WIDTH**-0.5))
    queries, score = Layout.of([4, 1]), ScaledDot(HEADS, WIDTH)
    qkv, kv = torch.randn(5, 3, HEADS, WIDTH), torch.randn(5, 2, HEADS, WIDTH)

    own = Pattern(queries, queries, HEADS, WIDTH, score.scale, causal, positions)
    attention = apple.attention(own, torch.float32)
    assert type(attention) is backend["EachSentence"]
    sentences = [part.unbind(1) for part in qkv.split(queries.lengths)]
    expected = [naive_attention(*part, causal=causal, positions=positions) for part in sentences]
    torch.testing.assert_close(attention.self_attend(qkv, score, 0), torch.cat(expected))

    cross = apple.attention(Pattern(queries, other, HEADS, WIDTH, score.scale), torch.float32)
    pairs = zip(qkv[:, 0].split(queries.lengths), kv.split(other.lengths), strict=True)
    expected = [naive_attention(q, *keys.unbind(1), causal=False) for q, keys in pairs]
    for keys_values in (kv, kv.unbind(1)):
        torch.testing.assert_close(cross.cross_attend(qkv[:, 0], keys_values, score, 0), torch.cat(expected))

    without_kernel = Pattern(queries, queries, HEADS, WIDTH, None, causal)
    assert type(apple.attention(without_kernel, torch.float32)) is VariantAttention
