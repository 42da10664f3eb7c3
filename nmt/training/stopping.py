"""Ctrl-C and SIGTERM as a wish that the training loop reads, and how a stopped run leaves the process."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import FrameType


class Stopped(SystemExit):
    """A run was stopped by a signal after its state was saved; ends the process with 130 or 143.

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
        """Within, SIGINT and SIGTERM make the wish instead of ending the process.

        Args:
            notice: called at the first signal, to say that it was heard.
            second_kills: a second Ctrl-C ends the process on the spot. Off under `torchrun`, where the
                terminal and the launcher both deliver the first one.
        """
        if threading.current_thread() is not threading.main_thread():
            yield  # only the main thread may set handlers
            return

        def heard(signum: int, frame: FrameType | None) -> None:
            first, self.signum = self.signum is None, signum if self.signum is None else self.signum
            if second_kills:
                signal.signal(signal.SIGINT, signal.SIG_DFL)
            if first:
                # The process may be in the midst of writing to the very stream that this goes to.
                with suppress(RuntimeError):
                    notice()

        before = {signum: signal.signal(signum, heard) for signum in (signal.SIGINT, signal.SIGTERM)}
        try:
            yield
        finally:
            for signum, handler in before.items():
                signal.signal(signum, handler)
