"""Training with frozen weights: the others make the steps of a plain twin, and the frozen ones stay."""

from __future__ import annotations

import copy
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest
import torch
from torch import Tensor
from toy_training import ALONE, BATCHES, accumulate, gradients_in_bf16, loss_of, tiny_model

from nmt.config import OptimizerConfig, Tie, TrainingConfig
from nmt.model import Seq2Seq
from nmt.model.gpu.half_weights import HalfWeights
from nmt.training.state.warm_start import freeze
from nmt.training.update.ema import RunningMean
from nmt.training.update.gradients import FlatGradients
from nmt.training.update.loss import training_loss
from nmt.training.update.optimizer import trained_parameters
from nmt.training.update.parallel import BucketedExchange, Parallel, Replicated
from nmt.training.update.sharding import Sharded

OPTIONS = TrainingConfig(optimizer=OptimizerConfig(epsilon=1e-3))
RATE, FACTOR = 0.01, 0.1
pytestmark = pytest.mark.usefixtures("group")
model = partial(tiny_model, output_bias=True)

FREEZE = [
    ["encoder"],
    ["decoder"],
    ["embeddings"],
    ["encoder", "embeddings"],
    ["decoder", "embeddings"],
    ["encoder", "decoder"],
    ["cross_attention"],
    ["encoder", "cross_attention", "embeddings"],
    ["*.weight"],
]


def updated(parallel: Parallel, updates: int) -> dict[str, Tensor]:
    """Makes updates of two micro-batches; returns copies of the weights."""
    for update in range(updates):
        accumulate(parallel, update)
        parallel.sums()
        parallel.step(RATE, torch.tensor(FACTOR, dtype=torch.float64), torch.tensor(True))
    return {name: weight.clone() for name, weight in parallel.state(optimizer=False)[0].items()}


def twin(network: Seq2Seq, updates: int, l2: float = 0.0) -> dict[str, Tensor]:
    """The same in plain torch: all gradients are computed; torch's Adam gets those of the trained weights."""
    trained = trained_parameters(network)
    start = {name: weight.detach().clone() for name, weight in trained.items()}
    network.requires_grad_(True)
    adam = torch.optim.Adam(trained.values(), RATE, betas=(0.9, 0.98), eps=1e-3)
    for update in range(updates):
        network.zero_grad()
        for place in range(len(BATCHES)):
            loss_of(network, place, update).backward()
        for name, weight in trained.items():
            assert weight.grad is not None
            weight.grad = weight.grad * FACTOR + l2 * (weight.detach() - start[name])
        adam.step()
    return {name: weight.detach().clone() for name, weight in network.state_dict().items()}


def assert_like_the_twin(found: dict[str, Tensor], expected: dict[str, Tensor], start: Seq2Seq) -> None:
    assert found.keys() == expected.keys()
    for name, weight in start.named_parameters():
        if weight.requires_grad:
            torch.testing.assert_close(found[name], expected[name], rtol=1e-5, atol=2e-6, msg=name)
            assert not torch.equal(found[name], weight), name
        else:
            assert torch.equal(found[name], weight), name


@pytest.mark.parametrize(
    ("architecture", "tie"),
    [("transformer", Tie.all), ("transformer", Tie.none), ("rnn_attention", Tie.none)],
    ids=str,
)
@pytest.mark.parametrize("parts", FREEZE, ids=",".join)
def test_steps_of_the_other_weights(parts: list[str], architecture: str, tie: Tie) -> None:
    network = model(architecture=architecture, tie=tie)
    if architecture == "rnn_attention":
        parts = ["key" if part == "cross_attention" else part for part in parts]
    freeze(network, parts)
    start = copy.deepcopy(network)
    found = updated(Replicated(copy.deepcopy(network), OPTIONS, ALONE, 1), 3)
    assert_like_the_twin(found, twin(network, 3), start)


@pytest.mark.parametrize(
    ("tie", "always"),
    [
        (Tie.all, True),
        pytest.param(Tie.all, False, marks=pytest.mark.slow),
        pytest.param(Tie.none, False, marks=pytest.mark.slow),
    ],
)
@pytest.mark.parametrize("parts", [*FREEZE, ["embeddings", "decoder", "encoder"]], ids=",".join)
def test_sharded_steps_of_the_other_weights(parts: list[str], tie: Tie, always: bool) -> None:
    """The last case trains the bias and, without tying, the output matrix: no hidden state has a gradient."""
    network = model(tie=tie)
    freeze(network, parts)
    start = copy.deepcopy(network)
    parallel = Sharded(copy.deepcopy(network), replace(OPTIONS, micro_batches=1 if always else 2), ALONE, 1)
    assert_like_the_twin(updated(parallel, 3), twin(network, 3), start)
    assert parallel.weights().keys() == trained_parameters(start).keys()


