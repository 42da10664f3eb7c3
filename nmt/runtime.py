"""The machine: its cores and devices, number formats, seeds, files written whole, progress and the log."""

from __future__ import annotations

import contextlib
import ctypes
import errno
import fcntl
import logging
import os
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.config import Precision
from nmt.errors import UserError

if TYPE_CHECKING:
    import torch
    from tqdm import tqdm

log = logging.getLogger("nmt")
"""Everything the program has to say about its work; the commands send it to standard error."""

_MASK = (1 << 64) - 1


def mix(*values: int) -> int:
    """A seed from a place: a pure function of the integers and their order.

    The values are folded through SplitMix64's finaliser (Steele, Lea & Flood 2014), so that neighbouring
    places get unrelated seeds and no generator state needs saving.

    Returns:
        An integer in 0..2**63-1, which every generator takes.
    """
    state = 0x243F6A8885A308D3  # any constant will do: these are the first digits of pi
    for value in values:
        state = _finalise((state ^ (value & _MASK)) + 0x9E3779B97F4A7C15 & _MASK)
    return state >> 1


def _finalise(state: int) -> int:
    state = (state ^ state >> 30) * 0xBF58476D1CE4E5B9 & _MASK
    state = (state ^ state >> 27) * 0x94D049BB133111EB & _MASK
    return state ^ state >> 31


def available_cores() -> int:
    """Cores this process may use: its affinity and its control group's quota both count."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    try:
        quota, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        if quota != "max":
            cores = min(cores, max(1, round(int(quota) / int(period))))
    except (OSError, ValueError):
        pass  # no control groups of version 2 here: the affinity is all there is to know
    return cores


def set_threads(threads: int) -> None:
    """Gives this process's tensor operations `threads` CPU threads; 0: one a core."""
    import torch

    torch.set_num_threads(threads or available_cores())


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


def release_freed_memory() -> None:
    """Gives what this process has freed back to the system, where `keep_freed_memory` works too."""
    with contextlib.suppress(AttributeError, OSError, TypeError):
        ctypes.CDLL(None).malloc_trim(0)


_M_TRIM_THRESHOLD, _M_MMAP_THRESHOLD = -1, -3  # malloc.h


def choose_device(name: str) -> torch.device:
    """Turns `auto`, `cpu`, `cuda` or `cuda:1` into a device that is there.

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
    if device is None or device.type not in ("cpu", "cuda"):
        raise UserError(f"device={name}: must be auto, cpu, cuda, or a certain GPU such as cuda:1")
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
    return Precision.bf16 if _cpu_flags() & {"avx512_bf16", "amx_bf16"} else Precision.fp32


def _cpu_flags() -> set[str]:
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("flags"):
                return set(line.partition(":")[2].split())
    except OSError:
        pass  # not Linux: nothing is known of the processor, so nothing is claimed
    return set()


def cache_folder() -> Path:
    """Where downloads and prepared data are kept: `$NMT_CACHE`, or `nmt` in the user's cache folder."""
    own = os.environ.get("NMT_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nmt"


def progress(*, total: int | None, unit: str, description: str) -> tqdm[Any]:
    """A progress bar with rate on standard error, shown once the work has taken two seconds.

    Use it as a context manager and call `update(n)`. Where standard error is no terminal it prints a line
    every half minute instead of redrawing.
    """
    from tqdm import tqdm

    live = sys.stderr.isatty()
    return tqdm(
        total=total,
        unit=f" {unit}",
        unit_scale=total is None or total >= 100_000,  # "1.23M pairs", but "7800 updates"
        desc=description,
        delay=2.0,
        mininterval=0.2 if live else 30.0,
        dynamic_ncols=live,
        leave=False,
        file=sys.stderr,
    )


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Writes a file whole or not at all.

    Yields a temporary name in the same folder; afterwards the file is flushed to disk and takes the place of
    `path` in one step. Whatever fails in between, `path` stays as it was and nothing is left behind.

    Raises:
        UserError: the disk is full, or the folder can't be written to.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with told(path):
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
            fsync_folder(path.parent)
    finally:
        temporary.unlink(missing_ok=True)


def fsync_folder(path: Path) -> None:
    """Makes the names in a folder last through a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


_REASONS = {
    errno.ENOSPC: "no space is left on its disk; free some, or choose another folder",
    errno.EDQUOT: "the disk quota is used up; free some space, or choose another folder",
    errno.EROFS: "its disk is read-only; choose another folder",
    errno.EACCES: "permission is denied; choose another folder, or change its permissions",
    errno.ENOENT: "its folder does not exist; create it first",
    errno.EISDIR: "it is a folder; give the name of a file",
    errno.ENOTDIR: "a part of its path is a file, not a folder; choose another folder",
}


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """Turns the failures of writing `path` that the user can mend into a `UserError`."""
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0)
        if reason is None:
            raise
        raise UserError(f"can't write {path}: {reason}") from error


def make_folder(path: Path) -> Path:
    """Creates a folder and those above it where they are missing.

    Raises:
        UserError: it can't be created.
    """
    with told(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise UserError(f"{path} is a file, and a folder is needed: choose another name") from error
    return path


@contextlib.contextmanager
def locked(path: Path, taken: Callable[[], None]) -> Iterator[None]:
    """Within, this process alone holds the lock on a file; it ends with the process, however that ends.

    Args:
        path: made if it isn't there, and left there. A file and opened for writing, because on network file
            systems neither folders nor files that are only read can be locked for all machines.
        taken: called when another process has the lock; unless it raises, the lock is waited for.

    Raises:
        UserError: the file can't be written, or its file system knows no locks.
    """
    with contextlib.ExitStack() as stack:
        with told(path):
            file = stack.enter_context(open(path, "a"))
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                taken()
                fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise UserError(
                f"{path} can't be locked ({os.strerror(error.errno or 0)}), so two processes might write "
                "there at once: choose a folder on another file system"
            ) from error
        yield


class _LogHandler(logging.Handler):
    """Writes through tqdm, so that a line of the log does not tear a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm

        try:
            tqdm.write(self.format(record), file=sys.stderr)
        except BrokenPipeError:
            pass  # nobody reads the log any more: no reason to lose the work


def log_to_stderr() -> None:
    """Sends the log to standard error: plain lines, warnings marked as such."""
    if any(isinstance(handler, _LogHandler) for handler in log.handlers):
        return
    handler = _LogHandler()
    handler.setFormatter(_Plain())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        mark = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return mark + super().format(record)
