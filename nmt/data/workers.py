"""Parallel work in worker processes, with the results in the order of the tasks."""

from __future__ import annotations

import atexit
import gc
import itertools
import multiprocessing
import signal
import threading
import traceback
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, TypeVar

import numpy as np

from nmt.errors import UserError
from nmt.runtime import (
    STOP_SIGNALS,
    end_with_parent,
    ignore_stop_signals,
    load_inherited_plugins,
    start_resource_tracker,
    without_main_module,
)
from nmt.runtime.arrays import Array

Task = TypeVar("Task")
Result = TypeVar("Result")
State = TypeVar("State")


def run_ordered(
    function: Callable[[State, Task], Result],
    tasks: Iterable[Task],
    setup: Callable[[], State],
    workers: int,
) -> Iterator[Result]:
    """Yields `function(state, task)` for every task, in order.

    With a single task or a single worker, the work runs in this process. Otherwise it runs in spawned
    processes, which inherit nothing by forking. At most `workers + 2` tasks are submitted at a time, which
    bounds the memory for any number of tasks.

    Args:
        function: a function at module level; its arguments and its result are pickled.
        tasks: read on demand.
        setup: a function at module level, or a `functools.partial` of one. It is called once in each process
            and returns the state that all calls of `function` there share.
        workers: number of processes.

    Raises:
        UserError: a process was killed.
    """
    pending = iter(tasks)
    first = list(itertools.islice(pending, 2))
    pending = itertools.chain(first, pending)
    if not first:
        return
    if len(first) == 1 or workers == 1:
        yield from map(partial(function, setup()), pending)
        return
    start_resource_tracker()
    executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _init, (function, setup))
    try:
        submitted: deque[Future[Any]] = deque()
        for task in pending:
            with without_main_module():
                submitted.append(executor.submit(_call, task))
            if len(submitted) == workers + 2:
                yield submitted.popleft().result()
        while submitted:
            yield submitted.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            f"data.workers={workers}: one of these processes was killed, probably because memory ran out. "
            "Their finished parts are reused. Start again with fewer, such as data.workers=1."
        ) from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def made_in_turn(
    make: Callable[[int, int], Iterator[Sequence[Array]]], workers: int, killed: str
) -> Generator[list[Array], None, None]:
    """Yields the items of a sequence in order; each is a list of arrays. Spawned processes take turns.

    Each process computes one item ahead. It waits until the item is fetched, unless the pipe can hold it. All
    processes end when the iterator is closed or dropped, and when this process ends in any way. Only this
    process handles stop signals.

    Args:
        make: a function at module level, or a `functools.partial` of one. `make(first, step)` yields the
            items `first`, `first + step` and so on.
        workers: number of processes.
        killed: error message for a killed process.

    Raises:
        UserError: a process was killed.
    """
    processes: list[BaseProcess] = []
    pipes: list[Connection] = []
    stop = partial(_kill, processes)
    atexit.register(stop)  # runs before multiprocessing's handler, which would wait forever
    try:
        for number in range(workers):
            process, pipe = _start_process(number, workers)
            processes.append(process)
            pipes.append(pipe)
        for pipe in pipes:
            # Not passed as a process argument: `start` would block forever if the process died before it
            # had read a large one.
            pipe.send(make)
        for pipe in itertools.cycle(pipes):
            while not pipe.poll():
                wait([pipe, *(process.sentinel for process in processes if process.exitcode is None)])
                if any(process.exitcode for process in processes):  # any of them, not only this one
                    raise EOFError
            item = _receive(pipe)
            if item is None:
                return
            yield item
    except (EOFError, ConnectionError) as error:
        raise UserError(killed) from error
    finally:
        stop()
        atexit.unregister(stop)
        for pipe in pipes:
            pipe.close()


_bound_function: Callable[[Any], Any] | None = None


def _init(function: Callable[[Any, Any], Any], setup: Callable[[], Any]) -> None:
    """Runs once in each new process."""
    global _bound_function
    # Signals reach every process; the main process handles them. Ctrl-C and SIGTERM end a worker: the pool
    # uses SIGTERM to end its workers.
    ignore_stop_signals(but=[signal.SIGINT, signal.SIGTERM])
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=end_with_parent, daemon=True).start()
    load_inherited_plugins()
    gc.set_threshold(100_000)  # the work creates thousands of lists, but no reference cycles
    _bound_function = partial(function, setup())


def _call(task: Any) -> Any:
    assert _bound_function is not None
    return _bound_function(task)


def _start_process(number: int, workers: int) -> tuple[BaseProcess, Connection]:
    """Starts a process of `made_in_turn`; returns it with a pipe to it."""
    context = multiprocessing.get_context("spawn")
    pipe, far_end = context.Pipe()
    process = context.Process(target=_serve, args=(number, workers, far_end), name="loader", daemon=True)
    start_resource_tracker()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        with without_main_module():
            process.start()  # it inherits the blocked signals
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        far_end.close()
    return process, pipe


_END, _ERROR = b"end", b"error"


def _serve(number: int, workers: int, pipe: Connection) -> None:
    """Runs a process of `made_in_turn`, which sends the items `number`, `number + workers` and so on."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        load_inherited_plugins()
        make: Callable[[int, int], Iterator[Sequence[Array]]] = pipe.recv()
        for arrays in make(number, workers):
            pipe.send_bytes(" ".join(array.dtype.str for array in arrays).encode())
            for array in arrays:
                pipe.send_bytes(np.ascontiguousarray(array).view(np.uint8).data)
        pipe.send_bytes(_END)
    except (BrokenPipeError, EOFError):
        pass  # the receiver has closed the pipe
    except Exception as error:
        error.add_note(traceback.format_exc())  # pickling drops the traceback
        pipe.send_bytes(_ERROR)
        pipe.send(error)


def _receive(pipe: Connection) -> list[Array] | None:
    """Receives an item as flat, read-only arrays; None at the end."""
    try:
        kinds = pipe.recv_bytes()
        if kinds == _END:
            return None
        if kinds != _ERROR:
            return [np.frombuffer(pipe.recv_bytes(), kind) for kind in kinds.decode().split()]
        error = pipe.recv()
    except OSError:  # the message was cut short
        raise EOFError from None
    raise error


def _kill(processes: Sequence[BaseProcess]) -> None:
    """Kills processes; they have no files that could be left incomplete."""
    for process in processes:
        process.kill()
    for process in processes:
        process.join()
