"""Commands of other programs: their input and output, and their end if this process is stopped."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from typing import Any

import pytest

from nmt.runtime.commands import run_command
from nmt.runtime.signals import stop_signals_delayed


def test_a_command_reads_and_writes() -> None:
    ended = run_command(["sh", "-c", "cat; echo äh >&2; exit 3"], os.environ, "Grüße\n" * 20_000)
    assert (ended.returncode, ended.stdout, ended.stderr) == (3, "Grüße\n" * 20_000, "äh\n")


def test_a_signal_in_the_moment_of_the_start_ends_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    started: list[subprocess.Popen[bytes]] = []

    class Signalled(subprocess.Popen[bytes]):
        def __init__(self, *arguments: Any, **options: Any) -> None:
            super().__init__(*arguments, **options)
            started.append(self)
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(subprocess, "Popen", Signalled)
    with pytest.raises(KeyboardInterrupt):
        run_command(["sleep", "60"], os.environ)
    assert started[0].poll() == -signal.SIGKILL


def test_a_delayed_signal_raises_after_the_body() -> None:
    handler, steps = signal.getsignal(signal.SIGINT), []
    with pytest.raises(KeyboardInterrupt), stop_signals_delayed():
        signal.raise_signal(signal.SIGINT)
        steps.append("end of the body")
    assert steps and signal.getsignal(signal.SIGINT) is handler


def test_threads_delay_nothing() -> None:
    """Python calls handlers in the main thread, and only that may set them."""
    seen: list[Any] = []

    def work() -> None:
        with stop_signals_delayed():
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]
