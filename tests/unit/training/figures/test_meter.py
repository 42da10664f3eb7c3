"""The figures of training from literal sums, the warning of busy cores, and the memory that work takes."""

from __future__ import annotations

import ctypes
import logging
import math
import resource
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from nmt.config import DataConfig, Precision, TrainConfig, TrainingConfig
from nmt.runtime import machine
from nmt.runtime.machine import queued_seconds
from nmt.training.figures import memory
from nmt.training.figures import meter as module
from nmt.training.figures.memory import MemoryMeter, _left_by
from nmt.training.figures.meter import CpuContention, Meter, measured_ceiling, peak_memory, perplexity
from nmt.training.update.training_step import Counters

CPU = torch.device("cpu")


def config(**training: Any) -> TrainConfig:
    data = DataConfig(name="x", source_lang="xx", target_lang="yy", max_tokens=100)
    options = TrainingConfig(micro_batches=2, max_updates=50, **training)
    return TrainConfig(run_dir="runs/x", data=data, training=options)


def test_figures_of_literal_updates() -> None:
    meter = Meter(config(), ceiling=4e12, device=CPU)
    meter.add(Counters(0.0, 2.0, 180.0, 360.0, 180.0, 0.0, 0.0, 0.0, 0.0), 7.0, 1.0, 0.5)
    meter.add(Counters(0.0, 6.0, 120.0, 540.0, 420.0, 0.0, 0.0, 0.0, 0.0), 3.0, 3.0, 1.0)
    figures = meter.figures()
    assert figures.pop("peak_memory_gb") == pytest.approx(peak_memory(CPU) / 1e9, rel=0.5)
    assert figures == pytest.approx(
        {
            "loss": 3.0,
            "ppl": math.exp(2),
            "gradient_norm": 3.0,
            "tokens_per_second": 75.0,
            "mfu": 0.5,  # 8e12 operations in 4 s, at a peak of 4e12 per second
            "data_wait": 0.25,
            "filling": 0.75,  # 300 tokens of 2 updates x 2 micro-batches x 100
        }
    )


def test_figures_begin_anew() -> None:
    meter = Meter(config(rdrop=5.0), ceiling=1e12, device=CPU)
    meter.add(Counters(900.0, 1.0, 100.0, 800.0, 700.0, 0.0, 0.0, 0.0, 0.0), 1.0, 2.0, 1.5)
    meter.clear()
    meter.add(Counters(500.0, 1.0, 100.0, 400.0, 300.0, 0.0, 0.0, 0.0, 0.0), 2.0, 1.0, 1.75)
    figures = meter.figures()
    assert (figures["objective"], figures["loss"], figures["data_wait"]) == (5.0, 4.0, 0.25)
    assert (figures["tokens_per_second"], figures["mfu"], figures["filling"]) == (100.0, 1.0, 0.5)


@pytest.mark.parametrize("precision", [Precision.fp32, Precision.bf16])
def test_the_ceiling_is_measured_without_a_trace(precision: Precision) -> None:
    torch.manual_seed(1)
    state = torch.get_rng_state()
    assert 1e6 < measured_ceiling(CPU, precision) < 1e17
    assert torch.equal(torch.get_rng_state(), state)


def test_perplexity() -> None:
    assert perplexity(0.0) == 1.0
    assert perplexity(1e6) is None
    assert perplexity(float("nan")) is None


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(module, "available_cores", lambda: 2)
    caplog.set_level(logging.INFO, "nmt")
    return caplog


class Machine:
    """A simulated clock, and the time that the threads have waited."""

    def __init__(self) -> None:
        self.time, self.waited = 100.0, 1.0

    def watch(self, threads: int, processes: int = 1) -> CpuContention:
        return CpuContention(threads, processes, lambda: self.waited, lambda: self.time)


@pytest.mark.parametrize(
    ("threads", "processes", "waited", "words"),
    [
        (2, 1, 0.5, None),
        (2, 1, 9.9, None),
        (2, 1, 10.1, "training waits 25% of its time for a CPU core (MFU 7%)"),
        (2, 1, 20.0, "or give training.threads=1: threads also wait"),
        (1, 2, 10.0, "or give training.devices=1 training.threads=1: threads also wait"),
        (1, 1, 10.0, "other programs use the 2 cores of this machine. End them or use another machine"),
        (1, 1, 30.0, "waits 100% of"),  # a thread other than the computing ones waits too
    ],
)
def test_it_warns_when_a_quarter_of_the_time_is_lost(
    threads: int, processes: int, waited: float, words: str | None, said: pytest.LogCaptureFixture
) -> None:
    here = Machine()
    watch = here.watch(threads, processes)
    here.time, here.waited = 119.0, 30.0
    watch.look(0.07)
    assert not said.messages  # the period is too short
    here.time, here.waited = 120.0, 1.0 + waited
    watch.look(0.07)
    assert len(said.messages) == (words is not None)
    if words is not None:
        assert words in said.messages[0]
        assert (threads * processes > 1) == ("threads=1" in said.messages[0])


