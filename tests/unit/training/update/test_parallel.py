"""Replicated and sharded weights: equal steps and state; each resumes from the other's checkpoint."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode

from nmt.config import ModelConfig, OptimizerConfig, Sharding, TrainingConfig
from nmt.data.batches.batching import Batch
from nmt.errors import UserError
from nmt.model.transformer import Transformer
from nmt.runtime import mix
from nmt.training.processes.ranks import Ranks
from nmt.training.update.loss import training_loss
from nmt.training.update.optimizer import OPTIMIZERS, Optimizer
from nmt.training.update.parallel import Parallel, Replicated, State, spread
from nmt.training.update.sharding import Sharded

BATCHES = [Batch.of([[4, 5], [6]], [[5], [4, 6]]), Batch.of([[7, 8, 9]], [[9, 8, 7]])]
OPTIONS = TrainingConfig(optimizer=OptimizerConfig(epsilon=1e-5), sharding=Sharding.full)
ALONE = Ranks(0, 1, torch.device("cpu"))
HERE = Path("here")


@pytest.fixture(autouse=True)
def group() -> Iterator[None]:
    """A group of one process: FSDP2 takes all its code paths, and the naive twin is in the same process."""
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    yield
    dist.destroy_process_group()


def model(d_model: int = 16) -> Transformer:
    torch.manual_seed(1)
    config = ModelConfig(encoder_layers=1, decoder_layers=1, d_model=d_model, d_ff=32, heads=2, dropout=0.1)
    return Transformer(config, 11, 11).train()


def replicated() -> Parallel:
    return Replicated(model(), OPTIONS, ALONE, num_extras=1)


def sharded(*, always: bool = True) -> Parallel:
    return Sharded(model(), OPTIONS.optimizer, ALONE, num_extras=1, always=always)


def updated(parallel: Parallel, *updates: int) -> tuple[list[float], State]:
    """Makes updates of two micro-batches; returns the sums of each, and copies of the state after them."""
    sums: list[float] = []
    for update in updates:
        parallel.zero()
        for place, batch in enumerate(BATCHES):
            parallel.model.seed_dropout(mix(update, place))
            hidden, weight = parallel.model(batch), parallel.model.output_weight
            losses = training_loss(hidden, weight, batch.target_out, smoothing=0.1)
            parallel.backward(losses.objective, last=place + 1 == len(BATCHES))
            parallel.extras[0] += batch.num_target_tokens
        sums += parallel.sums().tolist()
        parallel.step(0.01, torch.tensor(0.1, dtype=torch.float64), torch.tensor(True))
    weights, tensors = (
        {name: tensor.detach().clone() for name, tensor in part.items()}
        for part in parallel.state(optimizer=True)
    )
    return sums, (weights, tensors)


def assert_alike(one: State, two: State) -> None:
    for a, b in zip(one, two, strict=True):
        assert a.keys() == b.keys()
        for name, tensor in a.items():
            torch.testing.assert_close(b[name], tensor, rtol=1e-5, atol=1e-6, msg=name)


@pytest.mark.parametrize("always", [True, False])
def test_sharded_steps_are_those_of_the_naive_twin(always: bool) -> None:
    parallel = sharded(always=always)
    sums, state = updated(parallel, 1, 2, 3)
    twin_sums, twin = updated(replicated(), 1, 2, 3)
    assert sums == pytest.approx(twin_sums, rel=1e-6)
    assert sums[0] == 9  # target tokens, including EOS
    assert_alike(state, twin)
    assert_alike((parallel.whole.state_dict(), {}), (twin[0], {}))


class Operators(TorchDispatchMode):
    """Counts operators by name."""

    def __init__(self) -> None:
        super().__init__()
        self.counts: Counter[str] = Counter()

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.counts[func.overloadpacket.__name__] += 1
        return func(*args, **(kwargs or {}))


def test_the_sharded_step_reads_no_value_on_the_host() -> None:
    parallel = sharded()
    updated(parallel, 1)
    operators = Operators()
    with operators:
        sums = parallel.sums()
        parallel.step(0.01, torch.tensor(0.1, dtype=torch.float64), sums[-1].isfinite())
    counts = operators.counts
    assert counts["_local_scalar_dense"] == counts["item"] == counts["is_nonzero"] == 0
    assert counts["_foreach_norm"] == counts["_foreach_mul_"] == 1  # one call for all shards
    assert counts["_fused_adam_"] == 1 and counts["linalg_vector_norm"] == 0


class Momentum(Optimizer):
    """An optimizer of a plugin; with shards it is called without `finite`."""

    def __init__(self, options: object, model: nn.Module, config: OptimizerConfig) -> None:
        super().__init__(options, model, config)
        self.velocities = {name: torch.zeros_like(p) for name, p in self.parameters.items()}

    @torch.no_grad()
    def step(self, rate: float, finite: Tensor | None = None) -> None:
        for name, parameter in self.parameters.items():
            fresh = 0.9 * self.velocities[name] + parameter.grad
            step = rate * fresh
            if finite is not None:
                fresh = torch.where(finite, fresh, self.velocities[name])
                step = torch.where(finite, step, 0.0)
            self.velocities[name].copy_(fresh)
            parameter.sub_(step)

    def tensors(self) -> dict[str, Tensor]:
        return {f"velocity.{name}": velocity for name, velocity in self.velocities.items()}


@pytest.mark.parametrize("always", [True, False])
def test_an_optimizer_of_a_plugin_is_sharded_too(always: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPTIMIZERS, "momentum", Momentum)
    monkeypatch.setattr(OPTIONS, "optimizer", OptimizerConfig(name="momentum"))
    _, twin = updated(replicated(), 1, 2)
    _, state = updated(sharded(always=always), 1, 2)
    assert_alike(state, twin)
    assert any(tensor.any() for tensor in state[1].values())
    resumed = sharded(always=always)
    resumed.restore(state, True, HERE)
    assert_alike(updated(resumed, 3)[1], updated(replicated(), 1, 2, 3)[1])
    resumed.step(0.01, torch.tensor(float("nan"), dtype=torch.float64), torch.tensor(False))
    assert all(tensor.isfinite().all() for tensor in resumed.state(optimizer=True)[1].values())


@pytest.mark.parametrize(("before", "after"), [(replicated, sharded), (sharded, replicated)])
def test_each_goes_on_from_the_state_of_the_other(
    before: Callable[[], Parallel], after: Callable[[], Parallel]
) -> None:
    parallel, other = before(), after()
    _, state = updated(parallel, 1, 2)
    other.restore(state, 2, HERE)
    assert_alike(other.state(optimizer=True), state)
    (sums, end), (other_sums, other_end) = updated(parallel, 3), updated(other, 3)
    assert other_sums == pytest.approx(sums, rel=1e-6)
    assert_alike(end, other_end)


@pytest.mark.parametrize("kind", [replicated, sharded])
def test_what_is_held_are_the_weights_themselves(kind: Callable[[], Parallel]) -> None:
    parallel = kind()
    held = parallel.weights()
    held[min(held)].fill_(0.5)
    weights = parallel.state(optimizer=False)[0]
    assert held.keys() == dict(parallel.model.named_parameters()).keys()
    assert all(torch.equal(share, weights[name]) for name, share in held.items())  # one process: the whole


@pytest.mark.parametrize("kind", [replicated, sharded])
def test_a_step_that_is_no_number_changes_nothing(kind: Callable[[], Parallel]) -> None:
    parallel = kind()
    _, (weights, tensors) = updated(parallel, 1)
    parallel.step(0.01, torch.tensor(float("nan"), dtype=torch.float64), torch.tensor(False))
    after = parallel.state(optimizer=True)
    for before, now in zip((weights, tensors), after, strict=True):
        assert all(torch.equal(tensor, now[name]) for name, tensor in before.items())


@pytest.mark.parametrize("kind", [replicated, sharded])
def test_a_state_of_another_model_is_refused(kind: Callable[[], Parallel]) -> None:
    other = Replicated(model(d_model=32), OPTIONS, ALONE, num_extras=1).state(optimizer=True)
    parallel = kind()
    own = parallel.state(optimizer=True)
    for state in ((other[0], own[1]), (own[0], other[1])):
        with pytest.raises(UserError, match="here: .*another|here: belongs to"):
            parallel.restore(state, 1, HERE)


def test_a_process_alone_has_nothing_to_share() -> None:
    assert isinstance(spread(model(), OPTIONS, ALONE, 1), Replicated)
