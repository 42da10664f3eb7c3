"""Worker processes that search batches side by side on the CPU, one thread each.

The matrix products of a search are small, so two threads need far more than half of the time of one. Two
processes with one thread each search two batches at a time instead. They are forked: they share the weights
of the model, start in milliseconds, and end with the call that needs them. Their number does not change the
results.
"""

from __future__ import annotations

import multiprocessing
import sys
from collections.abc import Callable, Sequence
from functools import partial

import torch

from nmt.decoding.batch_sizes import SENTENCES_EACH
from nmt.runtime.workers import Result, Task
from nmt.runtime.workers import WorkerPool as AnyWorkerPool

_AUTO = "auto"


def num_workers(setting: int | str, device: torch.device, batches: Sequence[Sequence[int]]) -> int:
    """Returns the number of worker processes for a call; 1: none, the call does the work itself.

    Args:
        setting: `decoding.workers`; `auto`: one per thread that torch uses, if there is enough work for them.
        device: the device of the model. Only the CPU has workers.
        batches: the batches of the call. Each worker gets at least one.
    """
    count = possible_workers(setting, device)
    if setting == _AUTO and sum(map(len, batches)) < SENTENCES_EACH * count:
        return 1
    return max(1, min(count, len(batches)))


def possible_workers(setting: int | str, device: torch.device) -> int:
    """Returns the number of worker processes for a call with any number of batches.

    Args:
        setting: see `num_workers`.
        device: see `num_workers`.
    """
    can_fork = sys.platform == "linux" and not multiprocessing.current_process().daemon
    if device.type != "cpu" or not can_fork:
        return 1
    return torch.get_num_threads() if setting == _AUTO else int(setting)


class WorkerPool(AnyWorkerPool[Task, Result]):
    """Forked processes that each search one batch at a time, with one thread.

    Args:
        work: does a task. It runs in the processes as it is at the time of the fork.
        count: number of processes.
    """

    def __init__(self, work: Callable[[Task], Result], count: int) -> None:
        super().__init__(
            partial(_with_one_thread, work),
            count,
            f"decoding.workers={count}: a worker process was killed, probably because memory ran out",
            "Set decoding.workers=1, or lower decoding.max_tokens or decoding.max_sentences.",
            forked=True,
            redo=True,
            name="search",
        )


def _with_one_thread(work: Callable[[Task], Result]) -> Callable[[Task], Result]:
    torch.set_num_threads(1)
    return work
