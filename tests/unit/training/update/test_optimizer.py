"""Flat gradients against separate ones, Adam against its formula, saved and restored state, plugins."""

from __future__ import annotations

import math
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from nmt.config import OptimizerConfig, Sharding, TrainingConfig
from nmt.errors import UserError
from nmt.training.state.checkpoint import Checkpoint, CheckpointFolder
from nmt.training.state.progress import Progress
from nmt.training.update.gradients import FlatGradients
from nmt.training.update.optimizer import (
    OPTIMIZERS,
    Adam,
    Optimizer,
    build_optimizer,
    check_optimizer,
)


def tiny(seed: int = 0) -> nn.Module:
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(3, 5), nn.LayerNorm(5), nn.Linear(5, 2))


def backward(model: nn.Module, seed: int) -> None:
    x = torch.randn(4, 3, generator=torch.Generator().manual_seed(seed))
    model(x).square().sum().backward()


def test_gradients_are_views_that_accumulate() -> None:
    flat_model, plain = tiny(), tiny()
    flat = FlatGradients(flat_model.parameters(), num_extras=2)
    for seed in (1, 2):
        backward(flat_model, seed)
        backward(plain, seed)
    flat.extras += 7.0
    grads = [p.grad for p in plain.parameters()]
    for parameter, grad in zip(flat_model.parameters(), grads, strict=True):
        assert parameter.grad is not None and grad is not None
        assert torch.equal(parameter.grad, grad)
        assert parameter.grad.untyped_storage().data_ptr() == flat.buffer.untyped_storage().data_ptr()
        assert (parameter.grad.data_ptr() - flat.buffer.data_ptr()) % 64 == 0
    expected = torch.cat([g.flatten() for g in grads if g is not None]).norm()
    torch.testing.assert_close(flat.norm(), expected)  # without the extras
    flat.zero()
    assert not any(p.grad.any() for p in flat_model.parameters() if p.grad is not None)
    assert flat.extras.tolist() == [0.0, 0.0]


def test_the_norm_of_many_values_is_exact() -> None:
    parameter = nn.Parameter(torch.zeros(3_000_001))
    flat = FlatGradients([parameter], num_extras=0)
    flat.gradients[: parameter.numel()].fill_(0.1)
    assert flat.norm().item() == pytest.approx(0.1 * 3_000_001**0.5, rel=1e-6)


@pytest.mark.parametrize(("name", "kind"), [("adam", torch.optim.Adam), ("adamw", torch.optim.AdamW)])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_steps_are_those_of_torch_bit_for_bit(
    name: str, kind: type[torch.optim.Adam], decay: float, nobody_reads: AbstractContextManager[object]
) -> None:
    model, twin = tiny(), tiny()
    FlatGradients(model.parameters(), num_extras=0)
    optimizer = build_optimizer(model, OptimizerConfig(name=name, weight_decay=decay))
    matrices = [p for p in twin.parameters() if p.ndim >= 2]
    vectors = [{"params": [p for p in twin.parameters() if p.ndim < 2], "weight_decay": 0.0}]
    options = {"betas": (0.9, 0.98), "eps": 1e-9, "weight_decay": decay, "fused": True}
    expected = kind([{"params": matrices}, *vectors], **options)
    for update in range(5):
        for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
            assert parameter.grad is not None
            parameter.grad.copy_(torch.randn(parameter.shape) if update != 2 else torch.tensor(math.nan))
            other.grad = parameter.grad.clone()
        for group in expected.param_groups:
            group["lr"] = 0.01 * (update + 1)
        if update != 2:
            expected.step()
        with nobody_reads:
            optimizer.step(0.01 * (update + 1), torch.tensor(update != 2))
        for parameter, other in zip(model.parameters(), twin.parameters(), strict=True):
            assert torch.equal(parameter, other)
    assert optimizer.tensors()["step"].item() == 4


