"""The guest state: whether nmt runs as a command, or as a guest in a program that imports it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Guest:
    """A call from another program, which owns the signals, streams and child processes.

    Attributes:
        progress: whether to show progress bars.
        level: log level of the program. Processes that nmt starts use it for their log on standard error.
    """

    progress: bool = False
    level: int = logging.WARNING


def guest() -> Guest | None:
    """Returns the call that this thread serves; None in a command."""
    return _guest.get()


@contextmanager
def as_guest(call: Guest | None) -> Iterator[None]:
    """Makes this thread serve `call` in the body."""
    token = _guest.set(call)
    try:
        yield
    finally:
        _guest.reset(token)


_guest: ContextVar[Guest | None] = ContextVar("nmt_guest", default=None)
