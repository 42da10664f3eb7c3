"""A thread that computes the items of an iterator in advance."""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Iterator
from typing import Generic, TypeVar

Item = TypeVar("Item")


class Prefetch(Generic[Item]):
    """The items of an iterator, computed up to `depth` items in advance by a thread.

    An exception of the iterator is raised to the consumer, after the items before it. The thread ends at
    `close` or when this object is garbage-collected. The iterator must therefore not refer to this object.

    Attributes:
        seconds_waited: time in seconds that the consumer has waited for items so far.
    """

    def __init__(self, items: Iterator[Item], depth: int) -> None:
        """Starts the thread."""
        self.seconds_waited = 0.0
        self._shelf: _Shelf[Item] = _Shelf(depth)
        self._thread = threading.Thread(target=_fill, args=(self._shelf, items), name="prefetch", daemon=True)
        self._thread.start()
        weakref.finalize(self, self._shelf.close)

    def __iter__(self) -> Iterator[Item]:
        """Returns this object."""
        return self

    def __next__(self) -> Item:
        """Returns the next item; raises StopIteration after `close`."""
        start = time.perf_counter()
        try:
            return self._shelf.take()
        finally:
            self.seconds_waited += time.perf_counter() - start

    def close(self) -> None:
        """Ends the thread, at the latest when its current item is computed. Can be called repeatedly."""
        self._shelf.close()
        self._thread.join()


class _Shelf(Generic[Item]):
    """What the two threads share: finished items, at most `depth`."""

    def __init__(self, depth: int) -> None:
        self._items: deque[Item] = deque()
        self._depth = depth
        self._changed = threading.Condition()
        self._closed = False
        self._end: BaseException | None = None  # what ended the iterator; StopIteration if it just ended

    def put(self, item: Item) -> bool:
        """Waits for room; False if nobody wants more."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._depth)
            self._items.append(item)
            self._changed.notify_all()
            return not self._closed

    def end(self, reason: BaseException) -> None:
        with self._changed:
            self._end = reason
            self._changed.notify_all()

    def take(self) -> Item:
        with self._changed:
            self._changed.wait_for(lambda: self._closed or self._items or self._end is not None)
            if self._closed:
                raise StopIteration
            if self._items:
                self._changed.notify_all()
                return self._items.popleft()
            assert self._end is not None
            raise self._end

    def close(self) -> None:
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()


def _fill(shelf: _Shelf[Item], items: Iterator[Item]) -> None:
    try:
        for item in items:
            if not shelf.put(item):
                return
        shelf.end(StopIteration())
    except BaseException as error:
        shelf.end(error)
