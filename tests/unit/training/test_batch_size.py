"""Batches that fit into memory: the largest that can occur, the search, and the errors of full memory."""

from __future__ import annotations

import logging
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nmt.config import (
    AugmentationConfig,
    CleaningConfig,
    DataConfig,
    OptimizerConfig,
    Precision,
    SamplingConfig,
    Sharding,
    TrainConfig,
    TrainingConfig,
)
from nmt.data.batches.batching import Batch
from nmt.data.batches.blocks import pack
from nmt.data.store import Store
from nmt.errors import UserError
from nmt.model.size import num_weights
from nmt.training import batch_size
from nmt.training.batch_size import (
    OutOfMemory,
    largest_batches,
    largest_max_tokens,
    logged_if_slow,
    probe_memory,
    require_room,
    with_fitting_batches,
    with_former_split,
)
from nmt.training.figures.memory import MemoryMeter
from nmt.training.processes.launcher import log_idle_gpus, num_processes, require_work
from nmt.training.state.run_folder import RunFolder
from nmt.training.update.optimizer import OPTIMIZERS, Adam


def options(max_tokens: int, **more: Any) -> DataConfig:
    values: dict[str, Any] = {"max_source_ratio": 1.5, "source_lang": "xx", "target_lang": "yy", **more}
    return DataConfig(max_tokens=max_tokens, **values)


def store(*sizes: tuple[int, int]) -> Store:
    """Returns pairs with these numbers of pieces, without EOS."""
    return Store.of([[5] * source for source, _ in sizes], [[5] * target for _, target in sizes])


def lengths(batch: Batch) -> tuple[list[int], list[int]]:
    return list(batch.source.lengths), list(batch.target.lengths)


@pytest.mark.parametrize(
    ("sizes", "data", "expected"),
    [
        (
            [(9, 7), (2, 3), (4, 2)],
            options(20),
            [([10, 10, 10], [4, 8, 8]), ([3, 3, 3, 3, 8, 10], [3, 3, 3, 3, 3, 5])],
        ),
        # A pair longer than a batch counts as one that fills it.
        ([(90, 70), (2, 1)], options(16), [([24], [16]), ([3] * 8, [2] * 8)]),
        # Sampling may make sentences as long as allowed.
        (
            [(9, 7), (2, 3)],
            options(32, sampling=SamplingConfig(alpha=0.1), cleaning=CleaningConfig(max_pieces=15)),
            [([16, 16], [16, 16]), ([16, 16, 16], [1, 15, 16])],
        ),
        # Augmentation may leave one piece of any sentence.
        (
            [(9, 7), (4, 3)],
            options(16, augmentation=AugmentationConfig(typos=0.1), cleaning=CleaningConfig(max_pieces=15)),
            [([16], [16]), ([8, 16], [1, 15]), ([2] * 7 + [10], [2] * 8)],
        ),
    ],
    ids=range(4),
)
def test_longest_and_most(
    sizes: list[tuple[int, int]], data: DataConfig, expected: list[tuple[list[int], list[int]]]
) -> None:
    assert [lengths(batch) for batch in largest_batches(store(*sizes), data)][: len(expected)] == expected


@pytest.mark.parametrize(
    ("more", "longest"),
    [
        ({}, 8),
        ({"concatenate": 0.5}, 21),
        ({"placeholders": True}, 21),
        ({"reversed": 0.5}, 21),
        ({"augmentation": AugmentationConfig(capitals=0.1)}, 21),
    ],
)
def test_what_may_make_a_pair_longer(more: dict[str, Any], longest: int) -> None:
    data = options(60, cleaning=CleaningConfig(max_pieces=20), **more)
    assert max(max(batch.source.lengths) for batch in largest_batches(store((7, 7), (3, 2)), data)) == longest


