"""Worker processes that search batches side by side on the CPU, one thread each.

The matrix products of a search are small, so two threads need far more than half of the time of one. Two
processes with one thread each search two batches at a time instead. They are forked: they share the weights
of the model, start in milliseconds, and end with the call that needs them. Their number does not change the
results.
"""

from __future__ import annotations

import gc
import multiprocessing
import pickle
import signal
import sys
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, Self, TypeVar

import torch

from nmt.decoding.batch_sizes import SENTENCES_EACH
from nmt.errors import UserError
from nmt.runtime import STOP_SIGNALS, end_with_parent, log

Job = TypeVar("Job")
Result = TypeVar("Result")

_AUTO = "auto"


def num_workers(wanted: int | str, device: torch.device, batches: Sequence[Sequence[int]]) -> int:
    """Returns the number of worker processes for a call; 1: none, the call does the work itself.

    Args:
        wanted: `decoding.workers`; `auto`: one per thread that torch uses, if there is enough work for them.
        device: the device of the model. Only the CPU has workers.
        batches: the batches of the call. Each worker gets at least one.
    """
    count = possible_workers(wanted, device)
    if wanted == _AUTO and sum(map(len, batches)) < SENTENCES_EACH * count:
        return 1
    return max(1, min(count, len(batches)))


def possible_workers(wanted: int | str, device: torch.device) -> int:
    """Returns the number of worker processes for a call with any number of batches.

    Args:
        wanted: see `num_workers`.
        device: see `num_workers`.
    """
    can_fork = sys.platform == "linux" and not multiprocessing.current_process().daemon
    if device.type != "cpu" or not can_fork:
        return 1
    return torch.get_num_threads() if wanted == _AUTO else int(wanted)


class WorkerPool(Generic[Job, Result]):
    """Forked processes that each do one job at a time. Use it in a `with` statement.

    Args:
        work: does a job. It runs in the processes as it is at the time of the fork.
        count: number of processes, 2 or more.
    """

    def __init__(self, work: Callable[[Job], Result], count: int) -> None:
        self._work, self._count = work, count
        self._processes: dict[Connection, BaseProcess] = {}

    def __enter__(self) -> Self:
        """Starts the processes."""
        for number in range(self._count):
            pipe, process = _start(self._work, number)
            self._processes[pipe] = process
        return self

    def __exit__(self, *details: object) -> None:
        """Kills the processes; they have no files that could be left incomplete."""
        for pipe in [*self._processes]:
            self._end(pipe)

    @property
    def alive(self) -> int:
        """The number of processes that have not ended."""
        return len(self._processes)

    def run(self, jobs: Sequence[Job]) -> Iterator[tuple[int, Result]]:
        """Yields the index and the result of each job, in the order in which they are done.

        A job whose process was killed is done again by another process.

        Raises:
            UserError: `work` raised it; or all processes were killed, or two by the same job.
        """
        waiting = deque(range(len(jobs)))
        idle, busy = [*self._processes], dict[Connection, int]()
        deaths = dict[int, int]()
        while waiting or busy:
            while waiting and idle:
                pipe, number = idle.pop(), waiting.popleft()
                if not _sent(pipe, jobs[number]):
                    self._bury(pipe, number, waiting, deaths)
                    continue
                busy[pipe] = number
            for ready in wait([*busy]):
                assert isinstance(ready, Connection)
                number = busy.pop(ready)
                try:
                    succeeded, result = pickle.loads(ready.recv_bytes())
                except (EOFError, OSError):
                    self._bury(ready, number, waiting, deaths)
                    continue
                if not succeeded:
                    raise result
                idle.append(ready)
                yield number, result

    def _bury(self, pipe: Connection, number: int, waiting: deque[int], deaths: dict[int, int]) -> None:
        """Returns the job of a dead process to the waiting ones, if that may help."""
        self._end(pipe)
        deaths[number] = deaths.get(number, 0) + 1
        waiting.appendleft(number)
        killed = (
            f"decoding.workers={self._count}: a worker process was killed, probably because memory ran out"
        )
        if not self._processes or deaths[number] > 1:
            raise UserError(
                f"{killed}. Set decoding.workers=1, or lower decoding.max_tokens or decoding.max_sentences."
            )
        left = len(self._processes)
        log.warning(f"{killed}; continuing with {left} worker{'s' if left > 1 else ''}")

    def _end(self, pipe: Connection) -> None:
        process = self._processes.pop(pipe)
        process.kill()
        process.join()
        pipe.close()


def _sent(pipe: Connection, job: object) -> bool:
    """Sends a job; returns False if the process is dead."""
    try:
        pipe.send_bytes(pickle.dumps(job))
    except OSError:
        return False
    return True


def _start(work: Callable[[Any], Any], number: int) -> tuple[Connection, BaseProcess]:
    """Forks a process; returns a pipe to it, and the process."""
    context = multiprocessing.get_context("fork")
    pipe, far_end = context.Pipe()
    process = context.Process(target=_serve, args=(work, far_end), name=f"search-{number}", daemon=True)
    # The process inherits the blocked signals: this process handles them and kills it.
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        with warnings.catch_warnings():
            # Python warns of forks in a process with threads, which might hold locks. A worker takes no locks
            # of nmt, and computes without threads of torch.
            warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        far_end.close()
    return pipe, process


def _serve(work: Callable[[Any], Any], pipe: Connection) -> None:
    """Runs in a worker process: does jobs until it is killed."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    gc.freeze()  # so that no collection touches, and thereby copies, the memory of the parent
    torch.set_num_threads(1)
    while True:
        try:
            job = pickle.loads(pipe.recv_bytes())
        except EOFError:
            return
        try:
            answer = pickle.dumps((True, work(job)))
        except Exception as error:
            error.add_note(traceback.format_exc())  # pickling drops the traceback
            answer = _pickled_error(error)
        pipe.send_bytes(answer)


def _pickled_error(error: Exception) -> bytes:
    try:
        pickle.loads(answer := pickle.dumps((False, error)))
    except Exception:
        return pickle.dumps((False, RuntimeError(f"a worker failed: {traceback.format_exc()}")))
    return answer
