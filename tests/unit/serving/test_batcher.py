"""Batches over requests: every ticket gets its results, in order, whatever else happens."""

from __future__ import annotations

import sys
import threading
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from waiting import wait_until

from nmt.serving.batcher import Batcher, Closed, QueueFull, Ticket

TICKETS = st.lists(st.tuples(st.integers(1, 9), st.sampled_from("ab")), min_size=1, max_size=12)
"""The number of lines and the options of each ticket."""


def ticket(lines: Sequence[str], options: str = "a") -> Ticket:
    return Ticket(lines, options)


class Gate:
    """A translation that waits until it is opened, and records its batches."""

    def __init__(self) -> None:
        self.batches: list[tuple[list[str], str]] = []
        self.opened, self.begun = threading.Event(), threading.Event()

    def __call__(self, lines: Sequence[str], options: str) -> list[str]:
        self.batches.append(([*lines], options))
        self.begun.set()
        assert self.opened.wait(20)
        if "bad" in lines:
            raise ValueError("bad line")
        return [f"{line}/{options}" for line in lines]


def model(translate: Any, size: int, threads: int = 1) -> Any:
    """The attributes of a `ServedModel` that a batcher uses."""
    return SimpleNamespace(
        translate=translate,
        batch_size=lambda options: size,
        batch_work=1000,
        threads=threads,
        stop=lambda thread: None,
        close=lambda: None,
    )


def blocked(gate: Gate, size: int = 4, **options: Any) -> Batcher:
    """A batcher whose thread is busy with a batch of one line, until the gate is opened."""
    batcher = Batcher(model(gate, size), **{"max_waiting": 1000} | options)
    batcher.submit(ticket(["first"]))
    assert gate.begun.wait(20)
    return batcher


def test_a_batch_has_a_largest_work_and_a_queue_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("nmt.serving.batcher._FIRST", 1)
    gate = Gate()
    batcher = blocked(gate, size=4, max_work=3000)
    batcher.submit(Ticket(["a", "b", "c"], "a", [400, 500, 200]))
    batcher.submit(Ticket(["d", "e"], "a", [1200, 100]))
    with pytest.raises(QueueFull):
        batcher.submit(Ticket(["f"], "a", [800]))
    dropped = Ticket(["g"], "a", [600])
    batcher.submit(dropped)
    batcher.cancel(dropped)
    batcher.submit(Ticket(["h"], "a", [600]))
    gate.opened.set()
    batcher.close()
    assert [lines for lines, _ in gate.batches] == [["first"], ["a", "b"], ["d"], ["h", "c", "e"]]


@given(TICKETS, st.integers(1, 7), st.integers(1, 3), st.sampled_from([0.0, 0.001]))
def test_every_ticket_gets_its_results_in_order(
    shapes: list[tuple[int, str]], size: int, threads: int, wait: float
) -> None:
    sizes, lock = list[int](), threading.Lock()

    def translate(lines: Sequence[str], options: str) -> list[str]:
        with lock:
            sizes.append(len(lines))
        return [f"{line}/{options}" for line in lines]

    batcher = Batcher(model(translate, size, threads), max_waiting=1000, wait=wait)
    tickets = [
        ticket([f"{number}.{line}" for line in range(count)], options)
        for number, (count, options) in enumerate(shapes)
    ]
    for one in tickets:
        batcher.submit(one)
    batcher.close()
    for one in tickets:
        assert one.future.result(0) == [f"{line}/{one.options}" for line in one.lines]
    assert sum(sizes) == sum(count for count, _ in shapes)
    assert max(sizes) <= size
    assert batcher.waiting == 0


