"""The frame around every command: exit statuses and what is said."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from nmt.cli.app import _guarded, _require_apart
from nmt.config import EvalConfig, TranslateConfig
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


@pytest.mark.parametrize("arguments", [["--help"], ["--show"], ["--version"]])
def test_a_full_disk_behind_standard_output(arguments: list[str]) -> None:
    code = "import sys; sys.argv[0] = 'nmt-train'; from nmt.cli.train import main; main()"
    with open("/dev/full", "wb") as full:
        result = subprocess.run(
            [sys.executable, "-c", code, *arguments], stdout=full, stderr=subprocess.PIPE, text=True
        )
    assert result.returncode == 2
    assert result.stderr == (
        "nmt-train: can't write standard output: no space is left on its disk. Free some, or choose another "
        "folder.\n"
    )


def test_jobs_of_a_sweep_must_not_overwrite_each_other() -> None:
    _require_apart([EvalConfig(json="same")])
    _require_apart([EvalConfig(json="a"), EvalConfig(json="b")])
    with pytest.raises(UserError, match="^json=same: every job of the sweep would write this file"):
        _require_apart([EvalConfig(json="same"), EvalConfig(json="same")])
    with pytest.raises(UserError, match="^output=same: every job"):
        _require_apart([TranslateConfig("m", input="a", output="same")] * 2)


def test_jobs_of_a_sweep_cannot_share_standard_input() -> None:
    _require_apart([TranslateConfig("m", input="a")] * 2)
    with pytest.raises(
        UserError, match="input: the jobs of a sweep can't share standard input. Give input=FILE"
    ):
        _require_apart([TranslateConfig("m")] * 2)
