"""Several processes on a machine without semaphores, or with few open files: one line."""

from __future__ import annotations

import errno
import multiprocessing
import resource

import pytest

from nmt.errors import UserError
from nmt.training.processes.launcher import launch
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


def test_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(resource, "getrlimit", lambda limit: (79, 1024))
    with pytest.raises(UserError) as refusal:
        launch(str, "", 4, StopRequest())
    assert str(refusal.value) == (
        "training.devices=4: this process may open 79 files, but 4 processes need 80. Raise the limit "
        "(ulimit -n 80), or give training.devices=1."
    )
