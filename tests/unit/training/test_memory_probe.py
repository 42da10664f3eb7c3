"""The largest batches that can occur: by hand, and against all batches of a stream."""

from __future__ import annotations

import logging
import time
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from nmt.config import (
    CleaningConfig,
    DataConfig,
    ModelConfig,
    OptimizerConfig,
    SamplingConfig,
    Sharding,
    TrainConfig,
    TrainingConfig,
)
from nmt.data.batches.batching import Batch
from nmt.data.batches.packing import pack
from nmt.data.store import Store
from nmt.model.size import num_weights
from nmt.runtime import log
from nmt.training.figures.memory import MemoryMeter
from nmt.training.memory_probe import (
    OutOfMemory,
    batch_memory_errors,
    largest_batches,
    logged_if_slow,
    model_memory_errors,
    require_room,
)
from nmt.training.update.optimizer import OPTIMIZERS, Adam


def options(max_tokens: int, **more: Any) -> DataConfig:
    values: dict[str, Any] = {"max_source_ratio": 1.5, "source_lang": "xx", "target_lang": "yy", **more}
    return DataConfig(max_tokens=max_tokens, **values)


def store(*sizes: tuple[int, int]) -> Store:
    """Returns pairs with these numbers of pieces, without EOS."""
    return Store.of([[5] * source for source, _ in sizes], [[5] * target for _, target in sizes])


def lengths(batch: Batch) -> tuple[list[int], list[int]]:
    return list(batch.source.lengths), list(batch.target.lengths)


def test_longest_and_most() -> None:
    few, many = largest_batches(store((9, 7), (2, 3), (4, 2)), options(20))
    assert lengths(few) == ([10, 10, 10], [4, 8, 8])
    assert lengths(many) == ([3, 3, 3, 3, 8, 10], [3, 3, 3, 3, 3, 5])


def test_a_pair_longer_than_a_batch_counts_as_one_that_fills_it() -> None:
    few, many = largest_batches(store((90, 70), (2, 1)), options(16))
    assert lengths(few) == ([24], [16])
    assert lengths(many) == ([3] * 7 + [3], [2] * 8)


def test_sampling_may_make_them_as_long_as_allowed() -> None:
    cleaning = CleaningConfig(max_pieces=15)
    data = options(32, sampling=SamplingConfig(alpha=0.1), cleaning=cleaning)
    longest_targets, longest_sources, _ = largest_batches(store((9, 7), (2, 3)), data)
    assert lengths(longest_targets) == ([16, 16], [16, 16])
    assert lengths(longest_sources) == ([16, 16, 16], [1, 15, 16])


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
        with batch_memory_errors(options(64), 3):
            raise error


@pytest.mark.parametrize(
    ("sharding", "processes", "fits"),
    [(Sharding.none, 1, True), (Sharding.none, 3, False), (Sharding.full, 3, True)],
)
def test_layers_that_can_not_be_trained_are_refused_before_any_work(
    sharding: Sharding, processes: int, fits: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = TrainConfig(training=TrainingConfig(sharding=sharding))
    taken = 16 * num_weights(config.model, 0, 0)
    monkeypatch.setattr(MemoryMeter, "free", lambda meter: 2 * taken)
    if fits:
        require_room(config, processes)
    else:
        with pytest.raises(
            OutOfMemory, match=r"^model=: 44,138,496 parameters do not .* \(0\.7 GB; 16 bytes each"
        ):
            require_room(config, processes)


@pytest.mark.parametrize(("floats", "taken"), [(0, 8), (1, 12), (3, 20)])
def test_the_state_of_an_optimizer_of_a_plugin_counts(
    floats: int, taken: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(OPTIMIZERS, "mine", type("Mine", (Adam,), {"floats_per_weight": floats}))
    config = TrainConfig(training=TrainingConfig(optimizer=OptimizerConfig(name="mine")))
    needed = taken * num_weights(config.model, 0, 0)
    monkeypatch.setattr(MemoryMeter, "free", lambda meter: needed)
    require_room(config, 1)
    monkeypatch.setattr(MemoryMeter, "free", lambda meter: needed - 1)
    with pytest.raises(OutOfMemory, match=f"parameters .* {taken} bytes each"):
        require_room(config, 1)


@pytest.mark.parametrize(
    ("options", "taken", "message"),
    [
        ({"l2_to_start": 0.1}, 24, r"24 bytes each, with gradient and optimizer state\)"),
        ({"l2_to_start": 0.1, "ema": 0.9}, 28, "28 bytes each"),
        ({"freeze": ["encoder"]}, 4, r"16 bytes each, with gradient and optimizer state, 4 if frozen\)"),
    ],
)
def test_what_fine_tuning_takes(
    options: dict[str, Any], taken: int, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """How many weights are frozen is not known before the data are prepared: the bound is that of all."""
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
        model_memory_errors(model, TrainingConfig(freeze=["0"])),
    ):
        raise MemoryError


def test_the_largest_model_is_refused_on_any_machine() -> None:
    wide = ModelConfig(encoder_layers=100, decoder_layers=100, d_model=16384, d_ff=65536)
    with pytest.raises(OutOfMemory, match="do not fit into memory"):
        require_room(TrainConfig(model=wide), 1)


def test_a_slow_probe_is_logged(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log, "propagate", True)
    caplog.set_level(logging.INFO, "nmt")
    with logged_if_slow("slow", 0.05):
        time.sleep(0.3)
    with logged_if_slow("fast", 60.0):
        pass
    assert caplog.messages == ["slow"]
