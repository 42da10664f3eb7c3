"""The resource tracker survives signals to its process group."""

from __future__ import annotations

import subprocess
import sys

import pytest

SCRIPT = """
import os, signal, sys, time
from multiprocessing import resource_tracker
from nmt.runtime import start_resource_tracker

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


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2", "SIGXCPU"])
def test_the_resource_tracker_outlives_signals_to_the_whole_group(name: str) -> None:
    result = subprocess.run(
        [sys.executable, "-c", SCRIPT, name],
        capture_output=True,
        text=True,
        timeout=60,
        start_new_session=True,
    )
    assert (result.stdout, result.stderr) == ("same\nset()\n", "")
