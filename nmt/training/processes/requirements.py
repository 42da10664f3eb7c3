"""What the processes of a run need from this machine: semaphores, open files, the loopback, threads."""

from __future__ import annotations

import errno
import multiprocessing
import socket
import threading

from nmt.errors import UserError
from nmt.runtime.machine import may_start_processes

LOOPBACK = "127.0.0.1"  # not localhost: a small container may have no names
_DESCRIPTORS, _DESCRIPTORS_PER_RANK = 48, 8
"""Measured: two ranks need 33 to 40 open files, four need 41 to 48."""
_THREADS_PER_RANK = 20  # measured: one rank needs 13, two need 25 to 40
_SEMAPHORES, _SEMAPHORES_PER_RANK = 6, 2  # measured: two ranks need nine
_LOOPBACK_SECONDS = 10.0


def require_exchange(processes: int) -> None:
    """Requires what torch's agent needs to start several processes and to get their results.

    Raises:
        UserError: semaphores, open files or the loopback are missing, or this process may start none.
    """
    if not may_start_processes():
        raise UserError(
            f"training.devices={processes}: a daemon process, as those of multiprocessing.Pool are, can't "
            "start others. Give training.devices=1, or call nmt.train in an ordinary process."
        )
    _require_semaphores(processes)
    _require_descriptors(processes)
    _require_loopback(processes)


def require_threads(processes: int) -> None:
    """Requires that this user may start enough threads; where it can't, a library would abort the process.

    Raises:
        UserError: the limit is too low.
    """
    needed, done = processes * _THREADS_PER_RANK, threading.Event()
    threads: list[threading.Thread] = []
    try:
        for _ in range(needed):
            thread = threading.Thread(target=done.wait, daemon=True)
            thread.start()
            threads.append(thread)
    except RuntimeError:
        raise UserError(
            f"training.devices={processes}: needs {needed} threads, but this user may start only "
            f"{len(threads)} more. Raise the limit (ulimit -u, or docker run --pids-limit)."
        ) from None
    finally:
        done.set()
        for thread in threads:
            thread.join()


def _require_semaphores(processes: int) -> None:
    """Requires that this system has semaphores, through which torch's agent gets the results of the ranks.

    Raises:
        UserError: `/dev/shm` is missing, read-only or full, as in some containers.
    """
    try:  # all at once: each takes a page of memory there
        _ = [multiprocessing.Lock() for _ in range(_SEMAPHORES + processes * _SEMAPHORES_PER_RANK)]
    except (OSError, ImportError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        is_full = isinstance(error, OSError) and error.errno == errno.ENOSPC
        fix = "a larger /dev/shm (docker run --shm-size=64m)" if is_full else "/dev/shm writable"
        raise UserError(
            f"training.devices={processes}: several processes need semaphores in /dev/shm, which can't be "
            f"created ({reason}). Mount {fix}, or give training.devices=1."
        ) from error


def _require_descriptors(processes: int) -> None:
    """Requires that this process may open enough files; torch's agent otherwise waits for minutes.

    Raises:
        UserError: the limit is too low.
    """
    import resource  # Windows does not have it

    needed = _DESCRIPTORS + processes * _DESCRIPTORS_PER_RANK
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if allowed != resource.RLIM_INFINITY and allowed < needed:
        raise UserError(
            f"training.devices={processes}: this process may open {allowed} files, but {processes} processes "
            f"need {needed}. Raise the limit (ulimit -n {needed}), or give training.devices=1."
        )


def _require_loopback(processes: int) -> None:
    """Requires that processes of this machine can connect; torch's agent otherwise waits for minutes.

    Raises:
        UserError: they can't, as in a network namespace of `unshare`.
    """
    try:
        with socket.create_server((LOOPBACK, 0)) as server:
            socket.create_connection(server.getsockname(), timeout=_LOOPBACK_SECONDS).close()
    except OSError as error:
        raise UserError(
            f"training.devices={processes}: the processes can't connect to each other at {LOOPBACK} "
            f"({error.strerror or error}). Run ip link set lo up, or give training.devices=1."
        ) from error
