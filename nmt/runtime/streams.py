"""The standard streams: the log and progress bars on standard error, and streams that are closed or fail."""

from __future__ import annotations

import contextlib
import io
import logging
import os
import sys
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from nmt.runtime.guest import guest

if TYPE_CHECKING:
    from tqdm import tqdm

log = logging.getLogger("nmt")
"""Everything the program has to say about its work; the commands send it to standard error."""


def progress(*, total: int | None, unit: str, description: str) -> tqdm[Any]:
    """A progress bar with rate on standard error, shown once the work has taken two seconds.

    Use it as a context manager and call `update(n)`. Where standard error is not a terminal it prints a line
    every half minute instead of redrawing. A guest shows none unless its caller wants it.
    """
    from tqdm import tqdm

    call = guest()
    if call is not None and not call.progress:
        return tqdm(total=total, disable=True)
    live = sys.stderr.isatty()
    raw = _raw_stderr()
    kind = _bar() if live else _line_by_line()
    return kind(
        total=total,
        unit=f" {unit}",
        unit_scale=total is None or total >= 100_000,  # "1.23M pairs", but "7800 updates"
        desc=description,
        delay=2.0,
        mininterval=0.2 if live else 30.0,
        dynamic_ncols=live,
        leave=False,
        file=sys.stderr if raw is None or not live else _BarStream(raw),
    )


def _bar() -> type[tqdm[Any]]:
    """The kind of bar for terminals."""
    from tqdm import tqdm

    class Bar(tqdm):  # type: ignore[type-arg]
        # Until the constructor sets it: if a signal ends that, nothing is there that `__del__` could close.
        disable: bool = True

    return Bar


def _line_by_line() -> type[tqdm[Any]]:
    """The kind of bar for files and pipes: each state is a line, and nothing is erased or drawn again."""
    from tqdm import tqdm

    class Lines(tqdm):  # type: ignore[type-arg]
        disable: bool = True  # as above

        @staticmethod
        def status_printer(file: Any) -> Any:
            return lambda state: print(state, file=file, flush=True) if state else None

        def moveto(self, n: int) -> None:
            pass

        def clear(self, nolock: bool = False) -> None:
            pass

        def refresh(self, nolock: bool = False, lock_args: Any = None) -> None:
            if not nolock:  # `nolock`: drawn again after a line of the log
                super().refresh(nolock, lock_args)

        def close(self) -> None:
            if not self.disable:
                self.disable = True
                type(self)._decr_instances(self)  # type: ignore[attr-defined]

    return Lines


class _LogHandler(logging.Handler):
    """Writes through tqdm, so that a line of the log does not tear a progress bar."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm

        tqdm.write(self.format(record), file=sys.stderr)


class _Lossy(io.FileIO):
    """Standard error, which swallows what can't be written and begins every message on a line of its own.

    Attributes:
        half_line: whether something stands on the terminal's present line, such as a progress bar or `^C`.
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


_ERASE = b"\r\x1b[K"  # to the beginning of the line, and delete it


class _BarStream(io.TextIOBase):
    """What tqdm writes to: the same terminal as standard error, by another way than messages."""

    encoding = "utf-8"

    def __init__(self, raw: _Lossy) -> None:
        self._raw = raw

    def write(self, text: str) -> int:
        self._raw.draw(text.encode(errors="backslashreplace"))
        return len(text)

    def isatty(self) -> bool:
        return self._raw.isatty()

    def fileno(self) -> int:
        return self._raw.fileno()


def _raw_stderr() -> _Lossy | None:
    """Standard error as `steady_streams` has set it up; None where it is somebody else's."""
    raw = getattr(getattr(sys.stderr, "buffer", None), "raw", None)
    return raw if isinstance(raw, _Lossy) else None


def mark_line() -> None:
    """Says that the terminal's present line holds something, such as the `^C` that it shows."""
    if (raw := _raw_stderr()) is not None:
        raw.half_line = True


def share_terminal(shared: bool) -> None:
    """Says whether other processes draw progress bars on the terminal of this one."""
    if (raw := _raw_stderr()) is not None:
        raw.others_draw = shared


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


@contextlib.contextmanager
def log_also_to(handler: logging.Handler) -> Iterator[None]:
    """Within, `handler` gets every record from the information level on; other handlers get what they got.

    In a program that imports nmt, the log has the level that the program gives it, by default that of
    warnings.
    """
    level, own_level = log.getEffectiveLevel(), log.level
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
            log.setLevel(own_level)
        for other in others:
            other.removeFilter(as_before)


def _handlers() -> list[logging.Handler]:
    """All handlers that get records of the log."""
    found: list[logging.Handler] = []
    logger: logging.Logger | None = log
    while logger is not None:
        found += logger.handlers
        logger = logger.parent if logger.propagate else None
    return [*found, *filter(None, [logging.lastResort])]


class _Plain(logging.Formatter):
    def format(self, record: logging.LogRecord) -> str:
        mark = f"{record.levelname.lower()}: " if record.levelno >= logging.WARNING else ""
        return mark + printable(super().format(record))


def printable(text: str) -> str:
    """Text for a terminal: controls that it would obey, which files from strangers may hold, are escaped."""
    return text.translate(_ESCAPED)


_CONTROLS = (*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F), *range(0x2066, 0x206A))
_ESCAPED = {code: ascii(chr(code))[1:-1] for code in _CONTROLS if chr(code) not in "\n\t"}
