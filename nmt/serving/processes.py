"""Worker processes of the server: each translates one batch at a time, with one CPU thread.

The matrix products of a search are small, so one thread each in two processes is faster than two threads. The
processes are forked: they share the weights of the model. The server's event loop has the first process to
itself, so that answers do not wait for a search.
"""

from __future__ import annotations

import os
import queue
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Generic, TypeVar

from nmt.decoding.search_workers import WorkerPool
from nmt.errors import UserError

Job = TypeVar("Job")
Result = TypeVar("Result")


class Workers(Generic[Job, Result]):
    """Processes that do jobs. Several threads may call it at once; each call uses one process.

    A process that was killed, or whose job failed, is replaced.

    Args:
        work: does a job. It runs in the processes as it is at the time of the fork.
        prepare: called once in each new process.
        count: the number of processes.
    """

    def __init__(self, work: Callable[[Job], Result], prepare: Callable[[], object], count: int) -> None:
        def do(job: Job | None) -> Result | None:
            if job is None:
                close_connections()
                prepare()
                return None
            return work(job)

        self._work, self._count = do, count
        self._idle: queue.SimpleQueue[WorkerPool[Job | None, Result | None] | None] = queue.SimpleQueue()
        try:
            for _ in range(count):
                self._idle.put(self._started())
        except BaseException:  # also a signal: at its exit, Python would wait for the processes
            while not self._idle.empty():
                if (pool := self._idle.get()) is not None:
                    pool.__exit__()
            raise

    def __call__(self, job: Job) -> Result:
        """Does a job in a free process; waits for one if there is none.

        Raises:
            UserError: the process was killed.
            Exception: `work` raised it.
        """
        pool = self._idle.get() or self._started()
        healthy = None
        try:
            result = _done(pool, job)
            assert result is not None
            healthy = pool
            return result
        except UserError as error:
            if pool.alive:
                raise
            raise UserError(
                "A worker process of the server was killed, probably because memory ran out. "
                "Translate fewer or shorter lines at once."
            ) from error
        finally:
            if healthy is None:
                pool.__exit__()
            self._idle.put(healthy)

    def close(self) -> None:
        """Ends the processes. No call may be running."""
        for _ in range(self._count):
            if (pool := self._idle.get()) is not None:
                pool.__exit__()

    def _started(self) -> WorkerPool[Job | None, Result | None]:
        """Starts a process and waits until it is prepared."""
        pool = WorkerPool(self._work, 1).__enter__()
        try:
            _done(pool, None)
        except BaseException:
            pool.__exit__()
            raise
        return pool


def _done(pool: WorkerPool[Job | None, Result | None], job: Job | None) -> Result | None:
    [(_, result)] = pool.run([job])
    return result


def close_connections() -> None:
    """Closes the network connections that this process has inherited.

    Otherwise a connection that the server closes would stay open until this process ends.
    """
    with suppress(OSError):
        for name in os.listdir("/proc/self/fd"):
            with suppress(OSError):
                inherited = socket.socket(fileno=int(name))
                if inherited.family in (socket.AF_INET, socket.AF_INET6):
                    inherited.close()
                else:
                    inherited.detach()
