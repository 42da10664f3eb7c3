"""The standard streams: the log and progress bars on standard error, and streams that are closed or fail."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tqdm import tqdm

log = logging.getLogger("nmt")
"""Everything the program has to say about its work; the commands send it to standard error."""


def progress(*, total: int | None, unit: str, description: str) -> tqdm[Any]:
    """A progress bar with rate on standard error, shown once the work has taken two seconds.

    Use it as a context manager and call `update(n)`. Where standard error is no terminal it prints a line
    every half minute instead of redrawing.
    """
    from tqdm import tqdm

    live = sys.stderr.isatty()
    return tqdm(
        total=total,
        unit=f" {unit}",
        unit_scale=total is None or total >= 100_000,  # "1.23M pairs", but "7800 updates"
        desc=description,
        delay=2.0,
        mininterval=0.2 if live else 30.0,
        dynamic_ncols=live,
        leave=False,
        file=sys.stderr,
    )


class _LogHandler(logging.Handler):
    """Writes through tqdm, so that a line of the log does not tear a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm

        tqdm.write(self.format(record), file=sys.stderr)


class _Lossy(io.FileIO):
    """A file that swallows what can't be written."""

    def write(self, data: Any, /) -> int:
        try:
            count = super().write(data)
        except OSError:
            count = None
        return memoryview(data).nbytes if count is None else count


def steady_streams() -> None:
    """Makes this process independent of what became of its standard output and standard error.

    Nobody reads standard error any more, its terminal is gone, the disk behind it is full: no reason to lose
    hours of work, so what can't be written there is dropped. A stream that was closed from the start
    (`2>&-`) leads nowhere, and no file that is opened later takes its number.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    while nowhere < 2:  # 0 and 1 are closed, too
        nowhere = os.dup(nowhere)
    if nowhere > 2:
        os.close(nowhere)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None or sys.stderr is sys.__stderr__:  # otherwise it is somebody's, such as a test's
        encoding = sys.stderr.encoding if sys.stderr else "utf-8"
        raw = io.BufferedWriter(_Lossy(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, encoding, errors="backslashreplace", line_buffering=True)


def silence(stream: Any) -> None:
    """Lets what a stream still holds, and all that is written to it from now on, go nowhere."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def log_to_stderr() -> None:
    """Sends the log to standard error: plain lines, warnings marked as such."""
    steady_streams()
    if any(isinstance(handler, _LogHandler) for handler in log.handlers):
        return
    handler = _LogHandler()
    handler.setFormatter(_Plain())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        mark = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return mark + super().format(record)
