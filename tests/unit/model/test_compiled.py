"""Compiled layers against themselves uncompiled, their naive twin."""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo import lookup_backend

from nmt.config import Activation, ModelConfig, Norm
from nmt.data.batching import Batch
from nmt.model import Transformer
from nmt.model.compiled import compile_layers

PAPER = ModelConfig(encoder_layers=2, decoder_layers=2, d_model=12, d_ff=20, heads=3, dropout=0.2)


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    """Nothing that another test has compiled is found here, nor left."""
    torch.compiler.reset()
    yield
    torch.compiler.reset()


class Counting:
    """Traces as a compiler would, forward and backward, and runs what was traced as it is."""

    def __init__(self) -> None:
        self.graphs = 0

    def __call__(self, graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        self.graphs += 1
        return lookup_backend("aot_eager")(graph, inputs)


def batch(seed: int) -> Batch:
    """Some sentences, at least two tokens a side."""
    numbers = random.Random(seed)
    pairs = [
        [[numbers.randrange(4, 10) for _ in range(numbers.randrange(1, 8))] for _ in range(2)]
        for _ in range(numbers.randrange(1, 6))
    ]
    return Batch.of([source for source, _ in pairs], [target for _, target in pairs])


def build(config: ModelConfig, dtype: torch.dtype = torch.float64) -> Transformer:
    torch.manual_seed(1)
    model = Transformer(config, 10, 10).to(dtype).train()
    for parameter in model.parameters():  # biases and norms too, or a forgotten one would not show
        torch.nn.init.normal_(parameter, std=0.5)
    return model


def passed(model: Transformer, batch: Batch, seed: int) -> tuple[Tensor, dict[str, Tensor]]:
    """Hidden states of a batch, and gradients."""
    model.zero_grad()
    model.seed_dropout(seed)
    hidden = model(batch)
    hidden.square().sum().backward()
    return hidden.detach(), {name: p.grad for name, p in model.named_parameters() if p.grad is not None}


@pytest.mark.parametrize(
    "config",
    [
        PAPER,
        replace(PAPER, norm=Norm.pre, ffn_dropout=0.3, activation=Activation.gelu),
        replace(PAPER, dropout=0.0, encoder_layers=1, decoder_layers=1),
    ],
    ids=["paper", "pre", "no dropout"],
)
def test_passes_and_dropout_are_those_of_the_layers_themselves(config: ModelConfig) -> None:
    plain, model, backend = build(config), build(config), Counting()
    compile_layers(model, backend)
    for seed in range(3):
        (hidden, gradients), (same, alike) = passed(plain, batch(seed), seed), passed(model, batch(seed), seed)
        torch.testing.assert_close(same, hidden, rtol=1e-10, atol=1e-10)
        assert gradients.keys() == alike.keys() == dict(plain.named_parameters()).keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(alike[name], gradient, rtol=1e-9, atol=1e-9, msg=name)
    # What stands before attention in either kind of layer, between attentions, and after them in either kind.
    assert backend.graphs == 5
