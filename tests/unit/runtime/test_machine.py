"""Facts about the machine, settings of its libraries, freed memory, and seeds."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt.config import Precision
from nmt.errors import UserError
from nmt.runtime import machine
from nmt.runtime.machine import (
    available_cores,
    choose_device,
    choose_precision,
    control_groups,
    default_freed_memory,
    expandable_segments,
    keep_freed_memory,
    kept_freed_memory,
    short_spins,
)
from nmt.runtime.seeds import mix


def test_mix_is_what_it_always_was() -> None:
    """Runs on disk depend on these numbers to resume: they must never change."""
    assert (mix(1), mix(1, 2), mix(2, 1)) == (8567619917541546768, 7199479353940798044, 347512167633396807)
    assert len({mix(1, update, micro) for update in range(100) for micro in range(20)}) == 2000


@given(st.lists(st.integers(0, 2**32), min_size=1, max_size=4))
def test_mix_fits_every_generator(values: list[int]) -> None:
    assert 0 <= mix(*values) < 2**63
    assert mix(*values) == mix(*values)


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cpu:x", "", "meta", "cuda:99", "mps:1"])
def test_devices_that_are_not_there(name: str) -> None:
    with pytest.raises(UserError, match=f"device={name}: "):
        choose_device(name)


def test_devices_that_are() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_mps_where_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"^device=mps: torch finds no such Apple GPU .* Use device=cpu\.$"):
        choose_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("mps") == torch.device("mps")
    assert choose_device("auto").type != "mps"  # untested, so only on request
    assert choose_precision(Precision.auto, torch.device("mps")) is Precision.fp32
    with pytest.raises(UserError, match="device=mps:1: "):
        choose_device("mps:1")


GROWING = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


@pytest.mark.parametrize(
    ("platform", "before", "added"),
    [
        ("linux", {}, {"GOMP_SPINCOUNT": "1000", **GROWING}),
        ("linux", {"OMP_NUM_THREADS": "2"}, {"GOMP_SPINCOUNT": "1000", **GROWING}),
        ("linux", {"OMP_WAIT_POLICY": "active"}, GROWING),
        ("linux", {"GOMP_SPINCOUNT": "7"}, GROWING),
        ("darwin", {"GOMP_SPINCOUNT": "7"}, {}),
        ("win32", {"GOMP_SPINCOUNT": "7"}, {}),
        *(
            ("linux", {name: "max_split_size_mb:128"}, {"GOMP_SPINCOUNT": "1000"})
            for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
        ),
    ],
)
def test_threads_sleep_soon_and_gpu_memory_grows_in_place_unless_the_user_has_chosen(
    platform: str, before: dict[str, str], added: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(before))
    monkeypatch.setattr("sys.platform", platform)
    short_spins()
    expandable_segments()
    assert os.environ == before | added


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux supports both")
def test_commands_choose_both_before_they_import_torch() -> None:
    code = (
        "import os, sys\n"
        "from nmt.cli.app import end_with\n"
        "names = 'GOMP_SPINCOUNT', 'PYTORCH_ALLOC_CONF'\n"
        "end_with('nmt-x', lambda: print(*(os.environ[name] for name in names), 'torch' in sys.modules))"
    )
    dropped = ("OMP_WAIT_POLICY", "GOMP_SPINCOUNT")
    environment = {k: value for k, value in os.environ.items() if k not in dropped and "ALLOC_CONF" not in k}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert result.stdout == "1000 expandable_segments:True False\n"


def test_the_tightest_quota_of_the_control_groups_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, own = tmp_path / "root", tmp_path / "cgroup"
    inner = root / "outer/inner"
    inner.mkdir(parents=True)
    own.write_text("1:cpu:/x\n0::/outer/inner\n")
    assert control_groups(root, own) == [inner, inner.parent, root]
    assert control_groups(root, tmp_path / "none") == [root]
    (inner / "cpu.max").write_text("max 100000\n")
    (inner.parent / "cpu.max").write_text("250000 100000\n")
    monkeypatch.setattr(machine, "control_groups", lambda: [inner, inner.parent, root])
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert available_cores() == 2


@pytest.mark.parametrize(
    ("flags", "is_fast", "chosen"),
    [
        ({"avx2"}, True, Precision.fp32),
        ({"avx2", "avx512_bf16"}, True, Precision.bf16),
        ({"amx_bf16", "amx_tile"}, True, Precision.bf16),
        ({"avx512_bf16"}, False, Precision.fp32),
    ],
)
def test_precision_follows_the_processor(
    flags: set[str], is_fast: bool, chosen: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_cpu_flags", lambda: flags)
    monkeypatch.setattr(machine, "_is_fast_in_bf16", lambda: is_fast)
    assert choose_precision(Precision.auto, torch.device("cpu")) is chosen
    assert choose_precision(Precision.fp32, torch.device("cpu")) is Precision.fp32


@pytest.mark.parametrize(("slow", "expected"), [(torch.float32, True), (torch.bfloat16, False)])
def test_bf16_is_fast_if_a_product_is(
    slow: torch.dtype, expected: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Product:
        def __init__(self, *size: int, dtype: torch.dtype) -> None:
            self.dtype, self.T = dtype, self

        def __matmul__(self, other: Product) -> None:
            now[0] += 0.2 if self.dtype is slow else 0.1

    now = [0.0]
    monkeypatch.setattr(torch, "ones", Product)
    monkeypatch.setattr(machine.time, "perf_counter", lambda: now[0])
    assert machine._is_fast_in_bf16.__wrapped__() is expected


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[bool]:
    """The settings that are made, from a process that retains nothing."""
    made: list[bool] = []
    monkeypatch.setattr(machine, "_retention", machine._Retention())
    monkeypatch.setattr(machine, "_retain", made.append)
    return made


def test_the_last_user_restores_the_default(calls: list[bool]) -> None:
    with kept_freed_memory():
        with kept_freed_memory():
            pass
        assert calls == [True]
    assert calls == [True, False]


def test_an_error_restores_the_default(calls: list[bool]) -> None:
    with pytest.raises(ZeroDivisionError), kept_freed_memory():
        raise ZeroDivisionError
    assert calls == [True, False]


def test_a_training_outlasts_its_searches(calls: list[bool]) -> None:
    keep_freed_memory()
    with kept_freed_memory():
        pass
    assert calls == [True]
    default_freed_memory()
    assert calls == [True, False]


def test_a_training_that_ends_leaves_a_search_its_memory(calls: list[bool]) -> None:
    with kept_freed_memory():
        keep_freed_memory()
        default_freed_memory()
        assert calls == [True, True]
    assert calls == [True, True, False]


def test_several_threads(calls: list[bool]) -> None:
    def use() -> None:
        for _ in range(200):
            with kept_freed_memory():
                pass

    threads = [threading.Thread(target=use) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert calls == [True, False] * (len(calls) // 2) and calls


def test_the_real_settings_can_be_made() -> None:
    before = machine._retention.until_undone
    with kept_freed_memory():
        assert len(bytearray(64 << 20)) == 64 << 20
    assert machine._retention.until_undone is before and machine._retention.users == 0
