"""Processes that are started without the main module of this one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import spawn
from typing import Any

_spawn: Any = spawn


@contextmanager
def without_main_module() -> Iterator[None]:
    """Within, a process that this thread starts does not import the main module again.

    All that our processes run is in modules that they import by name. A user's script that lacks
    `if __name__ == "__main__"` would run again in each process.
    """
    original, thread = _spawn.get_preparation_data, threading.get_ident()

    def prepared(name: str) -> dict[str, Any]:
        data: dict[str, Any] = original(name)
        if threading.get_ident() == thread:
            data.pop("init_main_from_name", None)
            data.pop("init_main_from_path", None)
        return data

    _spawn.get_preparation_data = prepared
    try:
        yield
    finally:
        _spawn.get_preparation_data = original
