"""What the program says about its work, on standard error: the log and progress bars."""

from __future__ import annotations

import logging
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

        try:
            tqdm.write(self.format(record), file=sys.stderr)
        except BrokenPipeError:
            pass  # nobody reads the log any more: no reason to lose the work


def log_to_stderr() -> None:
    """Sends the log to standard error: plain lines, warnings marked as such."""
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
