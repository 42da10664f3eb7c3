"""Work in several processes."""

from __future__ import annotations

import multiprocessing
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from functools import partial
from itertools import islice
from pathlib import Path

import numpy as np
import pytest
from waiting import wait_until

from nmt.data.workers import made_in_turn, run_ordered
from nmt.errors import UserError
from nmt.runtime.arrays import Array


def base() -> int:
    return 100


def add(state: int, task: int) -> tuple[int, int]:
    return state + task, os.getpid()


def die(state: int, task: int) -> int:
    if task == 3:
        os.kill(os.getpid(), signal.SIGKILL)
    return task


def fail(state: int, task: int) -> int:
    if task == 2:
        raise UserError("the disk is full")
    return task


def test_in_this_process() -> None:
    expected = [(100 + task, os.getpid()) for task in range(5)]
    assert list(run_ordered(add, range(5), base, 1)) == expected
    assert list(run_ordered(add, range(1), base, 4)) == expected[:1]
    assert list(run_ordered(add, range(0), base, 4)) == []


def test_in_processes_of_their_own_in_order_and_bounded() -> None:
    taken: list[int] = []

    def tasks() -> Iterator[int]:
        for task in range(20):
            taken.append(task)
            yield task

    results = run_ordered(add, tasks(), partial(base), 2)
    first = next(results)
    assert first[0] == 100 and first[1] != os.getpid()
    assert len(taken) <= 4
    assert [value for value, _ in results] == list(range(101, 120))


def test_killed_worker_is_named() -> None:
    with pytest.raises(
        UserError, match=r"^data\.workers=2: one of these processes was killed.*data\.workers=1\.$"
    ):
        list(run_ordered(die, range(6), base, 2))


def test_error_of_a_worker_is_raised_here() -> None:
    with pytest.raises(UserError, match="the disk is full"):
        list(run_ordered(fail, range(6), base, 2))


def powers(stop: int, first: int, step: int) -> Iterator[list[Array]]:
    """Yields large, small and empty arrays of several types, and the id of this process."""
    for number in range(first, stop, step):
        yield [
            np.full(number * 1000, number, np.uint16),
            np.arange(number) - 1.5,
            np.zeros(0, np.int64),
            np.array([os.getpid(), number]),
        ]


def failing(first: int, step: int) -> Iterator[list[Array]]:
    for number in range(first, 100, step):
        if number == 5:
            raise UserError("the disk is full")
        yield [np.array([number])]


def suicidal(first: int, step: int) -> Iterator[list[Array]]:
    for number in range(first, 100, step):
        if number == 4:
            os.kill(os.getpid(), signal.SIGKILL)
        yield [np.array([number])]


def endless(folder: Path | None, first: int, step: int) -> Iterator[list[Array]]:
    """Yields items larger than the buffer of a pipe; marks each started item by a file in `folder`."""
    for number in range(first, 1000, step):
        if folder:
            (folder / str(number)).touch()
        yield [np.array([os.getpid(), number]), np.zeros(1 << 18)]


def loaders() -> list[int]:
    """Returns the ids of the running processes of `made_in_turn`."""
    return [child.pid or 0 for child in multiprocessing.active_children() if child.name == "loader"]


def test_made_in_turn_by_any_number_of_processes() -> None:
    for workers in (1, 3):
        found = list(made_in_turn(partial(powers, 10), workers, "killed"))
        assert len({int(item[-1][0]) for item in found}) == workers
        for number, item in enumerate(found):
            expected = next(powers(number + 1, number, 1))
            assert [array.dtype for array in item] == [array.dtype for array in expected]
            assert [array.tolist() for array in item[:3]] == [array.tolist() for array in expected[:3]]
            assert item[3][1] == number
        assert loaders() == []


def test_one_item_ahead_each_and_no_more(tmp_path: Path) -> None:
    made = made_in_turn(partial(endless, tmp_path), 2, "killed")
    next(made)
    wait_until(lambda: len(list(tmp_path.iterdir())) >= 3)
    time.sleep(0.05)
    assert {path.name for path in tmp_path.iterdir()} == {"0", "1", "2"}
    assert len(loaders()) == 2
    made.close()
    assert loaders() == []


def test_error_of_a_process_comes_where_it_belongs() -> None:
    made = made_in_turn(failing, 2, "killed")
    assert [int(item[0][0]) for item in islice(made, 5)] == [0, 1, 2, 3, 4]
    with pytest.raises(UserError) as error:
        next(made)
    assert str(error.value) == "the disk is full"
    assert "in failing" in "".join(error.value.__notes__)
    assert loaders() == []


def test_a_killed_process_is_told() -> None:
    with pytest.raises(UserError, match="^one was killed$"):
        list(made_in_turn(suicidal, 2, "one was killed"))
    assert loaders() == []


class Deadly:
    """Kills the process that unpickles it; is larger than the buffer of any pipe."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.kill, (Self(), signal.SIGKILL), bytes(1 << 22)

    def __call__(self, first: int, step: int) -> Iterator[list[Array]]:
        raise AssertionError


class Self:
    """The id of the process that unpickles it."""

    def __reduce__(self) -> tuple[object, ...]:
        return os.getpid, ()


def test_a_process_killed_while_it_starts_is_told() -> None:
    with pytest.raises(UserError, match="^one was killed$"):
        list(made_in_turn(Deadly(), 2, "one was killed"))
    assert loaders() == []


def test_a_process_killed_from_outside_is_told_before_its_turn() -> None:
    made = made_in_turn(partial(endless, None), 2, "one was killed")
    items = [next(made) for _ in range(2)]
    os.kill(int(items[1][0][0]), signal.SIGKILL)
    with pytest.raises(UserError, match="^one was killed$"):
        list(made)


def test_signals_to_all_are_left_to_the_parent() -> None:
    """Ctrl-C and SIGTERM reach a whole process group; the run still needs batches until it ends."""
    made = made_in_turn(partial(endless, None), 1, "one was killed")
    worker = int(next(made)[0][0])
    os.kill(worker, signal.SIGINT)
    os.kill(worker, signal.SIGTERM)
    assert [int(item[0][1]) for item in islice(made, 20)] == list(range(1, 21))
    made.close()


PARENT = """
import sys
from functools import partial
from test_workers import endless
from nmt.data.workers import made_in_turn

if __name__ == "__main__":
    made = made_in_turn(partial(endless, None), 2, "killed")
    print(int(next(made)[0][0]), int(next(made)[0][0]), flush=True)
    if sys.argv[1] == "wait":
        sys.stdin.read()
    if sys.argv[1] == "raise":
        kept = [made]  # not closed before the interpreter ends
        raise SystemExit(3)
"""


@pytest.mark.parametrize(("ending", "status"), [("wait", -signal.SIGKILL), ("raise", 3)])
def test_no_orphans(ending: str, status: int, tmp_path: Path) -> None:
    program = tmp_path / "parent.py"
    program.write_text(PARENT)
    path = os.pathsep.join([str(Path(__file__).parent), str(Path(__file__).parents[2]), *sys.path])
    parent = subprocess.Popen(
        [sys.executable, str(program), ending],
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
