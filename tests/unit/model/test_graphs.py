"""CUDA graphs of passes, with stand-ins for those of torch; `test_gpu` has tests on a GPU."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest
import torch

import nmt.model.gpu.graphs as captured
from nmt.config import ModelConfig, ObjectiveConfig, Precision, Sharding, TrainingConfig
from nmt.data.batches.batching import Batch
from nmt.errors import UserError
from nmt.model import Seq2Seq
from nmt.model.gpu.graphs import CapturedPasses, check_capture, padding_steps
from nmt.model.gpu.half_weights import HalfWeights
from nmt.model.transformer import Transformer
from nmt.training.update.loss import training_loss

CPU = torch.device("cpu")
NONE, ALL = frozenset[int](), frozenset({0, 1})


class Weights:
    """What `CapturedPasses` uses of `HalfWeights`."""

    def __init__(self) -> None:
        self.has_gradient = NONE
        self.dropped = 0

    def detach(self) -> None:
        self.dropped += 1


class Machine:
    """Stand-ins for `torch.cuda.graph` and `torch.cuda.CUDAGraph`: a graph reads its batch when it is run."""

    def __init__(self) -> None:
        self.weights, self.model, self.exchanges = Weights(), torch.nn.Linear(1, 1), 0
        self.model.register_buffer("table", torch.zeros(3))
        self.sums: list[int] = []
        """The sum of the targets of every pass that was run."""
        self.recorded: list[Batch] = []
        self.pools: list[object] = []
        self.streams: list[object] = []
        self.current = ["the stream of the thread"]
        self.ended: list[object] = []
        self.recording = False
        self.error: Exception | None = None
        model, weights = cast(Seq2Seq, self.model), cast(HalfWeights, self.weights)
        self.captured = CapturedPasses(self.passes, model, weights, self.exchange, CPU)

    def exchange(self) -> None:
        self.exchanges += 1

    def passes(self, batch: Batch) -> None:
        self.weights.has_gradient = ALL
        if self.recording:
            self.recorded.append(batch)
            if self.error:
                raise self.error
        else:
            self.sums.append(int(batch.target_out.sum()))

    def new_graph(self) -> Any:
        number = len(self.recorded)
        return SimpleNamespace(replay=lambda: self.sums.append(int(self.recorded[number].target_out.sum())))

    @contextmanager
    def on_stream(self, stream: str) -> Iterator[None]:
        """A stand-in for `torch.cuda.stream`."""
        before = self.current[-1]
        self.current.append(stream)
        try:
            yield
        finally:
            self.current.append(before)

    @contextmanager
    def graph(self, graph: Any, *, pool: object, stream: str, capture_error_mode: str) -> Iterator[None]:
        assert capture_error_mode == "thread_local"
        self.pools.append(pool)
        self.streams.append(stream)
        self.current.append(stream)  # as torch: after an error when a graph is completed, it stays current
        self.recording = True
        try:
            yield
        finally:
            self.recording = False
        self.current.append(self.current[-2])

    def run(self, *targets: int, last: bool = True) -> None:
        """Runs an update with one micro-batch for each target, whose pair has two tokens."""
        self.weights.has_gradient = NONE
        for number, target in enumerate(targets):
            batch = Batch.of([[5]], [[target]])
            pinned = replace(batch, memory=torch.cat([x.view(torch.uint8) for x in batch._tensors()]))
            self.captured.run(pinned._in(cast(torch.Tensor, pinned.memory)), last=number + 1 == len(targets))


@pytest.fixture
def machine(monkeypatch: pytest.MonkeyPatch) -> Machine:
    machine = Machine()
    monkeypatch.setattr(torch.cuda, "CUDAGraph", machine.new_graph)
    monkeypatch.setattr(torch.cuda, "graph", machine.graph)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: f"pool {len(machine.pools)}")
    monkeypatch.setattr(captured, "_new_stream", lambda device: f"stream {len(machine.streams)}")
    monkeypatch.setattr(torch.cuda, "current_stream", lambda device: machine.current[-1])
    monkeypatch.setattr(torch.cuda, "stream", machine.on_stream)
    monkeypatch.setattr(torch._C, "_cuda_endAllocateToPool", lambda index, pool: machine.ended.append(pool))
    return machine


def test_a_shape_is_recorded_when_it_comes_again_and_every_batch_is_computed(machine: Machine) -> None:
    for target in (10, 11, 12, 13):
        machine.run(target)
    assert machine.sums == [12, 13, 14, 15]  # with EOS, 2
    assert len(machine.recorded) == machine.captured.num_graphs == 1
    assert machine.weights.has_gradient == ALL
    assert machine.exchanges == 4


def test_the_first_micro_batch_of_an_update_has_a_graph_of_its_own(machine: Machine) -> None:
    for _ in range(3):
        machine.run(10, 11, 12)
    assert machine.sums == [12, 13, 14] * 3
    assert machine.captured.num_graphs == 2
    assert machine.pools == ["pool 0", "pool 0"] and machine.streams == ["stream 0", "stream 0"]
    assert machine.current[-1] == "the stream of the thread" and not machine.ended
    assert machine.exchanges == 3


def test_there_are_not_too_many_graphs(machine: Machine) -> None:
    machine.captured._most = 1
    for _ in range(3):
        machine.run(10, 11)
    assert machine.sums == [12, 13] * 3
    assert machine.captured.num_graphs == 1


def test_graphs_can_be_forgotten(machine: Machine) -> None:
    for _ in range(2):
        machine.run(10)
    machine.captured.clear()
    machine.run(10)
    assert machine.captured.num_graphs == 0 and machine.sums == [12] * 3


def test_without_graphs_training_goes_on(machine: Machine, caplog: pytest.LogCaptureFixture) -> None:
    machine.error = RuntimeError("operation not permitted when stream is capturing\nmore")
    for target in (10, 11, 12):
        machine.run(target)
    assert machine.sums == [12, 13, 14]
    assert machine.captured.num_graphs == 0 and machine.weights.dropped == 1
    assert machine.current[-1] == "the stream of the thread" and machine.ended == ["pool 0"]
    assert caplog.messages == [
        "training.cuda_graphs=true: this machine can't record the passes (operation not permitted when "
        "stream is capturing). They run without graphs, which is slower"
    ]


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory."),
        RuntimeError("CUDA error: out of memory"),  # from CUDA itself, when a graph is completed
    ],
)
def test_too_little_memory_is_an_error_of_the_probe_only(error: Exception, machine: Machine) -> None:
    machine.run(10, 11, 12)
    machine.run(10, 11, 12)
    assert machine.captured.num_graphs == 2
    machine.captured.clear()
    machine.error = error
    machine.run(10)
    machine.captured.needs_memory = True
    with pytest.raises(torch.OutOfMemoryError):
        machine.run(11)
    machine.captured.needs_memory = False
    machine.run(11)
    machine.run(12)
    assert machine.sums == [12, 13, 14] * 2 + [12, 13, 14]
    assert machine.captured.num_graphs == 0


def test_a_graph_holds_the_buffers_that_the_model_replaces(machine: Machine) -> None:
    table = machine.model.table
    for _ in range(2):
        machine.run(10)
    machine.model.table = torch.zeros(9)
    [recorded] = machine.captured._recorded.values()
    assert any(buffer is table for buffer in recorded.buffers)


@pytest.mark.parametrize(
    ("budgets", "steps"),
    [((25_000, 37_500), (2368, 1600)), ((3125, 4687), (320, 256)), ((100, 150), (64, 64))],
)
def test_steps_of_padding(budgets: tuple[int, int], steps: tuple[int, int]) -> None:
    assert padding_steps(*budgets) == steps


@pytest.mark.parametrize(
    ("options", "captures", "words"),
    [
        ({}, True, None),
        ({"precision": Precision.fp16}, True, "needs training.precision=bf16, and it is fp16"),
        ({"rdrop": 5.0}, True, "is not available with training.rdrop=5.0"),
        ({"sharding": Sharding.full}, True, "is not available with training.sharding=full"),
        (
            {"objective": ObjectiveConfig(name="mine")},
            True,
            "is not available with training.objective.name=mine",
        ),
        ({}, False, "is for the Transformer of the paper"),
    ],
)
def test_options_that_exclude_graphs(options: dict[str, Any], captures: bool, words: str | None) -> None:
    training = TrainingConfig(**{"precision": Precision.bf16, "cuda_graphs": True, **options})
    model = cast(Seq2Seq, SimpleNamespace(can_be_captured=captures))
    if words is None:
        check_capture(training, model)
        return
    with pytest.raises(UserError, match=r"^training\.cuda_graphs=true: " + words) as error:
        check_capture(training, model)
    assert str(error.value).endswith("Set training.cuda_graphs=false.")


def test_padding_changes_neither_loss_nor_gradients() -> None:
    batch = Batch.of([[4, 5, 6, 7], [6], [8, 9]], [[5, 4], [4, 6, 7, 8, 9], [10]])
    torch.manual_seed(1)
    shape = {"encoder_layers": 2, "decoder_layers": 2, "d_model": 16, "d_ff": 24, "heads": 2}
    model = Transformer(ModelConfig(**shape, dropout=0.0), 11, 11).double().train()
    found = []
    for one in (batch, batch.padded((64, 64))):
        hidden = model(one)
        padded = one.num_filling > 0
        losses = training_loss(hidden, model.output_weight, one.target_out, smoothing=0.1, ignores=padded)
        gradients = torch.autograd.grad(losses.objective, [*model.parameters()])
        found.append([losses.objective, losses.loss, losses.nll, *gradients])
    for plain, padded in zip(*found, strict=True):
        torch.testing.assert_close(padded, plain, rtol=1e-10, atol=1e-12)


def test_a_class_of_a_plugin_does_not_inherit_the_promise() -> None:
    class Mine(Transformer):
        pass

    with torch.device("meta"):
        assert not Mine(ModelConfig(), 11, 11).can_be_captured