@given(TICKETS, st.sets(st.integers(0, 11)), st.integers(1, 7))
def test_cancelled_tickets_are_dropped_and_the_others_are_not(
    shapes: list[tuple[int, str]], cancelled: set[int], size: int
) -> None:
    gate = Gate()
    batcher = blocked(gate, size)
    tickets = [
        ticket([f"{number}.{line}" for line in range(count)], options)
        for number, (count, options) in enumerate(shapes)
    ]
    for one in tickets:
        batcher.submit(one)
    for number in cancelled & {*range(len(tickets))}:
        batcher.cancel(tickets[number])
        batcher.cancel(tickets[number])
    left = [number for number in range(len(tickets)) if number not in cancelled]
    assert batcher.waiting == sum(len(tickets[number].lines) for number in left)
    gate.opened.set()
    batcher.close()
    assert [number for number, one in enumerate(tickets) if not one.future.cancelled()] == left
    for number in left:
        assert tickets[number].future.result(0) == [
            f"{line}/{tickets[number].options}" for line in tickets[number].lines
        ]
    translated = [line for lines, _ in gate.batches[1:] for line in lines]
    assert sorted(translated) == sorted(line for number in left for line in tickets[number].lines)


def test_a_batch_has_one_set_of_options_and_begins_with_the_oldest_ticket() -> None:
    gate = Gate()
    batcher = blocked(gate)
    for lines, options in ((["1"], "b"), (["2"], "a"), (["3", "4"], "b"), (["5"], "a")):
        batcher.submit(ticket(lines, options))
    gate.opened.set()
    batcher.close()
    assert gate.batches[1:] == [(["1", "3", "4"], "b"), (["2", "5"], "a")]


def test_a_long_ticket_lets_short_ones_pass() -> None:
    gate = Gate()
    batcher = blocked(gate, 2)
    batcher.submit(ticket(["1", "2", "3", "4", "5"]))
    batcher.submit(ticket(["short"]))
    gate.opened.set()
    batcher.close()
    assert [lines for lines, _ in gate.batches[1:]] == [["1", "2"], ["short", "3"], ["4", "5"]]


def test_an_error_reaches_only_the_tickets_of_its_batch() -> None:
    gate = Gate()
    batcher = blocked(gate, 2)
    bad, good = ticket(["bad", "x", "y", "z"]), ticket(["good"], "b")
    batcher.submit(bad)
    batcher.submit(good)
    gate.opened.set()
    assert good.future.result(20) == ["good/b"]
    assert str(bad.future.exception(0)) == "bad line"
    later = ticket(["later"])
    batcher.submit(later)  # the thread lives
    batcher.close()
    assert later.future.result(0) == ["later/a"]
    assert [lines for lines, _ in gate.batches] == [
        ["first"],
        ["bad", "x"],
        ["good"],
        ["later"],
    ]  # y, z dropped


def test_a_batch_with_too_few_results_is_an_error() -> None:
    batcher = Batcher(model(lambda lines, options: ["one"], 8), max_waiting=10)
    failed = ticket(["1", "2"])
    batcher.submit(failed)
    batcher.close()
    assert isinstance(failed.future.exception(0), AssertionError)


@pytest.mark.parametrize("status", [None, 0, 3])
def test_an_exit_in_a_batch_is_an_error_and_the_thread_continues(status: int | None) -> None:
    def leaves(lines: Any, options: Any) -> Any:
        if lines == ["exit"]:
            sys.exit(status)
        return lines

    batcher = Batcher(model(leaves, 8), max_waiting=10)
    failed, later = ticket(["exit"]), ticket(["later"], "b")
    batcher.submit(failed)
    assert (
        str(failed.future.exception(20)) == "a plugin or a library called sys.exit before the work was done"
    )
    batcher.submit(later)
    batcher.close()
    assert later.future.result(0) == ["later"]


def test_a_full_queue_refuses_whole_tickets() -> None:
    gate = Gate()
    batcher = blocked(gate, max_waiting=3)
    batcher.submit(ticket(["1", "2"]))
    with pytest.raises(QueueFull):
        batcher.submit(ticket(["3", "4"]))
    assert batcher.waiting == 2
    batcher.submit(ticket(["5"]))
    gate.opened.set()
    batcher.close()
    assert [lines for lines, _ in gate.batches[1:]] == [["1", "2", "5"]]
    with pytest.raises(Closed):
        batcher.submit(ticket(["6"]))


