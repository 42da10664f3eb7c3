"""The prefetching thread."""

from __future__ import annotations

import gc
import itertools
import threading
import time
import weakref
from collections.abc import Iterator

import pytest
from waiting import prefetch_threads, wait_until

from nmt.data.batches.stream import Prefetch


def counting(made: list[int]) -> Iterator[int]:
    for number in itertools.count():
        made.append(number)
        yield number


def test_gives_all_items_in_order_and_ends() -> None:
    items = Prefetch(iter(range(100)), 3)
    assert list(items) == list(range(100))
    assert list(items) == []
    assert items.seconds_waited > 0
    items.close()


def test_works_ahead_but_not_without_bound() -> None:
    made: list[int] = []
    items = Prefetch(counting(made), 4)
    wait_until(lambda: len(made) == 5)  # four in the queue, and the next one
    assert next(items) == 0
    wait_until(lambda: len(made) == 6)
    time.sleep(0.02)
    assert len(made) == 6
    items.close()


def test_error_comes_where_it_belongs() -> None:
    def broken() -> Iterator[int]:
        yield 1
        yield 2
        raise OSError("the disk is gone")

    items = Prefetch(broken(), 8)
    assert [next(items), next(items)] == [1, 2]
    for _ in range(2):
        with pytest.raises(OSError, match="the disk is gone"):
            next(items)
    items.close()


def test_close_while_the_thread_waits_for_room() -> None:
    made: list[int] = []
    items = Prefetch(counting(made), 2)
    wait_until(lambda: len(made) == 3)
    before = prefetch_threads()
    items.close()
    items.close()
    assert prefetch_threads() == before - 1
    assert list(items) == []


def test_close_wakes_a_consumer() -> None:
    release = threading.Event()

    def slow() -> Iterator[int]:
        release.wait(20)
        yield 1

    items = Prefetch(slow(), 2)
    got: list[list[int]] = []
    consumer = threading.Thread(target=lambda: got.append(list(items)))
    consumer.start()
    closer = threading.Thread(target=items.close)
    closer.start()
    consumer.join(20)
    release.set()
    closer.join(20)
    assert got == [[]]


def test_a_forgotten_one_ends_its_thread() -> None:
    before = prefetch_threads()
    items = Prefetch(counting([]), 2)
    gone = weakref.ref(items)
    del items
    gc.collect()
    assert gone() is None
    wait_until(lambda: prefetch_threads() == before)
