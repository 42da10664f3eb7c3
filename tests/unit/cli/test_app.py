"""The frame around every command: exit statuses and what is said."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nmt.cli.app import _guarded
from nmt.errors import UserError


def raising(error: BaseException) -> int:
    def work() -> None:
        raise error

    return _guarded("nmt-x", work)


def test_a_users_mistake_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(UserError("a key:\n  is wrong")) == 2
    assert capsys.readouterr() == ("", "nmt-x: a key: is wrong\n")


def test_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(KeyboardInterrupt()) == 130
    assert capsys.readouterr() == ("", "nmt-x: stopped\n")


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        raising(ZeroDivisionError())


@pytest.mark.parametrize("arguments", [["--help"], ["--show"]])
def test_a_reader_that_leaves_is_no_failure(arguments: list[str]) -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    read, write = os.pipe()
    os.close(read)
    code = "from nmt.cli.train import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", code, *arguments], stdout=write, stderr=subprocess.PIPE, env=environment
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (141, b"")
