"""The signals that ask a process to stop, and how each kind of process treats them."""

from __future__ import annotations

import math
import signal
import time
from collections.abc import Iterable
from multiprocessing import resource_tracker
from types import FrameType

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU")

STOP_SIGNALS = tuple(signal.Signals[name] for name in _NAMES if hasattr(signal, name))
"""Ctrl-C; `kill`, `timeout` and systemd; a closed terminal or ssh; Ctrl-\\; Slurm's warnings (`--signal`);
the soft limit of CPU time (`ulimit -t`)."""

_ONCE = 10.0  # seconds in which further signals do not interrupt the clean-up that the first one began


class Terminated(SystemExit):
    """A signal ends this process, which cleans up first; the exit status is 128 + the signal's number.

    Args:
        signum: the signal.
    """

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.signum = signal.Signals(signum)


def unignored(signals: Iterable[signal.Signals] = STOP_SIGNALS) -> list[signal.Signals]:
    """Those of the signals that this process does not ignore, such as SIGHUP under `nohup`."""
    return [one for one in signals if signal.getsignal(one) not in (signal.SIG_IGN, None)]


def raise_on_stop_signals() -> None:
    """Makes every stop signal that would kill the process raise `Terminated`; Ctrl-C stays KeyboardInterrupt.

    Ignored signals stay ignored, and handlers that somebody has set stay. Call it in the main thread.
    """
    handler = _Once()
    for one in STOP_SIGNALS:
        if signal.getsignal(one) is signal.SIG_DFL:
            signal.signal(one, handler)


def ignore_stop_signals(*, but: Iterable[signal.Signals] = ()) -> None:
    """Leaves the stop signals to the process that started this one: a terminal and Slurm send them to all."""
    for one in set(STOP_SIGNALS) - set(but):
        signal.signal(one, signal.SIG_IGN)


def start_resource_tracker() -> None:
    """Starts the process of `multiprocessing` that cleans up after the others, deaf to the stop signals.

    Python starts it with the first child process and shields it from SIGINT and SIGTERM alone. A closed
    terminal sends SIGHUP to every process of the group, and Slurm SIGUSR1. Python starts a new tracker then,
    which prints a traceback for each semaphore that only the old one knew. Call it before a process is
    started: what is blocked here stays blocked there, and nothing that arrives meanwhile is lost.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        resource_tracker.ensure_running()
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


class _Once:
    """A handler that raises once: a closed terminal sends SIGHUP twice, from the kernel and the shell."""

    def __init__(self) -> None:
        self._last = -math.inf

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last >= _ONCE:
            self._last = now
            raise Terminated(signum)