@pytest.mark.parametrize("kind", ["replicated", "sharded"])
@pytest.mark.parametrize("parts", [[], ["encoder"]], ids=str)
def test_the_penalty_is_that_of_the_twin(parts: list[str], kind: str) -> None:
    network = model()
    freeze(network, parts)
    start, copied = copy.deepcopy(network), copy.deepcopy(network)
    options = TrainingConfig(optimizer=OPTIONS.optimizer, l2_to_start=3.0)
    parallel: Parallel = (Replicated if kind == "replicated" else Sharded)(copied, options, ALONE, 1)
    found = updated(parallel, 4)
    assert_like_the_twin(found, twin(network, 4, l2=3.0), start)

    def distance(weights: dict[str, Tensor]) -> float:
        return sum(
            float((weights[name] - weight).square().sum()) for name, weight in start.state_dict().items()
        )

    assert distance(found) < 0.9 * distance(updated(Replicated(copy.deepcopy(start), OPTIONS, ALONE, 1), 4))


def test_a_resumed_penalty_pulls_to_the_start_and_not_to_the_checkpoint() -> None:
    options = TrainingConfig(optimizer=OPTIONS.optimizer, l2_to_start=3.0)
    parallel = Replicated(model(), options, ALONE, 1)
    updated(parallel, 2)
    weights, tensors = (
        {name: tensor.clone() for name, tensor in part.items()} for part in parallel.state(optimizer=True)
    )
    resumed = Replicated(model(), options, ALONE, 1)
    resumed.restore((weights, tensors), True, Path("here"))
    expected, found = updated(parallel, 2), updated(resumed, 2)
    assert all(torch.equal(weight, found[name]) for name, weight in expected.items())


@pytest.mark.parametrize("parts", FREEZE, ids=",".join)
def test_copies_in_16_bits(parts: list[str]) -> None:
    """Bit for bit the gradients of autocast; copies of frozen weights are filled, and get no gradient."""
    sums = []
    for with_copies in (False, True):
        network = model()
        freeze(network, parts)
        flat = FlatGradients(trained_parameters(network).values(), 1)
        half = HalfWeights(network, torch.bfloat16) if with_copies else None
        sums.append(gradients_in_bf16(network, flat, half))
        assert half is None or len(half.leaves()) == len(trained_parameters(network))
    assert torch.equal(*sums) and bool(sums[0].any())


@pytest.mark.parametrize("parts", FREEZE[:3], ids=",".join)
def test_the_exchange_sums_the_trained_weights_alone(parts: list[str]) -> None:
    network = model()
    freeze(network, parts)
    trained = trained_parameters(network)
    flat = FlatGradients(trained.values(), 1)
    exchange = BucketedExchange(flat, [[weight] for weight in trained.values()], ALONE, lambda numbers: None)
    exchange.backward(loss_of(network, 0))
    exchange.finish()
    assert bool(flat.gradients.any())
    num_trained = sum(weight.numel() for weight in trained.values())
    assert num_trained <= len(flat.gradients) < network.num_parameters + 4096
    assert all(weight.grad is None for weight in network.parameters() if not weight.requires_grad)


def test_the_optimizer_has_no_state_for_frozen_weights() -> None:
    network = model()
    freeze(network, ["encoder", "embeddings"])
    tensors = Replicated(network, OPTIONS, ALONE, 1).state(optimizer=True)[1]
    names = {name.partition(".")[2] for name in tensors if name != "step"}
    assert names == trained_parameters(network).keys()


def test_the_running_mean_of_frozen_weights_is_the_start() -> None:
    network = model()
    freeze(network, ["encoder"])
    start = copy.deepcopy(network.state_dict())
    parallel = Replicated(network, OPTIONS, ALONE, 1)
    mean = RunningMean(parallel, 0.9)
    for number in range(1, 4):
        updated(parallel, 1)
        mean.update(number)
    weights, tensors = mean.state(optimizer=True)
    for name, weight in weights.items():
        same = torch.equal(weight, start[name])
        assert same == name.startswith("encoder"), name
        assert torch.equal(tensors[f"trained.{name}"], parallel.model.state_dict()[name])


@pytest.mark.parametrize("rdrop", [0.0, 2.0])
@pytest.mark.parametrize("frozen", [(), (0,), (1,), (2,), (0, 1), (0, 2), (1, 2)], ids=str)
def test_the_loss_computes_the_gradients_that_are_needed(frozen: tuple[int, ...], rdrop: float) -> None:
    torch.manual_seed(2)
    target = torch.randint(11, (6,))

    def gradients(skipped: tuple[int, ...]) -> list[Tensor | None]:
        torch.manual_seed(3)
        leaves = [torch.randn(12 if rdrop else 6, 5), torch.randn(11, 5), torch.randn(11)]
        for number, leaf in enumerate(leaves):
            leaf.requires_grad_(number not in skipped)
        hidden, weight, bias = leaves
        training_loss(hidden, weight, target, bias, smoothing=0.1, rdrop=rdrop).objective.backward()
        return [leaf.grad for leaf in leaves]

    expected, found = gradients(()), gradients(frozen)
    for number, (one, other) in enumerate(zip(expected, found, strict=True)):
        assert one is not None
        assert other is None if number in frozen else torch.equal(one, other)  # type: ignore[arg-type]
