"""Dropout: its random draw, its gradient, and dropout of whole rows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from nmt.config import ModelConfig
from nmt.model.dropout import Dropout, DropoutSource
from nmt.model.seq2seq import build_model


def dropout(rate: float, seed: int, *, rows: bool = False) -> Dropout:
    source = DropoutSource()
    source.seed(seed)
    return Dropout(rate, source, rows=rows)


def test_it_is_a_pure_function_of_seed_and_order() -> None:
    x = torch.ones(1000)
    layer = dropout(0.3, seed=5)
    first, second = layer(x), layer(x)
    assert not torch.equal(first, second)
    layer.source.seed(5)
    assert torch.equal(layer(x), first)
    assert torch.equal(layer(x), second)
    layer.source.seed(6)
    assert not torch.equal(layer(x), first)


def test_the_draw_is_pinned() -> None:
    """A resumed run must see the same masks as an uninterrupted run, on any machine."""
    out = dropout(0.5, seed=1)(torch.ones(16))
    assert out.tolist() == [0, 0, 2, 2, 2, 2, 0, 0, 2, 0, 2, 0, 2, 2, 0, 2]


@pytest.mark.parametrize("rate", [0.1, 0.3, 0.5, 0.99])
def test_share_and_mean(rate: float) -> None:
    out = dropout(rate, seed=1)(torch.ones(1_000_000))
    zeros = (out == 0).double().mean().item()
    assert zeros == pytest.approx(rate, abs=0.002)  # four standard deviations
    assert out.double().mean().item() == pytest.approx(1.0, abs=0.002 / (1 - rate))
    kept = 65536 / (65536 - round(rate * 65536))
    assert out.unique().tolist() == pytest.approx([0.0, kept])


def test_neighbours_are_dropped_independently() -> None:
    """Four decisions share a random word."""
    out = (dropout(0.5, seed=2)(torch.ones(400_000)) > 0).double().view(-1, 4)
    agreement = torch.corrcoef(out.T) - torch.eye(4)
    assert agreement.abs().max() < 0.02


@pytest.mark.parametrize("rows", [False, True])
def test_the_backward_mask_is_the_forward_mask(rows: bool) -> None:
    x, residual = (torch.randn(50, 7, requires_grad=True) for _ in "xr")
    layer = dropout(0.4, seed=3, rows=rows)
    out = layer(x, residual)
    kept = out.detach() != residual
    grad = torch.randn(50, 7)
    out.backward(grad)
    torch.testing.assert_close(x.grad, grad * kept * layer.scale)
    assert torch.equal(residual.grad, grad)


def test_with_and_without_a_residual_alike() -> None:
    x = torch.randn(50, 7)
    torch.testing.assert_close(dropout(0.4, 3)(x, torch.ones(50, 7)), 1 + dropout(0.4, 3)(x))


def test_bf16_into_an_fp32_residual() -> None:
    x = torch.randn(8, 4, dtype=torch.bfloat16, requires_grad=True)
    residual = torch.randn(8, 4, requires_grad=True)
    out = dropout(0.4, 3)(x, residual)
    assert out.dtype is torch.float32
    out.sum().backward()
    assert x.grad.dtype is torch.bfloat16 and residual.grad.dtype is torch.float32


def test_of_rows_all_or_nothing_stays() -> None:
    """A row takes one random decision: the rows follow the pinned draw above."""
    out = dropout(0.5, seed=1, rows=True)(torch.ones(16, 3))
    assert out[:, 0].tolist() == [0, 0, 2, 2, 2, 2, 0, 0, 2, 0, 2, 0, 2, 2, 0, 2]
    assert torch.equal(out, out[:, :1].expand(16, 3))


@pytest.mark.parametrize("layer", [dropout(0.0, 1), dropout(0.5, 1).eval()])
def test_nothing_is_dropped_at_rate_zero_or_when_evaluating(layer: Dropout) -> None:
    x = torch.randn(10)
    assert layer(x) is x
    torch.testing.assert_close(layer(x, x), 2 * x)


def test_a_rate_can_change_and_those_of_words_and_of_the_inner_layers_are_fixed() -> None:
    config = ModelConfig(
        d_model=8, heads=2, d_ff=16, encoder_layers=1, decoder_layers=1, dropout=0.2, ffn_dropout=0.3,
        word_dropout=0.4,
    )  # fmt: skip
    for kind in ("transformer", "rnn_attention"):
        model = build_model(replace(config, architecture=kind), 9, 9)
        model.set_dropout(0.5)
        rates = {module.rate for module in model.modules() if isinstance(module, Dropout)}
        assert rates == ({0.5, 0.3, 0.4} if kind == "transformer" else {0.5, 0.4})
    layer = dropout(0.2, seed=1)
    layer.set_rate(0.5)
    assert torch.equal(layer(torch.ones(50)), dropout(0.5, seed=1)(torch.ones(50)))


@pytest.mark.parametrize("rows", [False, True])
def test_other_devices_use_their_own_generator(rows: bool) -> None:
    x, layer = torch.ones(5, 3, device="meta"), dropout(0.5, seed=1, rows=rows)
    for residual in (None, torch.ones(5, 3, device="meta")):
        out = layer(x, residual)
        assert (out.shape, out.device.type) == ((5, 3), "meta")
