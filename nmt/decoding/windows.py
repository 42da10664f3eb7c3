"""Windows of a stream of lines: full windows, or the lines that are available."""

from __future__ import annotations

import itertools
import threading
from collections import deque
from collections.abc import Iterable, Iterator


def full_windows(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yields windows of `size` lines; the last window may be shorter. For files."""
    iterator = iter(lines)
    while window := list(itertools.islice(iterator, size)):
        yield window


def ready_windows(lines: Iterable[str], size: int) -> Iterator[list[str]]:
    """Yields windows of the available lines, at most `size`; waits only if there are none. For pipes.

    A thread reads at most one window ahead while the caller works on the previous window. An exception of
    `lines` is raised here, after all lines before it have been yielded.
    """
    feed = _Feed(size)
    threading.Thread(target=feed.fill, args=(lines,), name="lines", daemon=True).start()
    try:
        while window := feed.take():
            yield window
    finally:
        feed.close()


class _Feed:
    """Lines on their way from the thread that reads to the one that translates."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._lines: deque[str] = deque()
        self._changed = threading.Condition()
        self._ended = False
        self._closed = False
        self._error: Exception | None = None

    def fill(self, lines: Iterable[str]) -> None:
        """Reads to the end, waiting when there are enough lines."""
        try:
            for line in lines:
                with self._changed:
                    self._changed.wait_for(lambda: self._closed or len(self._lines) < self._limit)
                    if self._closed:
                        return
                    self._lines.append(line)
                    self._changed.notify_all()
        except Exception as error:
            self._error = error  # belongs to whoever takes the lines
        finally:
            with self._changed:
                self._ended = True
                self._changed.notify_all()

    def take(self) -> list[str]:
        """Waits for a line, then returns all there are; none at the end."""
        with self._changed:
            self._changed.wait_for(lambda: self._lines or self._ended)
            window = list(self._lines)
            self._lines.clear()
            self._changed.notify_all()
        if not window and self._error is not None:
            raise self._error
        return window

    def close(self) -> None:
        """Lets the reading thread end: nobody takes lines any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
