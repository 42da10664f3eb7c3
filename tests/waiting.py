"""Waiting for threads without relying on how long they take."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


def prefetch_threads() -> int:
    """How many threads work ahead."""
    return sum(thread.name == "prefetch" for thread in threading.enumerate())


def wait_until(holds: Callable[[], bool]) -> None:
    """Returns once it holds; fails if it does not within twenty seconds."""
    deadline = time.monotonic() + 20
    while not holds():
        assert time.monotonic() < deadline, "never came true"
        time.sleep(0.001)
