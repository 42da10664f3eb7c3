"""Free memory of this process, and the peak memory of a piece of work."""

from __future__ import annotations

import ctypes
import gc
import re
from collections.abc import Iterable
from pathlib import Path

import torch

from nmt.runtime.machine import control_groups, release_freed_memory

_KIB = 1024


class MemoryMeter:
    """Measures memory on one device: on a GPU by its allocator, on the CPU by the figures in `/proc`.

    The memory of this machine is shared by `processes`; on GPUs each has a separate GPU.
    """

    def __init__(self, device: torch.device, processes: int) -> None:
        self._device, self._processes = device, processes
        self._before = 0

    def release(self) -> None:
        """Returns unused memory to the system."""
        gc.collect()
        if self._device.type == "cuda":
            torch.cuda.empty_cache()
        release_freed_memory()

    def start(self) -> None:
        """Begins to measure a piece of work."""
        self.release()
        if self._device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self._device)
            self._before = torch.cuda.memory_allocated(self._device)
            return
        Path("/proc/self/clear_refs").write_text("5")  # resets the peak
        self._before = _status("VmRSS")

    def taken(self) -> int:
        """Returns the peak memory of the work since `start`, in bytes."""
        if self._device.type == "cuda":
            return torch.cuda.max_memory_allocated(self._device) - self._before
        return _status("VmHWM") - self._before

    def free(self) -> int:
        """Returns the free bytes for such work, within the limits of this process and of the machine."""
        self.release()
        if self._device.type == "cuda":
            return torch.cuda.mem_get_info(self._device)[0]
        shared = min([_available(), *_left_by(control_groups())])
        if self._processes > 1:  # each of the others has the size of this one
            shared = (shared + _status("VmRSS")) // self._processes - _status("VmRSS")
        import resource  # Windows does not have it

        own, _ = resource.getrlimit(resource.RLIMIT_AS)
        return shared if own == resource.RLIM_INFINITY else min(shared, own - _status("VmSize") + _freed())


def _status(name: str) -> int:
    return _kibibytes(Path("/proc/self/status"), name)


def _freed() -> int:
    """Returns the freed bytes that glibc retains for reuse; 0 with other C libraries."""
    try:
        mallinfo2 = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError, TypeError):
        return 0
    mallinfo2.restype = _Mallinfo2
    return int(mallinfo2().values[8])  # fordblks


class _Mallinfo2(ctypes.Structure):
    """`struct mallinfo2` of malloc.h: ten numbers."""

    _fields_ = [("values", ctypes.c_size_t * 10)]


def _available() -> int:
    return _kibibytes(Path("/proc/meminfo"), "MemAvailable")


def _kibibytes(path: Path, name: str) -> int:
    for line in path.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1]) * _KIB
    raise OSError(f"{path}: has no line {name}")


def _left_by(groups: Iterable[Path]) -> list[int]:
    """Returns the free bytes of each control group of this process that has a limit."""
    free = []
    for folder in groups:
        try:
            limit, used, stat = (
                (folder / f"memory.{name}").read_text() for name in ("max", "current", "stat")
            )
        except OSError:
            continue  # it has no limit, or a container hides it
        if limit.strip() != "max":
            cached = re.search(r"^inactive_file (\d+)$", stat, re.MULTILINE)  # reclaimed on demand
            free.append(int(limit) - int(used) + (int(cached[1]) if cached else 0))
    return free
