"""Worker processes: each does one task at a time for this process, which alone handles stop signals."""

from __future__ import annotations

import atexit
import gc
import itertools
import multiprocessing
import os
import pickle
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import contextmanager
from multiprocessing import spawn
from multiprocessing.connection import Connection, wait
from multiprocessing.process import BaseProcess
from typing import Any, Generic, Self, TypeVar

from nmt.errors import UserError
from nmt.runtime.forks import own_forks
from nmt.runtime.machine import may_start_processes
from nmt.runtime.plugins import load_inherited_plugins, no_silent_exit
from nmt.runtime.signals import start_resource_tracker, stop_signals_blocked, stop_signals_delayed
from nmt.runtime.streams import log

Task = TypeVar("Task")
Result = TypeVar("Result")

_Answer = tuple[bool, Any]  # whether a task succeeded, and its result or its error
_spawn: Any = spawn


class WorkerPool(Generic[Task, Result]):
    """Processes that do tasks. Use it in a `with` statement, at whose end they are killed.

    They also end when this process ends in any way. They have no files that could be left incomplete under
    their final names. Arrays in tasks and results are sent without a copy in between, and are read-only.

    Args:
        setup: is called once in each process, and returns the function that does a task there. Its errors are
            raised in place of the result of the first task.
        count: largest number of processes. A spawned process is started when there is a task for it.
        killed: the beginning of the error message for a killed process, without a full stop.
        remedy: the end of the error message.
        forked: fork the processes: they share the memory of this process as it is then, and start in
            milliseconds; `setup` may be any function. Otherwise they are spawned, inherit nothing, and
            `setup` is a function at module level, or a `functools.partial` of one.
        redo: whether a task whose process was killed is done again, once, by another process.
        name: name of the processes.
    """

    def __init__(
        self,
        setup: Callable[[], Callable[[Task], Result]],
        count: int,
        killed: str,
        remedy: str,
        *,
        forked: bool = False,
        redo: bool = False,
        name: str = "worker",
    ) -> None:
        self._setup, self._count, self._forked, self._name = setup, count, forked, name
        self._killed, self._remedy, self._redo = killed, remedy, redo
        self._processes: dict[Connection, BaseProcess] = {}
        self._first_sends: dict[Connection, threading.Thread] = {}  # to spawned processes
        self._num_started = 0

    def __enter__(self) -> Self:
        """Starts forked processes; spawned ones are started when there are tasks for them."""
        atexit.register(self._kill_all)  # runs before multiprocessing's handler, which would wait forever
        try:
            for _ in range(self._count if self._forked else 0):
                self._start()
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *details: object) -> None:
        """Kills the processes and waits for their ends. The pool can be entered again."""
        self._kill_all()
        atexit.unregister(self._kill_all)
        for pipe in [*self._processes]:
            self._close(pipe)
        self._num_started = 0

    def kill(self) -> None:
        """Kills the processes, from any thread: a `run` in another one raises `UserError`."""
        for process in [*self._processes.values()]:
            process.kill()

    def run(self, tasks: Iterable[Task]) -> Iterator[tuple[int, Result]]:
        """Yields the number and the result of each task, in the order in which they are done.

        The tasks are read on demand, and numbered from 0.

        Raises:
            UserError: a process was killed, and its task can't be done again.
            Exception: a task raised it.
        """
        work = _Work(self, tasks)
        while work.submit():
            answers = work.receive()
            work.submit()
            for number, answer in answers:
                yield number, _result(answer)

    def ordered(self, tasks: Iterable[Task], ahead: int) -> Iterator[Result]:
        """Yields the result of each task, in the order of the tasks, which are read on demand.

        `ahead` tasks are submitted before their results are asked for. Each waits in a process, or with its
        result in this process.

        Raises:
            UserError: a process was killed, and its task can't be done again.
            Exception: a task raised it.
        """
        work = _Work(self, tasks)
        answers: dict[int, _Answer] = {}
        for number in itertools.count():
            while work.submit(number + ahead) and number not in answers:
                answers.update(work.receive())
            if number not in answers:
                return
            work.submit(number + 1 + ahead)
            yield _result(answers.pop(number))

    def _start(self) -> Connection | None:
        """Starts another process; returns the pipe to it, or None if there are enough."""
        if self._num_started == self._count:
            return None
        setup = self._setup if self._forked else None
        with stop_signals_delayed():  # a process that is not listed would not be killed
            pipe, process = _start(setup, f"{self._name}-{self._num_started}")
            self._processes[pipe] = process
        self._num_started += 1
        return pipe

    def _send(self, pipe: Connection, task: Task) -> bool:
        """Sends a task; returns False if the process is dead."""
        if self._forked or pipe in self._first_sends:
            return _sent(pipe, _packed(task))
        # A spawned process begins to read when it has started. A thread waits for it, so that others start at
        # the same time. The setup is not passed as a process argument: `start` would block forever if the
        # process died before it had read a large one.
        parts = _packed(self._setup) + _packed(task)
        thread = threading.Thread(target=_sent, args=(pipe, parts), name="first-task", daemon=True)
        self._first_sends[pipe] = thread
        thread.start()
        return True

    def _bury(self, pipe: Connection, deaths: int) -> None:
        """Removes a killed process. Raises `UserError` if its task can't be done again."""
        _kill([self._processes[pipe]])
        self._close(pipe)
        left = len(self._processes)
        if not self._redo or not left or deaths > 1:
            raise UserError(f"{self._killed}. {self._remedy}")
        log.warning(f"{self._killed}; continuing with {left} worker{'s' if left > 1 else ''}")

    def _close(self, pipe: Connection) -> None:
        if thread := self._first_sends.pop(pipe, None):
            thread.join()  # it can't send any more
        pipe.close()
        del self._processes[pipe]

    def _kill_all(self) -> None:
        _kill([*self._processes.values()])


