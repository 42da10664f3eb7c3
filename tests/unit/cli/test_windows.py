"""Windows of lines: full windows for files; for pipes the available lines, without waiting for more."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator

import pytest

from nmt.cli.translate import full_windows, ready_windows
from nmt.errors import UserError


def test_full_windows() -> None:
    assert list(full_windows(iter("abcdefg"), 3)) == [["a", "b", "c"], ["d", "e", "f"], ["g"]]
    assert list(full_windows([], 3)) == []


def test_a_slow_writer_gets_its_answer_before_the_next_line() -> None:
    written: queue.SimpleQueue[str | None] = queue.SimpleQueue()
    windows = ready_windows(iter(written.get, None), 100)
    for line in ("one", "two", "three"):
        written.put(line)
        assert next(windows) == [line]  # would block if it waited for more lines
    written.put(None)
    assert list(windows) == []


def test_lines_that_came_meanwhile_go_together() -> None:
    arrived = threading.Semaphore(0)
    go_on = threading.Event()

    def lines() -> Iterator[str]:
        yield "first"
        go_on.wait()
        for number in range(6):
            yield str(number)
            arrived.release()  # the line before this one is in the window

    windows = ready_windows(lines(), 4)
    assert next(windows) == ["first"]
    go_on.set()
    for _ in range(4):
        arrived.acquire()
    assert next(windows) == ["0", "1", "2", "3"]
    assert [line for window in windows for line in window] == ["4", "5"]


def test_an_error_comes_after_the_lines_before_it() -> None:
    def lines() -> Iterator[str]:
        yield "good"
        raise UserError("line 2 is bad")

    windows = ready_windows(lines(), 4)
    assert next(windows) == ["good"]
    with pytest.raises(UserError, match="line 2 is bad"):
        next(windows)


def test_the_reader_ends_with_its_taker() -> None:
    ended = threading.Event()

    def lines() -> Iterator[str]:
        try:
            while True:
                yield "more"
        finally:
            ended.set()

    windows = ready_windows(lines(), 2)
    next(windows)
    windows.close()
    assert ended.wait(60)


def test_the_reader_is_at_most_a_window_ahead() -> None:
    read = []
    blocked = threading.Event()

    def lines() -> Iterator[str]:
        for number in range(100):
            read.append(number)
            if number == 5:
                blocked.set()
            yield str(number)

    windows = ready_windows(lines(), 5)
    first = next(windows)
    assert blocked.wait(60)
    assert len(read) <= len(first) + 6
    assert [*first, *(line for window in windows for line in window)] == [
        str(number) for number in range(100)
    ]
