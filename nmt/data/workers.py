"""Work spread over processes, its results in the order of the tasks."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import signal
import threading
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from functools import partial
from typing import Any, TypeVar

from nmt.errors import UserError

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
    executor = ProcessPoolExecutor(workers, multiprocessing.get_context("spawn"), _start, (function, setup))
    try:
        underway: deque[Future[Any]] = deque()
        for task in pending:
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


_work: Callable[[Any], Any] | None = None


def _start(function: Callable[[Any, Any], Any], setup: Callable[[], Any]) -> None:
    """Runs once in each new process."""
    global _work
    signal.signal(signal.SIGINT, signal.SIG_DFL)  # Ctrl-C reaches every process; only the first has a say
    threading.Thread(target=_end_with_parent, daemon=True).start()
    gc.set_threshold(100_000)  # the work is lists by the thousand, and no cycles among them
    _work = partial(function, setup())


def _call(task: Any) -> Any:
    assert _work is not None
    return _work(task)


def _end_with_parent() -> None:
    """A parent that was killed outright sends no word: without this its workers would wait for ever."""
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
