"""Machines that lack what the processes of a run need: one line."""

from __future__ import annotations

import errno
import multiprocessing
import resource
import socket
import threading

import pytest

from nmt.errors import UserError
from nmt.runtime.os_errors import stray_file_error
from nmt.training.processes.launcher import launch
from nmt.training.processes.requirements import require_threads
from nmt.training.processes.stopping import StopRequest


@pytest.mark.parametrize(
    "error",
    [
        OSError(errno.EROFS, "Read-only file system"),
        FileNotFoundError(errno.ENOENT, "No such file or directory"),
        ImportError("This platform lacks a functioning sem_open implementation"),
    ],
)
def test_no_semaphores(error: Exception, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> None:
        raise error

    monkeypatch.setattr(multiprocessing, "Lock", fail)
    with pytest.raises(UserError, match="^training.devices=2: several processes need semaphores in /dev/shm"):
        launch(str, "", 2, StopRequest())


def test_too_few_semaphores(monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[object] = []

    def limited() -> object:
        if len(made) == 8:
            raise OSError(errno.ENOSPC, "No space left on device")
        made.append(object())
        return made[-1]

    monkeypatch.setattr(multiprocessing, "Lock", limited)
    with pytest.raises(UserError) as refusal:
        launch(str, "", 2, StopRequest())
    assert str(refusal.value) == (
        "training.devices=2: several processes need semaphores in /dev/shm, which can't be created (No space "
        "left on device). Mount a larger /dev/shm (docker run --shm-size=64m), or give training.devices=1."
    )


def test_a_daemon_process_can_not_start_several(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    with pytest.raises(UserError, match=r"^training.devices=2: a daemon process, as those"):
        launch(str, "", 2, StopRequest())


def test_few_threads(monkeypatch: pytest.MonkeyPatch) -> None:
    before = threading.active_count()
    require_threads(2)
    start, started = threading.Thread.start, []

    def limited(thread: threading.Thread) -> None:
        if len(started) == 30:
            raise RuntimeError("can't start new thread")
        started.append(thread)
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", limited)
    with pytest.raises(UserError) as refusal:
        require_threads(2)
    assert str(refusal.value) == (
        "training.devices=2: needs 40 threads, but this user may start only 30 more. Raise the limit "
        "(ulimit -u, or docker run --pids-limit)."
    )
    assert threading.active_count() == before


@pytest.mark.parametrize(
    "error",
    [
        RuntimeError("can't start new thread"),
        RuntimeError("Resource temporarily unavailable"),  # of sentencepiece
        BlockingIOError(errno.EAGAIN, "Resource temporarily unavailable"),  # of a fork
    ],
)
def test_no_more_threads(error: OSError | RuntimeError) -> None:
    assert str(stray_file_error(error)) == (
        "this user may start no more threads or processes. End some, or raise the limit (ulimit -u, or "
        "docker run --pids-limit)."
    )
    assert stray_file_error(RuntimeError("a bug")) is None


def test_no_loopback(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(address: object, timeout: float) -> None:
        raise OSError(errno.ENETUNREACH, "Network is unreachable")

    monkeypatch.setattr(socket, "create_connection", fail)
    with pytest.raises(UserError) as refusal:
        launch(str, "", 2, StopRequest())
    assert str(refusal.value) == (
        "training.devices=2: the processes can't connect to each other at 127.0.0.1 (Network is "
        "unreachable). Run ip link set lo up, or give training.devices=1."
    )


def test_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (79, 1024))
    with pytest.raises(UserError) as refusal:
        launch(str, "", 4, StopRequest())
    assert str(refusal.value) == (
        "training.devices=4: this process may open 79 files, but 4 processes need 80. Raise the limit "
        "(ulimit -n 80), or give training.devices=1."
    )
