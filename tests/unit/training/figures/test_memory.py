"""Memory: the memory that work takes, and the free memory."""

from __future__ import annotations

import ctypes
from pathlib import Path

import numpy as np
import pytest
import torch

import nmt.training.figures.memory as module
from nmt.training.figures.memory import MemoryMeter, _left_by

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


@pytest.mark.parametrize("status", [None, "VmRSS: 5 kB\n"])
def test_a_system_without_the_figures_raises_an_error(status: str | None, tmp_path: Path) -> None:
    if status is not None:
        (tmp_path / "status").write_text(status)
    with pytest.raises(OSError):
        module._kibibytes(tmp_path / "status", "VmHWM")
