"""Real `torchrun` processes, on one node and on two without shared files: same weights as one process."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from commands import Toy, command_line, environment

from nmt.bundle import read_weights

PATIENCE = 600.0
LAST = "checkpoints/update-00000060/model.safetensors"
OPTIONS = [
    "training.max_updates=60",
    "training.checkpoint_every=5",
    "training.validate_every=30",
    "training.micro_batches=3",
    "training.averaging.count=2",
    "training.optimizer.epsilon=1e-5",  # above the rounding noise of a gradient
]

pytestmark = pytest.mark.slow


class Node:
    """A launcher on one node, with a separate folder, cache and output."""

    started: list[Node] = []

    def __init__(self, toy: Toy, folder: Path, *flags: str, overrides: tuple[str, ...] = ()) -> None:
        self.folder = folder
        if not folder.exists():
            shutil.copytree(toy.folder, folder, ignore=shutil.ignore_patterns("trained"))
        command = [sys.executable, "-m", "torch.distributed.run", *flags, "-m", "nmt.cli.train"]
        # Files instead of pipes: the test does not read a pipe while it waits.
        with open(folder / "out", "w+b") as out, open(folder / "errors", "w+b") as errors:
            self.process = subprocess.Popen(
                [*command, *toy.small("run_dir=run", *OPTIONS, *overrides)],
                cwd=folder,
                env=environment(folder.with_name(f"{folder.name}-cache")),
                stdout=out,
                stderr=errors,
                start_new_session=True,
            )
        self.started.append(self)

    @property
    def out(self) -> str:
        return (self.folder / "out").read_text(encoding="utf-8")

    @property
    def errors(self) -> str:
        return (self.folder / "errors").read_text(encoding="utf-8")

    def workers(self) -> list[int]:
        listed = subprocess.run(["ps", "-eo", "ppid=,pid="], capture_output=True, text=True, check=True)
        pairs = [map(int, line.split()) for line in listed.stdout.splitlines()]
        return [pid for parent, pid in pairs if parent == self.process.pid]

    def until(self, happened: Callable[[], object]) -> None:
        deadline = time.monotonic() + PATIENCE
        while not happened():
            assert self.process.poll() is None and time.monotonic() < deadline, self.errors
            time.sleep(0.02)

    def status(self) -> int:
        return self.process.wait(PATIENCE)


@pytest.fixture(autouse=True)
def nothing_left_running() -> Iterator[None]:
    yield
    for node in Node.started:
        if node.process.poll() is None:
            os.killpg(node.process.pid, signal.SIGKILL)
    Node.started.clear()


@pytest.fixture(scope="module")
def alone(toy: Toy) -> dict[str, torch.Tensor]:
    """The final weights of a run with a single process."""
    toy.done("nmt-train", *toy.small("run_dir=alone", "training.devices=1", *OPTIONS))
    return read_weights(toy.folder / "alone" / LAST)


def two_nodes(toy: Toy, folder: Path) -> list[Node]:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        endpoint = f"localhost:{free.getsockname()[1]}"
    return [
        Node(toy, folder / name, "--nnodes=2", f"--node-rank={rank}", f"--rdzv-endpoint={endpoint}")
        for rank, name in enumerate(("first", "second"))
    ]


def assert_same(run: Path, alone: dict[str, torch.Tensor]) -> None:
    for name, weight in read_weights(run / LAST).items():
        assert (weight - alone[name]).abs().max() <= 1e-5, name


def test_two_nodes_that_share_nothing(toy: Toy, alone: dict[str, torch.Tensor], tmp_path: Path) -> None:
    first, second = two_nodes(toy, tmp_path)
    checkpoints = first.folder / "run/checkpoints"
    first.until(lambda: list(checkpoints.glob("update-*")))
    (worker,) = second.workers()
    os.kill(worker, signal.SIGKILL)
    assert first.status() != 0 and second.status() != 0  # without the watch they would hang for days
    assert len(re.findall(r"error: process 1 of the run, on \S+, ended without a message", first.errors)) == 1
    assert "nmt/training" not in first.errors  # no traceback of nmt

    first, second = two_nodes(toy, tmp_path)  # the same command resumes
    assert (first.status(), second.status()) == (0, 0), first.errors
    assert re.search(r"resuming \S+ at update", first.errors)
    assert "BLEU" in first.out and second.out == ""
    assert_same(first.folder / "run", alone)
    assert not (second.folder / "run").exists()


def test_one_node_stops_at_ctrl_c_and_goes_on(
    toy: Toy, alone: dict[str, torch.Tensor], tmp_path: Path
) -> None:
    flags = ["--nproc-per-node=2", "--rdzv-backend=c10d", "--rdzv-endpoint=localhost:0"]
    node = Node(toy, tmp_path / "node", *flags)
    node.until(lambda: list(node.folder.glob("run/checkpoints/update-*")))
    os.killpg(node.process.pid, signal.SIGINT)  # to all processes, as a terminal does
    assert node.status() != 0
    assert node.errors.count("stopped; the same command resumes") == 1
    assert "nmt/training" not in node.errors

    node = Node(toy, tmp_path / "node", *flags)
    assert node.status() == 0, node.errors
    assert node.out.count("BLEU|nrefs") == 2  # once for valid and once for test
    assert_same(node.folder / "run", alone)


def test_an_error_of_the_second_node_is_told_by_the_first(toy: Toy, tmp_path: Path) -> None:
    shutil.copytree(toy.folder, tmp_path / "second", ignore=shutil.ignore_patterns("trained"))
    (tmp_path / "second/train.src").unlink()
    first, second = two_nodes(toy, tmp_path)
    assert first.status() != 0 and second.status() != 0
    assert len(re.findall(r"error: process 1 of the run, on \S+, reported: .*train\.src", first.errors)) == 1
    assert "exitcode  : 2" in first.errors and "exitcode  : 2" in second.errors
    assert "nmt/training" not in first.errors + second.errors


@pytest.mark.parametrize(
    "variables",
    [
        {"RANK": "{rank}", "WORLD_SIZE": "2", "MASTER_ADDR": "localhost", "MASTER_PORT": "{port}"},
        {
            "SLURM_PROCID": "{rank}",
            "SLURM_STEP_NUM_TASKS": "2",
            "SLURM_STEP_NODELIST": "localhost",
            "MASTER_PORT": "{port}",
        },
        {
            "OMPI_COMM_WORLD_RANK": "{rank}",
            "OMPI_COMM_WORLD_SIZE": "2",
            "OMPI_COMM_WORLD_LOCAL_SIZE": "2",
            "MASTER_PORT": "{port}",
        },
    ],
    ids=["kubernetes", "slurm", "open mpi"],
)
def test_processes_of_other_launchers_are_one_run(
    toy: Toy, tmp_path: Path, variables: dict[str, str]
) -> None:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port = free.getsockname()[1]
    options = toy.small(f"run_dir={tmp_path / 'run'}", "training.micro_batches=2")
    processes = [
        subprocess.Popen(
            command_line("nmt-train", *options),
            cwd=toy.folder,
            env=environment(toy.cache)
            | {key: value.format(rank=rank, port=port) for key, value in variables.items()},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for rank in range(2)
    ]
    (first, first_log), (second, second_log) = (
        process.communicate(timeout=PATIENCE) for process in processes
    )
    assert [process.returncode for process in processes] == [0, 0], first_log + second_log
    assert "BLEU" in first and second == ""
    assert f"process 0 of them joins the others at port {port} of localhost" in first_log
    assert [line for line in second_log.splitlines() if "process 1 of them joins" not in line] == []
