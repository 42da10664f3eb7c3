"""Every message on standard error begins on a new line, from any writer, on a terminal or in a pipe."""

from __future__ import annotations

import fcntl
import io
import logging
import os
import pty
import signal
import struct
import subprocess
import sys
import termios
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator
from contextlib import redirect_stderr
from typing import Any

import pytest

from nmt.runtime import streams
from nmt.runtime.guest import Guest, as_guest
from nmt.runtime.streams import mark_line, progress, share_terminal


def rows(written: bytes) -> list[str]:
    """Returns the rows that a terminal shows after this output, without blank rows."""
    screen: list[list[str]] = [[]]
    column = 0
    for part in written.decode().replace("\r\n", "\n").replace("\n", "\r\n").replace("\x1b[K", "\0"):
        row = screen[-1]
        if part == "\r":
            column = 0
        elif part == "\n":
            screen.append([])
        elif part == "\0":
            del row[column:]
        else:
            row.extend(" " * (column + 1 - len(row)))
            row[column] = part
            column += 1
    texts = ("".join(row).rstrip() for row in screen)
    return [text for text in texts if text]


class Stderr:
    """Standard error as `steady_streams` sets it up, on a terminal or in a pipe."""

    def __init__(self, theirs: int, ours: int) -> None:
        self._ours = ours
        raw = io.BufferedWriter(streams._LossyStderr(theirs, "w"))
        self.stream = io.TextIOWrapper(raw, "utf-8", line_buffering=True)

    def written(self) -> bytes:
        self.stream.close()
        found = b""
        while True:
            try:
                chunk = os.read(self._ours, 1 << 16)
            except OSError:  # the end of a terminal
                chunk = b""
            if not chunk:
                return found
            found += chunk


@pytest.fixture(params=["terminal", "pipe"])
def stderr(request: pytest.FixtureRequest) -> Iterator[Stderr]:
    if request.param == "terminal":
        ours, theirs = pty.openpty()
        fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    else:
        ours, theirs = os.pipe()
    found = Stderr(theirs, ours)
    yield found
    found.stream.close()
    os.close(ours)


def with_bar(work: Callable[[], object]) -> None:
    """Runs `work` while a bar is shown, and draws the bar again."""
    bar = progress(total=100, unit="updates", description="training")
    bar.update(3)
    bar.refresh()
    work()
    bar.refresh()
    bar.close()


def log_line() -> None:
    record = logging.LogRecord("nmt", logging.INFO, "", 0, "no space left", None, None)
    streams._LogHandler().emit(record)


def failing_thread() -> None:
    hook = threading.excepthook
    threading.excepthook = threading.__excepthook__
    thread = threading.Thread(target=lambda: int("no space left"))
    thread.start()
    thread.join()
    threading.excepthook = hook


def failure() -> None:
    try:
        int("no space left")
    except ValueError:
        traceback.print_exc()


def two_at_once() -> None:
    print("no space ", end="", file=sys.stderr)
    print("left", file=sys.stderr)


WRITERS: dict[str, Callable[[], Any]] = {
    "print": lambda: print("no space left", file=sys.stderr),
    "pieces": two_at_once,
    "log": log_line,
    "traceback": failure,
    "thread": failing_thread,
    "warning": lambda: sys.stderr.write(warnings.formatwarning("no space left", UserWarning, "a.py", 3, "")),
}


@pytest.mark.parametrize("writer", WRITERS)
def test_a_message_beside_a_progress_bar(writer: str, stderr: Stderr) -> None:
    with redirect_stderr(stderr.stream):
        with_bar(WRITERS[writer])
    shown = rows(stderr.written())
    assert any("no space left" in row for row in shown)
    assert not any("training" in row and ("no space" in row or "Traceback" in row) for row in shown)


def test_a_bar_that_nobody_closed(stderr: Stderr) -> None:
    with redirect_stderr(stderr.stream):
        bar = progress(total=100, unit="updates", description="training")
        bar.refresh()
        print("no space left", file=sys.stderr)
        bar.disable = True
    assert "no space left" in rows(stderr.written())


@pytest.mark.parametrize("live", [True, False])
def test_a_bar_whose_constructor_a_signal_ended(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Python still calls its finaliser, which must not print an AttributeError."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: live, raising=False)
    kind = streams._terminal_bar() if live else streams._line_bar()
    kind.__new__(kind).__del__()


@pytest.mark.parametrize("live", [True, False])
def test_bars_start_no_threads(live: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """A thread for each bar would live as long as the process, which may make thousands of bars."""
    monkeypatch.setattr(sys.stderr, "isatty", lambda: live, raising=False)
    before = threading.enumerate()
    for _ in range(3):
        with progress(total=2, unit="lines", description="Reading") as bar:
            bar.update(2)
    assert threading.enumerate() == before


def test_a_guest_without_progress_needs_no_stderr(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stderr", None)
    with as_guest(Guest(progress=False)), progress(total=2, unit="lines", description="Reading") as bar:
        bar.update(2)


@pytest.mark.parametrize("mark", [mark_line, lambda: share_terminal(True)])
def test_what_others_leave_on_the_line(mark: Callable[[], None], stderr: Stderr) -> None:
    """The line may contain a key echoed by the terminal, or the bar of another process."""
    if not stderr.stream.isatty():
        pytest.skip("no bar is drawn into a pipe")
    os.write(stderr.stream.fileno(), b"training:  3%|#   ^C")
    with redirect_stderr(stderr.stream):
        mark()
        print("stopped", file=sys.stderr)
    assert rows(stderr.written()) == ["stopped"]


def test_without_bars_nothing_is_erased(stderr: Stderr) -> None:
    with redirect_stderr(stderr.stream):
        print("one\ntwo", file=sys.stderr)
    assert stderr.written().replace(b"\r\n", b"\n") == b"one\ntwo\n"


SESSION = """
import sys, time
from nmt.cli.app import end_with
from nmt.errors import UserError
from nmt.runtime.streams import progress
def work():
    bar = progress(total=100, unit="updates", description="training")
    bar.update(3)
    bar.refresh()
    if sys.argv[1] == "error":
        raise UserError("no space left")
    print("waiting")
    time.sleep(60)
end_with("nmt-train", work)
"""


@pytest.mark.parametrize(
    ("end", "status", "last"), [("error", 2, "no space left"), ("ctrl-c", 130, "stopped")]
)
def test_the_last_message_of_a_command(end: str, status: int, last: str) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(ours, termios.TIOCSWINSZ, struct.pack("4H", 24, 80, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-uc", SESSION, end], stdout=subprocess.PIPE, stderr=theirs, start_new_session=True
    )
    assert process.stdout is not None
    if end == "ctrl-c":
        assert process.stdout.readline() == b"waiting\n"
        os.write(theirs, b"^C")  # the terminal echoes it
        process.send_signal(signal.SIGINT)
    assert process.wait(60) == status
    os.close(theirs)
    written = b""
    while True:
        try:
            written += os.read(ours, 1 << 16)
        except OSError:
            break
    os.close(ours)
    process.stdout.close()
    assert rows(written)[-1] == f"nmt-train: {last}"


def test_the_log_marks_warnings_and_escapes_control_characters() -> None:
    code = (
        "from nmt.runtime.streams import log, log_to_stderr\n"
        "log_to_stderr(); log_to_stderr()\n"
        "log.info('one'); log.warning('two \\x1b[2J'); log.error('three\\u202e')"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert result.stderr == "one\nwarning: two \\x1b[2J\nerror: three\\u202e\n" and not result.stdout
