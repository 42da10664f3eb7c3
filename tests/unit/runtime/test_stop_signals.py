"""Stop signals at difficult moments, and the resource tracker, which outlives them."""

from __future__ import annotations

import signal
import subprocess
import sys

import pytest

TRACKER = """
import os, signal, sys, time
from multiprocessing import resource_tracker
from nmt.runtime.signals import start_resource_tracker

start_resource_tracker()
tracker = resource_tracker._resource_tracker
pid = tracker._pid
signal.signal(signal.Signals[sys.argv[1]], lambda *_: None)
os.killpg(0, signal.Signals[sys.argv[1]])
time.sleep(0.2)
start_resource_tracker()
print("same" if tracker._pid == pid else "started anew")
print(signal.pthread_sigmask(signal.SIG_BLOCK, []))
"""

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
    command = [sys.executable, "-c", code, name]
    result = subprocess.run(command, capture_output=True, text=True, timeout=60, start_new_session=True)
    return result.returncode, result.stdout, result.stderr


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU"])
def test_the_resource_tracker_outlives_signals_to_the_whole_group(name: str) -> None:
    assert run(TRACKER, name) == (0, "same\nset()\n", "")


@pytest.mark.parametrize(
    ("name", "line"),
    [("SIGTERM", "stopped (SIGTERM)"), ("SIGHUP", "stopped (SIGHUP)"), ("SIGINT", "stopped")],
)
def test_a_signal_in_a_finalizer_stops_the_command(name: str, line: str) -> None:
    assert run(IN_A_FINALIZER, name) == (128 + signal.Signals[name], "", f"nmt-x: {line}\n")


@pytest.mark.parametrize("name", ["SIGTERM", "SIGHUP", "SIGINT"])
def test_a_signal_at_the_exit_ends_the_process_silently(name: str) -> None:
    assert run(AT_THE_END, name) == (-signal.Signals[name], "done\n", "")
