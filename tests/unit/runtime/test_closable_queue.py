"""The queue between a producer thread and a consumer thread."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from waiting import wait_until

from nmt.runtime.closable_queue import ClosableQueue


def filled(*items: int, limit: int = 9) -> ClosableQueue[int]:
    queue: ClosableQueue[int] = ClosableQueue(limit)
    assert all(queue.put(item) for item in items)
    return queue


def test_items_come_in_order_one_by_one_or_all_at_once() -> None:
    queue = filled(1, 2, 3)
    assert queue.take() == 1
    assert queue.take_all() == [2, 3]
    queue.put(4)
    assert queue.take() == 4


def test_at_the_end_there_are_no_more_items() -> None:
    queue = filled(1, 2)
    queue.end()
    assert queue.take() == 1
    assert queue.take_all() == [2]
    for _ in range(2):
        assert queue.take_all() == []
        with pytest.raises(StopIteration):
            queue.take()


def test_an_error_follows_the_last_item() -> None:
    queue = filled(1, 2)
    queue.end(OSError("the disk is gone"))
    assert queue.take() == 1
    assert queue.take_all() == [2]
    for take in (queue.take, queue.take_all, queue.take):
        with pytest.raises(OSError, match="the disk is gone"):
            take()


@pytest.mark.parametrize("make_room", [ClosableQueue.take, ClosableQueue.take_all])
def test_put_waits_for_room(make_room: Callable[[ClosableQueue[int]], object]) -> None:
    queue = filled(1, 2, limit=2)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(queue.put, 3)
        time.sleep(0.02)
        assert not waiting.done()
        make_room(queue)
        assert waiting.result(20) is True
    assert queue.take_all()[-1] == 3


def test_take_waits_for_an_item_or_the_end() -> None:
    queue = filled()
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(queue.take_all)
        queue.put(5)
        assert waiting.result(20) == [5]
        waiting = pool.submit(queue.take_all)
        queue.end()
        assert waiting.result(20) == []


def test_close_wakes_both_threads() -> None:
    with ThreadPoolExecutor(2) as pool:
        full, empty = filled(1, limit=1), filled()
        putting, taking = pool.submit(full.put, 2), pool.submit(empty.take_all)
        full.close()
        empty.close()
        assert putting.result(20) is False
        assert taking.result(20) == []


def test_a_closed_queue_holds_nothing_and_takes_nothing() -> None:
    queue = filled(1, 2)
    queue.end(OSError("too late to matter"))
    queue.close()
    queue.close()
    assert queue.put(3) is False
    assert queue.take_all() == []
    with pytest.raises(StopIteration):
        queue.take()


def test_fill_puts_all_items_and_passes_an_error_on() -> None:
    def numbers(last: str) -> Iterator[int]:
        yield from range(4)
        int(last)

    queue = filled()
    queue.fill(numbers("4"))
    assert queue.take_all() == [0, 1, 2, 3] and queue.take_all() == []
    queue = filled()
    queue.fill(numbers("bad"))
    assert queue.take_all() == [0, 1, 2, 3]
    with pytest.raises(ValueError, match="bad"):
        queue.take_all()


def test_fill_stops_when_the_queue_is_closed() -> None:
    created: list[int] = []

    def endless() -> Iterator[int]:
        while True:
            created.append(len(created))
            yield created[-1]

    queue = filled(limit=3)
    thread = threading.Thread(target=queue.fill, args=(endless(),), daemon=True)
    thread.start()
    wait_until(lambda: len(created) == 4)  # three in the queue, and the next one
    queue.close()
    thread.join(20)
    assert not thread.is_alive() and len(created) == 4
