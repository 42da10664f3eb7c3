"""The processes of a run: which one this is, and what they tell each other.

One process is the same as many: every method then does nothing, so nobody else asks how many there are.
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

# Nobody may be given up for waiting: the first process validates while the others do nothing. A process that
# dies is noticed at once by its closed connections, and by the launcher.
_PATIENCE = timedelta(days=7)


@dataclass(frozen=True)
class Ranks:
    """This process among those of the run.

    Attributes:
        rank: its number, from 0.
        world: how many there are.
        device: where it computes.
    """

    rank: int
    world: int
    device: torch.device

    @classmethod
    def join(cls, rank: int, world: int, local_rank: int, device: torch.device) -> Ranks:
        """Meets the other processes; `MASTER_ADDR` and `MASTER_PORT` say where.

        Raises:
            UserError: in all of them, if one's machine has fewer GPUs than processes, or one does not come.
        """
        hindrance = None
        if device.type == "cuda":
            device = torch.device("cuda", local_rank)
            gpus = torch.cuda.device_count()
            if local_rank < gpus:
                torch.cuda.set_device(device)
            else:
                hindrance = (
                    f"torchrun started more processes than {socket.gethostname()} has usable GPUs: "
                    f"--nproc-per-node={gpus}; or each process is shown its own GPU alone "
                    "(CUDA_VISIBLE_DEVICES, srun --gpus-per-task): show every process all of them"
                )
        if world > 1:
            # Group and collectives come after, since they wait for whoever is missing, for days.
            store = join_rendezvous(rank, world, hindrance)
            store.set_timeout(_PATIENCE)
            dist.init_process_group(
                "nccl" if device.type == "cuda" else "gloo",
                store=PrefixStore("group", store),
                rank=rank,
                world_size=world,
                timeout=_PATIENCE,
            )
        return cls(rank, world, device)

    def leave(self) -> None:
        """Parts from the other processes, when all are done."""
        if self.world > 1:
            dist.destroy_process_group()

    @property
    def is_main(self) -> bool:
        """Whether this process validates, saves and speaks for all."""
        return self.rank == 0

    def owns(self, micro_batch: int) -> bool:
        """Whether micro-batch number `micro_batch` of an update is this process's."""
        return micro_batch % self.world == self.rank

    def sum_(self, tensor: Tensor) -> None:
        """Adds up the tensors of all processes, in place."""
        if self.world > 1:
            dist.all_reduce(tensor)

    def copy_(self, tensors: Iterable[Tensor]) -> None:
        """Overwrites the tensors with those of the main process."""
        if self.world > 1:
            for tensor in tensors:
                dist.broadcast(tensor, src=0)

    def share(self, value: Any) -> Any:
        """Returns the main process's `value`, which is made of what JSON knows."""
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
    """How many processes `training.devices` means on this machine.

    Raises:
        UserError: more than there are GPUs.
    """
    gpus = _usable_gpus()
    processes = wanted_processes(config, gpus)
    if gpus and processes > gpus:
        raise UserError(f"training.devices={processes}: this machine has {gpus} usable GPUs")
    return processes


def log_idle_gpus(config: TrainingConfig, max_tokens: int | str) -> None:
    """Says how to use all GPUs if `training.devices=auto` leaves some idle for want of micro-batches."""
    gpus = _usable_gpus()
    if config.devices == "auto" and config.micro_batches < gpus:
        log.warning(
            "%d of this machine's %d GPUs are used, as an update has only training.micro_batches=%d to "
            "share; the same update in parts for all of them is %s",
            *(config.micro_batches, gpus, config.micro_batches, _in_parts(config, max_tokens, gpus)),
        )


def warn_of_crowded_cores(config: TrainingConfig, processes: int) -> None:
    """Warns if so many processes, of `training.threads` each, have more threads than there are cores."""
    cores = available_cores()
    if not _usable_gpus() and processes * config.threads > cores:
        log.warning(
            "training.devices=%d training.threads=%d: %d threads wait for each other on %d cores, which is "
            "far slower than one a core; training.threads=0 shares the cores out",
            *(processes, config.threads, processes * config.threads, cores),
        )


def require_work(config: TrainingConfig, max_tokens: int | str, processes: int) -> None:
    """Raises `UserError` if there are fewer micro-batches in an update than processes to share them."""
    if config.micro_batches < processes:
        raise UserError(
            f"training.devices={processes}: an update has only "
            f"training.micro_batches={config.micro_batches} to share among the processes; "
            f"the same update in more parts is {_in_parts(config, max_tokens, processes)}"
        )


def _in_parts(config: TrainingConfig, max_tokens: int | str, parts: int) -> str:
    less = ""
    if isinstance(max_tokens, int):
        less = f"data.max_tokens={max(16, max_tokens * config.micro_batches // parts)} "
    return f"{less}training.micro_batches={parts}"


def _usable_gpus() -> int:
    return torch.cuda.device_count() if torch.cuda.is_available() else 0
