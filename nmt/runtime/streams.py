"""The standard streams: the log and progress bars on standard error, and closed or failing streams."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterator
from functools import cache
from typing import TYPE_CHECKING, Any, Self, cast

from nmt.runtime.guest import guest

if TYPE_CHECKING:
    from tqdm import tqdm

log = logging.getLogger("nmt")
"""The log of the program; the commands write it to standard error."""


def progress(*, total: int | None, unit: str, description: str, hidden: bool = False) -> tqdm[Any]:
    """Returns a progress bar with a rate on standard error, shown once the work has taken two seconds.

    Use it as a context manager and call `update(n)`. If standard error is not a terminal, the bar prints a
    line every 30 seconds and redraws nothing. A guest shows a bar only if its caller asked for progress.
    """
    call = guest()
    if hidden or sys.stderr is None or (call is not None and not call.progress):
        return cast("tqdm[Any]", _NoBar())
    live = sys.stderr.isatty()
    raw = _raw_stderr()
    kind = _terminal_bar() if live else _line_bar()
    return kind(
        total=total,
        unit=f" {unit}",
        unit_scale=total is None or total >= 100_000,  # "1.23M pairs", but "7800 updates"
        desc=description,
        delay=2.0,
        mininterval=0.2 if live else 30.0,
        miniters=1,  # each update looks at the clock, so no thread has to
        dynamic_ncols=live,
        leave=False,
        file=sys.stderr if raw is None or not live else _BarStream(raw),
    )


class _NoBar:
    """A progress bar that shows nothing, without the lock of tqdm: another thread may hold it at a fork."""

    n = initial = last_print_n = 0
    disable = True

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *details: object) -> None:
        pass

    def update(self, n: float | None = 1) -> None:
        pass

    def set_postfix_str(self, s: str = "", refresh: bool = True) -> None:
        pass

    def close(self) -> None:
        pass


@cache
def _terminal_bar() -> type[tqdm[Any]]:
    """Returns the class of progress bars for terminals."""
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]
        # Holds until the constructor sets it: a signal may interrupt the constructor, and `__del__` must then
        # close nothing.
        disable: bool = True
        monitor_interval = 0  # no thread

    return Bar


@cache
def _line_bar() -> type[tqdm[Any]]:
    """Returns the class of progress bars for files and pipes: each state is a new line."""
    from tqdm import tqdm

    class Lines(tqdm):  # type: ignore[type-arg]
        disable: bool = True  # as above
        monitor_interval = 0

        @staticmethod
        def status_printer(file: Any) -> Any:
            return lambda state: print(state, file=file, flush=True) if state else None

        def moveto(self, n: int) -> None:
            pass

        def clear(self, nolock: bool = False) -> None:
            pass

        def refresh(self, nolock: bool = False, lock_args: Any = None) -> None:
            if not nolock:  # tqdm sets `nolock` to redraw the bar after a line of the log
                super().refresh(nolock, lock_args)

        def close(self) -> None:
            if not self.disable:
                self.disable = True
                type(self)._decr_instances(self)  # type: ignore[attr-defined]

    return Lines


class _LogHandler(logging.Handler):
    """Writes through tqdm, so that a line of the log does not break a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm

        tqdm.write(self.format(record), file=sys.stderr)


class _LossyStderr(io.FileIO):
    """Standard error that ignores write errors and starts every message on a new line.

    Attributes:
        half_line: whether the current line of the terminal is not empty: it shows a progress bar or `^C`.
        others_draw: whether another process draws progress bars on the same terminal.
    """

    half_line = others_draw = False

    def write(self, data: Any, /) -> int:
        if (self.half_line or self.others_draw) and self.isatty():
            self._put(_ERASE)
        self.half_line = False
        self._put(data)
        return memoryview(data).nbytes

    def draw(self, data: bytes) -> None:
        """Writes a part of a progress bar, which is erased before the next message."""
        self.half_line = bool(data.strip())
        self._put(data)

    def _put(self, data: Any) -> None:
        left = memoryview(data).cast("B")
        with contextlib.suppress(OSError):
            while left and (count := super().write(left)):
                left = left[count:]


_ERASE = b"\r\x1b[K"  # moves to the start of the line and erases it


class _BarStream(io.TextIOBase):
    """The stream that tqdm draws on: standard error, marked as progress bars and not as messages."""

    encoding = "utf-8"

    def __init__(self, raw: _LossyStderr) -> None:
        self._raw = raw

    def write(self, text: str) -> int:
        self._raw.draw(text.encode(errors="backslashreplace"))
        return len(text)

    def isatty(self) -> bool:
        return self._raw.isatty()

    def fileno(self) -> int:
        return self._raw.fileno()


