"""Work spread over processes, its results in the order of the tasks."""

from __future__ import annotations

import atexit
import gc
import itertools
import multiprocessing
import os
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

from nmt.data.arrays import Array
from nmt.errors import UserError
from nmt.runtime import (
    STOP_SIGNALS,
    ignore_stop_signals,
    load_inherited_plugins,
    start_resource_tracker,
    without_main_module,
)

Task = TypeVar("Task")
Result = TypeVar("Result")
State = TypeVar("State")


def run_ordered(
    function: Callable[[State, Task], Result],
    tasks: Iterable[Task],
    setup: Callable[[], State],
    workers: int,
) -> Iterator[Result]:
    """Yields `function(state, task)` of every task, in order.

    A single task, or a single worker, is done in this process. Otherwise fresh processes are started (nothing
    is inherited by forking) and at most two tasks more than there are workers are under way, so that memory
    is bounded however many there are.

    Args:
        function: a module's function; what it takes and gives travels between processes.
        tasks: read as they are needed.
        setup: a module's function or a `functools.partial` of one; called once in each process, it makes the
            state that all its calls share.
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
    executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start, (function, setup))
    try:
        underway: deque[Future[Any]] = deque()
        for task in pending:
            with without_main_module():
                underway.append(executor.submit(_call, task))
            if len(underway) == workers + 2:
                yield underway.popleft().result()
        while underway:
            yield underway.popleft().result()
    except BrokenProcessPool as error:
        raise UserError(
            f"data.workers={workers}: one of these processes was killed, most likely for want of memory; "
            "what they had finished is kept: start again with fewer, such as data.workers=1"
        ) from error
    finally:
        executor.shutdown(wait=True, cancel_futures=True)


def made_in_turn(
    make: Callable[[int, int], Iterator[Sequence[Array]]], workers: int, killed: str
) -> Generator[list[Array], None, None]:
    """The items of a sequence, each some arrays, made by fresh processes in turn, in order.

    Each process works one item ahead and waits until that is fetched, if a pipe does not hold it. All of them
    end when the iterator is closed or dropped, or when this process ends, however it does. Stop signals are
    left to this process.

    Args:
        make: a module's function or a `functools.partial` of one; `make(first, step)` gives the items
            `first`, `first + step` and so on.
        workers: number of processes.
        killed: what to say if one of them is killed.

    Raises:
        UserError: a process was killed.
    """
    processes: list[BaseProcess] = []
    pipes: list[Connection] = []
    stop = partial(_kill, processes)
    atexit.register(stop)  # comes before multiprocessing's own, which would wait for ever
    try:
        for number in range(workers):
            process, pipe = _started(number, workers)
            processes.append(process)
            pipes.append(pipe)
        for pipe in pipes:
            # Not as an argument: if it died before it had read a large one, its starter would wait for ever.
            pipe.send(make)
        for pipe in itertools.cycle(pipes):
            while not pipe.poll():
                wait([pipe, *(process.sentinel for process in processes if process.exitcode is None)])
                if any(process.exitcode for process in processes):  # be it another's turn
                    raise EOFError
            item = _received(pipe)
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


_work: Callable[[Any], Any] | None = None


def _start(function: Callable[[Any, Any], Any], setup: Callable[[], Any]) -> None:
    """Runs once in each new process."""
    global _work
    # Signals reach every process, and the first decides. Ctrl-C and SIGTERM, which ends pools, end this one.
    ignore_stop_signals(but=[signal.SIGINT, signal.SIGTERM])
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    threading.Thread(target=_end_with_parent, daemon=True).start()
    load_inherited_plugins()
    gc.set_threshold(100_000)  # the work is lists by the thousand, and no cycles among them
    _work = partial(function, setup())


def _call(task: Any) -> Any:
    assert _work is not None
    return _work(task)


def _started(number: int, workers: int) -> tuple[BaseProcess, Connection]:
    """One of the processes of `made_in_turn`, and a pipe to it."""
    context = multiprocessing.get_context("spawn")
    pipe, its_end = context.Pipe()
    process = context.Process(target=_make, args=(number, workers, its_end), name="loader", daemon=True)
    start_resource_tracker()
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        with without_main_module():
            process.start()  # what is blocked here stays blocked there
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        its_end.close()
    return process, pipe


_END, _ERROR = b"end", b"error"


def _make(number: int, workers: int, pipe: Connection) -> None:
    """The whole life of a process that makes every so many items."""
    threading.Thread(target=_end_with_parent, daemon=True).start()
    try:
        load_inherited_plugins()
        make: Callable[[int, int], Iterator[Sequence[Array]]] = pipe.recv()
        for arrays in make(number, workers):
            pipe.send_bytes(" ".join(array.dtype.str for array in arrays).encode())
            for array in arrays:
                pipe.send_bytes(np.ascontiguousarray(array).view(np.uint8).data)
        pipe.send_bytes(_END)
    except (BrokenPipeError, EOFError):
        pass  # nobody wants more
    except Exception as error:
        error.add_note(traceback.format_exc())  # what is sent has none
        pipe.send_bytes(_ERROR)
        pipe.send(error)


def _received(pipe: Connection) -> list[Array] | None:
    """An item, flat and not to be written to; None at the end."""
    try:
        kinds = pipe.recv_bytes()
        if kinds == _END:
            return None
        if kinds != _ERROR:
            return [np.frombuffer(pipe.recv_bytes(), kind) for kind in kinds.decode().split()]
        error = pipe.recv()
    except OSError:  # in the middle of a message
        raise EOFError from None
    raise error


def _kill(processes: Sequence[BaseProcess]) -> None:
    """They hold nothing that could be left half done."""
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


def _end_with_parent() -> None:
    """A parent that was killed outright sends no word: without this its workers would wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
