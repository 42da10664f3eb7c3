"""The Slurm script with stand-ins of Slurm's commands and torchrun."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[3] / "scripts/slurm.sh"
PATIENCE = 120.0
STUBS = {
    "srun": 'while [[ $1 == --* ]]; do echo "$1" >> flags; shift; done; exec "$@"',
    "scontrol": 'case $1 in show) echo alpha; echo beta;; requeue) echo "$2" > requeued;; esac',
    "scancel": 'echo "$@" > cancelled',
    "torchrun": """
        printf "%s\\n" "$@" > arguments
        [ -n "$QUICK" ] || until [ -e cancelled ]; do sleep 0.05; done
    """,
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "bin").mkdir()
    for name, text in STUBS.items():
        stub = tmp_path / "bin" / name
        stub.write_text(f"#!/usr/bin/env bash\n{text}\n")
        stub.chmod(0o755)
    return tmp_path


def start(folder: Path, *arguments: str, quick: str = "") -> subprocess.Popen[bytes]:
    job = {
        "SLURM_JOB_ID": "123",
        "SLURM_JOB_NODELIST": "x",
        "SLURM_JOB_NUM_NODES": "2",
        "SLURM_NODEID": "1",
        "SLURM_CPUS_PER_TASK": "32",
    }
    path = f"{folder / 'bin'}:{os.environ['PATH']}"
    return subprocess.Popen(
        [SCRIPT, *arguments], cwd=folder, env={**os.environ, **job, "PATH": path, "QUICK": quick}
    )


def test_each_machine_starts_torchrun_with_the_options(folder: Path) -> None:
    assert start(folder, "run_dir=a b", "data=local", quick="yes").wait(PATIENCE) == 0
    assert (folder / "arguments").read_text().splitlines() == [
        "--nnodes=2",
        "--node-rank=1",
        "--nproc-per-node=gpu",
        "--rdzv-endpoint=alpha:20123",
        "-m",
        "nmt.cli.train",
        "run_dir=a b",
        "data=local",
    ]
    assert (folder / "flags").read_text() == "--cpus-per-task=32\n--kill-on-bad-exit=0\n"
    assert not (folder / "requeued").exists()


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGUSR1])
def test_a_job_out_of_time_stops_and_is_queued_again(signum: signal.Signals, folder: Path) -> None:
    job = start(folder)
    deadline = time.monotonic() + PATIENCE
    while not (folder / "arguments").exists():
        assert time.monotonic() < deadline
        time.sleep(0.02)
    job.send_signal(signum)
    assert job.wait(PATIENCE) == 128 + signum
    assert (folder / "cancelled").read_text() == "--signal=TERM 123\n"
    assert (folder / "requeued").read_text() == "123\n"