def test_it_warns_once_and_looks_at_the_last_seconds(said: pytest.LogCaptureFixture) -> None:
    here = Machine()
    watch = here.watch(1)
    for _ in range(9):  # three quiet minutes
        here.time += 20.0
        watch.look(0.5)
    for _ in range(3):
        here.time, here.waited = here.time + 20.0, here.waited + 15.0
        watch.look(0.1)
    assert len(said.messages) == 1


def test_where_nothing_is_told_nothing_is_said(said: pytest.LogCaptureFixture) -> None:
    times = iter([0.0, 50.0, 100.0])
    watch = CpuContention(1, 1, lambda: None, lambda: next(times))
    watch.look(0.1)
    watch.look(0.1)
    assert not said.messages


def test_the_wait_of_all_threads_is_added_up(tmp_path: machine.Path) -> None:
    for name, text in (("7", "900 1500000000 3\n"), ("8", "900 500000000 3\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "schedstat").write_text(text)
    (tmp_path / "9").mkdir()  # a thread that has ended
    assert queued_seconds(tmp_path) == 2.0
    assert queued_seconds(tmp_path / "none") is None
    (tmp_path / "7/schedstat").write_text("0 0 0\n")
    (tmp_path / "8/schedstat").write_text("0 0 0\n")
    assert queued_seconds(tmp_path) is None  # a kernel without these counts


MIB = 2**20


def test_the_meter_sees_what_was_taken_and_given_back() -> None:
    meter = MemoryMeter(torch.device("cpu"), 1)
    meter.start()
    torch.ones(64 * MIB // 4).sum()
    assert 48 * MIB < meter.taken() < 96 * MIB  # it may reuse pages that were freed before
    meter.start()
    assert meter.taken() < 32 * MIB


def test_holes_count_as_free() -> None:
    blocks = [np.ones(MIB // 128) for _ in range(1024)]
    last = blocks.pop()
    before = memory._freed()
    del blocks
    reported = hasattr(ctypes.CDLL(None), "mallinfo2")  # glibc reports it
    assert memory._freed() - before > 48 * MIB if reported else memory._freed() == 0
    assert last[0] == 1.0


@pytest.mark.parametrize(
    ("processes", "limit", "expected"),
    [(1, resource.RLIM_INFINITY, 900), (3, resource.RLIM_INFINITY, 260), (1, 700, 307)],
)
def test_the_tightest_limit_counts(
    processes: int, limit: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of three processes gets a third of the free memory plus the 60 of this process, minus these 60."""
    monkeypatch.setattr(memory, "_available", lambda: 1000)
    monkeypatch.setattr(memory, "_left_by", lambda groups: [2000, 900])
    monkeypatch.setattr(memory, "_freed", lambda: 7)
    monkeypatch.setattr(memory, "_status", {"VmRSS": 60, "VmSize": 400}.__getitem__)
    monkeypatch.setattr(resource, "getrlimit", lambda kind: (limit, limit))
    assert MemoryMeter(torch.device("cpu"), processes).free() == expected


def test_the_tightest_control_group_counts(tmp_path: Path) -> None:
    inner = tmp_path / "root/outer/inner"
    inner.mkdir(parents=True)
    for folder, limit, used, cached in ((inner.parent, "1000", "400", 100), (inner, "max", "300", 50)):
        (folder / "memory.max").write_text(f"{limit}\n")
        (folder / "memory.current").write_text(f"{used}\n")
        (folder / "memory.stat").write_text(f"anon 5\ninactive_file {cached}\nactive_file 7\n")
    assert _left_by([inner, inner.parent, tmp_path / "root"]) == [700]
    assert _left_by([tmp_path / "root"]) == []


@pytest.mark.parametrize("status", [None, "VmRSS: 5 kB\n"])
def test_a_system_without_the_figures_raises_an_error(status: str | None, tmp_path: Path) -> None:
    if status is not None:
        (tmp_path / "status").write_text(status)
    with pytest.raises(OSError):
        memory._kibibytes(tmp_path / "status", "VmHWM")
