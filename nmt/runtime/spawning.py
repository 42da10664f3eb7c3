"""Helpers for processes that this process starts."""

from __future__ import annotations

import multiprocessing
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import spawn
from typing import Any

_spawn: Any = spawn


@contextmanager
def without_main_module() -> Iterator[None]:
    """Prevents processes that this thread starts in the body from importing the main module again.

    Processes of nmt import their code by module name and do not need the main module. Without this, a user's
    script that lacks `if __name__ == "__main__"` would run again in each process.
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


def end_with_parent() -> None:
    """Ends this process when its parent ends. A parent killed by SIGKILL can't end its workers itself.

    To be run in a thread of the child.
    """
    parent = multiprocessing.parent_process()
    assert parent is not None
    parent.join()
    os._exit(1)
