"""The signals that ask a process to stop, and their handlers in the different kinds of processes."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from multiprocessing import resource_tracker
from types import FrameType

_NAMES = ("SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU")

STOP_SIGNALS = tuple(signal.Signals[name] for name in _NAMES if hasattr(signal, name))
"""Sent by Ctrl-C; `kill`, `timeout` and systemd; a closed terminal or ssh; Ctrl-\\; Slurm's warnings
(`--signal`); the soft limit of CPU time (`ulimit -t`)."""

_REPEAT_SECONDS = 10.0  # seconds after a signal in which further signals do not interrupt the clean-up
_FINALIZER_SECONDS = 0.01  # seconds until a signal that interrupted a finalizer is sent again


class Terminated(SystemExit):
    """Raised when a signal ends this process, for clean-up. The exit status is 128 + its number."""

    def __init__(self, signum: int) -> None:
        super().__init__(128 + signum)
        self.signum = signal.Signals(signum)


def unignored(signals: Iterable[signal.Signals] = STOP_SIGNALS) -> list[signal.Signals]:
    """Returns those signals that this process does not ignore; `nohup`, for example, ignores SIGHUP."""
    return [number for number in signals if signal.getsignal(number) not in (signal.SIG_IGN, None)]


def raise_on_stop_signals() -> None:
    """Makes every stop signal that would kill the process raise `Terminated`.

    Ctrl-C still raises KeyboardInterrupt. Ignored signals and signals with a handler are unchanged. A signal
    that arrives while Python runs a finalizer, whose exceptions it only prints, is sent again after it. Must
    be called in the main thread.
    """
    handler = _RaiseOnce()
    for number in STOP_SIGNALS:
        if signal.getsignal(number) is signal.SIG_DFL:
            signal.signal(number, handler)
    _send_again_after_finalizers(handler)


def let_stop_signals_kill() -> None:
    """Lets every stop signal that is not ignored end the process at once: for a process that is done.

    The interpreter prints a traceback if a handler raises while it calls the functions of `atexit`.
    """
    for number in unignored():
        signal.signal(number, signal.SIG_DFL)


def ignore_stop_signals(*, but: Iterable[signal.Signals] = ()) -> None:
    """Ignores the stop signals, except those in `but`.

    Terminals and Slurm send them to all processes, and the parent handles them.
    """
    for number in set(STOP_SIGNALS) - set(but):
        signal.signal(number, signal.SIG_IGN)


@contextmanager
def stop_signals_blocked() -> Iterator[None]:
    """Blocks the stop signals, so that a process that is started at the same time inherits that.

    This process gets those that arrive in the meantime afterwards.
    """
    blocked = signal.pthread_sigmask(signal.SIG_BLOCK, STOP_SIGNALS)
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)


@contextmanager
def stop_signals_delayed() -> Iterator[None]:
    """Calls the handlers of stop signals after the body, so that none raises an exception within it.

    Blocked signals would not do: the handler runs in the main thread even if another thread gets the signal,
    and a command that is started in the body would inherit the mask. Other threads call no handlers.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    handlers = {number: handler for number in STOP_SIGNALS if callable(handler := signal.getsignal(number))}
    delayed, arrived = True, list[int]()

    def note(signum: int, frame: FrameType | None) -> None:
        if delayed:
            arrived.append(signum)
        else:  # the handlers are being restored
            handlers[signal.Signals(signum)](signum, frame)

    for number in handlers:
        signal.signal(number, note)
    try:
        yield
    finally:
        delayed = False
        for number, handler in handlers.items():
            signal.signal(number, handler)
        for signum in arrived:
            signal.raise_signal(signum)


def start_resource_tracker() -> None:
    """Starts the resource tracker of `multiprocessing` with the stop signals blocked.

    The tracker cleans up after other processes. Python starts it with the first child process and protects it
    only from SIGINT and SIGTERM. A closed terminal sends SIGHUP to every process of the group, and Slurm
    sends SIGUSR1. After such a signal Python starts a new tracker, which prints a traceback for each
    semaphore that only the old one knew. Call this function before any process is started.
    """
    with stop_signals_blocked():
        resource_tracker.ensure_running()


class _RaiseOnce:
    """A handler that raises once: after a terminal closes, both the kernel and the shell send SIGHUP."""

    def __init__(self) -> None:
        self._last = -math.inf

    def __call__(self, signum: int, frame: FrameType | None) -> None:
        now = time.monotonic()
        if now - self._last >= _REPEAT_SECONDS:
            self._last = now
            raise Terminated(signum)

    def reset(self) -> None:
        """Makes the next signal raise."""
        self._last = -math.inf


def _send_again_after_finalizers(handler: _RaiseOnce) -> None:
    """Sends signals again whose exception was raised in a finalizer: Python would print and forget it."""
    otherwise = sys.unraisablehook

    def hook(unraisable: sys.UnraisableHookArgs) -> None:
        error = unraisable.exc_value
        if not isinstance(error, Terminated | KeyboardInterrupt):
            otherwise(unraisable)
            return
        handler.reset()
        number = error.signum if isinstance(error, Terminated) else signal.SIGINT
        again = threading.Timer(_FINALIZER_SECONDS, os.kill, (os.getpid(), number))
        again.daemon = True
        with suppress(RuntimeError):  # no thread can be started while the interpreter ends
            again.start()

    sys.unraisablehook = hook
