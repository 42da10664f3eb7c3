"""The energy that this machine has used: of its CPUs by Linux's powercap, of NVIDIA's GPUs by NVML."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

_POWERCAP = Path("/sys/class/powercap")


class EnergyMeter:
    """Adds up the counters of CPU packages and GPUs, as far as the machine lets this process read them.

    Counters of powercap overflow after minutes to hours, so `joules` must be called every few minutes.

    Args:
        gpus: the UUIDs of the GPUs, such as `GPU-1c2d...`.
        powercap: the folder of the zones `intel-rapl:N`, which AMD's CPUs have too.
    """

    def __init__(self, gpus: Sequence[str] = (), powercap: Path = _POWERCAP) -> None:
        self._gpus, self._nvml = gpus, _nvml() if gpus else None
        self._zones = sorted(powercap.glob("intel-rapl:[0-9]*"))
        self._zones = [zone for zone in self._zones if zone.name.count(":") == 1]  # without parts of packages
        self._before = self._read()

    def joules(self) -> float | None:
        """Returns the energy since the last call or the start; None: no counter can be read."""
        now, before = self._read(), self._before
        self._before = now
        used = 0.0
        for name, (energy, limit) in now.items():
            if name in before:
                used += (energy - before[name][0]) % limit
        return used if now.keys() & before.keys() else None

    def _read(self) -> dict[str, tuple[float, float]]:
        """Returns of each counter its value and the value after which it begins again, in joules."""
        counters = {}
        for zone in self._zones:
            with suppress(OSError, ValueError):  # only root may read it on most machines
                energy, limit = (
                    int((zone / name).read_text()) for name in ("energy_uj", "max_energy_range_uj")
                )
                counters[zone.name] = energy / 1e6, (limit + 1) / 1e6
        for name, used in self._of_gpus():
            counters[name] = used, float("inf")
        return counters

    def _of_gpus(self) -> Iterator[tuple[str, float]]:
        """Yields the joules of each GPU since its driver was loaded; GPUs before Volta do not tell."""
        if self._nvml is None:
            return
        with suppress(AttributeError):  # an old library
            for uuid in self._gpus:
                handle, energy = ctypes.c_void_p(), ctypes.c_ulonglong()
                if not self._nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)):
                    if not self._nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(energy)):
                        yield uuid, energy.value / 1000


def _nvml() -> Any:
    """Returns NVIDIA's library, initialised until the process ends, as that is slow; None: there is none."""
    with suppress(OSError, AttributeError):
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        return None if nvml.nvmlInit_v2() else nvml
    return None


def gpus_of_run() -> list[str]:
    """Returns the UUIDs of the GPUs of this machine that the processes of the run use; empty without any."""
    import torch

    if not torch.cuda.is_available():
        return []
    count = min(torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
    return [f"GPU-{torch.cuda.get_device_properties(number).uuid}" for number in range(count)]
