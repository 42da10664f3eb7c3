"""The machine: its cores, devices, number formats and memory."""

from __future__ import annotations

import contextlib
import ctypes
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.config import Precision, TrainingConfig
from nmt.errors import UserError

if TYPE_CHECKING:
    import torch


def available_cores() -> int:
    """Cores this process may use: its affinity and the quotas of its control groups count."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in control_groups():
        try:
            quota, period = (group / "cpu.max").read_text().split()
        except (OSError, ValueError):
            continue  # this one limits nothing
        if quota != "max":
            cores = min(cores, max(1, round(int(quota) / int(period))))
    return cores


def control_groups(root: Path = Path("/sys/fs/cgroup"), own: Path = Path("/proc/self/cgroup")) -> list[Path]:
    """The control groups (version 2) that this process is in, each within the next; the last is `root`."""
    try:
        lines = [line for line in own.read_text().splitlines() if line.startswith("0::/")]
        group = root / lines[0].removeprefix("0::/")
    except (OSError, IndexError):
        return [root]
    return [folder for folder in (group, *group.parents) if folder.is_relative_to(root)]


def wanted_processes(config: TrainingConfig, gpus: int) -> int:
    """How many processes `training.devices` means on this machine, if it has so many GPUs."""
    if config.devices != "auto":
        return int(config.devices)
    return min(gpus or max(1, available_cores() // (config.threads or 1)), config.micro_batches)


def short_spins() -> None:
    """Lets OpenMP's threads wait for each other asleep after a few microseconds, unless the user has chosen.

    By default those of libgomp, which torch's packages for Linux bring, spin for milliseconds at the end of
    every operation. Where other programs want the cores, too, a thread then spends its turn waiting for
    another one that is not running: one process of two threads becomes a tenth as fast as one of one thread.
    It is read when torch is imported, so this comes before; how results are rounded does not depend on it.
    """
    if not _WAITING.intersection(os.environ):
        os.environ["GOMP_SPINCOUNT"] = str(_SPINS)


_WAITING = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}
_SPINS = 1000  # 20 to 50 microseconds: what libgomp takes itself where there are more threads than cores


def set_threads(threads: int) -> None:
    """Gives this process's tensor operations `threads` CPU threads; 0: one a core."""
    import torch

    torch.set_num_threads(threads or available_cores())


def queued_seconds(tasks: Path = Path("/proc/self/task")) -> float | None:
    """How long the threads of this process, together, were ready to run and had no core; None: not told.

    Only Linux tells. Threads that have ended do not count.
    """
    total = 0
    try:
        for task in tasks.iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
                total += int((task / "schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return total / 1e9 if total else None  # kernels built without it tell of 0


def keep_freed_memory() -> None:
    """Lets this process keep what it frees, where the C library is glibc.

    By default glibc gives every buffer over 32 MB back to the system at once, and the next one is paged in
    anew, page by page: with logits of that size a tenth to a third of the time of training in bf16.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_M_MMAP_THRESHOLD, 1 << 30)
    mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1)


def default_freed_memory() -> None:
    """Undoes `keep_freed_memory`, and gives what is free back to the system.

    The limits are those that glibc reaches by itself in a process that frees large buffers.
    """
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_M_MMAP_THRESHOLD, 32 << 20)
    mallopt(_M_TRIM_THRESHOLD, 64 << 20)
    release_freed_memory()


def release_freed_memory() -> None:
    """Gives what this process has freed back to the system, where `keep_freed_memory` works too."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def choose_device(name: str) -> torch.device:
    """Turns `auto`, `cpu`, `cuda`, `cuda:1` or `mps` into a device that is there.

    `mps` is the GPU of Apple's machines. It has not been tested, so `auto` does not choose it, and training,
    which sums in float64 where that GPU has none, stays on the CPU there.

    Raises:
        UserError: the device is unknown or missing.
    """
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError:
        device = None
    if device is None or device.type not in ("cpu", "cuda", "mps"):
        raise UserError(f"device={name}: must be auto, cpu, cuda, a certain GPU such as cuda:1, or mps")
    if device.type == "mps" and not (torch.backends.mps.is_available() and not device.index):
        raise UserError(f"device={name}: torch finds no such Apple GPU on this machine; use device=cpu")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise UserError(f"device={name}: this machine has {count} usable GPUs; device=cpu runs without")
    return device


def choose_precision(precision: Precision, device: torch.device) -> Precision:
    """Replaces `auto` by what the device multiplies fast: bf16 where it has units for it, else fp32."""
    if precision is not Precision.auto:
        return precision
    if device.type == "cuda":
        import torch

        return Precision.bf16 if torch.cuda.is_bf16_supported(including_emulation=False) else Precision.fp16
    if device.type == "mps":
        return Precision.fp32  # nothing has been measured there
    return Precision.bf16 if _cpu_flags() & {"avx512_bf16", "amx_bf16"} else Precision.fp32


def _cpu_flags() -> set[str]:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return set(line.partition(":")[2].split())
    except OSError:
        pass  # not Linux: nothing is known of the processor, so nothing is claimed
    return set()


@contextlib.contextmanager
def memory_errors(user_error: Callable[[], UserError]) -> Iterator[None]:
    """Turns running out of memory, of the machine or of a device, into `user_error()`."""
    try:
        yield
    except (MemoryError, RuntimeError) as error:
        if not _is_out_of_memory(error):
            raise
        raise user_error() from error


def _is_out_of_memory(error: BaseException) -> bool:
    import torch

    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return True
    text = str(error)
    if "could not create a primitive" in text:  # no room for a kernel of oneDNN; its descriptor needs none
        return "descriptor" not in text
    return any(words in text for words in _NO_MEMORY)


# What torch's allocator on the CPU, the C++ library, oneDNN, CUDA, NCCL and cuBLAS say in an exception of no
# kind of its own.
_NO_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "bad_alloc",
    "could not create a memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",
)
