"""The rendezvous: all ranks come, one cannot take part or is missing; exchanges; the process group."""

from __future__ import annotations

import multiprocessing
import os
import socket
import time
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist

from nmt.errors import UserError
from nmt.training.processes import ranks as ranks_module
from nmt.training.processes.ranks import Ranks, connected_store


def in_threads(work: Callable[[int], Any], ranks: Iterable[int]) -> dict[int, Any]:
    """Returns what `work` returns for each rank, each in a thread."""
    with ThreadPoolExecutor() as threads:
        futures = {rank: threads.submit(work, rank) for rank in ranks}
        return {rank: future.result(60) for rank, future in futures.items()}


MISSING = (
    "process 1, 3 of the run (of 4, numbered from 0) did not join within 0 seconds. See the logs of the "
    "other machines."
)


@pytest.mark.parametrize(
    ("world", "present", "seconds", "message"),
    [
        (3, {0: None, 1: None, 2: None}, 60.0, None),
        (3, {0: None, 1: None, 2: "no GPU"}, 60.0, "no GPU"),
        (4, {0: None, 2: "no GPU"}, 0.3, MISSING),
    ],
)
def test_ranks_meet(world: int, present: dict[int, str | None], seconds: float, message: str | None) -> None:
    store = dist.HashStore()

    def come(rank: int) -> str | None:
        try:
            Ranks(rank, world, torch.device("cpu"), store).meet(present[rank], seconds)
        except UserError as error:
            return str(error)
        return None

    assert in_threads(come, present) == dict.fromkeys(present, message)


@pytest.mark.parametrize("part", [3, 1 << 22])
def test_values_are_exchanged_and_leave_nothing_in_the_store(
    part: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ranks_module, "_PART", part)
    store = dist.HashStore()

    def work(rank: int) -> tuple[Any, ...]:
        ranks = Ranks(rank, 3, torch.device("cpu"), store)
        time.sleep(0.05 * rank)  # the others wait
        return ranks.share(["é", rank]), ranks.exchange({"rank": rank, "loss": 0.1}), ranks.share(None)

    all_values = [{"rank": rank, "loss": 0.1} for rank in range(3)]
    assert in_threads(work, range(3)) == dict.fromkeys(range(3), (["é", 0], all_values, None))
    assert store.num_keys() == 0


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("localhost", 0))
        port: int = free.getsockname()[1]
        return port


def test_nobody_else_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without a launcher, rank 0 hosts the store."""
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    store = connected_store(0, 2)
    with pytest.raises(UserError, match=r"process 1 of the run \(of 2, .*\) did not join within 0 seconds"):
        Ranks(0, 2, torch.device("cpu"), store).meet(None, 0.1)
    with pytest.raises(UserError, match=r"could not connect .* \(MASTER_PORT, MASTER_ADDR\): .* in use"):
        connected_store(0, 2)


def test_rank_0_does_not_come(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TORCHELASTIC_USE_AGENT_STORE", raising=False)
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    monkeypatch.setenv("MASTER_PORT", str(free_port()))
    with pytest.raises(UserError, match="could not connect to each other at port .* refused"):
        connected_store(1, 2, 0.1)


def join(rank: int, port: int, gpus: bool, reported: Any) -> None:
    os.environ |= {"MASTER_ADDR": "localhost", "MASTER_PORT": str(port), "CUDA_VISIBLE_DEVICES": ""}
    device = torch.device("cuda" if gpus and rank == 1 else "cpu")
    try:
        ranks = Ranks.join(rank, 2, rank, device)
        tensor = torch.ones(())
        ranks.sum_(tensor)
        reported.put(str(tensor.item()))
        ranks.leave()
    except UserError as error:
        reported.put(str(error))


@pytest.mark.slow
@pytest.mark.parametrize("gpus", [False, True])
def test_one_machine_with_too_few_gpus_ends_all(gpus: bool) -> None:
    context = multiprocessing.get_context("spawn")
    reported, port = context.Queue(), free_port()
    processes = [context.Process(target=join, args=(rank, port, gpus, reported)) for rank in (0, 1)]
    for process in processes:
        process.start()
    found = {reported.get(timeout=300) for _ in processes}
    for process in processes:
        process.join(60)
        assert process.exitcode == 0
    expected = (
        f"the launcher started more processes than {socket.gethostname()} has usable GPUs. Give "
        "torchrun --nproc-per-node=0. Or, if each process sees only one GPU (CUDA_VISIBLE_DEVICES, "
        "srun --gpus-per-task), let every process see all of them."
    )
    assert found == {expected if gpus else "2.0"}
