"""A bounded queue between a producer thread and a consumer thread that both sides can end."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterable
from typing import Generic, TypeVar

Item = TypeVar("Item")


class ClosableQueue(Generic[Item]):
    """A first-in, first-out queue of at most `limit` items.

    The producer calls `put` for each item and then `end`, or `fill` once. The consumer calls `take` or
    `take_all`, and `close` when it needs no more items.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._items: deque[Item] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._error: BaseException | None = None
        self._closed = False

    def fill(self, items: Iterable[Item]) -> None:
        """Puts items until the queue is closed, then ends it; passes an exception of `items` to `end`."""
        try:
            for item in items:
                if not self.put(item):
                    return
            self.end()
        except BaseException as error:
            self.end(error)

    def put(self, item: Item) -> bool:
        """Waits for room and adds an item; returns False without adding it if the queue is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or len(self._items) < self._limit)
            if self._closed:
                return False
            self._items.append(item)
            self._changed.notify_all()
            return True

    def end(self, error: BaseException | None = None) -> None:
        """Marks the end of the items; `error` is raised to the consumer whenever it asks for more."""
        with self._changed:
            self._ended, self._error = True, error
            self._changed.notify_all()

    def take(self) -> Item:
        """Waits for an item and removes it from the queue.

        Raises:
            StopIteration: there are no more items, or the queue is closed.
            BaseException: the error of `end`, if there are no more items.
        """
        with self._changed:
            if not self._wait():
                raise StopIteration
            self._changed.notify_all()
            return self._items.popleft()

    def take_all(self) -> list[Item]:
        """Waits for an item and removes all; returns none if there are no more items, or the queue is closed.

        Raises:
            BaseException: the error of `end`, if there are no more items.
        """
        with self._changed:
            self._wait()
            items = list(self._items)
            self._items.clear()
            self._changed.notify_all()
            return items

    def close(self) -> None:
        """Drops all items and wakes both threads. Can be called repeatedly."""
        with self._changed:
            self._closed = True
            self._items.clear()
            self._changed.notify_all()

    def _wait(self) -> bool:
        """Waits for an item; returns False if there will be none. Raises the error of `end`."""
        self._changed.wait_for(lambda: self._closed or self._items or self._ended)
        if not self._items and not self._closed and self._error is not None:
            raise self._error
        return bool(self._items)
