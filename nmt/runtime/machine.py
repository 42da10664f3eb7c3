"""The machine: its cores, devices, number formats and memory."""

from __future__ import annotations

import contextlib
import ctypes
import functools
import multiprocessing
import os
import platform
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.config import Precision, TrainingConfig
from nmt.errors import UserError
from nmt.runtime.forks import is_forked, undivided

if TYPE_CHECKING:
    import torch


def require_unix() -> None:
    """Requires Linux or macOS: nmt uses the file locks, signals and limits of Unix.

    Raises:
        UserError: this is another system.
    """
    if sys.platform == "win32" or any(find_spec(name) is None for name in ("fcntl", "resource")):
        raise UserError(
            f"this system ({sys.platform}) lacks the locks and limits of Unix. nmt runs on Linux and macOS, "
            "and on Windows in WSL 2: wsl --install."
        )


def available_cores() -> int:
    """Returns the number of cores that this process may use, by its affinity and control group quotas."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    for group in control_groups():
        try:
            quota, period = (group / "cpu.max").read_text().split()
        except (OSError, ValueError):
            continue  # no limit in this group
        if quota != "max":
            cores = min(cores, max(1, round(int(quota) / int(period))))
    return cores


def control_groups(
    root: Path = Path("/sys/fs/cgroup"), membership: Path = Path("/proc/self/cgroup")
) -> list[Path]:
    """Returns the control groups (version 2) of this process, from the innermost to `root`."""
    try:
        lines = [line for line in membership.read_text().splitlines() if line.startswith("0::/")]
        group = root / lines[0].removeprefix("0::/")
    except (OSError, IndexError):
        return [root]
    return [folder for folder in (group, *group.parents) if folder.is_relative_to(root)]


def may_start_processes() -> bool:
    """Returns whether this process may start others; the processes of `multiprocessing.Pool` may not."""
    return not multiprocessing.current_process().daemon


def wanted_processes(config: TrainingConfig, gpus: int) -> int:
    """Returns the number of processes that `training.devices` gives on a machine with this many GPUs."""
    if config.devices != "auto":
        return int(config.devices)
    if not may_start_processes():
        return 1
    if gpus and config.fit_micro_batches:
        return gpus
    return min(gpus or max(1, available_cores() // (config.threads or 1)), config.micro_batches)


def short_spins() -> None:
    """Makes waiting OpenMP threads sleep after a few microseconds, unless the user has set a wait policy.

    By default the threads of libgomp, which torch's Linux packages contain, spin for milliseconds at the end
    of every operation. If other programs use the same cores, a thread then spends its time slice waiting for
    a thread that is not running. A process with two threads becomes ten times slower than with one thread.
    libgomp reads the variable when torch is imported, so this function must be called before. The rounding of
    results does not depend on it.
    """
    if not _SPIN_VARIABLES.intersection(os.environ):
        os.environ["GOMP_SPINCOUNT"] = str(_SPINS)


_SPIN_VARIABLES = {"OMP_WAIT_POLICY", "GOMP_SPINCOUNT"}
_SPINS = 1000  # 20 to 50 microseconds: libgomp's default if there are more threads than cores


def expandable_segments() -> None:
    """Lets torch's memory on a GPU grow in place, unless the user has set options of its allocator.

    Flat batches have ever other sizes. By default the allocator retains a block for each, the free parts
    between them are too small for a new one, and a run that fits into memory may run out of it days later.
    The allocator reads the variable at its first use, so this function must be called before. It supports
    this on Linux only.
    """
    if sys.platform == "linux" and not _ALLOCATOR_VARIABLES.intersection(os.environ):
        os.environ["PYTORCH_ALLOC_CONF"] = "expandable_segments:True"


_ALLOCATOR_VARIABLES = {"PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF"}


def set_threads(threads: int) -> None:
    """Sets the number of CPU threads of tensor operations in this process; 0: one a core.

    A forked process has one: it lacks the threads of its parent, for which operations would wait forever.
    """
    import torch

    torch.set_num_threads(1 if is_forked() else threads or available_cores())


def queued_seconds(tasks: Path = Path("/proc/self/task")) -> float | None:
    """Returns the total seconds in which threads of this process were ready to run but had no core.

    Returns None if the system does not report it; only Linux does. Threads that have ended do not count.
    """
    total = 0
    try:
        for task in tasks.iterdir():
            with contextlib.suppress(FileNotFoundError, ProcessLookupError):  # the thread has just ended
                total += int((task / "schedstat").read_text().split()[1])
    except (OSError, ValueError, IndexError):
        return None
    return total / 1e9 if total else None  # kernels without schedstat report 0


def keep_freed_memory() -> None:
    """Makes this process retain the memory that it frees, if the C library is glibc.

    By default glibc returns every buffer over 32 MB to the system at once, and smaller ones at first. The
    system maps the next one page by page. With logits of that size this takes a tenth to a third of the time
    of training in bf16, and a tenth of the time of a search.
    """
    with undivided(), _retention.lock:
        _retention.until_undone = True
        _retain(True)


def default_freed_memory() -> None:
    """Undoes `keep_freed_memory`, and returns free memory to the system.

    The limits are those that glibc adapts to in a process that frees large buffers.
    """
    with undivided(), _retention.lock:
        _retention.until_undone = False
        if not _retention.users:
            _retain(False)


@contextlib.contextmanager
def kept_freed_memory() -> Iterator[None]:
    """Retains freed memory during the body; see `keep_freed_memory`. Several threads may use it at once."""

    def use(change: int) -> None:
        with undivided(), _retention.lock:
            before, _retention.users = _retention.users, _retention.users + change
            if not (_retention.until_undone or (before and _retention.users)):
                _retain(change > 0)

    use(1)
    try:
        yield
    finally:
        use(-1)


@dataclass
class _Retention:
    """Whether freed memory is retained: a flag and a user count, which `lock` protects.

    Attributes:
        until_undone: whether `keep_freed_memory` was called last, and not `default_freed_memory`.
        users: the number of bodies of `kept_freed_memory` that run.
    """

    lock: threading.Lock = field(default_factory=threading.Lock)
    until_undone: bool = False
    users: int = 0


_retention = _Retention()


def _retain(retain: bool) -> None:
    try:
        mallopt = ctypes.CDLL(None).mallopt
    except (AttributeError, OSError, TypeError):
        return
    mallopt(_M_MMAP_THRESHOLD, 1 << 30 if retain else 32 << 20)
    mallopt(_M_TRIM_THRESHOLD, (1 << 31) - 1 if retain else 64 << 20)
    if not retain:
        release_freed_memory()


def release_freed_memory() -> None:
    """Returns the freed memory of this process to the system, if the C library is glibc."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def choose_device(name: str) -> torch.device:
    """Turns `auto`, `cpu`, `cuda`, `cuda:1` or `mps` into an available device.

    `mps` is the GPU of Apple's machines. It has not been tested, so `auto` does not choose it. Training runs
    on the CPU there, because it sums in float64, which that GPU does not support.

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
        raise UserError(f"device={name}: must be auto, cpu, cuda, a numbered GPU such as cuda:1, or mps.")
    if device.type == "mps" and not (torch.backends.mps.is_available() and not device.index):
        raise UserError(f"device={name}: torch finds no such Apple GPU on this machine. Use device=cpu.")
    if device.type == "cuda":
        count = torch.cuda.device_count()
        if (device.index or 0) >= count:
            raise UserError(f"device={name}: this machine has {count} usable GPUs. Use device=cpu.")
    return device


def choose_precision(precision: Precision, device: torch.device) -> Precision:
    """Replaces `auto` by a fast precision of the device.

    On GPUs that is bf16 if the hardware supports it, otherwise fp16. On CPUs that support it, it is bf16 if a
    product in it is not slower than in fp32. It is fp32 elsewhere.
    """
    if precision is not Precision.auto:
        return precision
    if device.type == "cuda":
        import torch

        return Precision.bf16 if torch.cuda.is_bf16_supported(including_emulation=False) else Precision.fp16
    if device.type == "mps":
        return Precision.fp32  # not measured on this device
    has_instructions = bool(_cpu_flags() & {"avx512_bf16", "amx_bf16"})
    return Precision.bf16 if has_instructions and _is_fast_in_bf16() else Precision.fp32


@functools.cache
def _is_fast_in_bf16() -> bool:
    """Returns whether a product takes at most as long in bf16 as in fp32, in one thread: a tenth of a second.

    With an Intel Xeon that has AVX512-BF16 and hides AMX, as virtual ones may, it takes twice as long, and
    the passes of a training 1.4 to 1.6 times.
    """
    import torch

    def seconds(dtype: torch.dtype) -> float:
        a, tries = torch.ones(1024, 512, dtype=dtype), []
        for _ in range(4):
            start = time.perf_counter()
            a @ a.T
            tries.append(time.perf_counter() - start)
        return min(tries)

    threads = torch.get_num_threads()
    torch.set_num_threads(1)  # a forked process has no more, see `set_threads`
    try:
        return seconds(torch.bfloat16) <= seconds(torch.float32)
    finally:
        torch.set_num_threads(threads)


def device_name(device: torch.device) -> str:
    """Returns the name of the GPU, or that of the processor, as its maker calls it."""
    if device.type == "cuda":
        import torch

        return torch.cuda.get_device_name(device)
    return _cpu_fact("model name") or platform.processor() or platform.machine()


def _cpu_flags() -> set[str]:
    return set(_cpu_fact("flags").split())


def _cpu_fact(name: str) -> str:
    """Returns a fact about the first core; empty if the system does not report it; only Linux does."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.partition(":")[0].strip() == name:
                return line.partition(":")[2].strip()
    except OSError:
        pass
    return ""


@contextlib.contextmanager
def memory_errors(user_error: Callable[[], UserError]) -> Iterator[None]:
    """Turns out-of-memory errors of the machine or of a device into `user_error()`."""
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
    if "could not create a primitive" in text:  # oneDNN lacks memory for a kernel; a descriptor needs none
        return "descriptor" not in text
    return any(words in text for words in _NO_MEMORY)


# Parts of messages of torch's CPU allocator, the C++ library, oneDNN, CUDA, NCCL and cuBLAS, which raise no
# specific class of exception.
_NO_MEMORY = (
    "out of memory",
    "can't allocate memory",
    "not enough memory",
    "bad_alloc",
    "could not create a memory",
    "CUBLAS_STATUS_ALLOC_FAILED",
    "CUBLAS_STATUS_NOT_INITIALIZED when calling `cublasCreate",
)
