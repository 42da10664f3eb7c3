"""The running mean of the weights against its naive twin, and its use in training and checkpoints."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

from nmt.errors import UserError
from nmt.training.update.ema import RunningMean, trained_weights, with_trained
from nmt.training.update.parallel import State


class Alone:
    """The part of `Parallel` that `RunningMean` uses: one process, no optimizer."""

    def __init__(self, model: nn.Module) -> None:
        self.model = model

    def weights(self) -> dict[str, Tensor]:
        return {name: weight.detach() for name, weight in self.model.named_parameters()}

    def state(self, *, optimizer: bool) -> State:
        return dict(self.model.state_dict()), {"step": torch.ones(())} if optimizer else {}

    def restore(self, state: State | None, begun: bool, where: Path) -> None:
        if state:
            self.model.load_state_dict(state[0])


def mean_of(model: nn.Module, decay: float) -> RunningMean:
    return RunningMean(Alone(model), decay)  # type: ignore[arg-type]


def two_layers() -> nn.Sequential:
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(3, 4), nn.Linear(4, 2))


def move(model: nn.Module) -> None:
    """Makes a step in a random direction."""
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))


def values(model: nn.Module) -> dict[str, Tensor]:
    return {name: tensor.clone() for name, tensor in model.state_dict().items()}


def test_mean_of_literal_numbers() -> None:
    """Decays 2/11 and 3/12, both below 0.5; then 0.5, because (n + 1) / (n + 10) is larger."""
    model = nn.Linear(1, 1, bias=False)
    nn.init.constant_(model.weight, 11.0)
    mean = mean_of(model, 0.5)
    found = []
    for updates, weight in ((1, 0.0), (2, 4.0), (8, 7.5)):
        nn.init.constant_(model.weight, weight)
        mean.update(updates)
        with mean.in_place():
            found.append(model.weight.item())
    assert found == pytest.approx([2.0, 0.25 * 2 + 0.75 * 4, 0.5 * 3.5 + 0.5 * 7.5])


def test_in_place_and_back_leaves_every_bit_and_address() -> None:
    model = two_layers()
    mean = mean_of(model, 0.9)
    move(model)
    mean.update(1)
    before = values(model)
    with mean.in_place():
        delivered = values(model)
    addresses = [parameter.data_ptr() for parameter in model.parameters()]
    with pytest.raises(ZeroDivisionError), mean.in_place():
        assert all(torch.equal(tensor, delivered[name]) for name, tensor in values(model).items())
        assert not any(torch.equal(tensor, before[name]) for name, tensor in values(model).items())
        raise ZeroDivisionError  # like an interrupted validation
    assert all(torch.equal(tensor, before[name]) for name, tensor in values(model).items())
    assert addresses == [parameter.data_ptr() for parameter in model.parameters()]


def test_a_state_brings_back_mean_and_weights() -> None:
    model = two_layers()
    mean = mean_of(model, 0.9)
    move(model)
    mean.update(1)
    before, state = values(model), mean.state(optimizer=True)
    with mean.in_place():
        delivered = values(model)
    assert state[0].keys() == delivered.keys() and "step" in state[1]
    assert all(torch.equal(tensor, delivered[name]) for name, tensor in state[0].items())
    move(model)
    other = two_layers()
    again = mean_of(other, 0.9)
    again.restore(state, True, Path("there"))
    assert all(torch.equal(tensor, before[name]) for name, tensor in values(other).items())
    with again.in_place():
        assert all(torch.equal(tensor, delivered[name]) for name, tensor in values(other).items())


def test_a_state_holds_the_weights_to_go_on_from() -> None:
    weights, moments = {"a": torch.ones(2), "b": torch.zeros(1)}, {"step": torch.ones(())}
    beside = with_trained((weights, moments))
    assert beside.keys() == {"step", "trained.a", "trained.b"}
    mean = {"a": torch.full((2,), 0.5), "b": torch.zeros(1)}
    found = trained_weights((mean, beside), "there")
    assert found.keys() == weights.keys() and all(torch.equal(found[name], weights[name]) for name in found)
    with pytest.raises(UserError, match="there: has no trained.a"):
        trained_weights((mean, moments), "there")


def test_without_decay_there_is_none() -> None:
    model = two_layers()
    mean = mean_of(model, 0.0)
    move(model)
    mean.update(1)
    before = values(model)
    with mean.in_place():
        assert all(torch.equal(tensor, before[name]) for name, tensor in values(model).items())
