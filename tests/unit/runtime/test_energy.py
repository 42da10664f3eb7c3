"""The energy of the machine, from files like those of Linux and a library like NVIDIA's."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import SimpleNamespace

import pytest

from nmt.runtime.energy import EnergyMeter


def zone(folder: Path, name: str, energy: int) -> None:
    (folder / name).mkdir(exist_ok=True)
    (folder / name / "energy_uj").write_text(f"{energy}\n")
    (folder / name / "max_energy_range_uj").write_text("9999999\n")


def test_counters_of_packages_are_added_and_may_overflow(tmp_path: Path) -> None:
    for name, energy in (("intel-rapl:0", 1_000_000), ("intel-rapl:1", 9_000_000), ("intel-rapl:0:0", 5)):
        zone(tmp_path, name, energy)
    meter = EnergyMeter(powercap=tmp_path)
    zone(tmp_path, "intel-rapl:0", 3_500_000)
    zone(tmp_path, "intel-rapl:1", 1_000_000)  # begins again after 10 J
    zone(tmp_path, "intel-rapl:0:0", 9_000_000)  # a part of package 0
    assert meter.joules() == pytest.approx(2.5 + 2.0)
    assert meter.joules() == 0.0


def test_machines_that_do_not_tell(tmp_path: Path) -> None:
    assert EnergyMeter(powercap=tmp_path).joules() is None
    zone(tmp_path, "intel-rapl:0", 1)
    (tmp_path / "intel-rapl:0" / "energy_uj").write_text("")
    assert EnergyMeter(["GPU-1"], tmp_path).joules() is None


def test_counters_of_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    millijoules = {b"GPU-1": 5000, b"GPU-2": 7000}

    def handle_of(uuid: bytes, handle: object) -> int:
        handle._obj.value = [*millijoules].index(uuid) + 1 if uuid in millijoules else 0  # type: ignore[attr-defined]
        return 0 if uuid in millijoules else 6

    def energy_of(handle: ctypes.c_void_p, energy: object) -> int:
        energy._obj.value = [*millijoules.values()][(handle.value or 0) - 1]  # type: ignore[attr-defined]
        return 0

    library = SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlDeviceGetHandleByUUID=handle_of,
        nvmlDeviceGetTotalEnergyConsumption=energy_of,
    )
    monkeypatch.setattr(ctypes, "CDLL", lambda name: library)
    meter = EnergyMeter(["GPU-1", "GPU-2", "GPU-3"], tmp_path)
    millijoules[b"GPU-1"] += 1500
    millijoules[b"GPU-2"] += 250
    assert meter.joules() == pytest.approx(1.75)
