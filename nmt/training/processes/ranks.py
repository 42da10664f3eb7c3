"""The ranks of a run: the number of this process, the collectives, and checks of how many processes to start.

With one process every collective does nothing, so callers need no special case for it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore

from nmt.config import TrainingConfig
from nmt.errors import UserError
from nmt.runtime import available_cores, log, wanted_processes
from nmt.training.processes.rendezvous import join_rendezvous

# Idle ranks must not time out while rank 0 validates. A process that dies is noticed at once, by its closed
# connections and by the launcher.
_TIMEOUT = timedelta(days=7)


@dataclass(frozen=True)
class Ranks:
    """The rank of this process, and collectives over all processes of the run.

    Attributes:
        rank: number of this process, from 0.
        world: number of processes.
        device: the device that this process computes on.
    """

    rank: int
    world: int
    device: torch.device

    @classmethod
    def join(cls, rank: int, world: int, local_rank: int, device: torch.device) -> Ranks:
        """Joins the process group at `MASTER_ADDR` and `MASTER_PORT`.

        Raises:
            UserError: in all processes: a machine has fewer GPUs than processes, or a rank is missing.
        """
        problem = None
        if device.type == "cuda":
            device = torch.device("cuda", local_rank)
            gpus = torch.cuda.device_count()
            if local_rank < gpus:
                torch.cuda.set_device(device)
            else:
                problem = (
                    f"torchrun started more processes than {socket.gethostname()} has usable GPUs. Give "
                    f"--nproc-per-node={gpus}. Or, if each process sees only one GPU "
                    "(CUDA_VISIBLE_DEVICES, srun --gpus-per-task), let every process see all of them."
                )
        if world > 1:
            # The rendezvous comes first: group and collectives would wait for a missing rank for days.
            store = join_rendezvous(rank, world, problem)
            store.set_timeout(_TIMEOUT)
            dist.init_process_group(
                "nccl" if device.type == "cuda" else "gloo",
                store=PrefixStore("group", store),
                rank=rank,
                world_size=world,
                timeout=_TIMEOUT,
            )
        return cls(rank, world, device)

    def leave(self) -> None:
        """Destroys the process group, after all processes are done."""
        if self.world > 1:
            dist.destroy_process_group()

    @property
    def is_main(self) -> bool:
        """Whether this process validates, saves and logs: rank 0."""
        return self.rank == 0

    def owns(self, micro_batch: int) -> bool:
        """Whether this process computes micro-batch number `micro_batch` of an update."""
        return micro_batch % self.world == self.rank

    def sum_(self, tensor: Tensor) -> None:
        """Sums the tensor over all processes, in place."""
        if self.world > 1:
            dist.all_reduce(tensor)

    def start_sum(self, tensor: Tensor) -> dist.Work:
        """Starts to sum the tensor over all processes, in place; there must be two or more.

        Returns:
            Its `wait` waits for the sum, on a GPU without the host.
        """
        work: dist.Work | None = dist.all_reduce(tensor, async_op=True)
        assert work is not None
        return work

    def copy_(self, tensors: Iterable[Tensor]) -> None:
        """Overwrites the tensors with those of rank 0."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def share(self, value: Any) -> Any:
        """Returns the `value` of rank 0, which must be serialisable as JSON."""
        if self.world == 1:
            return value
        text = torch.tensor(list(json.dumps(value).encode()), dtype=torch.uint8, device=self.device)
        size = torch.tensor(len(text), device=self.device)
        dist.broadcast(size, src=0)
        if not self.is_main:
            text = torch.empty(int(size), dtype=torch.uint8, device=self.device)
        dist.broadcast(text, src=0)
        return json.loads(bytes(text.tolist()))


def launched_by_torchrun() -> bool:
    """Whether `torchrun` or a launcher like it started this process as one of several."""
    return all(key in os.environ for key in ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR"))


def num_processes(config: TrainingConfig) -> int:
    """Returns the number of processes that `training.devices` selects on this machine.

    Raises:
        UserError: it is larger than the number of GPUs.
    """
    gpus = _usable_gpus()
    processes = wanted_processes(config, gpus)
    if gpus and processes > gpus:
        raise UserError(f"training.devices={processes}: this machine has {gpus} usable GPUs.")
    return processes


def log_idle_gpus(config: TrainingConfig, max_tokens: int | str) -> None:
    """Logs how to use all GPUs if `training.devices=auto` leaves some idle, for lack of micro-batches."""
    gpus = _usable_gpus()
    if config.devices == "auto" and config.micro_batches < gpus and not config.fit_micro_batches:
        log.warning(
            "%d of the %d GPUs of this machine are used: an update has only training.micro_batches=%d. "
            "To use all GPUs for an update of the same size, give %s",
            *(config.micro_batches, gpus, config.micro_batches, _split_options(config, max_tokens, gpus)),
        )


def warn_of_crowded_cores(config: TrainingConfig, processes: int) -> None:
    """Warns if the processes, with `training.threads` each, have more threads than there are cores."""
    cores = available_cores()
    if not _usable_gpus() and processes * config.threads > cores:
        log.warning(
            "training.devices=%d training.threads=%d: %d threads compete for %d cores, which is far slower "
            "than one thread per core. training.threads=0 divides the cores among the processes",
            *(processes, config.threads, processes * config.threads, cores),
        )


def require_work(config: TrainingConfig, max_tokens: int | str, processes: int) -> None:
    """Raises `UserError` if an update has fewer micro-batches than there are processes.

    With `training.fit_micro_batches`, the number of micro-batches is still to be found.
    """
    if config.micro_batches < processes and not config.fit_micro_batches:
        raise UserError(
            f"training.devices={processes}: more processes than "
            f"training.micro_batches={config.micro_batches}. "
            f"For an update of the same size, give {_split_options(config, max_tokens, processes)}"
        )


def _split_options(config: TrainingConfig, max_tokens: int | str, parts: int) -> str:
    less = ""
    if isinstance(max_tokens, int):
        less = f"data.max_tokens={max(16, max_tokens * config.micro_batches // parts)} "
    return f"{less}training.micro_batches={parts}"


def _usable_gpus() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
