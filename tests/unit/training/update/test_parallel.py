"""Replicated and sharded weights: equal steps and state; gradients summed in buckets: the bits of one sum."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from test_optimizer import Momentum
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from toy_training import ALONE, BATCHES, accumulate, gradients_in_bf16, loss_of, tiny_model

from nmt.config import Exchange, OptimizerConfig, Sharding, Tie, TrainingConfig
from nmt.errors import UserError
from nmt.model.gpu.half_weights import HalfWeights
from nmt.training.processes.ranks import Ranks
from nmt.training.update import parallel as module
from nmt.training.update.gradients import FlatGradients
from nmt.training.update.optimizer import OPTIMIZERS
from nmt.training.update.parallel import BucketedExchange, Parallel, Replicated, State, spread
from nmt.training.update.sharding import Sharded

OPTIONS = TrainingConfig(optimizer=OptimizerConfig(epsilon=1e-5), sharding=Sharding.full)
HERE = Path("here")


@pytest.fixture(autouse=True)
def nothing_started(group: None) -> None:
    STARTED.clear()


def replicated() -> Parallel:
    return Replicated(tiny_model(), OPTIONS, ALONE, num_extras=1)


def sharded(*, always: bool = True) -> Parallel:
    return Sharded(tiny_model(), replace(OPTIONS, micro_batches=1 if always else 2), ALONE, num_extras=1)


def updated(parallel: Parallel, *updates: int) -> tuple[list[float], State]:
    """Makes updates of two micro-batches; returns the sums of each, and copies of the state after them."""
    sums: list[float] = []
    for update in updates:
        accumulate(parallel, update)
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


@pytest.mark.parametrize("name", ["momentum", "muon"])
@pytest.mark.parametrize("always", [True, False])
def test_other_optimizers_are_sharded_too(always: bool, name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(OPTIMIZERS, "momentum", Momentum)
    monkeypatch.setattr(OPTIONS, "optimizer", OptimizerConfig(name=name))
    _, twin = updated(replicated(), 1, 2)
    _, state = updated(sharded(always=always), 1, 2)
    assert_alike(state, twin)
    assert any(tensor.any() for tensor in state[1].values())
    resumed = sharded(always=always)
    resumed.restore(state, True, HERE)
    assert_alike(updated(resumed, 3)[1], updated(replicated(), 1, 2, 3)[1])
    resumed.step(0.01, torch.tensor(float("nan"), dtype=torch.float64), torch.tensor(False))
    assert all(tensor.isfinite().all() for tensor in resumed.state(optimizer=True)[1].values())


@pytest.mark.parametrize("always", [True, False])
def test_the_attention_weights_of_a_sharded_model_have_a_gradient(always: bool) -> None:
    norms = []
    for parallel in (replicated(), sharded(always=always)):
        parallel.zero()
        parallel.model.seed_dropout(1)
        output = parallel.model(BATCHES[0], attention_layers=(-1,))
        parallel.backward(output.attention[0][:, 0, 0].log().sum() + output.hidden.sum(), last=True)
        norms.append(parallel.sums()[-1].item())
    assert norms[1] == pytest.approx(norms[0], rel=1e-5) and norms[0] > 0


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
    other = Replicated(tiny_model(d_model=32), OPTIONS, ALONE, num_extras=1).state(optimizer=True)
    parallel = kind()
    own = parallel.state(optimizer=True)
    for state in ((other[0], own[1]), (own[0], other[1])):
        with pytest.raises(UserError, match="here: .*another|here: belongs to"):
            parallel.restore(state, 1, HERE)


def test_a_process_alone_has_nothing_to_share() -> None:
    assert isinstance(spread(tiny_model(), OPTIONS, ALONE, 1), Replicated)


class Recorded(Ranks):
    """One of two processes, whose group has only one: a sum changes nothing. Records what is summed."""

    def start_sum(self, tensor: Tensor) -> dist.Work:
        STARTED.append((tensor.dtype, len(tensor)))
        return super().start_sum(tensor)


STARTED: list[tuple[torch.dtype, int]] = []
TOGETHER = Recorded(0, 2, torch.device("cpu"))


def summed(ranks: Ranks, tie: Tie = Tie.all, gradients: Exchange = Exchange.fp32) -> Replicated:
    options = TrainingConfig(optimizer=OptimizerConfig(epsilon=1e-5), gradient_exchange=gradients)
    return Replicated(tiny_model(tie=tie), options, ranks, num_extras=1)


def test_a_sum_that_starts_after_the_backward_passes_has_the_same_bits() -> None:
    alone, together = summed(ALONE), summed(TOGETHER)
    for _ in range(2):
        for parallel in (alone, together):
            parallel.zero()
            for place in range(len(BATCHES)):
                parallel.backward(loss_of(parallel.model, place), last=False)
            parallel.exchange()
        assert len(STARTED) == 1  # all gradients are in one bucket
        assert torch.equal(together.sums(), alone.sums())
        assert torch.equal(together.gradients.buffer, alone.gradients.buffer)
        STARTED.clear()


@pytest.mark.parametrize("tie", list(Tie))
@pytest.mark.parametrize("size", [1, 1000, 1 << 22])
def test_bits_are_those_of_one_sum_at_the_end(size: int, tie: Tie, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUCKET_SIZE", size)
    alone, together = summed(ALONE, tie), summed(TOGETHER, tie)
    for _ in range(3):
        accumulate(alone)
        accumulate(together)
        assert torch.equal(together.sums(), alone.sums())
        assert torch.equal(together.gradients.buffer, alone.gradients.buffer)
        for parallel in (alone, together):
            parallel.step(0.01, torch.tensor(0.1, dtype=torch.float64), torch.tensor(True))
    buckets = len(STARTED) // 3
    assert STARTED == STARTED[:buckets] * 3
    assert sum(length for _, length in STARTED[:buckets]) == len(alone.gradients.gradients)
    assert buckets == {1: len(list(alone.model.parameters())), 1 << 22: 1}.get(size, buckets)


def test_an_update_that_was_only_tried_leaves_nothing() -> None:
    alone, together = summed(ALONE), summed(TOGETHER)
    accumulate(together)  # as the memory probe does, without `sums`
    for parallel in (alone, together):
        accumulate(parallel)
    assert torch.equal(together.sums(), alone.sums())


def test_bf16_sends_half_of_the_bytes() -> None:
    alone, together = summed(ALONE), summed(TOGETHER, gradients=Exchange.bf16)
    for parallel in (alone, together):
        accumulate(parallel)
    assert together.sums()[0] == alone.sums()[0]  # the extras are exact
    assert torch.equal(together.gradients.gradients, alone.gradients.gradients.bfloat16().float())
    assert {dtype for dtype, _ in STARTED} == {torch.bfloat16}


def chain(monkeypatch: pytest.MonkeyPatch) -> tuple[list[nn.Parameter], BucketedExchange, FlatGradients]:
    """Three parameters of 256 floats, each in a bucket."""
    monkeypatch.setattr(module, "BUCKET_SIZE", 256)
    weights = [nn.Parameter(torch.full((256,), value)) for value in (1.0, 2.0, 3.0)]
    flat = FlatGradients(weights, num_extras=1)
    return weights, BucketedExchange(flat, [[w] for w in weights], TOGETHER, lambda numbers: None), flat


def test_the_first_sum_starts_while_the_backward_pass_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    (a, b, c), exchanged, _ = chain(monkeypatch)
    started = []
    a.register_hook(lambda grad: started.append(len(STARTED)))
    exchanged.backward(((a * 2).tanh() * b * c).sum())
    exchanged.finish()
    assert started == [2] and len(STARTED) == 3  # the gradient of a is computed last
    assert c.grad is not None and torch.equal(c.grad, (a * 2).tanh() * b)


@pytest.mark.parametrize("unused", [0, 1, 2])
def test_the_order_is_fixed_and_unused_parameters_delay_no_sum(
    unused: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    weights, _, flat = chain(monkeypatch)
    buckets: list[range] = []
    exchanged = BucketedExchange(flat, [[w] for w in weights], TOGETHER, buckets.append)
    used = [weight for number, weight in enumerate(weights) if number != unused]
    seen = []
    used[0].register_hook(lambda grad: seen.append(len(buckets)))
    # The gradient of the second one is computed first, and that of the first one last.
    exchanged.backward((used[0].tanh() * used[1]).sum())
    exchanged.finish()
    assert buckets == [range(2, 3), range(1, 2), range(1)]
    assert seen == [{0: 1, 1: 2, 2: 2}[unused]]


@pytest.mark.parametrize(
    ("starts", "end", "expected"),
    [
        ([0], 16, [range(1)]),
        ([0, 16, 32], 48, [range(1, 3), range(1)]),
        ([0, 100, 116, 132], 148, [range(2, 4), range(2)]),
        ([0, 16, 116], 132, [range(1, 3), range(1)]),
    ],
)
def test_buckets_hold_the_last_parameters_first(
    starts: list[int], end: int, expected: list[range], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "BUCKET_SIZE", 32)
    assert module._buckets(starts, end) == expected


@pytest.mark.parametrize("tie", list(Tie))
def test_copies_of_weights_are_added_bucket_by_bucket(tie: Tie, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "BUCKET_SIZE", 1000)
    found = []
    for bucketed in (False, True):
        network = tiny_model(tie=tie)
        flat = FlatGradients(network.parameters(), 1)
        half = HalfWeights(network, torch.bfloat16)
        exchange = BucketedExchange(flat, half.leaves(), TOGETHER, half.add_gradients) if bucketed else None
        for _ in range(2):
            gradients = gradients_in_bf16(network, flat, half, exchange)
        found.append(gradients)
    assert torch.equal(*found) and bool(found[0].any())
