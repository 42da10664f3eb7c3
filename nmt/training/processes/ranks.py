"""The ranks of a run: the number of this process, how the processes meet, and what they exchange.

With one process every exchange does nothing, so callers need no special case for it.
"""

from __future__ import annotations

import json
import math
import os
import socket
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from itertools import count
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch.distributed.distributed_c10d import PrefixStore, Store
from torch.distributed.rendezvous import rendezvous

from nmt.errors import UserError
from nmt.training.processes.environments import warn_if_bound

_COLLECTIVE_TIMEOUT = timedelta(minutes=30)
"""Ranks that wait for longer work of another one wait in `exchange`, which has no timeout."""

_JOIN_SECONDS = 600.0  # from the first process's start to the last one's: many may import from one slow disk
_ACKNOWLEDGE_SECONDS = 20.0
_LISTENER_SECONDS = 5.0  # for one attempt to connect
_LONGEST_SLEEP = 0.2  # seconds between two looks for a value that another rank will write
_PART = 1 << 22  # characters; the store refuses values over 8 MiB

_rendezvous: Callable[..., Any] = rendezvous
_TCPStore: Callable[..., Store] = dist.TCPStore  # type: ignore[attr-defined]  # a public class

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """The rank of this process, and exchanges between all processes of the run.

    Attributes:
        rank: number of this process, from 0.
        world: number of processes.
        device: the device that this process computes on.
        store: holds what the ranks exchange; None: there is one process.
    """

    rank: int
    world: int
    device: torch.device
    store: Store | None = field(default=None, repr=False)
    _calls: Iterator[int] = field(default_factory=count, repr=False, compare=False)

    @classmethod
    def join(
        cls, rank: int, world: int, local_rank: int, device: torch.device, store: Store | None = None
    ) -> Ranks:
        """Joins the process group of `store`; None: at `MASTER_ADDR` and `MASTER_PORT`.

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
                    f"the launcher started more processes than {socket.gethostname()} has usable GPUs. Give "
                    f"torchrun --nproc-per-node={gpus}. Or, if each process sees only one GPU "
                    "(CUDA_VISIBLE_DEVICES, srun --gpus-per-task), let every process see all of them."
                )
        if world == 1:
            if problem is not None:
                raise UserError(problem)
            return cls(rank, world, device)
        store = store or connected_store(rank, world)
        ranks = cls(rank, world, device, PrefixStore("exchange", store))
        ranks.meet(problem)  # before the group is created, because it names the missing ranks
        dist.init_process_group(
            "nccl" if device.type == "cuda" else "gloo",
            store=PrefixStore("group", store),
            rank=rank,
            world_size=world,
            timeout=_COLLECTIVE_TIMEOUT,
        )
        return ranks

    @classmethod
    def from_environment(cls, device: torch.device) -> Ranks:
        """Joins with the numbers that the launcher has set; see `join`.

        A launcher other than `torchrun` may not number the processes of each machine. Then they do it.
        """
        rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
        store = None
        if "LOCAL_RANK" not in os.environ:
            store = connected_store(rank, world)
            hosts = cls(rank, world, device, PrefixStore("hosts", store)).joined(socket.gethostname())
            host, machines = hosts[rank], list(dict.fromkeys(hosts))
            os.environ.update(
                LOCAL_RANK=str(hosts[:rank].count(host)),
                LOCAL_WORLD_SIZE=str(hosts.count(host)),
                GROUP_RANK=str(machines.index(host)),
            )
            if rank == 0:
                warn_if_bound(hosts.count(host))
        return cls.join(rank, world, int(os.environ["LOCAL_RANK"]), device, store)

    def leave(self) -> None:
        """Destroys the process group, after all processes are done."""
        if self.world > 1:
            dist.destroy_process_group()

    @property
    def is_main(self) -> bool:
        """Whether this process saves and logs: rank 0."""
        return self.rank == 0

    @property
    def on_this_machine(self) -> int:
        """The number of processes on this machine."""
        return int(os.environ.get("LOCAL_WORLD_SIZE", self.world))

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

    def share(self, value: Any, seconds: float = math.inf) -> Any:
        """Returns the `value` of rank 0, which must be serialisable as JSON; see `exchange`."""
        return self._exchange(value, range(1), seconds)[0]

    def exchange(self, value: Any, seconds: float = math.inf) -> list[Any]:
        """Returns the `value` of each rank, in order; each must be serialisable as JSON.

        By default the ranks wait for each other as long as it takes: rank 0 may prepare data for hours. They
        wait without a collective, so no timeout applies, and no GPU is busy with waiting.

        Raises:
            TimeoutError: ranks are missing after `seconds`; the message has their numbers.
        """
        return self._exchange(value, range(self.world), seconds)

    def meet(self, problem: str | None, seconds: float = _JOIN_SECONDS) -> None:
        """Waits until all ranks have reported whether they can take part.

        `problem` is the reason why this process can't take part; None: it can.

        Raises:
            UserError: in all processes: one can't take part, or ranks are missing.
        """
        problems = [text for text in self.joined(problem, seconds) if text is not None]
        if problems:
            with suppress(TimeoutError, RuntimeError):  # rank 0 must not end before all have read
                self.exchange(None, _ACKNOWLEDGE_SECONDS)
            raise UserError(problems[0])

    def joined(self, value: Any, seconds: float = _JOIN_SECONDS) -> list[Any]:
        """Returns the `value` of each rank, after all have joined.

        Raises:
            UserError: ranks are missing.
        """
        try:
            return self.exchange(value, seconds)
        except (TimeoutError, RuntimeError) as error:
            # Rank 0 or its launcher holds the store. An error of the store means that it is gone.
            missing = error if isinstance(error, TimeoutError) else 0
            raise UserError(
                f"process {missing} of the run (of {self.world}, numbered from 0) did not join within "
                f"{seconds:.0f} seconds. See the logs of the other machines."
            ) from error

    def _exchange(self, value: Any, sources: Sequence[int], seconds: float) -> list[Any]:
        """Returns the values of some ranks; see `exchange`."""
        if self.store is None:  # the same as from a store, so that one process shows what would fail in two
            return [json.loads(json.dumps(value))]
        number = next(self._calls)
        if self.rank in sources:
            _write(self.store, f"{number}/{self.rank}", value)
        deadline, sleep = time.monotonic() + seconds, 0.001
        while missing := [source for source in sources if not self.store.check([f"{number}/{source}"])]:
            if time.monotonic() > deadline:
                raise TimeoutError(", ".join(map(str, missing)))
            time.sleep(sleep)  # in Python, so that a signal is handled
            sleep = min(2 * sleep, _LONGEST_SLEEP)
        return [_read(self.store, f"{number}/{source}", self.world) for source in sources]


def _write(store: Store, key: str, value: Any) -> None:
    text = json.dumps(value)
    parts = [text[start : start + _PART] for start in range(0, len(text), _PART)]
    for number, part in enumerate(parts):
        store.set(f"{key}/{number}", part)
    store.set(key, str(len(parts)))  # last, because the readers wait for it


def _read(store: Store, key: str, readers: int) -> Any:
    """Returns the value; the last of the readers deletes it."""
    parts = [f"{key}/{number}" for number in range(int(store.get(key)))]
    value = json.loads(b"".join(map(store.get, parts)))
    if store.add(f"{key}/readers", 1) == readers:
        for name in (key, *parts, f"{key}/readers"):
            store.delete_key(name)
    return value


def in_turn(shares: Sequence[Sequence[T]]) -> Iterator[T]:
    """Yields the results of jobs in their order, if each rank has computed `jobs[rank::world]`."""
    for number in range(sum(map(len, shares))):
        yield shares[number % len(shares)][number // len(shares)]


def connected_store(rank: int, world: int, seconds: float = _JOIN_SECONDS) -> Store:
    """Returns the store at `MASTER_ADDR` and `MASTER_PORT`; waits for the process that holds it.

    That is the agent of `torchrun`, or else rank 0.

    Raises:
        UserError: it can't be reached, or its port is in use.
    """
    host, port = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
    limit, store = timedelta(seconds=seconds), None
    try:
        if os.environ.get("TORCHELASTIC_USE_AGENT_STORE") == "True":
            store = next(_rendezvous("env://", rank, world, timeout=limit))[0]
        else:
            if rank > 0:
                _await_listener(host, port, seconds)
            store = _TCPStore(host, port, None, rank == 0, limit, wait_for_workers=False)
    except (RuntimeError, OSError) as error:
        first_line = str(error).partition("\n")[0]
        raise UserError(
            f"the processes of the run could not connect to each other at port {port} of {host} "
            f"(MASTER_PORT, MASTER_ADDR): {first_line}"
        ) from error
    store.set_timeout(_COLLECTIVE_TIMEOUT)
    return store


def _await_listener(host: str, port: int, seconds: float) -> None:
    """Waits until a process listens there. `TCPStore` would wait too, but a signal would not interrupt it.

    Raises:
        OSError: none listens after `seconds`.
    """
    deadline = time.monotonic() + seconds
    while True:
        try:
            socket.create_connection((host, port), timeout=_LISTENER_SECONDS).close()
            return
        except OSError:
            if time.monotonic() > deadline:
                raise
        time.sleep(_LONGEST_SLEEP)