@pytest.mark.parametrize("name", ["adam", "muon"])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_a_divisor_scales_the_gradients(decay: float, name: str) -> None:
    model, twin = tiny(), tiny()
    steps = []
    for each, divisor in ((model, torch.tensor(64.0)), (twin, None)):
        gradients = FlatGradients(each.parameters(), num_extras=0).gradients
        optimizer = build_optimizer(each, OptimizerConfig(name=name, weight_decay=decay))
        assert isinstance(optimizer, Adam)
        for update in range(3):
            torch.manual_seed(update)
            gradients.copy_(torch.randn(gradients.shape) * 64)
            if divisor is None:
                gradients.div_(64)
            optimizer.step(0.01, torch.tensor(update != 1), divisor)
        steps.append([*each.parameters(), *optimizer.tensors().values()])
    assert all(map(torch.equal, *steps))  # by a power of two, division does not round


def test_state_before_the_first_update_is_zero() -> None:
    model = tiny()
    tensors = build_optimizer(model, OptimizerConfig()).tensors()
    assert tensors.keys() >= {"step", "exp_avg.0.weight", "exp_avg_sq.2.bias"}
    assert not any(tensor.any() for tensor in tensors.values())


class Momentum(Optimizer):
    """An optimizer of a plugin: stochastic gradient descent with momentum."""

    floats_per_weight = 1

    @dataclass(frozen=True)
    class Options:
        momentum: float = 0.9

    def __init__(self, options: Any, model: nn.Module, config: OptimizerConfig) -> None:
        super().__init__(options, model, config)
        self.velocities = {name: torch.zeros_like(p) for name, p in self.parameters.items()}
        self.count = torch.zeros(())

    @torch.no_grad()
    def step(self, rate: float, finite: Tensor | None = None) -> None:
        finite = torch.tensor(True) if finite is None else finite
        self.count += finite
        for name, parameter in self.parameters.items():
            fresh = self.options.momentum * self.velocities[name] + parameter.grad
            self.velocities[name].copy_(torch.where(finite, fresh, self.velocities[name]))
            parameter.sub_(torch.where(finite, rate * fresh, 0.0))

    def tensors(self) -> dict[str, Tensor]:
        return {"count": self.count, **{f"velocity.{name}": v for name, v in self.velocities.items()}}


class SignDescent(Optimizer):
    """An optimizer of a plugin, without state."""

    @torch.no_grad()
    def step(self, rate: float, finite: Tensor | None = None) -> None:
        for parameter in self.parameters.values():
            step = rate * parameter.grad.sign()
            parameter.sub_(step if finite is None else torch.where(finite, step, 0.0))

    def tensors(self) -> dict[str, Tensor]:
        return {}


@pytest.fixture(autouse=True)
def registered(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPTIMIZERS, "momentum", Momentum)
    monkeypatch.setitem(OPTIMIZERS, "sign", SignDescent)


def test_an_optimizer_of_a_plugin_has_options_of_its_own() -> None:
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 1.0)
    gradients = FlatGradients(model.parameters(), num_extras=0)
    optimizer = build_optimizer(model, OptimizerConfig("momentum", options={"momentum": 0.5}))
    weights = []
    for gradient, finite in ((1.0, True), (float("nan"), False), (1.0, True), (0.0, True)):
        gradients.gradients.fill_(gradient)
        optimizer.step(0.25, torch.tensor(finite))
        weights.append(model.weight.item())
    assert weights == [0.75, 0.75, 0.375, 0.1875]  # velocities 1, 1, 1.5 and 0.75
    assert optimizer.tensors()["count"].item() == 3


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            OptimizerConfig(name="lion"),
            "training.optimizer.name=lion: there is no optimizer lion. "
            "Choose from adam, adamw, muon, momentum, sign.",
        ),
        (
            OptimizerConfig(options={"beta1": 0.5}),
            "training.optimizer.options.beta1: not an option of training.optimizer.name=adam. It has none.",
        ),
    ],
)
def test_wrong_names_and_options_are_one_line(config: OptimizerConfig, message: str) -> None:
    with pytest.raises(UserError) as checked:
        check_optimizer(TrainingConfig(optimizer=config))
    with pytest.raises(UserError) as built:
        build_optimizer(tiny(), config)
    assert str(checked.value) == str(built.value) == message


