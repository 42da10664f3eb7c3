"""The folder of temporary files on a machine that has none."""

from __future__ import annotations

import errno
import os
import tempfile

import pytest

from nmt.runtime.files import choose_temporary_folder
from nmt.runtime.os_errors import stray_file_error

REFUSAL = "TMPDIR: no folder for temporary files can be written"


@pytest.fixture(autouse=True)
def none(monkeypatch: pytest.MonkeyPatch) -> None:
    """A machine without a usable folder: the standard library raises this error."""

    def fail() -> str:
        raise FileNotFoundError(errno.ENOENT, "No usable temporary directory found in ['/tmp']")

    monkeypatch.setenv("TMPDIR", "/tmp")  # restored after the test
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_get_default_tempdir", fail)


def test_shared_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: path == "/dev/shm")
    choose_temporary_folder()
    assert (tempfile.gettempdir(), os.environ["TMPDIR"]) == ("/dev/shm", "/dev/shm")


def test_none_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    choose_temporary_folder()
    tempfile.gettempdir()  # packages ask for the name when they are imported
    with pytest.raises(FileNotFoundError) as failure:
        tempfile.mkdtemp()
    assert str(stray_file_error(failure.value)).startswith(REFUSAL)


def test_the_error_of_the_standard_library() -> None:
    with pytest.raises(FileNotFoundError) as failure:
        tempfile.gettempdir()
    assert str(stray_file_error(failure.value)).startswith(REFUSAL)
