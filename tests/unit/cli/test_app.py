"""The wrapper of every command: exit statuses and messages."""

from __future__ import annotations

import os
import signal
import subprocess
import sys

import pytest

from nmt.cli.app import _guarded, _require_apart, _sweep
from nmt.cli.train import main
from nmt.config import EvalConfig, TranslateConfig
from nmt.errors import UserError
from nmt.runtime.signals import Terminated


def raising(error: BaseException) -> int:
    def work() -> None:
        raise error

    return _guarded("nmt-x", work)


def test_a_users_mistake_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(UserError("a key:\n  is wrong")) == 2
    assert capsys.readouterr() == ("", "nmt-x: a key: is wrong\n")


def test_an_exit_before_the_work_is_done_is_no_success() -> None:
    for code in (None, 0):
        with pytest.raises(RuntimeError, match="called sys.exit before the work was done"):
            raising(SystemExit(code))
    with pytest.raises(SystemExit) as end:
        raising(SystemExit(3))
    assert end.value.code == 3


def test_ctrl_c(capsys: pytest.CaptureFixture[str]) -> None:
    assert raising(KeyboardInterrupt()) == 130
    assert capsys.readouterr() == ("", "nmt-x: stopped\n")


@pytest.mark.parametrize(
    ("stop", "status", "line"),
    [
        (KeyboardInterrupt(), 130, "nmt-x: stopped\n"),
        (Terminated(signal.SIGUSR1), 138, "nmt-x: stopped (SIGUSR1)\n"),
    ],
)
@pytest.mark.parametrize("error", [AttributeError("no file"), UserError("a key: is wrong")])
def test_a_signal_in_a_library_is_no_error_of_its_clean_up(
    error: Exception,
    stop: BaseException,
    status: int,
    line: str,
    capsys: pytest.CaptureFixture[str],
) -> None:
    def work() -> None:
        try:
            try:
                raise stop
            finally:
                raise KeyError("closed before it was opened")
        except KeyError as first:
            raise error from first

    assert _guarded("nmt-x", work) == status
    assert capsys.readouterr() == ("", line)


def test_a_bug_keeps_its_traceback() -> None:
    with pytest.raises(ZeroDivisionError):
        raising(ZeroDivisionError())


def test_a_reader_that_leaves_is_no_failure() -> None:
    environment = {key: value for key, value in os.environ.items() if key != "PYTHONUNBUFFERED"}
    read, write = os.pipe()
    os.close(read)
    code = "from nmt.cli.train import main; main()"
    result = subprocess.run(
        [sys.executable, "-c", code, "--help"], stdout=write, stderr=subprocess.PIPE, env=environment
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (141, b"")


@pytest.mark.parametrize("arguments", [["--help"], ["--version"]])
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
    several = [TranslateConfig("m", input="a", output=name, alignments="links") for name in "ab"]
    with pytest.raises(UserError, match="^alignments=links: every job"):
        _require_apart(several)
    with pytest.raises(UserError, match="^output=same: every job"):
        _require_apart([TranslateConfig("m", input="a", output="same")] * 2)


def test_jobs_of_a_sweep_cannot_share_standard_input() -> None:
    _require_apart([TranslateConfig("m", input="a")] * 2)
    with pytest.raises(
        UserError, match="input: the jobs of a sweep can't share standard input. Give input=FILE"
    ):
        _require_apart([TranslateConfig("m")] * 2)


@pytest.mark.parametrize(
    ("argument", "message"),
    [
        ("training.schedule.name=cosine", "training.schedule.name=cosine: there is no schedule cosine."),
        ("training.optimizer.name=sgd", "training.optimizer.name=sgd: there is no optimizer sgd."),
        ("model.positions.name=rotor", "model.positions.name=rotor: there is no positional encoding rotor."),
        ("model.options.cell=gru", "model.options.cell: not an option of model.architecture=transformer."),
    ],
)
def test_show_refuses_names_that_a_training_would_refuse(
    argument: str, message: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["nmt-train", argument, "--show"]
    monkeypatch.setattr(sys, "argv", flags)
    monkeypatch.setattr("nmt.cli.app.steady_streams", lambda: None)
    monkeypatch.setattr("nmt.cli.app.raise_on_stop_signals", lambda: None)
    with pytest.raises(SystemExit) as end:
        main()
    assert end.value.code == 2
    printed = capsys.readouterr()
    assert printed.out == "" and printed.err.startswith(f"nmt-train: {message}")


def test_a_sweep_goes_on_after_a_job_that_fails(caplog: pytest.LogCaptureFixture) -> None:
    done, ended = [], []

    def command(job: int) -> None:
        if job == 2:
            raise UserError("seed=2: is unlucky.")
        done.append(job)

    with caplog.at_level("INFO", "nmt"), pytest.raises(UserError) as failed:
        _sweep(command, [1, 2, 3], ["seed=1", "seed=2", "seed=3"], lambda *end: ended.append(end))
    assert done == [1, 3] and ended == [([1, 2, 3], {1: "seed=2: is unlucky."})]
    assert "job 2 of 3 (seed=2): seed=2: is unlucky." in caplog.messages
    assert str(failed.value) == "-m: 1 of 3 jobs failed: seed=2. Their errors are above."


def test_a_sweep_that_a_signal_ends_lists_the_jobs_that_did_not_run(caplog: pytest.LogCaptureFixture) -> None:
    def command(job: int) -> None:
        raise KeyboardInterrupt

    with caplog.at_level("INFO", "nmt"), pytest.raises(KeyboardInterrupt):
        _sweep(command, [1, 2, 3], ["seed=1", "seed=2", "seed=3"])
    assert caplog.messages[-1] == "the sweep ended in job 1 of 3 (seed=1); not run: 2, from seed=2"