def test_a_ticket_cancelled_during_its_batch_is_not_finished() -> None:
    gate = Gate()
    batcher = Batcher(model(gate, 2), max_waiting=10)
    begun = ticket(["1", "2", "3"])
    batcher.submit(begun)
    assert gate.begun.wait(20)
    batcher.cancel(begun)
    gate.opened.set()
    batcher.close()
    assert (begun.future.cancelled(), batcher.waiting) == (True, 0)
    assert [lines for lines, _ in gate.batches] == [["1", "2"]]


def test_a_batch_that_nobody_waits_for_is_stopped(caplog: pytest.LogCaptureFixture) -> None:
    """A request of two lines vanishes, and one that shared its first batch; then the batch is stopped."""
    stopped, begun, ended = list[int](), threading.Event(), threading.Event()

    def translate(lines: Sequence[str], options: str) -> Sequence[str]:
        if lines == ["later"]:
            return lines
        begun.set()
        assert ended.wait(20)
        raise ValueError("the process was killed")

    def stop(thread: int) -> None:
        stopped.append(thread)
        ended.set()

    one = model(translate, 3)
    one.stop = stop
    sizes: list[int] = []
    batcher = Batcher(one, max_waiting=10, wait=0.1, observe=lambda n, _: sizes.append(n))
    long, short, later = ticket(["1", "2"]), ticket(["3"]), ticket(["later"], "b")
    for submitted in (long, short):
        batcher.submit(submitted)
    assert begun.wait(20)
    batcher.cancel(long)
    assert not stopped
    batcher.cancel(short)
    batcher.submit(later)
    batcher.close()
    assert len(stopped) == 1 and later.future.result(0) == ["later"]
    assert (sizes, caplog.records) == ([1], [])


def test_batches_become_as_small_as_the_model_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    """The model translates a work of 400 in a second; a batch has the work of about a second."""
    clock, sizes = [0.0], list[int]()
    monkeypatch.setattr("nmt.serving.batcher.time", SimpleNamespace(monotonic=lambda: clock[0]))

    def translate(lines: Sequence[str], options: str) -> Sequence[str]:
        sizes.append(len(lines))
        clock[0] += len(lines) * 50 / 400
        return lines

    slow = model(translate, 100)
    slow.batch_work = 8000
    batcher = Batcher(slow, max_waiting=1000)
    for _ in range(2):
        long = Ticket(["a"] * 30, "a", [50] * 30)
        batcher.submit(long)
        assert long.future.result(20) == ["a"] * 30
    batcher.close()
    assert sizes == [20, 8, 2, 8, 8, 8, 6]


def test_one_thread_takes_no_lines_with_much_work() -> None:
    gate = Gate()
    batcher = Batcher(model(gate, 4, threads=2), max_waiting=100)
    for name in ("large", "larger", "largest"):
        batcher.submit(Ticket([name], "a", [5000]))
    assert gate.begun.wait(20)
    batcher.submit(Ticket(["small"], "a", [5]))
    wait_until(lambda: len(gate.batches) == 2)
    assert [lines for lines, _ in gate.batches] == [["large"], ["small"]]
    gate.opened.set()
    batcher.close()
    assert [lines for lines, _ in gate.batches[2:]] == [["larger"], ["largest"]]


def test_free_threads_share_what_waits() -> None:
    gate, sizes = Gate(), list[int]()
    both = model(gate, 100, threads=2)
    batcher = Batcher(both, max_waiting=1000, wait=0.2, observe=lambda n, _: sizes.append(n))
    for number in range(60):
        batcher.submit(ticket([str(number)]))
    wait_until(lambda: len(gate.batches) == 2)
    gate.opened.set()
    batcher.close()
    assert sorted(sizes) == [30, 30]