@given(
    st.lists(st.tuples(st.integers(1, 40), st.integers(1, 40)), min_size=1, max_size=60),
    st.integers(16, 100),
    st.sampled_from([1.0, 1.5, 3.0]),
)
def test_no_batch_is_larger(sizes: list[tuple[int, int]], max_tokens: int, ratio: float) -> None:
    data = options(max_tokens, max_source_ratio=ratio)
    found = largest_batches(store(*sizes), data)
    max_source = int(max_tokens * ratio)
    for batch in found:
        assert batch.num_target_tokens <= max_tokens and len(batch.source_ids) <= max_source
    fitting = np.array([size for size in sizes if size[0] < max_source and size[1] < max_tokens] or [(0, 0)])
    sources, targets = fitting.T
    for rows in pack(sources, targets, np.arange(len(fitting)), max_tokens, max_source):
        assert len(rows) <= found[-1].num_sentences
        for side, real in (("source", sources[rows] + 1), ("target", targets[rows] + 1)):
            made = [np.array(getattr(batch, side).lengths) for batch in found]
            assert real.max() <= max(part.max() for part in made)
            assert real.sum() <= max(part.sum() for part in made)
            assert (real**2).sum() <= max((part**2).sum() for part in made)


class Machine:
    """A machine on which a batch takes `bytes_per_token`; a stand-in of the meter and of the memory probe."""

    def __init__(self, memory: int, bytes_per_token: int, fails_above: int) -> None:
        self.memory, self.bytes_per_token, self.fails_above = memory, bytes_per_token, fails_above
        self.peak, self.tried = 0, list[int]()

    def probe(self, max_tokens: int) -> None:
        self.tried.append(max_tokens)
        if max_tokens > self.fails_above:
            raise OutOfMemory("full")
        self.peak = 1000 + max_tokens * self.bytes_per_token

    def release(self) -> None:
        pass

    def start(self) -> None:
        self.peak = 0

    def taken(self) -> int:
        return self.peak

    def free(self) -> int:
        return self.memory + 64

    def largest(self, copies: int = 1) -> int:
        return largest_max_tokens(self.probe, cast(MemoryMeter, self), copies=copies, reserve=64, longest=9)


@pytest.mark.parametrize(
    ("memory", "fails_above", "expected", "tried"),
    [
        (10**9, 10**6, 25_000, [512, 512, 1024, 25_000]),
        (1_001_250, 10**6, 8_000, [512, 512, 1024, 8_000]),  # 0.8 of it, minus 1000 bytes, at 100 per token
        (1_001_250, 7_000, 6_400, [512, 512, 1024, 8_000, 6_400]),
        (1_001_250, 500, 408, [512, 512, 408]),
        (2_000, 10**6, 16, [512, 512, 1024, 16]),
    ],
)
def test_the_largest_that_fits(memory: int, fails_above: int, expected: int, tried: list[int]) -> None:
    machine = Machine(memory, 100, fails_above)
    assert machine.largest() == expected
    assert machine.tried == tried


def test_cuda_graphs_need_the_memory_of_a_batch_twice_and_none_may_fit() -> None:
    assert Machine(1_001_250, 100, 10**6).largest(copies=2) == 3_992  # 200 bytes per token
    with pytest.raises(OutOfMemory):
        Machine(0, 100, 10).largest()


def test_a_system_that_does_not_report_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(meter: object) -> int:
        raise OSError

    monkeypatch.setattr(Machine, "free", missing)
    assert Machine(10**9, 100, 10**6).largest() == 4096
    monkeypatch.setattr(MemoryMeter, "free", missing)
    require_room(TrainConfig(), 1)


class Failing:
    """A training step whose passes fail."""

    captured = None
    model = cast(Any, nn.Identity())
    model.longest = (None, None)

    def __init__(self, error: Exception) -> None:
        self.error = error

    def probe(self, batch: Batch, *, loss_scale: float) -> None:
        raise self.error


@pytest.mark.parametrize(
    "error",
    [
        MemoryError(),
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB"),
        RuntimeError("[enforce fail at alloc_cpu.cpp:121] DefaultCPUAllocator: can't allocate memory"),
        RuntimeError("std::bad_alloc"),
        RuntimeError("could not create a primitive"),
        RuntimeError("CUDA error: out of memory\nCUDA kernel errors might be asynchronously reported"),
        RuntimeError("CUDA error: CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate(handle)`"),
    ],
)
def test_running_out_of_memory_in_its_many_words(error: Exception) -> None:
    with pytest.raises(
        OutOfMemory, match="^data.max_tokens=64: .*data.max_tokens=32 training.micro_batches=6"
    ):
        probe_memory(cast(Any, Failing(error)), store((1, 1)), config(64, 3))


