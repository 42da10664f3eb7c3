"""Memory: the memory that work takes, the free memory, and the largest batch that fits."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
import torch

import nmt.training.figures.memory as module
from nmt.config import DataConfig, Precision, TrainingConfig
from nmt.data.store import Store
from nmt.training.batch_size import largest_max_tokens
from nmt.training.figures.memory import MemoryMeter, _left_by
from nmt.training.memory_probe import OutOfMemory
from nmt.training.trainer import Trainer

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
    before = module._freed()
    del blocks
    reported = hasattr(ctypes.CDLL(None), "mallinfo2")  # glibc reports it
    assert module._freed() - before > 48 * MIB if reported else module._freed() == 0
    assert last[0] == 1.0


@pytest.mark.parametrize(
    ("processes", "limit", "expected"),
    [(1, module.resource.RLIM_INFINITY, 900), (3, module.resource.RLIM_INFINITY, 260), (1, 700, 307)],
)
def test_the_tightest_limit_counts(
    processes: int, limit: int, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each of three processes gets a third of the free memory plus the 60 of this process, minus these 60."""
    monkeypatch.setattr(module, "_available", lambda: 1000)
    monkeypatch.setattr(module, "_left_by", lambda groups: [2000, 900])
    monkeypatch.setattr(module, "_freed", lambda: 7)
    monkeypatch.setattr(module, "_status", {"VmRSS": 60, "VmSize": 400}.__getitem__)
    monkeypatch.setattr(module.resource, "getrlimit", lambda kind: (limit, limit))
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


class Machine:
    """A machine on which a batch takes `a_token` bytes per token; a stand-in of meter and trainer."""

    def __init__(self, memory: int, a_token: int, fails_above: int) -> None:
        self.memory, self.a_token, self.fails_above = memory, a_token, fails_above
        self.peak, self.tried = 0, list[int]()
        training = TrainingConfig(precision=Precision.fp32, onednn_fp32=False)  # no kernels that need memory
        self.config = SimpleNamespace(data=DataConfig(source_lang="xx", target_lang="yy"), training=training)
        self.prepared = SimpleNamespace(train=Store.of([[5] * 9], [[5] * 9]))
        self.training_step = SimpleNamespace(captured=None)

    def probe_memory(self, max_tokens: int) -> None:
        self.tried.append(max_tokens)
        if max_tokens > self.fails_above:
            raise OutOfMemory("full")
        self.peak = 1000 + max_tokens * self.a_token

    def release(self) -> None:
        pass

    def start(self) -> None:
        self.peak = 0

    def taken(self) -> int:
        return self.peak

    def free(self) -> int:
        return self.memory + 64 * 2**20  # the reserve for other things

    def largest(self) -> int:
        return largest_max_tokens(cast(Trainer, self), cast(MemoryMeter, self))


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


def test_cuda_graphs_need_the_memory_of_a_batch_twice() -> None:
    machine = Machine(1_001_250, 100, 10**6)
    machine.training_step.captured = object()
    assert machine.largest() == 3_992  # 200 bytes per token


def test_nothing_fits() -> None:
    with pytest.raises(OutOfMemory):
        Machine(0, 100, 10).largest()


@pytest.mark.parametrize("status", [None, "VmRSS: 5 kB\n"])
def test_a_system_that_does_not_tell(
    status: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine: Any = Machine(10**9, 100, 10**6)
    if status is not None:
        (tmp_path / "status").write_text(status)

    def missing() -> int:
        return module._kibibytes(tmp_path / "status", "VmHWM")

    monkeypatch.setattr(machine, "free", missing)
    assert machine.largest() == 4096
