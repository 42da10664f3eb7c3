"""An update: the micro-batches of the memory probe, CUDA graphs with stand-ins, the check on the device."""

from __future__ import annotations

import gc
import math
import weakref
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import nmt.model.gpu.graphs as captured
import nmt.training.update.training_step as module
from nmt.config import ModelConfig, Precision, Sharding, TrainingConfig
from nmt.data.batches.batching import Batch
from nmt.model.backend import Backend
from nmt.model.gpu.half_weights import HalfWeights
from nmt.model.transformer import Transformer
from nmt.training.processes.ranks import Ranks
from nmt.training.update.training_step import TrainingStep, UpdateCheck

CPU = torch.device("cpu")
SHAPE = ModelConfig(encoder_layers=1, decoder_layers=1, d_model=16, d_ff=32, heads=2)
BATCH = Batch.of([[4, 5, 6], [6]], [[5, 4], [4, 6, 7]])


def training_step(**options: Any) -> TrainingStep:
    training = TrainingConfig(precision=Precision.fp32, **options)
    step = TrainingStep(Transformer(SHAPE, 11, 11), training, Ranks(0, 1, CPU))
    step.model.train()
    return step


@pytest.fixture
def graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Passes on the CPU are recorded; to record runs them, and to replay does nothing."""

    @contextmanager
    def nothing(*arguments: Any, **options: Any) -> Iterator[None]:
        yield

    monkeypatch.setattr(module, "uses_graphs", lambda options, ranks: True)
    monkeypatch.setattr(module, "check_capture", lambda options, model: None)
    monkeypatch.setattr(Backend, "half_weights", lambda backend, model, dtype: HalfWeights(model, dtype))
    monkeypatch.setattr(captured, "_left_as_it_was", nothing)
    monkeypatch.setattr(Tensor, "pin_memory", lambda tensor: tensor)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", lambda: SimpleNamespace(replay=lambda: None))
    monkeypatch.setattr(torch.cuda, "graph", nothing)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", object)
    monkeypatch.setattr(captured, "_new_stream", lambda device: object())


@pytest.mark.parametrize(
    ("sharding", "micro_batches", "rank", "expected"),
    [
        (Sharding.none, 5, 0, [4]),
        (Sharding.full, 5, 0, [0, 4]),  # of its 0, 2 and 4
        (Sharding.full, 3, 0, [0, 2]),
        (Sharding.full, 3, 1, [2]),  # it has only 1
        (Sharding.full, 2, 0, [1]),
    ],
)
def test_sharded_gradients_that_stay_whole_are_probed(
    sharding: Sharding,
    micro_batches: int,
    rank: int,
    expected: list[int],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = training_step(micro_batches=micro_batches, sharding=sharding)
    monkeypatch.setattr(step, "_ranks", Ranks(rank, 2, CPU))
    tried: list[int] = []
    monkeypatch.setattr(step, "add", lambda batch, number, seed: tried.append(number))
    step.probe(BATCH)
    assert tried == expected


@pytest.mark.usefixtures("graphs")
@pytest.mark.parametrize(("micro_batches", "expected"), [(1, [0]), (3, [0, 2])])
def test_the_probe_tries_every_graph_of_a_shape(
    micro_batches: int, expected: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    step = training_step(micro_batches=micro_batches)
    assert step.captured is not None
    tried: list[int | str] = []
    add, run_once = step.add, step.captured.run_once

    def watched_add(batch: Batch, number: int, *, seed: int) -> None:
        assert step.captured is not None and step.captured.needs_memory
        tried.append(number)
        add(batch, number, seed=seed)

    def watched_run_once(batch: Batch) -> None:
        assert step.captured is not None
        tried.append(f"alone, beside {step.captured.num_graphs}")
        run_once(batch)

    monkeypatch.setattr(step, "add", watched_add)
    monkeypatch.setattr(step.captured, "run_once", watched_run_once)
    step.probe(BATCH)
    # The first micro-batch of an update has a graph of its own: the others add to its gradients.
    assert [one for one in tried if isinstance(one, int)] == expected * 2
    assert tried[0] == expected[0] and tried[-1] == f"alone, beside {len(expected)}"
    assert step.captured.num_graphs == 0 and not step.captured.needs_memory


@pytest.mark.usefixtures("graphs")
def test_dropout_after_a_recording_that_failed_is_that_without_graphs(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    step = training_step()
    numbers: list[int] = []
    forward = step.model.forward

    def drawing(batch: Batch) -> Tensor:
        numbers.extend(step.model.randomness.draw_seed(CPU)[1] for _ in range(2))
        return forward(batch)

    @contextmanager
    def full(*arguments: Any, **options: Any) -> Iterator[None]:
        yield
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr(step.model, "forward", drawing)
    monkeypatch.setattr(torch.cuda, "graph", full)
    for _ in range(2):
        step.begin()
        step.add(BATCH.pin_memory(), 0, seed=7)
    assert numbers == [1, 2] * 3  # of the second batch twice: recorded and computed


@pytest.mark.usefixtures("graphs")
def test_graphs_are_freed_with_the_model() -> None:
    step = training_step()
    for _ in range(2):
        step.begin()
        step.add(BATCH.pin_memory(), 0, seed=7)
    assert step.captured is not None and step.captured.num_graphs == 1
    seen = weakref.ref(step.captured)
    gc.collect()
    gc.disable()
    try:
        del step
        assert seen() is None
    finally:
        gc.enable()


fp32 = st.floats(2.0**-20, 2.0**30, width=32)


@given(
    fp32, st.integers(1, 10**7), st.sampled_from([1.0, 1024.0, 65536.0]), st.sampled_from([0.0, 0.25, 1.0])
)
def test_the_factor_is_that_of_the_host_bit_for_bit(
    norm: float, tokens: int, scale: float, clip: float
) -> None:
    sums = torch.tensor([7.0, float(tokens), norm])
    check = UpdateCheck(sums, sums[0], sums[1], scale, clip)
    reported = sums.tolist()
    mean = reported[2] / (reported[1] * scale)
    assert check.factor.item() == (clip / mean if 0 < clip < mean else 1.0) / (reported[1] * scale)
    assert check.read() == (reported[:2], mean, True)


@pytest.mark.parametrize(
    ("objective", "norm", "finite"),
    [
        (1.0, 0.0, True),
        (math.nan, 1.0, False),
        (-math.inf, 1.0, False),
        (1.0, math.nan, False),
        (1.0, math.inf, False),
    ],
)
def test_what_is_no_number(objective: float, norm: float, finite: bool) -> None:
    for dtype in (torch.float32, torch.float64):
        sums = torch.tensor([objective, 5.0, norm], dtype=dtype)
        check = UpdateCheck(sums, sums[0], sums[1], 1.0, 1.0)
        assert check.finite.item() == check.read()[2] == finite
        assert not finite or check.factor.item() == 1 / 5


def test_the_judgement_makes_nobody_wait(nobody_reads: AbstractContextManager[object]) -> None:
    sums: Tensor = torch.tensor([7.0, 5.0, 3.0])
    with nobody_reads:
        check = UpdateCheck(sums, sums[0], sums[1], 1.0, 1.0)
    assert check.read() == ([7.0, 5.0], 0.6, True)