@pytest.mark.parametrize(
    ("sharding", "processes", "fits"),
    [
        (Sharding.none, 1, True),
        (Sharding.none, 3, False),
        (Sharding.full, 3, True),
        (Sharding.full, 9, False),
    ],
)
def test_layers_that_can_not_be_trained_are_refused_before_any_work(
    sharding: Sharding, processes: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sharded, each process has the whole weights too."""
    config = TrainConfig(training=TrainingConfig(sharding=sharding, devices=str(processes)))
    taken = 16 * num_weights(config.model, 0, 0)
    monkeypatch.setattr(MemoryMeter, "free", lambda meter: 2 * taken)
    if fits:
        require_room(config, processes)
    else:
        with pytest.raises(
            OutOfMemory, match=r"^model=: 44,138,496 parameters do not .* \(0\.7 GB; 16 bytes each"
        ):
            require_room(config, processes)


@pytest.mark.parametrize(
    ("options", "taken", "message"),
    [
        ({"optimizer": OptimizerConfig(name="mine 0")}, 8, "parameters .* 8 bytes each"),
        ({"optimizer": OptimizerConfig(name="mine 3")}, 20, "parameters .* 20 bytes each"),
        ({"l2_to_start": 0.1}, 24, r"24 bytes each, with gradient and optimizer state\)"),
        ({"l2_to_start": 0.1, "ema": 0.9}, 28, "28 bytes each"),
        ({"freeze": ["encoder"]}, 4, r"16 bytes each, with gradient and optimizer state, 4 if frozen\)"),
    ],
)
def test_the_bytes_of_a_weight(
    options: dict[str, Any], taken: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many weights are frozen is not known before the data are prepared: the bound is that of all."""
    for floats in (0, 3):
        kind = type("Mine", (Adam,), {"floats_per_weight": floats})
        monkeypatch.setitem(OPTIMIZERS, f"mine {floats}", kind)
    config = TrainConfig(start_from="m", training=TrainingConfig(**options))
    needed = taken * num_weights(config.model, 0, 0)
    monkeypatch.setattr(MemoryMeter, "free", lambda meter: needed)
    require_room(config, 1)
    monkeypatch.setattr(MemoryMeter, "free", lambda meter: needed - 1)
    with pytest.raises(OutOfMemory, match=message):
        require_room(config, 1)


def test_frozen_weights_count_without_gradient_and_state() -> None:
    with torch.device("meta"):
        model = nn.Sequential(*(nn.Linear(20_000, 25_000, bias=False) for _ in range(2)))
    model[0].requires_grad_(False)
    with (
        pytest.raises(
            OutOfMemory, match=r"1,000,000,000 parameters .* \(10\.0 GB; 16 bytes .* 4 if frozen\)"
        ),
        batch_size._model_memory_errors(model, TrainingConfig(freeze=["0"])),
    ):
        raise MemoryError


def test_a_slow_probe_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO, "nmt")
    with logged_if_slow("slow", 0.05):
        time.sleep(0.3)
    with logged_if_slow("fast", 60.0):
        pass
    assert caplog.messages == ["slow"]


def config(max_tokens: int | str = 6250, micro_batches: int = 4, **training: Any) -> TrainConfig:
    training = {"fit_micro_batches": True, "devices": "1", **training}
    data = DataConfig(source_lang="de", target_lang="en", max_tokens=max_tokens)
    return TrainConfig(data=data, training=TrainingConfig(micro_batches=micro_batches, **training))


def split(options: TrainConfig) -> tuple[int | str, int, bool]:
    return options.data.max_tokens, options.training.micro_batches, options.training.fit_micro_batches


def pretend(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)