def run_ordered(
    setup: Callable[[], Callable[[Task], Result]],
    tasks: Iterable[Task],
    workers: int,
    killed: str,
    remedy: str,
) -> Generator[Result, None, None]:
    """Yields the results of tasks in their order; at most `workers + 2` tasks are submitted at a time.

    With a single task or a single worker, this process does the work; otherwise spawned processes do. So does
    a process that may start none. The other arguments are those of `WorkerPool`.

    Raises:
        UserError: a process was killed.
    """
    rest = iter(tasks)
    first = list(itertools.islice(rest, 2))
    pending = itertools.chain(first, rest)
    if len(first) == 2 and workers > 1 and may_start_processes():
        with WorkerPool(setup, workers, killed, remedy) as pool:
            yield from pool.ordered(pending, workers + 2)
    elif first:
        yield from map(setup(), pending)


class _Work(Generic[Task, Result]):
    """The tasks of one call of a pool: which process does which, and which wait."""

    def __init__(self, pool: WorkerPool[Task, Result], tasks: Iterable[Task]) -> None:
        self._pool, self._tasks = pool, enumerate(tasks)
        self._idle, self._busy = [*reversed(pool._processes)], dict[Connection, tuple[int, Task]]()
        self._returned = deque[tuple[int, Task]]()  # of killed processes
        self._read = deque[tuple[int, Task]]()  # the next task, if it was read and no process was idle
        self._deaths = dict[int, int]()
        self._num_read = 0

    def submit(self, limit: float = float("inf")) -> bool:
        """Sends tasks with numbers below `limit` to all idle processes; returns whether any is busy."""
        while self._has_task(limit) and (pipe := self._idle.pop() if self._idle else self._pool._start()):
            task = self._returned.popleft() if self._returned else self._read.popleft()
            self._busy[pipe] = task
            if not self._pool._send(pipe, task[1]):
                self._return_task(pipe)
        return bool(self._busy)

    def receive(self) -> list[tuple[int, _Answer]]:
        """Waits for at least one process; returns the numbers and the answers of the tasks that are done."""
        answers = []
        for pipe in wait([*self._busy]):
            assert isinstance(pipe, Connection)
            try:
                message = _received(pipe)
            except (EOFError, OSError):
                self._return_task(pipe)
                continue
            answers.append((self._busy.pop(pipe)[0], _unpacked(message)))
            self._idle.append(pipe)
        return answers

    def _has_task(self, limit: float) -> bool:
        """Returns whether there is a task to send; reads one if its number is below the limit."""
        if not self._returned and not self._read and self._num_read < limit:
            self._read.extend(itertools.islice(self._tasks, 1))
            self._num_read += len(self._read)
        return bool(self._returned or self._read)

    def _return_task(self, pipe: Connection) -> None:
        number, task = self._busy.pop(pipe)
        self._deaths[number] = self._deaths.get(number, 0) + 1
        self._pool._bury(pipe, self._deaths[number])
        self._returned.append((number, task))


