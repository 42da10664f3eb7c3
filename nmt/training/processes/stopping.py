"""Stop signals as a request that the training loop reads, and the exit status of a stopped run."""

from __future__ import annotations

import atexit
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from nmt.runtime.guest import guest
from nmt.runtime.signals import unignored

_EXIT_SECONDS = 60.0  # seconds that the end of the interpreter waits for an update and its checkpoint


class Stopped(SystemExit):
    """Raised after a signal stopped a run and its state was saved; exit status 128 + the signal number.

    `signum` is None if another process received the signal.
    """

    def __init__(self, signum: int | None) -> None:
        super().__init__(128 + (signum or signal.SIGTERM))


class StopRequest:
    """The request to stop the run, and the signal that made it.

    Attributes:
        signum: the signal number; None: no stop was requested.
    """

    def __init__(self) -> None:
        self.signum: int | None = None

    def __call__(self) -> bool:
        """Whether a stop was requested."""
        return self.signum is not None

    @contextmanager
    def listening(self, notice: Callable[[], None], *, launched: bool = False) -> Iterator[None]:
        """Turns stop signals into stop requests; ignored signals stay ignored.

        A guest handles only Ctrl-C, if that would raise KeyboardInterrupt. A second Ctrl-C raises it; in a
        command, it ends the process at once. Outside the main thread no signal is handled, and the end of the
        program is a request: only daemon threads still run then.

        Args:
            notice: called at the first signal, to acknowledge it.
            launched: whether this process is a rank that a launcher has started. It handles signals as a
                command does, but a second Ctrl-C is the first once more: the terminal and the launcher both
                deliver it.
        """
        if threading.current_thread() is not threading.main_thread():
            with self._until_exit(notice):  # only the main thread may set handlers
                yield
            return

        is_command = launched or guest() is None
        second = signal.SIG_DFL if is_command else signal.default_int_handler

        def noted(signum: int, frame: FrameType | None) -> None:
            first, self.signum = self.signum is None, signum if self.signum is None else self.signum
            if not launched and signal.SIGINT in before:
                signal.signal(signal.SIGINT, second)
            if first:
                # The signal may interrupt a write to the stream that `notice` writes to.
                with suppress(RuntimeError):
                    notice()

        before = {
            signum: signal.signal(signum, noted) for signum in (unignored() if is_command else _interrupts())
        }
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)

    @contextmanager
    def _until_exit(self, notice: Callable[[], None]) -> Iterator[None]:
        """Requests a stop if the interpreter ends during the body; the interpreter waits for the body."""
        done = threading.Event()

        def stop() -> None:
            self.signum = signal.SIGTERM
            notice()
            done.wait(_EXIT_SECONDS)

        atexit.register(stop)
        try:
            yield
        finally:
            done.set()
            atexit.unregister(stop)


def _interrupts() -> list[signal.Signals]:
    """Returns SIGINT if it raises KeyboardInterrupt; a handler that the program has set stays."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return [signal.SIGINT] if ours else []
