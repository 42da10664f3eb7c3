"""Worker processes: results in order or as they are done, errors, signals, and processes that die."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from waiting import wait_until

from nmt.errors import UserError
from nmt.runtime import workers
from nmt.runtime.workers import WorkerPool, run_ordered

KILLED = ("a worker was killed", "Use fewer.")
ONE_LINE = r"^a worker was killed\. Use fewer\.$"


def add() -> Callable[[int], tuple[int, int]]:
    return lambda task: (100 + task, os.getpid())


def failing(bad: int) -> Callable[[int], int]:
    return partial(fail, bad)


def fail(bad: int, task: int) -> int:
    if task == bad:
        raise UserError("the disk is full")
    return task


def broken() -> Callable[[int], int]:
    raise UserError("the tokenizer is damaged")


def deadly(*bad: int) -> Callable[[int], int]:
    return partial(die, bad)


def die(bad: tuple[int, ...], task: int) -> int:
    if task in bad:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def large(folder: Path | None = None) -> Callable[[int], Any]:
    """Results larger than the buffer of a pipe; marks each task that was begun by a file in `folder`."""

    def work(task: int) -> Any:
        if folder:
            (folder / str(task)).touch()
        return task, os.getpid(), np.full(1 << 18, task)

    return work


def together(folder: Path, count: int) -> Callable[[str], int]:
    """Waits until `count` processes have started."""
    (folder / str(os.getpid())).touch()
    wait_until(lambda: len(list(folder.iterdir())) == count)
    return len


def several(setup: Any, count: int = 2, **options: Any) -> WorkerPool[Any, Any]:
    return WorkerPool(setup, count, *KILLED, **options)


def test_a_signal_in_the_moment_of_the_start_leaves_no_process(monkeypatch: pytest.MonkeyPatch) -> None:
    original, started = workers._start, []

    def start(*arguments: Any) -> Any:
        started.append(original(*arguments))
        signal.raise_signal(signal.SIGINT)
        return started[-1]

    monkeypatch.setattr(workers, "_start", start)
    with pytest.raises(KeyboardInterrupt), several(add, forked=True):
        pass
    assert [process.exitcode for _, process in started] == [-signal.SIGKILL]


def children() -> list[Any]:
    return multiprocessing.active_children()


def test_in_this_process() -> None:
    expected = [(100 + task, os.getpid()) for task in range(5)]
    assert list(run_ordered(add, range(5), 1, *KILLED)) == expected
    assert list(run_ordered(add, range(1), 4, *KILLED)) == expected[:1]
    assert list(run_ordered(broken, range(0), 4, *KILLED)) == []


def test_a_daemon_process_does_the_work_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(multiprocessing.current_process()._config, "daemon", True)  # type: ignore[attr-defined]
    assert list(run_ordered(add, range(5), 2, *KILLED)) == [(100 + task, os.getpid()) for task in range(5)]


def test_in_processes_of_their_own_in_order_and_bounded() -> None:
    taken: list[int] = []

    def tasks() -> Iterator[int]:
        for task in range(20):
            taken.append(task)
            yield task

    results = run_ordered(partial(add), tasks(), 2, *KILLED)
    first = next(results)
    assert first[0] == 100 and first[1] != os.getpid()
    assert len(taken) <= 5
    assert [value for value, _ in results] == list(range(101, 120))


def arrays() -> Callable[[int], list[Any]]:
    def work(task: int) -> list[Any]:
        both = np.full((task * 100, 10), task, np.uint16), np.zeros(0, np.int64)
        return [*both, np.arange(2 * task)[::2] - 1.5]

    return work


@pytest.mark.parametrize("workers", [1, 3])
def test_arrays_of_any_size_and_type(workers: int) -> None:
    with several(arrays, workers) as pool:
        results = list(pool.ordered(range(10), workers))
    for task, result in enumerate(results):
        expected = arrays()(task)
        assert [array.dtype for array in result] == [array.dtype for array in expected]
        assert [array.tolist() for array in result] == [array.tolist() for array in expected]


def test_one_result_ahead_each_and_no_more(tmp_path: Path) -> None:
    with several(partial(large, tmp_path)) as pool:
        results = pool.ordered(range(1000), 2)
        next(results)
        wait_until(lambda: len(list(tmp_path.iterdir())) >= 3)
        time.sleep(0.05)
        assert {path.name for path in tmp_path.iterdir()} == {"0", "1", "2"}
        assert [child.name for child in sorted(children(), key=lambda child: child.name)] == [
            "worker-0", "worker-1",
        ]  # fmt: skip
    assert children() == []


def test_no_more_processes_than_tasks() -> None:
    with several(add, 8) as pool:
        assert len(list(pool.ordered(range(2), 10))) == 2
        assert len(children()) == 2


def test_processes_with_large_tasks_start_at_the_same_time(tmp_path: Path) -> None:
    tasks = ["x" * 3_000_000] * 3
    assert list(run_ordered(partial(together, tmp_path, 3), tasks, 3, *KILLED)) == [3_000_000] * 3


def test_an_error_is_raised_in_place_of_its_result() -> None:
    results = run_ordered(partial(failing, 5), range(100), 2, *KILLED)
    assert list(islice(results, 5)) == [0, 1, 2, 3, 4]
    with pytest.raises(UserError) as error:
        next(results)
    assert str(error.value) == "the disk is full"
    assert "in fail" in "".join(error.value.__notes__)
    assert children() == []


@pytest.mark.parametrize("forked", [False, True])
def test_an_error_of_the_setup_is_raised(forked: bool) -> None:
    with several(broken, forked=forked) as pool, pytest.raises(UserError, match="the tokenizer is damaged"):
        list(pool.ordered(range(4), 2))


class Deadly:
    """Kills the process that unpickles it; is larger than the buffer of any pipe."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.kill, (Self(), signal.SIGKILL), bytes(1 << 22)

    def __call__(self) -> Callable[[int], int]:
        raise AssertionError


