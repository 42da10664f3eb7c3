"""The early start of the fork server, and the environment of processes that are forked later."""

from __future__ import annotations

import multiprocessing
import os
import shutil
import subprocess
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from nmt.config import TrainConfig, TrainingConfig
from nmt.runtime import machine
from nmt.training.processes import fork_server


@pytest.mark.parametrize(
    ("options", "gpus", "started"),
    [
        ({"devices": "auto", "micro_batches": 2}, 0, True),
        ({"devices": "auto", "micro_batches": 1}, 0, False),
        ({"devices": "auto", "micro_batches": 2, "threads": 1}, 0, True),
        ({"devices": "auto", "micro_batches": 2, "threads": 2}, 0, False),
        ({"devices": "auto", "micro_batches": 8}, 1, False),
        ({"devices": "auto", "micro_batches": 8}, 4, True),
        ({"devices": "2", "micro_batches": 2}, 0, True),
        ({"devices": "1", "micro_batches": 2}, 4, False),
    ],
)
def test_it_starts_where_there_will_be_several_processes(
    options: dict[str, Any], gpus: int, started: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    calls: list[bool] = []
    monkeypatch.setattr(fork_server, "start", lambda: calls.append(True))
    monkeypatch.setattr(machine, "available_cores", lambda: 2)
    monkeypatch.setattr(fork_server, "glob", lambda pattern: [f"/dev/nvidia{gpu}" for gpu in range(gpus)])
    config = TrainConfig(training=TrainingConfig(**options))
    fork_server.start_ahead(config)
    assert calls == started * [True]
    fork_server.start_ahead(replace(config, prepare_only=True))
    monkeypatch.setenv("RANK", "0")  # torchrun sets it
    fork_server.start_ahead(config)
    assert calls == started * [True]


def test_changes_of_the_environment_reach_what_is_forked_later(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fork_server, "_environment", {"KEPT": "1", "CHANGED": "1", "GONE": "1"})
    monkeypatch.setattr(os, "environ", {"KEPT": "1", "CHANGED": "2", "NEW": "3"})
    monkeypatch.setattr(fork_server, "START_METHOD", "forkserver")
    assert fork_server.environment_since() == {"CHANGED": "2", "GONE": None, "NEW": "3"}
    monkeypatch.setattr(fork_server, "START_METHOD", "spawn")  # spawned processes inherit the environment
    assert fork_server.environment_since() == {}


def tell(folder: str) -> None:
    import signal

    loaded = {"torch", "nmt.training.trainer"} & sys.modules.keys()
    put_off = signal.pthread_sigmask(signal.SIG_BLOCK, ())
    deaf = [number in put_off for number in (signal.SIGTERM, signal.SIGINT)]
    Path(folder, "told").write_text(f"{sorted(loaded)} {deaf} {'torch._dynamo' in sys.modules}")


@pytest.mark.skipif(fork_server.START_METHOD != "forkserver", reason="processes are not forked here")
def test_what_is_forked_has_its_imports(tmp_path: Path) -> None:
    fork_server.start()
    child = multiprocessing.get_context("forkserver").Process(target=tell, args=(str(tmp_path),))
    child.start()
    child.join()
    assert (tmp_path / "told").read_text() == "['nmt.training.trainer', 'torch'] [True, True] False"


@pytest.mark.skipif(fork_server.START_METHOD != "forkserver", reason="processes are not forked here")
@pytest.mark.parametrize(("length", "in_tmp"), [pytest.param(75, False, marks=pytest.mark.slow), (76, True)])
def test_a_long_path_of_the_temporary_folder(length: int, in_tmp: bool) -> None:
    """The path of a socket has at most 107 bytes."""
    link = Path(tempfile.mkdtemp(dir="/tmp"))
    folder = link / ("x" * (length - len(str(link)) - 1))
    folder.mkdir()
    code = (
        "from multiprocessing import util; from nmt.training.processes import fork_server; "
        "fork_server.start(); print(util.get_temp_dir())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], env=os.environ | {"TMPDIR": str(folder)}, capture_output=True, text=True
    )
    shutil.rmtree(link)
    assert len(str(folder)) == length and result.stderr == ""
    assert str(Path(result.stdout).parent) == ("/tmp" if in_tmp else str(folder))
