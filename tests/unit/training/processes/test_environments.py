"""The launchers by their variables: each process joins, or is alone, or one line says why not."""

from __future__ import annotations

import os

import pytest

from nmt.errors import UserError
from nmt.runtime.streams import log
from nmt.training.processes.environments import adopt_launcher, launched, refuse_launchers, warn_if_bound

KUBERNETES = {"RANK": "1", "WORLD_SIZE": "4", "MASTER_ADDR": "job-master-0", "MASTER_PORT": "23456"}
SLURM = {
    "SLURM_PROCID": "3",
    "SLURM_NTASKS": "4",
    "SLURM_JOB_ID": "77",
    "SLURM_STEP_ID": "0",
    "SLURM_STEP_NUM_TASKS": "4",
    "SLURM_STEP_NODELIST": "gpu[07-09,12]-a,login1",
}
OPEN_MPI = {
    "OMPI_COMM_WORLD_RANK": "1",
    "OMPI_COMM_WORLD_SIZE": "4",
    "OMPI_COMM_WORLD_LOCAL_SIZE": "4",
    "PMIX_NAMESPACE": "12",
}
HYDRA = {"PMI_RANK": "1", "PMI_SIZE": "2", "MPI_LOCALNRANKS": "2"}


@pytest.mark.parametrize(
    ("variables", "joined"),
    [
        (KUBERNETES, ("1", "4", "job-master-0", "23456")),
        (KUBERNETES | {"PET_NNODES": "4", "PET_NPROC_PER_NODE": "auto"}, ("1", "4", "job-master-0", "23456")),
        ({k: v for k, v in KUBERNETES.items() if k != "MASTER_PORT"}, ("1", "4", "job-master-0", "29500")),
        (SLURM, ("3", "4", "gpu07-a", "21873")),
        (SLURM | {"RANK": "0", "WORLD_SIZE": "1"}, ("3", "4", "gpu07-a", "21873")),  # a stale pair
        (SLURM | {"MASTER_ADDR": "alpha", "MASTER_PORT": "1234"}, ("3", "4", "alpha", "1234")),
        (SLURM | {"SLURM_STEP_NODELIST": "alpha"}, ("3", "4", "alpha", "21873")),
        (SLURM | {"SLURM_STEP_NODELIST": "a-[3,5]"}, ("3", "4", "a-3", "21873")),
        (OPEN_MPI, ("1", "4", "localhost", "27165")),
        (OPEN_MPI | SLURM, ("1", "4", "localhost", "27165")),  # srun has started one daemon a machine
        (HYDRA, ("1", "2", "localhost", "29500")),
    ],
)
def test_a_process_joins(variables: dict[str, str], joined: tuple[str, ...]) -> None:
    environment = dict(variables)
    line = adopt_launcher(environment)
    assert tuple(environment[key] for key in ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")) == joined
    rank, world, host, port = joined
    assert line is not None and line.endswith(
        f"started {world} processes; process {rank} of them joins the others at port {port} of {host}"
    )
    assert launched(environment)


@pytest.mark.parametrize(
    "variables",
    [
        {},
        {"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "a", "MASTER_PORT": "1"},  # PyTorchJob of one replica
        {"WORLD_SIZE": "1"},
        {"SLURM_PROCID": "0", "SLURM_NTASKS": "4", "SLURM_JOB_ID": "7"},  # a script of sbatch, without srun
        {"SLURM_PROCID": "0", "SLURM_STEP_NUM_TASKS": "1"},
        {"OMPI_COMM_WORLD_RANK": "0", "OMPI_COMM_WORLD_SIZE": "1"},
    ],
)
def test_a_process_is_alone(variables: dict[str, str]) -> None:
    environment = dict(variables)
    assert adopt_launcher(environment) is None and not launched(environment)


def test_torchrun_is_unchanged() -> None:
    variables = KUBERNETES | {"LOCAL_RANK": "0"}
    environment = dict(variables)
    assert adopt_launcher(environment) is None and environment == variables and launched(environment)


@pytest.mark.parametrize(
    ("variables", "line"),
    [
        ({"RANK": "1"}, "RANK=1: WORLD_SIZE is not set. Start every process"),
        ({"WORLD_SIZE": "4"}, "WORLD_SIZE=4: RANK is not set."),
        ({"RANK": "x", "WORLD_SIZE": "many"}, "RANK=x: must be a whole number."),
        ({"RANK": "4", "WORLD_SIZE": "4"}, "RANK=4 WORLD_SIZE=4: processes are numbered from 0 to"),
        ({"RANK": "1", "WORLD_SIZE": "4"}, "MASTER_ADDR: is not set, so the 4 processes that the launcher"),
        (KUBERNETES | {"MASTER_PORT": "http"}, "MASTER_PORT=http: must be a number from 1 to 65535."),
        (KUBERNETES | {"MASTER_PORT": "99999"}, "MASTER_PORT=99999: must be a number from 1 to 65535."),
        ({"SLURM_STEP_NUM_TASKS": "4"}, "SLURM_STEP_NUM_TASKS=4: SLURM_PROCID is not set."),
        (
            OPEN_MPI | {"OMPI_COMM_WORLD_LOCAL_SIZE": "2"},
            "MASTER_ADDR: is not set, so the 4 processes that mp",
        ),
        (
            {"PET_NPROC_PER_NODE": "8"},
            "PET_NPROC_PER_NODE=8: asks for several processes, which only torchrun",
        ),
        ({"PET_NNODES": "1:4"}, "PET_NNODES=1:4: asks for several processes, which only torchrun starts."),
    ],
)
def test_one_line_says_why_a_process_can_neither_join_nor_be_alone(
    variables: dict[str, str], line: str
) -> None:
    with pytest.raises(UserError) as refusal:
        adopt_launcher(dict(variables))
    assert str(refusal.value).startswith(line)


def test_a_sweep_does_not_join() -> None:
    refuse_launchers("-m", {})
    with pytest.raises(UserError, match="^-m: the processes of a launcher join for one run, not for a sweep"):
        refuse_launchers("-m", KUBERNETES)


@pytest.mark.parametrize(
    ("bound_to", "cores", "warned"), [({3}, 16, True), ({3}, 4, False), ({3, 4}, 16, False), ({0}, 1, False)]
)
def test_processes_bound_to_one_core(
    bound_to: set[int],
    cores: int,
    warned: bool,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(os, "sched_getaffinity", lambda process: bound_to, raising=False)
    monkeypatch.setattr(os, "cpu_count", lambda: cores)
    monkeypatch.setattr(log, "propagate", True)
    warn_if_bound(4)
    expected = (
        "the launcher has bound each of 4 processes to one of the 16 cores of this machine. Give mpirun "
        "--bind-to none, or srun --cpus-per-task=4, to use them all"
    )
    assert caplog.messages == [expected] * warned