def test_an_optimizer_of_whole_matrices_is_refused_under_sharding(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(SignDescent, "needs_whole_matrices", True)
    options = TrainingConfig(optimizer=OptimizerConfig(name="sign"), sharding=Sharding.full, devices="2")
    with pytest.raises(UserError) as caught:
        check_optimizer(options)
    assert str(caught.value) == (
        "training.optimizer.name=sign: needs whole matrices, but with training.sharding=full each process "
        "has a part of them. Set training.sharding=none, or choose another optimizer."
    )
    assert check_optimizer(replace(options, devices="1")) is SignDescent
    assert check_optimizer(replace(options, sharding=Sharding.none)) is SignDescent


@pytest.mark.parametrize(
    ("state", "words"),
    [
        ({"count": torch.zeros((), dtype=torch.int64)}, "count of torch.int64"),
        ({"trained.0.weight": torch.zeros(1)}, "trained.0.weight of torch.float32"),
    ],
)
def test_a_state_that_no_checkpoint_can_hold_is_refused_at_the_start(
    state: dict[str, Tensor], words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(SignDescent, "tensors", lambda self: state)
    with pytest.raises(UserError) as caught:
        build_optimizer(tiny(), OptimizerConfig(name="sign"))
    assert str(caught.value) == (
        f"training.optimizer.name=sign: a checkpoint can't hold its state {words}. "
        "Use fp32, and names that don't begin with trained."
    )


@pytest.mark.parametrize("name", ["adam", "adamw", "muon", "momentum", "sign"])
def test_a_run_restored_from_a_checkpoint_goes_on_bit_for_bit(name: str, tmp_path: Path) -> None:
    def updated(model: nn.Module, updates: range, restored: Checkpoint | None = None) -> Checkpoint:
        gradients = FlatGradients(model.parameters(), num_extras=0)
        optimizer = build_optimizer(model, OptimizerConfig(name=name))
        if restored is not None:
            model.load_state_dict(restored.model)
            optimizer.load(restored.optimizer, "here")
        for update in updates:
            gradients.zero()
            backward(model, update)
            optimizer.step(0.01, torch.tensor(True))
        return Checkpoint(Progress(update=updates.stop), model.state_dict(), optimizer.tensors())

    whole = updated(tiny(), range(6))
    folder = CheckpointFolder(tmp_path / "checkpoints", {})
    folder.save(updated(tiny(), range(3)), {})
    resumed = updated(tiny(seed=9), range(3, 6), folder.load_newest())
    for one, other in ((whole.model, resumed.model), (whole.optimizer, resumed.optimizer)):
        assert one.keys() == other.keys()
        assert all(torch.equal(tensor, other[key]) for key, tensor in one.items())
    assert not torch.equal(whole.model["0.weight"], tiny().state_dict()["0.weight"])
    assert whole.optimizer.get("step", torch.tensor(6.0)).item() == 6


@pytest.mark.parametrize(
    ("before", "model", "after", "tensor"),
    [
        ("momentum", tiny(), "adam", "step"),
        ("adam", tiny(), "momentum", "count"),
        ("sign", tiny(), "adamw", "step"),
        ("adam", nn.Sequential(nn.Linear(3, 6)), "adam", "exp_avg.0.weight"),
    ],
)
def test_state_of_another_optimizer_or_model_is_refused(
    before: str, model: nn.Module, after: str, tensor: str
) -> None:
    tensors = build_optimizer(model, OptimizerConfig(name=before)).tensors()
    with pytest.raises(UserError) as caught:
        build_optimizer(tiny(), OptimizerConfig(name=after)).load(tensors, "update-3")
    assert str(caught.value) == (
        f"update-3: its optimizer state does not match {tensor}, so it belongs to another model or optimizer."
    )
