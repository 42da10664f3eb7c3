"""Calls from Python in odd processes: without a folder, streams or with kept errors."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.api.session import LaunchFailed, session
from nmt.errors import UserError
from nmt.runtime.guest import Guest, as_guest
from nmt.runtime.streams import progress


def test_a_removed_current_folder_is_one_line_before_torch_is_imported(tmp_path: Path) -> None:
    """The import of torch would end the process: a library that it loads can't find itself."""
    script = f"""
import os, sys
os.chdir({os.fspath(tmp_path)!r})
os.rmdir({os.fspath(tmp_path)!r})
import nmt
for call in (lambda: nmt.load("model"), lambda: nmt.train([]), lambda: nmt.evaluate(["a"], ["a"])):
    try:
        call()
    except nmt.UserError as error:
        print(error, "torch" in sys.modules)
"""
    environment = os.environ | {"PYTHONPATH": os.getcwd()}
    done = subprocess.run(
        [sys.executable, "-c", script], env=environment, capture_output=True, text=True, timeout=60
    )
    line = "the current folder was removed, or can't be read. Change to another one, for example with cd ~."
    assert (done.stdout, done.stderr) == (f"{line} False\n" * 3, "")


@pytest.mark.parametrize("kind", [UserError, LaunchFailed, KeyboardInterrupt])
def test_an_error_that_is_retained_retains_no_files(tmp_path: Path, kind: type[BaseException]) -> None:
    def training() -> None:
        file = open(tmp_path / "file", "w")  # noqa: SIM115
        opened.append(file.fileno())
        try:
            raise OSError("in the depths")
        except OSError as error:
            raise kind("the data: are wrong. Correct them.") from error

    opened: list[int] = []
    with (
        pytest.raises(kind, match="the data: are wrong") as retained,
        session(progress=False, torch=False),
    ):
        training()
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(opened[0])
    assert retained.value.__cause__ is not None


def test_progress_without_standard_error_is_not_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with as_guest(Guest(True)), progress(total=2, unit="lines", description="Translating") as bar:
        bar.update(2)
        assert bar.disable