class Self:
    """The id of the process that unpickles it."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.getpid, ()


@pytest.mark.parametrize("setup", [partial(deadly, 3), Deadly()], ids=["by its task", "while it starts"])
def test_a_killed_process_is_one_line(setup: Any) -> None:
    with pytest.raises(UserError, match=ONE_LINE):
        list(run_ordered(setup, range(6), 2, *KILLED))
    assert children() == []


def test_a_process_killed_from_outside_is_noticed_before_its_turn() -> None:
    with several(large) as pool:
        results = pool.ordered(range(1000), 2)
        os.kill([next(results)[1] for _ in range(2)][1], signal.SIGKILL)
        with pytest.raises(UserError, match=ONE_LINE):
            list(results)


def test_signals_to_all_are_left_to_the_parent() -> None:
    """Ctrl-C and SIGTERM reach a whole process group; the run still needs batches until it ends."""
    with several(large, 1) as pool:
        results = pool.ordered(range(1000), 1)
        worker = next(results)[1]
        os.kill(worker, signal.SIGINT)
        os.kill(worker, signal.SIGTERM)
        assert [result[0] for result in islice(results, 20)] == list(range(1, 21))


PARENT = """
import sys
from test_workers import large, several

if __name__ == "__main__":
    pool = several(large, forked=sys.argv[2] == "forked")
    results = pool.__enter__().ordered(range(1000), 2)
    print(next(results)[1], next(results)[1], flush=True)
    if sys.argv[1] == "wait":
        sys.stdin.read()
    raise SystemExit(3)  # the pool is not closed
"""


@pytest.mark.parametrize("forked", ["forked", "spawned"])
@pytest.mark.parametrize(("ending", "status"), [("wait", -signal.SIGKILL), ("raise", 3)])
def test_no_orphans(ending: str, status: int, forked: str, tmp_path: Path) -> None:
    program = tmp_path / "parent.py"
    program.write_text(PARENT)
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2]), *sys.path])
    parent = subprocess.Popen(
        [sys.executable, str(program), ending, forked],
        stdout=subprocess.PIPE, stdin=subprocess.PIPE, text=True, env={**os.environ, "PYTHONPATH": path},
    )  # fmt: skip
    assert parent.stdout is not None
    workers = list(map(int, parent.stdout.readline().split()))
    assert len(set(workers)) == 2
    if ending == "wait":
        parent.kill()
    assert parent.wait(30) == status
    wait_until(lambda: not any(running(worker) for worker in workers))


def running(pid: int) -> bool:
    """Returns whether a process is running; a zombie is not."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def as_done(
    work: Callable[[Any], object], tasks: list[Any], count: int = 2, redo: bool = True
) -> dict[int, Any]:
    with several(lambda: work, count, forked=True, redo=redo) as pool:
        results = list(pool.run(tasks))
        assert len(results) == len(tasks)
    assert children() == []
    return dict(results)


@given(st.lists(st.integers(0, 3), max_size=12), st.integers(2, 4))
@settings(max_examples=15, deadline=None)
def test_every_task_of_forked_processes_has_one_result(durations: list[int], count: int) -> None:
    def work(duration: int) -> int:
        time.sleep(duration / 1000)
        return 10 + duration

    assert as_done(work, durations, count) == {number: 10 + one for number, one in enumerate(durations)}


def test_large_tasks_pass() -> None:
    results = as_done(lambda text: text + "!", ["x" * 3_000_000, "y" * 3_000_000])
    assert [len(results[0]), results[1][-2:]] == [3_000_001, "y!"]


def test_the_task_of_a_killed_process_is_done_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    marker = tmp_path / "killed"

    def work(task: int) -> int:
        if task == 3 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return -task

    with caplog.at_level(logging.WARNING, logger="nmt"):
        assert as_done(work, [*range(8)]) == {task: -task for task in range(8)}
    assert caplog.messages == ["a worker was killed; continuing with 1 worker"]


@pytest.mark.parametrize(("bad", "count"), [({3}, 2), ({3}, 4), ({3, 4, 5}, 2)])
def test_a_task_that_kills_two_processes_is_an_error(bad: set[int], count: int) -> None:
    with pytest.raises(UserError, match=ONE_LINE):
        as_done(deadly(*bad), [*range(8)], count)
    assert children() == []


def test_a_pool_whose_process_was_killed_can_be_entered_again() -> None:
    pool = several(lambda: deadly(3), 1, forked=True)
    with pytest.raises(UserError, match=ONE_LINE), pool:
        list(pool.run([3]))
    with pool:
        assert list(pool.run([4])) == [(0, 4)]
    assert children() == []


class Local(Exception):
    """An error that is pickled by its name alone, and here under a name that is missing."""

    __qualname__ = "missing"


@pytest.mark.parametrize(
    ("error", "kind", "message"),
    [
        (ZeroDivisionError("in the depths"), ZeroDivisionError, "in the depths"),
        (Local("who knows"), RuntimeError, r"(?s)a worker failed.*missing: who knows"),
        (SystemExit(), RuntimeError, "called sys.exit before the work was done"),
        (SystemExit(3), RuntimeError, "called sys.exit before the work was done"),
    ],
)
def test_other_errors_show_where_they_happened(error: Any, kind: type[Exception], message: str) -> None:
    def work(task: int) -> int:
        raise error

    with pytest.raises(kind, match=message) as raised:
        as_done(work, [1])
    assert "in work" in str(raised.value) + "".join(getattr(raised.value, "__notes__", []))
