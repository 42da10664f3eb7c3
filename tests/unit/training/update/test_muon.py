"""Muon against its formula, matrix by matrix; skipped updates, the choice of matrices."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn

from nmt.config import ModelConfig, OptimizerConfig
from nmt.model import MODELS
from nmt.model.seq2seq import Linear
from nmt.training.update.gradients import FlatGradients
from nmt.training.update.optimizer import Optimizer, build_optimizer
from nmt.training.update.optimizer.muon import POLYNOMIALS, Muon, matrices, orthogonal

OPTIONS = OptimizerConfig(name="muon", weight_decay=0.1, options={"adam_rate": 0.5})


class Tiny(nn.Sequential):
    """A wide matrix, a tall one, and one that stacks two of other sizes."""

    def __init__(self) -> None:
        torch.manual_seed(0)
        super().__init__(Linear(4, 3), nn.LayerNorm(3), nn.Linear(3, 5), Linear(5, [2, 4]))


def built(model: nn.Module) -> Optimizer:
    FlatGradients(model.parameters(), num_extras=0)
    return build_optimizer(model, OPTIONS)


def fill(model: nn.Module, update: int) -> None:
    torch.manual_seed(100 + update)
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.copy_(torch.randn(parameter.shape))


def naive_orthogonal(matrix: Tensor) -> Tensor:
    """The polynomials as functions of singular values."""
    u, s, vh = torch.linalg.svd(matrix.double(), full_matrices=False)
    s = s / (s.square().sum().sqrt() * 1.01)
    for a, b, c in POLYNOMIALS:
        s = a * s + b * s**3 + c * s**5
    return u @ torch.diag(s) @ vh


def test_steps_are_those_of_the_formula() -> None:
    model = Tiny()
    optimizer = built(model)
    rows = {"0.weight": [3], "2.weight": [5], "3.weight": [2, 4]}
    weights = {
        (name, number): part.detach().double()
        for name, sizes in rows.items()
        for number, part in enumerate(model.get_parameter(name).split(sizes))
    }
    means = {key: torch.zeros_like(weight) for key, weight in weights.items()}
    squares = {key: torch.zeros(len(weight), dtype=torch.float64) for key, weight in weights.items()}
    for update in range(4):
        fill(model, update)
        rate = 0.1 * (update + 1)
        for (name, number), weight in weights.items():
            key = name, number
            gradient = model.get_parameter(name).grad
            assert gradient is not None
            g = gradient.split(rows[name])[number].double()
            means[key] = 0.95 * means[key] + 0.05 * g
            o = naive_orthogonal(0.95 * means[key] + 0.05 * g)
            squares[key] = 0.95 * squares[key] + 0.05 * o.square().mean(1)
            n = o / squares[key].sqrt()[:, None]
            step = 0.2 * math.sqrt(n.numel()) * n / n.square().sum().sqrt()
            weights[key] = (1 - rate * 0.1) * weight - rate * step
        optimizer.step(rate)
        for (name, number), weight in weights.items():
            part = model.get_parameter(name).split(rows[name])[number]
            torch.testing.assert_close(part.double(), weight, rtol=1e-4, atol=1e-5)


def test_the_other_parameters_are_those_of_adam() -> None:
    model, twin = Tiny(), Tiny()
    optimizer = built(model)
    FlatGradients(twin.parameters(), num_extras=0)
    adam = build_optimizer(twin, OptimizerConfig(name="adamw", weight_decay=0.1))
    for update in range(3):
        fill(model, update)
        fill(twin, update)
        optimizer.step(0.02)
        adam.step(0.01)
    for name, parameter in model.named_parameters():
        is_matrix = name in {"0.weight", "2.weight", "3.weight"}
        assert torch.equal(parameter, twin.get_parameter(name)) != is_matrix
    assert optimizer.tensors().keys() & {"exp_avg.0.weight", "momentum.0.bias"} == set()
    assert optimizer.tensors().keys() >= {"step", "exp_avg.0.bias", "momentum.3.weight", "rows.3.weight"}


def test_an_update_that_is_not_finite_changes_nothing(nobody_reads: AbstractContextManager[object]) -> None:
    model = Tiny()
    optimizer = built(model)
    fill(model, 0)
    optimizer.step(0.1)
    before = [each.clone() for each in (*model.parameters(), *optimizer.tensors().values())]
    for parameter in model.parameters():
        assert parameter.grad is not None
        parameter.grad.fill_(math.nan)
    with nobody_reads:
        optimizer.step(0.1, torch.tensor(False))
    assert all(map(torch.equal, before, (*model.parameters(), *optimizer.tensors().values())))


def test_no_gradient_moves_no_matrix() -> None:
    model = Tiny()
    optimizer = build_optimizer(model, OptimizerConfig(name="muon"))
    FlatGradients(model.parameters(), num_extras=0)
    before = [parameter.detach().clone() for parameter in model.parameters()]
    optimizer.step(0.1)
    assert all(map(torch.equal, before, model.parameters()))


@pytest.mark.parametrize("shape", [(6, 6), (4, 9), (9, 4)])
def test_singular_values_become_nearly_one(shape: tuple[int, int]) -> None:
    u, _ = torch.linalg.qr(torch.randn(shape[0], 4, generator=torch.Generator().manual_seed(1)))
    v, _ = torch.linalg.qr(torch.randn(shape[1], 4, generator=torch.Generator().manual_seed(2)))
    for values in ([1.0, 1.0, 1.0, 1.0], [1.0, 0.1, 0.01, 0.002]):
        found = u.T @ orthogonal((u * torch.tensor(values) @ v.T)[None])[0] @ v
        assert (found - torch.diag(found.diag())).abs().max() < 1e-4
        assert 0.87 < found.diag().min() and found.diag().max() < 1.13


@pytest.mark.parametrize("shape", [(8, 64, 64), (8, 96, 32), (8, 32, 96)])
def test_bf16_is_near_fp32(shape: tuple[int, int, int]) -> None:
    x = torch.randn(shape, generator=torch.Generator().manual_seed(3))
    exact, found = orthogonal(x), orthogonal(x, torch.bfloat16)
    assert found.dtype is torch.bfloat16
    cosine = torch.cosine_similarity(exact.flatten(1), found.float().flatten(1))
    assert cosine.min() > 0.995
    assert torch.linalg.svdvals(found.float()).max() < 1.14


def test_a_step_computes_in_the_format_of_the_training() -> None:
    weights = []
    for products in (torch.float32, torch.float16, torch.bfloat16):
        model = Tiny()
        FlatGradients(model.parameters(), num_extras=0)
        optimizer = build_optimizer(model, OptimizerConfig(name="muon"), products)
        fill(model, 0)
        optimizer.step(0.1)
        weights.append(model.get_parameter("2.weight").detach())
    assert torch.equal(weights[0], weights[1])  # only bf16 has the range
    assert 0 < (weights[2] - weights[0]).norm() < 0.05 * 0.1 * 0.2 * 15**0.5  # of the norm of the step


@pytest.mark.parametrize("world", [2, 3])
def test_each_process_computes_a_part(world: int, monkeypatch: pytest.MonkeyPatch) -> None:
    optimizer = built(Tiny())
    assert isinstance(optimizer, Muon)
    shapes = [(5, 4, 4), (1, 3, 6), (2, 6, 3)]
    stacks = [torch.randn(shape, generator=torch.Generator().manual_seed(4)) for shape in shapes]
    alone = optimizer._orthogonal(stacks)
    sent: dict[int, Tensor] = {}
    ranks = [*range(world), *range(world)]  # in the second round, all have sent

    def gather(outputs: list[Tensor], part: Tensor) -> None:
        sent[ranks[0]] = part.clone()
        for rank, output in enumerate(outputs):
            output.copy_(sent.get(rank, torch.zeros_like(part)))

    optimizer.processes = world
    monkeypatch.setattr(dist, "get_rank", lambda: ranks[0])
    monkeypatch.setattr(dist, "all_gather", gather)
    while ranks:
        found = optimizer._orthogonal(stacks)
        if len(ranks) <= world:
            torch.testing.assert_close(found, alone)
        ranks.pop(0)


@pytest.mark.parametrize("architecture", ["transformer", "rnn_attention"])
def test_matrices_are_those_of_the_layers(architecture: str) -> None:
    config = ModelConfig(
        architecture=architecture, d_model=8, d_ff=12, heads=2, encoder_layers=1, decoder_layers=1, gated=True
    )
    found = matrices(MODELS[architecture](config, 20, 20))
    assert not any("embedding" in name or name.startswith("output") for name in found)
    if architecture == "transformer":
        assert len(found) == 4 + 7
        assert found["encoder.0.self_attention.qkv.weight"] == [8, 8, 8]
        assert found["decoder.0.cross_attention.kv.weight"] == [8, 8]
        assert found["decoder.0.feed_forward.inner.weight"] == [12, 12]
