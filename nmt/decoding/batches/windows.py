"""Windows of a stream of lines: full windows, or the lines that are available."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterable, Iterator
from typing import TypeVar

from nmt.runtime.closable_queue import ClosableQueue

Line = TypeVar("Line")


def full_windows(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """Yields windows of `size` lines; the last window may be shorter. For files."""
    iterator = iter(lines)
    while window := list(itertools.islice(iterator, size)):
        yield window


def ready_windows(lines: Iterable[Line], size: int) -> Iterator[list[Line]]:
    """Yields windows of the available lines, at most `size`; waits only if there are none. For pipes.

    A thread reads at most one window ahead while the caller works on the previous window. An exception of
    `lines` is raised here, after all lines before it have been yielded.
    """
    queue: ClosableQueue[Line] = ClosableQueue(size)
    threading.Thread(target=queue.fill, args=(lines,), name="lines", daemon=True).start()
    try:
        while window := queue.take_all():
            yield window
    finally:
        queue.close()
