"""Signals at moments in which Python does not let a handler's exception end the process."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

IN_A_FINALIZER = """
import signal, sys, time
from nmt.cli.app import end_with

class Ending:
    def __del__(self):
        signal.raise_signal(signal.Signals[sys.argv[1]])

def work():
    Ending()
    time.sleep(30)
    print("the signal is lost")

end_with("nmt-x", work)
"""

AT_THE_END = """
import atexit, signal, sys
from nmt.cli.app import end_with

atexit.register(lambda: signal.raise_signal(signal.Signals[sys.argv[1]]))
end_with("nmt-x", lambda: print("done"))
"""


def run(code: str, name: str) -> tuple[int, str, str]:
    result = subprocess.run([sys.executable, "-c", code, name], capture_output=True, text=True, timeout=60)
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("SIGTERM", "nmt-x: stopped (SIGTERM)\n"),
        ("SIGHUP", "nmt-x: stopped (SIGHUP)\n"),
        ("SIGINT", "nmt-x: stopped\n"),
    ],
)
def test_a_signal_in_a_finalizer_stops_the_command(name: str, line: str) -> None:
    assert run(IN_A_FINALIZER, name) == (128 + signal.Signals[name], "", line)


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_at_the_exit_ends_the_process_silently(name: str) -> None:
    assert run(AT_THE_END, name) == (-signal.Signals[name], "done\n", "")