def _raw_stderr() -> _LossyStderr | None:
    """Returns the standard error that `steady_streams` has set up; None if it was replaced."""
    raw = getattr(getattr(sys.stderr, "buffer", None), "raw", None)
    return raw if isinstance(raw, _LossyStderr) else None


def mark_line() -> None:
    """Records that the current line of the terminal is not empty, for example after it has shown `^C`."""
    if (raw := _raw_stderr()) is not None:
        raw.half_line = True


def share_terminal(shared: bool) -> None:
    """Records whether other processes draw progress bars on the terminal of this process."""
    if (raw := _raw_stderr()) is not None:
        raw.others_draw = shared


def steady_streams() -> None:
    """Makes this process independent of failures of its standard output and standard error.

    A closed pipe, a closed terminal or a full disk must not end hours of work. Text that can't be written to
    standard error is therefore dropped. A stream that was closed from the start (`2>&-`) is connected to
    /dev/null, so that no file that is opened later gets its descriptor.
    """
    nowhere = os.open(os.devnull, os.O_RDWR)
    while nowhere < 2:  # descriptors 0 and 1 may be closed too
        nowhere = os.dup(nowhere)
    if nowhere > 2:
        os.close(nowhere)
    if sys.stdout is None:
        sys.stdout = open(1, "w", encoding="utf-8", closefd=False)
    if sys.stderr is None or sys.stderr is sys.__stderr__:  # otherwise the caller replaced it, such as a test
        encoding = sys.stderr.encoding if sys.stderr else "utf-8"
        raw = io.BufferedWriter(_LossyStderr(2, "w", closefd=False))
        sys.stderr = io.TextIOWrapper(raw, encoding, errors="backslashreplace", line_buffering=True)


def product() -> Any:
    """Returns the stream of the product of the command: standard output, also after `reserve_stdout`."""
    return _reserved or sys.stdout


def reserve_stdout() -> None:
    """Reserves standard output for `product`: all else that is written to it goes to standard error.

    That is what plugins and their child processes print. A terminal, and a stream that the caller has
    replaced, remain as they are. A plugin may close its `sys.stdout`.
    """
    global _reserved
    stdout = sys.__stdout__
    if _reserved is not None or stdout is None or sys.stdout is not stdout or stdout.isatty():
        return
    stdout.flush()
    _reserved = open(os.dup(1), "w", encoding=stdout.encoding, errors=stdout.errors)
    os.dup2(2, 1)
    sys.stdout = open(1, "w", encoding=stdout.encoding, errors="backslashreplace", buffering=1, closefd=False)


_reserved: io.TextIOWrapper | None = None


def silence(stream: Any) -> None:
    """Discards the buffer of a stream and all later output to it."""
    with contextlib.suppress(OSError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())


def log_to_stderr() -> None:
    """Sends the log to standard error as plain lines, with a prefix for warnings and errors."""
    steady_streams()
    if any(isinstance(handler, _LogHandler) for handler in log.handlers):
        return
    handler = _LogHandler()
    handler.setFormatter(_LogFormatter())
    log.addHandler(handler)
    log.setLevel(logging.INFO)
    log.propagate = False


@contextlib.contextmanager
def log_also_to(handler: logging.Handler) -> Iterator[None]:
    """Sends every record of level INFO and above to `handler` too; other handlers get the same as before.

    In a program that imports nmt, that program sets the level of the log; the default is WARNING.
    """
    level, set_level = log.getEffectiveLevel(), log.level
    others = [] if level <= logging.INFO else _handlers()

    def as_before(record: logging.LogRecord) -> bool:
        return record.name != log.name or record.levelno >= level

    for other in others:
        other.addFilter(as_before)
    if others:
        log.setLevel(logging.INFO)
    log.addHandler(handler)
    try:
        yield
    finally:
        log.removeHandler(handler)
        if others:
            log.setLevel(set_level)
        for other in others:
            other.removeFilter(as_before)


def _handlers() -> list[logging.Handler]:
    """Returns all handlers that get records of the log."""
    handlers: list[logging.Handler] = []
    logger: logging.Logger | None = log
    while logger is not None:
        handlers += logger.handlers
        logger = logger.parent if logger.propagate else None
    return [*handlers, *filter(None, [logging.lastResort])]


class _LogFormatter(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        mark = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return mark + printable(super().format(record))


def printable(text: str) -> str:
    """Escapes the control characters in a text for a terminal; untrusted files may contain them."""
    return text.translate(_ESCAPED)


def visible(text: str) -> str:
    """Returns the text with all unprintable characters as Python escapes, for a terminal or a page."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


_CONTROLS = (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPED = {code: ascii(chr(code))[1:-1] for code in _CONTROLS if chr(code) not in "\n\t"}
