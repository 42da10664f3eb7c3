"""The variables by which Slurm, MPI and Kubernetes number the processes of a run, as those of torchrun."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, MutableMapping
from dataclasses import dataclass
from zlib import crc32

from nmt.errors import UserError
from nmt.runtime.streams import log


@dataclass(frozen=True)
class _Launcher:
    """A launcher, and the variables that it sets in each process: rank, number of processes in all, and here.

    `job` is a variable that differs between two jobs that run at the same time, if there is one.
    """

    name: str
    rank: str
    world: str
    here: str | None = None
    job: str | None = None


_PYTORCH = _Launcher(
    "the launcher", "RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE"
)  # PyTorchJob sets the first two
_SLURM = _Launcher("srun", "SLURM_PROCID", "SLURM_STEP_NUM_TASKS", job="SLURM_JOB_ID")
_LAUNCHERS = (
    _PYTORCH,
    # Before Slurm's: `mpirun` starts one task of Slurm a machine, which starts the processes.
    _Launcher(
        "mpirun",
        "OMPI_COMM_WORLD_RANK",
        "OMPI_COMM_WORLD_SIZE",
        "OMPI_COMM_WORLD_LOCAL_SIZE",
        "PMIX_NAMESPACE",
    ),
    _Launcher("mpirun", "MV2_COMM_WORLD_RANK", "MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"),
    _Launcher("mpiexec", "PMI_RANK", "PMI_SIZE", "MPI_LOCALNRANKS"),
    _SLURM,
)

_DEFAULT_PORT = 29500  # of torch
_FIRST_PORT, _NUM_PORTS = 20_000, 10_000  # as scripts/slurm.sh
_HOST = re.compile(r"([^,\[]+)(?:\[(\d+)[^\]]*\])?([^,\[]*)")
"""The first machine of a list of Slurm, such as `gpu[07-09,12]-a,login1`."""
_TORCHRUN = "TORCHELASTIC_RUN_ID"


def adopt_launcher(environment: MutableMapping[str, str] = os.environ) -> str | None:
    """Sets RANK, WORLD_SIZE, MASTER_ADDR and MASTER_PORT if this process is one of several of a launcher.

    Under `torchrun`, and in a process that was started alone, nothing changes. `LOCAL_RANK` is not set: the
    processes find it when they have joined.

    Returns:
        A line for the log; None: the variables are unchanged, or this process is alone.

    Raises:
        UserError: the variables contradict each other, or the address of the first process is missing.
    """
    if _TORCHRUN in environment or all(key in environment for key in (*_JOINED, "LOCAL_RANK")):
        return None
    _require_torchrun(environment)
    for launcher in _LAUNCHERS:
        rank, world = _numbers(launcher, environment)
        if world > 1:
            break
    else:
        environment.pop("RANK", None)  # of a job of one process, which may start others itself
        return None
    environment.update(
        RANK=str(rank),
        WORLD_SIZE=str(world),
        MASTER_ADDR=_address(launcher, world, environment),
        MASTER_PORT=str(_port(launcher, environment)),
    )
    place = f"port {environment['MASTER_PORT']} of {environment['MASTER_ADDR']}"
    return f"{launcher.name} started {world} processes; process {rank} of them joins the others at {place}"


def refuse_launchers(key: str, environment: Mapping[str, str]) -> None:
    """Refuses an option in a process that would join others.

    Raises:
        UserError: a launcher other than `torchrun` started this process as one of several.
    """
    if adopt_launcher(dict(environment)) is not None:
        raise UserError(
            f"{key}: the processes of a launcher join for one run, not for a sweep. Start each run of "
            "the sweep by the launcher, or start the sweep as one process."
        )


_JOINED = ("RANK", "WORLD_SIZE", "MASTER_ADDR")


def launched(environment: Mapping[str, str] = os.environ) -> bool:
    """Whether `torchrun` or a launcher that was adopted started this process as one of several."""
    return all(key in environment for key in _JOINED)


def warn_if_bound(processes: int) -> None:
    """Warns if a launcher has bound this process to one core, although more are free for it.

    `mpirun` does it by default. `processes` are on this machine.
    """
    cores = os.cpu_count() or 1
    if hasattr(os, "sched_getaffinity") and len(os.sched_getaffinity(0)) == 1 and cores >= 2 * processes:
        log.warning(
            "the launcher has bound each of %d processes to one of the %d cores of this machine. Give mpirun "
            "--bind-to none, or srun --cpus-per-task=%d, to use them all",
            *(processes, cores, cores // processes),
        )


def _require_torchrun(environment: Mapping[str, str]) -> None:
    """Refuses variables that only `torchrun` reads, in a process that it did not start.

    Raises:
        UserError: they ask for several processes in a container of Kubernetes, or for several containers.
    """
    for key in ("PET_NPROC_PER_NODE", "PET_NNODES"):
        value = environment.get(key, "1")
        alone = key == "PET_NNODES" and "RANK" in environment  # one process a container, which joins
        if (
            not alone
            and value.isascii()
            and value.rpartition(":")[2].isdigit()
            and int(value.rpartition(":")[2]) > 1
        ):
            raise UserError(
                f"{key}={value}: asks for several processes, which only torchrun starts. "
                "Give the container the command: torchrun -m nmt.cli.train ..."
            )


def _numbers(launcher: _Launcher, environment: Mapping[str, str]) -> tuple[int, int]:
    """Returns the rank and the number of processes that a launcher has set; 0 and 1 without them.

    Raises:
        UserError: they are not numbers, or one of them is missing, or they contradict each other.
    """
    given = {key: environment[key] for key in (launcher.rank, launcher.world) if key in environment}
    for key, value in given.items():
        if not re.fullmatch("[0-9]{1,9}", value):
            raise UserError(f"{key}={value}: must be a whole number. {_REMEDY}")
    rank, world = (int(given.get(key, missing)) for key, missing in ((launcher.rank, 0), (launcher.world, 1)))
    words = " ".join(f"{key}={value}" for key, value in given.items())
    if launcher.world not in given and launcher is not _PYTORCH or not given:
        return 0, 1  # such as SLURM_PROCID in a script of sbatch, which srun did not start
    if len(given) == 1 and (world > 1 or launcher.rank in given):
        missing = launcher.world if launcher.rank in given else launcher.rank
        raise UserError(f"{words}: {missing} is not set. {_REMEDY}")
    if rank >= max(1, world):
        raise UserError(f"{words}: processes are numbered from 0 to {launcher.world} - 1. {_REMEDY}")
    return rank, world


_REMEDY = (
    "Start every process by a launcher such as torchrun, or unset the variables to train in one process."
)


def _address(launcher: _Launcher, world: int, environment: Mapping[str, str]) -> str:
    """Returns the name of the machine of rank 0.

    Raises:
        UserError: it is not known.
    """
    if address := environment.get("MASTER_ADDR"):
        return address
    if launcher.here is not None and environment.get(launcher.here) == str(world):
        return "localhost"
    machines = environment.get("SLURM_STEP_NODELIST") or environment.get("SLURM_JOB_NODELIST") or ""
    if first := _HOST.match(machines):
        return "".join(part or "" for part in first.groups())
    raise UserError(
        f"MASTER_ADDR: is not set, so the {world} processes that {launcher.name} started can't find each "
        f"other. Set it to the machine of process 0, and MASTER_PORT to a free port there."
    )


def _port(launcher: _Launcher, environment: Mapping[str, str]) -> int:
    """Returns the port of rank 0: that of the environment, or one that two jobs probably do not share."""
    if port := environment.get("MASTER_PORT"):
        if not re.fullmatch("[0-9]{1,5}", port) or not 0 < int(port) < 65_536:
            raise UserError(f"MASTER_PORT={port}: must be a number from 1 to 65535. Set it to a free port.")
        return int(port)
    if (job := environment.get(launcher.job or "") or environment.get("SLURM_JOB_ID")) is None:
        return _DEFAULT_PORT
    if launcher is _SLURM:  # several steps of a job may run at the same time
        job = f"{job}.{environment.get('SLURM_STEP_ID', '')}"
    return _FIRST_PORT + crc32(job.encode()) % _NUM_PORTS
