"""Forks and the end of a process that uses nmt: sections that neither divides, and forked children.

A forked child has only the thread that forked it. The threads of OpenMP are gone: an operation with several
threads would wait for them forever. So a child uses one. A lock that another thread held is held forever.
"""

from __future__ import annotations

import atexit
import os
import sys
import threading
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from nmt.errors import UserError

_PATIENCE = 10.0  # seconds that a fork waits for the sections of other threads


@contextmanager
def undivided() -> Iterator[None]:
    """Delays a fork or the end of this process until the body has ended, at most ten seconds.

    Locks that a forked child needs are held, and other threads compute, only in such bodies. A daemon thread
    whose operation of torch returns while the interpreter ends would abort the process.

    Raises:
        UserError: this process was forked during the body of another thread.
    """
    if _forks.divided:
        raise UserError(
            "this process was forked while another thread of its parent used nmt. Fork it before, or use the "
            "start method forkserver or spawn of multiprocessing."
        )
    thread = threading.get_ident()
    with _forks.changed:
        if not _forks.sections[thread]:
            _forks.changed.wait_for(lambda: not _forks.waiting or _forks.ending == thread)
        _forks.sections[thread] += 1
    try:
        yield
    finally:
        with _forks.changed:
            _forks.sections[thread] -= 1
            if not _forks.sections[thread]:
                del _forks.sections[thread]
                _forks.changed.notify_all()


@contextmanager
def own_forks() -> Iterator[None]:
    """Lets this thread fork workers in the body that take no locks of nmt and set their number of threads."""
    _forks.own.add(thread := threading.get_ident())
    try:
        yield
    finally:
        _forks.own.discard(thread)


def is_forked() -> bool:
    """Returns whether this process was forked after its parent had imported torch, and may have used it."""
    return _forks.is_child


def forked_before_computing() -> None:
    """Records that the process from which this one was forked has computed nothing."""
    _forks.is_child = False


class _Forks:
    """The sections and the forks of this process.

    Attributes:
        changed: protects the other attributes; notified when a section or a fork has ended.
        sections: the number of sections that each thread is in, by its identifier.
        waiting: the number of threads that wait for sections to end, to fork or to end the process.
        ending: the thread that ends the process.
        own: the threads in a body of `own_forks`.
        is_child: see `is_forked`.
        divided: whether this process was forked during a section of another thread.
    """

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.sections = Counter[int]()
        self.waiting = 0
        self.ending: int | None = None
        self.own = set[int]()
        self.is_child, self.divided = _was_forked_earlier(), False

    def before(self) -> None:
        """Waits for the sections of other threads, and retains the lock until the fork is done."""
        self.changed.acquire()
        if threading.get_ident() not in self.own and self._others():
            self._wait()
            self.waiting -= 1

    def after_in_parent(self) -> None:
        """Lets the sections of other threads begin."""
        self.changed.notify_all()
        self.changed.release()

    def after_in_child(self) -> None:
        """Forgets the other threads, which this process does not have."""
        if threading.get_ident() not in self.own:
            self.is_child, self.divided = "torch" in sys.modules, self.divided or self._others()
        thread = threading.get_ident()
        self.changed, self.waiting = threading.Condition(), 0
        self.sections = Counter({thread: self.sections[thread]} if self.sections[thread] else {})

    def at_exit(self) -> None:
        """Waits for the sections of daemon threads, which then begin no other."""
        with self.changed:
            self.ending = threading.get_ident()
            self._wait()

    def _wait(self) -> None:
        self.waiting += 1
        self.changed.wait_for(lambda: not self._others(), _PATIENCE)

    def _others(self) -> bool:
        return any(thread != threading.get_ident() for thread in self.sections)


def _was_forked_earlier() -> bool:
    """Returns whether multiprocessing has forked this process before nmt was imported, and torch is here."""
    processes = sys.modules.get("multiprocessing.process")
    name = type(processes.current_process()).__name__ if processes else ""
    return name == "ForkProcess" and "torch" in sys.modules


_forks = _Forks()
atexit.register(_forks.at_exit)
if hasattr(os, "register_at_fork"):
    os.register_at_fork(
        before=_forks.before,
        after_in_parent=_forks.after_in_parent,
        after_in_child=_forks.after_in_child,
    )