def _start(setup: Callable[[], Any] | None, name: str) -> tuple[Connection, BaseProcess]:
    """Starts a process: forks it if there is a `setup`, otherwise spawns it; returns a pipe to it, too."""
    context: Any = multiprocessing.get_context("fork" if setup else "spawn")
    pipe, far_end = context.Pipe()
    process = context.Process(target=_serve, args=(far_end, setup), name=name, daemon=True)
    if not setup:
        start_resource_tracker()
    try:
        with (
            stop_signals_blocked(),
            own_forks(),
            warnings.catch_warnings() if setup else without_main_module(),
        ):
            if setup:
                # Python warns of forks in a process with threads, which might hold locks. A worker takes no
                # locks of nmt, and computes without threads of torch.
                warnings.simplefilter("ignore", DeprecationWarning)
            process.start()
    finally:
        far_end.close()
    return pipe, process


def _serve(pipe: Connection, setup: Callable[[], Callable[[Any], Any]] | None) -> None:
    """Runs in a worker process: does tasks until it is killed."""
    threading.Thread(target=end_with_parent, daemon=True).start()
    try:
        work = _set_up(pipe, setup)
        while True:
            message = _received(pipe)
            try:
                with no_silent_exit(any_status=True):
                    answer = _packed((True, work(_unpacked(message))))
            except Exception as error:
                answer = _packed_error(error)
            for part in answer:
                pipe.send_bytes(part)
    except (EOFError, OSError):
        return  # the parent has closed the pipe


def _set_up(pipe: Connection, setup: Callable[[], Callable[[Any], Any]] | None) -> Callable[[Any], Any]:
    """Returns the function that does a task. If the setup fails, the function raises the error."""
    message = None if setup else _received(pipe)
    try:
        if message:
            gc.set_threshold(100_000)  # tasks create thousands of lists, but no reference cycles
            load_inherited_plugins()
            setup = _unpacked(message)
        else:
            gc.freeze()  # so that no collection touches, and thereby copies, the memory of the parent
        assert setup is not None
        return setup()
    except Exception as error:
        failure = error

        def fail(task: object) -> None:
            raise failure

        return fail


def _sent(pipe: Connection, parts: Sequence[bytes | memoryview]) -> bool:
    """Sends the parts of `_packed`; returns False if the process is dead."""
    try:
        for part in parts:
            pipe.send_bytes(part)
    except OSError:
        return False
    return True


def _packed(value: object) -> list[bytes | memoryview]:
    """Returns a value in parts: the number of its arrays, the pickled value, and each array."""
    buffers: list[pickle.PickleBuffer] = []
    pickled = pickle.dumps(value, 5, buffer_callback=buffers.append)
    return [str(len(buffers)).encode(), pickled, *(buffer.raw() for buffer in buffers)]


def _packed_error(error: Exception) -> list[bytes | memoryview]:
    """Returns the answer of a failed task in parts. An error that can't be pickled is described."""
    error.add_note(traceback.format_exc())  # pickling drops the traceback
    try:
        pickle.loads(pickle.dumps(error))
    except Exception:
        error = RuntimeError(f"a worker failed: {traceback.format_exc()}")
    return _packed((False, error))


def _received(pipe: Connection) -> list[bytes]:
    """Receives the parts of `_packed` after their number.

    Raises:
        EOFError, OSError: the process at the other end is dead.
    """
    count = int(pipe.recv_bytes())
    return [pipe.recv_bytes() for _ in range(1 + count)]


def _unpacked(parts: Sequence[bytes]) -> Any:
    return pickle.loads(parts[0], buffers=parts[1:])


def _result(answer: _Answer) -> Any:
    succeeded, value = answer
    if succeeded:
        return value
    raise value


def _kill(processes: Sequence[BaseProcess]) -> None:
    for process in processes:
        process.kill()
    for process in processes:
        process.join()


@contextmanager
def without_main_module() -> Iterator[None]:
    """Prevents processes that this thread starts in the body from importing the main module again.

    Processes of nmt import their code by module name and do not need the main module. Without this, a user's
    script that lacks `if __name__ == "__main__"` would run again in each process.
    """
    original, thread = _spawn.get_preparation_data, threading.get_ident()

    def prepared(name: str) -> dict[str, Any]:
        data: dict[str, Any] = original(name)
        if threading.get_ident() == thread:
            data.pop("init_main_from_name", None)
            data.pop("init_main_from_path", None)
        return data

    _spawn.get_preparation_data = prepared
    try:
        yield
    finally:
        _spawn.get_preparation_data = original


def end_with_parent() -> None:
    """Ends this process when its parent ends; runs in a thread of the child.

    A parent killed by SIGKILL can't end its workers itself.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
