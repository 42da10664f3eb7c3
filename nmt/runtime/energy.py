"""The energy that this machine has used: of its CPUs by Linux's powercap, of NVIDIA's GPUs by NVML."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path

_POWERCAP = Path("/sys/class/powercap")


class EnergyMeter:
    """Adds up the counters of CPU packages and GPUs, as far as the machine lets this process read them.

    Counters of powercap overflow after minutes to hours, so `joules` must be called every few minutes.

    Args:
        gpus: the UUIDs of the GPUs, such as `GPU-1c2d...`.
        powercap: the folder of the zones `intel-rapl:N`, which AMD's CPUs have too.
    """

    def __init__(self, gpus: Sequence[str] = (), powercap: Path = _POWERCAP) -> None:
        self._gpus, self._zones = gpus, sorted(powercap.glob("intel-rapl:[0-9]*"))
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
        if self._gpus:
            counters |= {name: (energy, float("inf")) for name, energy in _of_gpus(self._gpus)}
        return counters


def _of_gpus(uuids: Sequence[str]) -> Iterator[tuple[str, float]]:
    """Yields the joules that each GPU has used since its driver was loaded; GPUs before Volta do not tell."""
    with suppress(OSError, AttributeError):  # no library, or an old one
        nvml = ctypes.CDLL("libnvidia-ml.so.1")
        if nvml.nvmlInit_v2():
            return
        try:
            for uuid in uuids:
                handle, energy = ctypes.c_void_p(), ctypes.c_ulonglong()
                if not nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(handle)):
                    if not nvml.nvmlDeviceGetTotalEnergyConsumption(handle, ctypes.byref(energy)):
                        yield uuid, energy.value / 1000
        finally:
            nvml.nvmlShutdown()


def gpus_of_run() -> list[str]:
    """Returns the UUIDs of the GPUs of this machine that the processes of the run use; empty without any."""
    import torch

    if not torch.cuda.is_available():
        return []
    count = min(torch.cuda.device_count(), int(os.environ.get("LOCAL_WORLD_SIZE", 1)))
    return [f"GPU-{torch.cuda.get_device_properties(number).uuid}" for number in range(count)]
