"""Whether nmt has the process to itself, as a command has, or is a guest in a program that imports it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass


@dataclass(frozen=True)
class Guest:
    """A call from another program: its signals, streams and child processes are not ours.

    Attributes:
        progress: whether progress bars are shown.
        level: of the program's log, for processes that are started, which write to standard error.
    """

    progress: bool = False
    level: int = logging.WARNING


def guest() -> Guest | None:
    """The call from another program that this thread works for; None in a command."""
    return _guest.get()


@contextmanager
def as_guest(call: Guest | None) -> Iterator[None]:
    """Within, this thread works for such a call."""
    token = _guest.set(call)
    try:
        yield
    finally:
        _guest.reset(token)


_guest: ContextVar[Guest | None] = ContextVar("nmt_guest", default=None)
