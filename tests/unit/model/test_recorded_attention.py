"""The attention that a decoder state records: plain softmax weights; all other results are unchanged."""

from __future__ import annotations

import math

import pytest
import torch
from torch import Tensor

from nmt.config import ModelConfig
from nmt.data.batches.batching import Batch
from nmt.model import Transformer
from nmt.model.attention import Score
from nmt.model.cpu.cached import CachedDecoderState

SOURCES = [[5, 6, 7, 8], [], [9, 8, 7, 6, 5, 4, 5], [4]]
HEADS, HYPOTHESES = 3, 2


@pytest.fixture
def model() -> Transformer:
    torch.manual_seed(1)
    config = ModelConfig(encoder_layers=1, decoder_layers=2, d_model=12, d_ff=20, heads=HEADS)
    model = Transformer(config, 10, 10).double().eval()
    for parameter in model.parameters():
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def start(model: Transformer, sources: list[list[int]]) -> CachedDecoderState:
    batch = Batch.of(sources, [()] * len(sources))
    with torch.no_grad():
        return model.start(batch)


def steps(
    model: Transformer, sources: list[list[int]], *, recorded: bool
) -> tuple[Tensor, CachedDecoderState]:
    """Steps with BOS, then with two hypotheses a sentence that read different pieces."""
    state = start(model, sources)
    _, state = model.step(torch.ones(len(sources), 1, dtype=torch.int64), state)
    state = state.select(torch.arange(len(sources))[:, None].expand(-1, HYPOTHESES))
    ids = torch.tensor([4, 7]).expand(len(sources), HYPOTHESES)
    return model.step(ids, state.recording() if recorded else state)


def test_recording_changes_no_log_probability(model: Transformer) -> None:
    plain, state = steps(model, SOURCES, recorded=False)
    same, recorded = steps(model, SOURCES, recorded=True)
    assert torch.equal(same, plain)
    assert state.attention is None
    assert recorded.attention is not None and list(recorded.attention) == [0, 1]


def test_weights_are_the_softmax_of_scaled_products(
    model: Transformer, monkeypatch: pytest.MonkeyPatch
) -> None:
    queries: dict[int, Tensor] = {}
    attend = CachedDecoderState.cross_attend

    def watched(self: CachedDecoderState, q: Tensor, keys_values: None, score: Score, layer: int) -> Tensor:
        queries[layer] = q
        return attend(self, q, keys_values, score, layer)

    monkeypatch.setattr(CachedDecoderState, "cross_attend", watched)
    _, state = steps(model, SOURCES, recorded=True)
    assert state.attention is not None
    for layer, weights in state.attention.items():
        assert weights.shape == (len(SOURCES), HEADS, HYPOTHESES, 8)
        keys = state.cross[layer, 0]  # (B, H, S, E)
        q = queries[layer].view(len(SOURCES), HYPOTHESES, HEADS, 4)
        for sentence, source in enumerate(SOURCES):
            places = len(source) + 1
            for head in range(HEADS):
                scores = q[sentence, :, head] @ keys[sentence, head, :places].T / math.sqrt(4)
                found = weights[sentence, head]
                torch.testing.assert_close(found[:, :places], scores.softmax(-1), rtol=0, atol=1e-13)
                assert (found[:, places:] == 0).all()


def test_every_step_has_its_own_weights(model: Transformer) -> None:
    _, first = model.step(torch.ones(4, 1, dtype=torch.int64), start(model, SOURCES).recording())
    kept = first.attention
    _, second = model.step(torch.full((4, 1), 5), first.recording())
    assert kept is not None and second.attention is not None
    assert first.attention is kept
    assert not torch.equal(kept[0], second.attention[0])


def test_neighbours_do_not_matter(model: Transformer) -> None:
    _, together = steps(model, SOURCES, recorded=True)
    assert together.attention is not None
    for sentence, source in enumerate(SOURCES):
        _, alone = steps(model, [source], recorded=True)
        assert alone.attention is not None
        for layer, weights in alone.attention.items():
            expected = together.attention[layer][sentence, :, :, : len(source) + 1]
            torch.testing.assert_close(weights[0], expected, rtol=0, atol=1e-12)
