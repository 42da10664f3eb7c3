"""Work spread over processes."""

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from functools import partial

import pytest

from nmt.data.workers import run_ordered
from nmt.errors import UserError


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
        UserError, match=r"^data\.workers=2: one of these processes was killed.*data\.workers=1$"
    ):
        list(run_ordered(die, range(6), base, 2))


def test_error_of_a_worker_is_raised_here() -> None:
    with pytest.raises(UserError, match="the disk is full"):
        list(run_ordered(fail, range(6), base, 2))