def room_for(monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    """Makes batches of up to this size fit into memory."""
    monkeypatch.setattr(batch_size, "_largest_fitting", lambda *arguments: min(tokens, arguments[-1]))


@pytest.mark.parametrize(
    ("gpus", "fitting", "expected"),
    [
        (1, 40_000, (25_000, 1)),
        (1, 25_000, (25_000, 1)),
        (1, 24_000, (12_500, 2)),
        (1, 7_000, (6_250, 4)),
        (1, 5_000, (5_000, 5)),
        (4, 40_000, (6_250, 4)),
        (4, 6_000, (3_125, 8)),
        (8, 40_000, (3_125, 8)),
        (3, 40_000, (8_333, 3)),
    ],
)
def test_every_process_has_as_few_micro_batches_as_fit(
    gpus: int, fitting: int, expected: tuple[int, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    room_for(monkeypatch, fitting)
    found = with_fitting_batches(config(devices=str(gpus)), None, gpus)  # type: ignore[arg-type]
    assert split(found) == (*expected, False)


@pytest.mark.parametrize(
    ("training", "expected"),
    [
        ({"sharding": Sharding.full, "devices": "8"}, (3_125, 8)),  # a micro-batch per process
        ({"sharding": Sharding.full, "devices": "2"}, (6_250, 4)),
        ({"fit_micro_batches": False}, (6_250, 4)),
    ],
)
def test_no_batch_is_tried(training: dict[str, Any], expected: tuple[int, int], tmp_path: Path) -> None:
    options = config(**training)
    assert split(with_fitting_batches(options, None, 8)) == (*expected, False)  # type: ignore[arg-type]
    if not options.training.fit_micro_batches:
        assert with_former_split(options, RunFolder(tmp_path)) is options


@pytest.mark.parametrize(("gpus", "max_tokens"), [(0, 6250), (2, "auto"), (0, "auto")])
def test_on_a_cpu_and_with_auto_batches_are_as_given(
    gpus: int, max_tokens: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, gpus)
    assert split(with_former_split(config(max_tokens), RunFolder(tmp_path))) == (max_tokens, 4, False)


def test_all_gpus_are_used_while_the_split_is_to_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 8)
    warned: list[object] = []
    monkeypatch.setattr("nmt.training.processes.launcher.log", SimpleNamespace(warning=warned.append))
    options = config(devices="auto").training
    assert num_processes(options) == 8
    require_work(options, 6250, 8)
    log_idle_gpus(options, 6250)
    assert not warned
    assert num_processes(replace(options, fit_micro_batches=False)) == 4


def started(path: Path, options: TrainConfig, *, checkpoint: bool) -> RunFolder:
    folder = RunFolder(path)
    with folder.claimed(options):
        if checkpoint:
            (folder.checkpoints / "update-00000010").mkdir(parents=True)
    return folder


FOUND = config(25_000, 1, fit_micro_batches=False)


@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_a_run_is_resumed_with_its_split(gpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, gpus)
    folder = started(tmp_path, FOUND, checkpoint=True)
    given = with_former_split(config(devices="auto"), folder)
    assert split(given) == (25_000, 1, False)
    folder.check(given)
    assert num_processes(given.training) == 1


def test_another_size_of_an_update_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = started(tmp_path / "a", config(fit_micro_batches=False), checkpoint=True)
    folder.check(with_former_split(config(), folder))  # the option alone is no difference
    pretend(monkeypatch, 1)
    folder = started(tmp_path / "b", FOUND, checkpoint=True)
    with pytest.raises(UserError, match="started with data.max_tokens=25000, not 3125, training.micro_batch"):
        folder.check(with_former_split(config(3125), folder))


def test_a_start_without_a_checkpoint_is_repeated_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even before the number format is chosen."""
    pretend(monkeypatch, 1)
    begun = replace(FOUND.training, precision=Precision.bf16, half_residual=True)
    folder = started(tmp_path, replace(FOUND, training=begun), checkpoint=False)
    assert split(with_former_split(config(), folder)) == (25_000, 1, False)
    assert split(with_former_split(config(clip_norm=1.0), folder)) == (6250, 4, True)
    assert split(with_former_split(config(3125), folder)) == (3125, 4, True)
    pretend(monkeypatch, 2)
    assert split(with_former_split(config(devices="2"), folder)) == (6250, 4, True)
