"""A thread that computes the items of an iterator in advance."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Iterator
from typing import Generic, TypeVar

from nmt.runtime.closable_queue import ClosableQueue

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
        self._queue: ClosableQueue[Item] = ClosableQueue(depth)
        self._thread = threading.Thread(target=self._queue.fill, args=(items,), name="prefetch", daemon=True)
        self._thread.start()
        weakref.finalize(self, self._queue.close)

    def __iter__(self) -> Iterator[Item]:
        """Returns this object."""
        return self

    def __next__(self) -> Item:
        """Returns the next item; raises StopIteration after `close`."""
        start = time.perf_counter()
        try:
            return self._queue.take()
        finally:
            self.seconds_waited += time.perf_counter() - start

    def close(self) -> None:
        """Ends the thread, at the latest when its current item is computed. Can be called repeatedly."""
        self._queue.close()
        self._thread.join()
