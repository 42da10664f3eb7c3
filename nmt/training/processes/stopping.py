"""Stop signals as a request that the training loop reads, and the exit status of a stopped run."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType

from nmt.runtime import guest, unignored


class Stopped(SystemExit):
    """A run was stopped by a signal after its state was saved; ends the process with 128 + its number.

    Args:
        signum: the signal; None if another process got it.
    """

    def __init__(self, signum: int | None) -> None:
        super().__init__(128 + (signum or signal.SIGTERM))


class StopRequest:
    """Whether, and by which signal, the run was asked to stop."""

    def __init__(self) -> None:
        self.signum: int | None = None

    def __call__(self) -> bool:
        """Whether the run shall stop."""
        return self.signum is not None

    def set(self, signum: int) -> None:
        """Asks the run to stop."""
        self.signum = signum

    @contextmanager
    def listening(self, notice: Callable[[], None], *, second_kills: bool = True) -> Iterator[None]:
        """Within, a stop signal makes the request instead of ending the process; ignored ones stay ignored.

        A guest hears Ctrl-C alone, and only where that would raise KeyboardInterrupt: the second one does.

        Args:
            notice: called at the first signal, to say that it was heard.
            second_kills: a second Ctrl-C ends the process on the spot. Off under `torchrun`, where the
                terminal and the launcher both deliver the first one.
        """
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may set handlers
            return

        alone = guest() is None
        second = signal.SIG_DFL if alone else signal.default_int_handler

        def noted(signum: int, frame: FrameType | None) -> None:
            first, self.signum = self.signum is None, signum if self.signum is None else self.signum
            if second_kills and signal.SIGINT in before:
                signal.signal(signal.SIGINT, second)
            if first:
                # The process may be in the midst of writing to the very stream that this goes to.
                with suppress(RuntimeError):
                    notice()

        before = {one: signal.signal(one, noted) for one in (unignored() if alone else _interrupts())}
        try:
            yield
        finally:
            for one, handler in before.items():
                signal.signal(one, handler)


def _interrupts() -> list[signal.Signals]:
    """SIGINT, if it raises KeyboardInterrupt; a program's own handler stays."""
    ours = signal.getsignal(signal.SIGINT) is signal.default_int_handler
    return [signal.SIGINT] if ours else []
