"""The attention weights of a pair equal the reference for every score, encoding, window, layer and head."""

from __future__ import annotations

import itertools
from dataclasses import replace

import pytest
import test_recurrent
import torch
from test_attention import ENCODINGS, HEADS, LAYER, WIDTH, encoding, pattern_of, random, score_of
from test_transformer import PAIRS, TINY, VARIANTS, batch_of, build
from torch import Tensor

from nmt.config import ModelConfig, PositionsConfig
from nmt.data.batches.batching import Batch
from nmt.model import reference, weighed
from nmt.model.attention import SCORES, Projected, Score, separated
from nmt.model.positions import POSITIONS
from nmt.model.reference import naive_attention, naive_hidden, naive_weights
from nmt.model.transformer import Transformer
from nmt.model.weighed import WeighedAttention


@pytest.mark.parametrize("causal", [True, False])
@pytest.mark.parametrize("name", ENCODINGS)
@pytest.mark.parametrize("score_name", SCORES)
@pytest.mark.parametrize("window", [None, 1, 4])
def test_self_attention(score_name: str, name: str | None, window: int | None, causal: bool) -> None:
    for length in (1, 7):
        score, positions = score_of(score_name), encoding(name, causal)
        pattern = pattern_of(score, [length], causal=causal, positions=positions, window=window)
        qkv = random(length, 3, HEADS, WIDTH).detach()
        attention = WeighedAttention(pattern)
        outputs = attention.self_attend(qkv, score, LAYER)
        rules = {"score": score, "positions": positions, "window": window, "layer": LAYER}
        q, k, v = qkv.unbind(1)
        expected = naive_attention(q, k, v, causal=causal, **rules)
        torch.testing.assert_close(outputs, expected, rtol=0, atol=1e-12)
        weights = naive_weights(q, k, causal=causal, **rules)[None]
        torch.testing.assert_close(attention.weights, weights, rtol=0, atol=1e-12)


def naive_maps(
    model: Transformer, pair: tuple[list[int], list[int]], patch: pytest.MonkeyPatch
) -> list[Tensor]:
    """Returns the weights of all layers: the encoder, then self- and cross-attention by turns."""
    seen: list[Tensor] = []

    def noted(*args: Tensor, **rules: object) -> Tensor:
        seen.append(naive_weights(*args, **rules))
        return seen[-1]

    patch.setattr(reference, "naive_weights", noted)
    naive_hidden(dict(model.named_parameters()), model.config, [*pair[0], 2], [1, *pair[1]])
    return seen


@VARIANTS
def test_all_layers_and_heads_of_a_model(config: ModelConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    model = build(config)
    for pair in (*PAIRS, ([4], [5, 6, 7, 8, 9, 4])):
        seen = naive_maps(model, pair, monkeypatch)
        found = model.attention_weights(batch_of([pair]))
        layers = config.encoder_layers
        for part, expected in (
            (found.encoder, seen[:layers]),
            (found.decoder, seen[layers::2]),
            (found.cross, seen[layers + 1 :: 2]),
        ):
            assert part is not None
            torch.testing.assert_close(part, torch.stack(expected), rtol=0, atol=1e-10)
            torch.testing.assert_close(part.sum(-1), torch.ones_like(part[..., 0]))
        assert found.decoder is not None
        assert torch.equal(found.decoder, found.decoder.tril())


@pytest.mark.parametrize("score_name", SCORES)
def test_every_encoding_and_score_in_a_whole_model(score_name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Queries and keys of each layer give its weights, with encodings, a window and heads of any width."""
    naive: list[Tensor] = []

    def noted(self: WeighedAttention, q: Tensor, k: Tensor, score: Score, layer: int) -> None:
        rules = {"positions": self._pattern.positions, "window": self._pattern.window, "layer": layer}
        naive.append(naive_weights(q, k, causal=self._pattern.causal, score=score, **rules))

    class Noting(WeighedAttention):
        def self_attend(self, qkv: Projected, score: Score, layer: int) -> Tensor:
            noted(self, *separated(qkv)[:2], score, layer)
            return super().self_attend(qkv, score, layer)

        def cross_attend(self, q: Tensor, keys_values: Projected, score: Score, layer: int) -> Tensor:
            noted(self, q, separated(keys_values)[0], score, layer)
            return super().cross_attend(q, keys_values, score, layer)

    monkeypatch.setattr(weighed, "WeighedAttention", Noting)
    names = [*((name, None) for name in POSITIONS), ("sinusoidal", "alibi"), ("rotary", "none")]
    for name, decoder in names:
        positions = PositionsConfig(name=name, decoder=decoder)
        widths = {"d_model": 24, "key_width": 4, "value_width": 6}
        config = replace(TINY, **widths, attention=score_name, attention_window=3, positions=positions)
        if score_name == "additive" and POSITIONS[name].needs_products:
            continue
        naive.clear()
        found = build(config).attention_weights(batch_of([PAIRS[3]]))
        assert found.encoder is not None and found.decoder is not None
        weights = [*found.encoder, *itertools.chain(*zip(found.decoder, found.cross, strict=True))]
        for got, expected in zip(weights, naive, strict=True):
            torch.testing.assert_close(got, expected, rtol=0, atol=1e-10)


@pytest.mark.parametrize("name", POSITIONS)
@pytest.mark.parametrize("window", [None, 2])
def test_the_observed_model_computes_what_the_model_does(name: str, window: int | None) -> None:
    config = replace(TINY, positions=PositionsConfig(name=name), attention_window=window, d_model=24)
    model = build(config)
    batch = batch_of([PAIRS[3]])
    expected = model(batch)
    backend = model.backend
    weights = model.attention_weights(batch)
    assert model.backend is backend
    assert weights.cross.shape == (2, 3, 7, 8)
    last = []
    hook = model.decoder[-1].cross_attention.register_forward_hook(lambda _, given, out: last.append(out))
    model.attention_weights(batch)
    model(batch)
    hook.remove()
    torch.testing.assert_close(*last, rtol=0, atol=1e-12)
    assert torch.equal(model(batch), expected)


def test_a_recurrent_model_has_the_weights_of_its_steps() -> None:
    batch = Batch.of([[5, 6, 7]], [[4, 5]])
    found = test_recurrent.build(test_recurrent.TINY).attention_weights(batch)
    assert found.cross.shape == (1, 1, 3, 4)
    torch.testing.assert_close(found.cross.sum(-1), torch.ones(1, 1, 3))
