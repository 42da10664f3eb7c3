"""Compiled layers against themselves uncompiled, their naive twin."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch._dynamo import lookup_backend

from nmt.config import Activation, ModelConfig, Norm
from nmt.data.batches.batching import Batch
from nmt.model import Transformer
from nmt.model.compiled import compile_layers

PAPER = ModelConfig(encoder_layers=2, decoder_layers=2, d_model=12, d_ff=20, heads=3, dropout=0.2)
SMALL = replace(PAPER, encoder_layers=1, decoder_layers=1)


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


def batch(seed: int, most: int = 5) -> Batch:
    """Some sentences, at least two tokens a side."""
    numbers = random.Random(seed)
    pairs = [
        [[numbers.randrange(4, 10) for _ in range(numbers.randrange(1, 8))] for _ in range(2)]
        for _ in range(numbers.randint(1, most))
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
        replace(SMALL, residual=False),
        replace(SMALL, norm=Norm.pre, ffn_dropout=0.3, activation=Activation.gelu),
        replace(SMALL, dropout=0.0),
    ],
    ids=["paper", "no residual", "pre", "no dropout"],
)
def test_passes_and_dropout_are_those_of_the_layers_themselves(config: ModelConfig) -> None:
    plain, model, backend = build(config), build(config), Counting()
    compile_layers(model, backend)
    for seed in range(3):
        hidden, gradients = passed(plain, batch(seed), seed)
        same, alike = passed(model, batch(seed), seed)
        torch.testing.assert_close(same, hidden, rtol=1e-10, atol=1e-10)
        assert gradients.keys() == alike.keys() == dict(plain.named_parameters()).keys()
        for name, gradient in gradients.items():
            torch.testing.assert_close(alike[name], gradient, rtol=1e-9, atol=1e-9, msg=name)
    # What stands before attention in either kind of layer, between attentions, and after them in either kind.
    assert backend.graphs == 5


def test_batches_of_all_sizes_are_compiled_for_once() -> None:
    model, backend = build(SMALL), Counting()
    compile_layers(model, backend)
    passed(model, batch(0), 0)
    graphs, sizes = backend.graphs, set()
    for seed in range(100):
        one = batch(seed) if seed % 10 else batch(seed).twice()
        passed(model, one, seed)
        sizes.add((len(one.source_ids), len(one.target_in)))
    assert len(sizes) > 50
    assert backend.graphs == graphs


def test_outside_of_training_all_is_as_it_was() -> None:
    plain, model, backend = build(PAPER), build(PAPER), Counting()
    compile_layers(model, backend)
    assert list(model.state_dict()) == list(plain.state_dict())
    one = batch(1)
    assert torch.equal(model.eval()(one), plain.eval()(one))
    with torch.no_grad():
        state, same = (m.start(one) for m in (plain, model))
        ids = torch.ones(one.num_sentences, 1, dtype=torch.int64)
        assert torch.equal(model.step(ids, same)[0], plain.step(ids, state)[0])
    assert backend.graphs == 0


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu_inductor_comes_to_the_same_and_draws_dropout_from_the_seed() -> None:
    config = ModelConfig(encoder_layers=2, decoder_layers=2, d_model=64, d_ff=128, heads=4, dropout=0.0)
    device, graphs = torch.device("cuda"), 0

    def backend(graph: torch.fx.GraphModule, inputs: list[Tensor]) -> Callable[..., Any]:
        nonlocal graphs
        graphs += 1
        return lookup_backend("inductor")(graph, inputs)

    def large(seed: int) -> Batch:  # as trainings fill them
        return batch(seed, most=80).filled(64).to(device)

    def both(model: Transformer, seed: int) -> tuple[Tensor, dict[str, Tensor]]:
        with torch.autocast("cuda", torch.bfloat16):
            hidden, gradients = passed(model, large(seed), seed)
        return hidden, {name: gradient.clone() for name, gradient in gradients.items()}

    def like(config: ModelConfig) -> Transformer:
        torch.manual_seed(1)
        return Transformer(config, 10, 10).to(device).train()

    plain, model = like(config), like(config)
    compile_layers(model, backend)
    (hidden, gradients), (same, alike) = both(plain, 1), both(model, 1)
    torch.testing.assert_close(same, hidden, rtol=0.05, atol=0.05)
    for name, gradient in gradients.items():
        assert (alike[name] - gradient).norm() <= 0.05 * gradient.norm() + 1e-2, name

    dropping = like(replace(config, dropout=0.3))
    compile_layers(dropping, backend)
    hidden, other, again = both(dropping, 2)[0], both(dropping, 3)[0], both(dropping, 2)[0]
    assert torch.equal(again, hidden)
    assert other.shape != hidden.shape or not torch.equal(other, hidden)
    dropping.seed_dropout(4)
    with torch.autocast("cuda", torch.bfloat16):
        assert not torch.equal(dropping(large(2)), hidden)
    assert (hidden == dropping.eval()(large(2))).float().mean() < 0.5

    before = graphs
    for seed in range(100):
        both(dropping.train(), seed)
    assert len({large(seed).target_in.shape for seed in range(100)}) > 3
    assert graphs == before
