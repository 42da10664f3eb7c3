"""A rank that fails, or a stop, in training and in validation: one line, exit status, exact resume."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import time
from pathlib import Path

import pytest
from commands import Toy, command_line, environment

from nmt.errors import UserError
from nmt.runtime.signals import Terminated
from nmt.training.processes.launcher import launch
from nmt.training.processes.stopping import StopRequest

PATIENCE = 300.0

PLUGIN = '''
"""Fails in one rank, in the update or the validation that the variable FAULT names."""
import os, signal, time
from pathlib import Path
from nmt.errors import UserError
from nmt.training.update.training_step import TrainingStep
from nmt.training.validation import Validator

kind, place, rank = os.environ.get("FAULT", "none none none").split()
owner, name = (TrainingStep, "begin") if place == "training" else (Validator, "losses")
original, calls = getattr(owner, name), iter(range(10_000))

def faulty(self, *arguments):
    original_result = original(self, *arguments)
    if next(calls) == (4 if place == "training" else 1) and os.environ.get("RANK", "0") == rank:
        if kind == "exception":
            raise RuntimeError("a bug in one rank")
        if kind == "mistake":
            raise UserError("data.max_tokens=64: a batch does not fit into memory. Lower it.")
        if kind == "SIGKILL":
            os.kill(os.getpid(), signal.SIGKILL)
        Path(os.environ["REACHED"]).touch()
        time.sleep(2.0)
    return original_result

if kind != "none":
    setattr(owner, name, faulty)
'''

LINES = {
    "SIGKILL": r"nmt-train: process 1 of the run was killed by SIGKILL \(out of memory\?\); the other "
    r"processes were ended\. Run the same command again to resume from the last checkpoint\.",
    "exception": r"error: process 1 failed:",
    "mistake": r"nmt-train: data\.max_tokens=64: a batch does not fit into memory\. Lower it\.",
    "SIGTERM": r"stopped; the same command resumes from here",
}
STATUSES = {"SIGKILL": 2, "exception": 1, "mistake": 2, "SIGTERM": 128 + signal.SIGTERM}


def alive(group: int) -> bool:
    """Returns whether the group has a process that is not a zombie."""
    listed = subprocess.run(["ps", "-eo", "pgid=,stat="], capture_output=True, text=True, check=True).stdout
    return any(int(line.split()[0]) == group and line.split()[1][0] != "Z" for line in listed.splitlines())


def assert_ends(group: int) -> None:
    """Asserts that no process of the group is left behind."""
    deadline = time.monotonic() + PATIENCE
    while alive(group):
        assert time.monotonic() < deadline, "processes are left behind"
        time.sleep(0.05)


class Run:
    """A run with a plugin that can fail; `start` gives the environment the fault."""

    def __init__(self, toy: Toy, folder: Path, world: int, name: str, *more: str) -> None:
        (folder / "faulty.py").write_text(PLUGIN, encoding="utf-8")
        self.path, self._toy, self._folder = folder / name, toy, folder
        options = [f"training.devices={world}", "training.micro_batches=4", "data.max_tokens=64"]
        self._options = toy.small(f"run_dir={self.path}", "plugins=[faulty]", *options, *more)

    def start(self, fault: str = "none none none") -> subprocess.Popen[str]:
        variables = {
            "PYTHONPATH": str(self._folder),
            "FAULT": fault,
            "REACHED": str(self._folder / "reached"),
            "TMPDIR": str(self._folder / "temporary"),
        }
        (self._folder / "temporary").mkdir(exist_ok=True)
        return subprocess.Popen(
            command_line("nmt-train", *self._options),
            cwd=self._toy.folder,
            env=environment(self._toy.cache) | variables,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def weights(self) -> list[bytes]:
        """Returns the files of the last checkpoint and of the final model."""
        last = self.path / "checkpoints/update-00000006"
        paths = [
            last / "model.safetensors",
            last / "optimizer.safetensors",
            self.path / "model/model.safetensors",
        ]
        return [path.read_bytes() for path in paths]


@pytest.mark.slow
@pytest.mark.parametrize("world", [2, 4])
def test_each_failure_ends_in_one_line_and_an_exact_resume(world: int, toy: Toy, tmp_path: Path) -> None:
    whole = Run(toy, tmp_path, world, "whole")
    assert whole.start().wait(PATIENCE) == 0
    for kind in LINES:
        for place in ("training", "validation"):
            run = Run(toy, tmp_path, world, f"{kind}-{place}")
            process = run.start(f"{kind} {place} 1")
            if kind == "SIGTERM":
                while not (tmp_path / "reached").exists():
                    assert process.poll() is None
                    time.sleep(0.05)
                process.send_signal(signal.SIGTERM)
                (tmp_path / "reached").unlink()
            errors = process.communicate(timeout=PATIENCE)[1]
            assert process.returncode == STATUSES[kind], errors
            assert len(re.findall(rf"^{LINES[kind]}", errors, re.MULTILINE)) == 1, errors
            assert errors.count("Traceback") == (kind == "exception"), errors
            assert len(re.findall(r"process \d+ ", errors)) == (kind in ("SIGKILL", "exception")), errors
            assert errors.count("stopping after this update") == (kind == "SIGTERM"), errors
            log = (run.path / "train.log").read_text(encoding="utf-8")
            assert ("RuntimeError: a bug in one rank" in log) == (kind == "exception")
            assert_ends(process.pid)
            process = run.start()
            errors = process.communicate(timeout=PATIENCE)[1]
            assert process.returncode == 0, errors
            assert run.weights() == whole.weights(), (kind, place)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("signum", "to_all"),
    [
        (signal.SIGINT, True),  # as a terminal does
        (signal.SIGTERM, True),  # as `timeout`, systemd and Slurm do
        (signal.SIGHUP, True),  # as a closed terminal does
        (signal.SIGUSR1, True),  # as Slurm does
        (signal.SIGQUIT, False),
        (signal.SIGKILL, False),
    ],
)
def test_signals_stop_all_processes_together(
    signum: signal.Signals, to_all: bool, toy: Toy, tmp_path: Path
) -> None:
    run = Run(toy, tmp_path, 2, "run", "training.max_updates=100000")
    process = run.start()
    while not list(run.path.glob("checkpoints/update-*")):
        assert process.poll() is None
        time.sleep(0.05)
    (os.killpg if to_all else os.kill)(process.pid, signum)
    errors = process.communicate(timeout=PATIENCE)[1]
    if signum is not signal.SIGKILL:  # SIGKILL ends the parent, and its processes detect that
        assert process.returncode == 128 + signum, errors
        assert errors.count("the same command resumes") == 1
    assert "Traceback" not in errors
    assert_ends(process.pid)
    assert not list((tmp_path / "temporary").glob("nmt-ranks-*")), "a temporary folder is left behind"


def fail(argument: str) -> None:
    """The work of a rank: notes that it was started, then fails as the first word says."""
    kind, folder = argument.split(" ", 1)
    (Path(folder) / str(os.getpid())).touch()
    if kind == "mistake":
        raise UserError("mend it")
    if kind == "bug":
        raise RuntimeError("a bug")
    signum = signal.Signals[kind]
    if signum is signal.SIGTERM:
        signal.signal(signum, signal.SIG_DFL)  # as in a process that is still importing
    os.kill(os.getpid(), signum)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "stopped_by", "error", "message", "starts"),
    [
        ("SIGKILL", None, UserError, "process 0 of the run was killed by SIGKILL", 3),
        ("SIGTERM", None, UserError, "process 0 of the run was killed by SIGTERM", 3),
        ("SIGTERM", signal.SIGTERM, Terminated, "143", 1),
        ("SIGTERM", signal.SIGINT, KeyboardInterrupt, None, 1),
        ("mistake", None, UserError, "^mend it$", 1),
        ("bug", None, SystemExit, "1", 3),
    ],
)
def test_failures_that_are_restarted(
    kind: str,
    stopped_by: int | None,
    error: type[BaseException],
    message: str | None,
    starts: int,
    tmp_path: Path,
    said: pytest.LogCaptureFixture,
) -> None:
    stop = StopRequest()
    stop.signum = stopped_by
    with pytest.raises(error, match=message):
        launch(fail, f"{kind} {tmp_path}", 1, stop, max_restarts=2)
    assert len(list(tmp_path.iterdir())) == starts
    tracebacks = [text for text in said.messages if "process 0 failed:" in text and "a bug" in text]
    assert len(tracebacks) == (starts if kind == "bug" else 0)
    assert said.text.count("all resume from the last checkpoint (restart 2 of 2)") == (starts == 3)
