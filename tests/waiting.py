"""Waits for threads without assumptions about their speed."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def prefetch_threads() -> int:
    """Returns the number of prefetch threads."""
    return sum(thread.name == "prefetch" for thread in threading.enumerate())


def wait_until(holds: Callable[[], bool]) -> None:
    """Returns when the condition holds; fails if it does not within twenty seconds."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "the condition did not become true"
        time.sleep(0.001)
