"""Signals become a stop request, once, and only inside `listening`."""

from __future__ import annotations

import signal
import subprocess
import sys
import threading

import pytest

from nmt.runtime.guest import Guest, as_guest
from nmt.runtime.signals import STOP_SIGNALS
from nmt.training.processes.stopping import Stopped, StopRequest


@pytest.mark.parametrize(
    "signum",
    [signal.Signals[f"SIG{name}"] for name in "INT TERM HUP QUIT USR1 USR2 XCPU".split()],
)
def test_a_signal_is_heard_and_the_handlers_are_put_back(signum: signal.Signals) -> None:
    before = list(map(signal.getsignal, STOP_SIGNALS))
    stop, notices = StopRequest(), []
    with stop.listening(lambda: notices.append("heard")):
        assert not stop()
        signal.raise_signal(signum)
        assert stop() and stop.signum == signum
        assert signal.getsignal(signal.SIGINT) is signal.SIG_DFL  # the next Ctrl-C kills
        signal.raise_signal(signal.SIGTERM)
    assert notices == ["heard"] and stop.signum == signum
    assert list(map(signal.getsignal, STOP_SIGNALS)) == before


@pytest.mark.parametrize("signum", [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1])
def test_an_ignored_signal_stays_ignored(signum: signal.Signals) -> None:
    before = signal.signal(signum, signal.SIG_IGN)
    try:
        stop = StopRequest()
        with stop.listening(lambda: None):
            signal.raise_signal(signum)
            assert not stop()
            signal.raise_signal(signal.SIGTERM)
            assert signal.getsignal(signum) is signal.SIG_IGN
        assert stop.signum == signal.SIGTERM
    finally:
        signal.signal(signum, before)


@pytest.mark.parametrize("host", [None, Guest()])
@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
def test_in_a_launched_rank_the_second_is_the_first_once_more(signum: int, host: Guest | None) -> None:
    stop = StopRequest()
    with as_guest(host), stop.listening(lambda: None, launched=True):
        signal.raise_signal(signum)
        signal.raise_signal(signum)
    assert stop.signum == signum


def test_in_another_thread_nothing_is_touched() -> None:
    before = signal.getsignal(signal.SIGINT)
    seen: list[object] = []

    def embedded() -> None:
        with StopRequest().listening(lambda: None):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=embedded)
    thread.start()
    thread.join()
    assert seen == [before]


@pytest.mark.parametrize(
    ("signum", "status"), [(signal.SIGINT, 130), (signal.SIGTERM, 143), (signal.SIGHUP, 129), (None, 143)]
)
def test_exit_status(signum: int | None, status: int) -> None:
    assert Stopped(signum).code == status


def test_a_signal_in_the_midst_of_writing_is_no_crash() -> None:
    """Python refuses to write to a stream while it is writing to it."""

    def notice() -> None:
        raise RuntimeError("reentrant call inside <_io.BufferedWriter>")

    stop = StopRequest()
    with stop.listening(notice):
        signal.raise_signal(signal.SIGTERM)
    assert stop.signum == signal.SIGTERM


def test_a_guest_hears_ctrl_c_alone_and_the_second_raises() -> None:
    before = list(map(signal.getsignal, STOP_SIGNALS))
    stop, notices = StopRequest(), []
    with pytest.raises(KeyboardInterrupt), as_guest(Guest()), stop.listening(lambda: notices.append("heard")):
        assert list(map(signal.getsignal, STOP_SIGNALS[1:])) == before[1:]
        signal.raise_signal(signal.SIGINT)
        assert stop.signum == signal.SIGINT and notices == ["heard"]
        signal.raise_signal(signal.SIGINT)
    assert list(map(signal.getsignal, STOP_SIGNALS)) == before


def test_a_guest_leaves_a_handler_of_its_host() -> None:
    caught: list[int] = []
    before = signal.signal(signal.SIGINT, lambda signum, frame: caught.append(signum))
    try:
        stop = StopRequest()
        with as_guest(Guest()), stop.listening(lambda: None):
            signal.raise_signal(signal.SIGINT)
        assert caught == [signal.SIGINT] and not stop()
    finally:
        signal.signal(signal.SIGINT, before)


def test_the_end_of_the_program_is_a_request_to_a_daemon_thread() -> None:
    script = """
import threading, time
from nmt.training.processes.stopping import StopRequest
stop, begun = StopRequest(), threading.Event()
def train():
    with stop.listening(lambda: print("noticed\\n", end="")):
        begun.set()
        while not stop():
            time.sleep(0.001)
        print("saved\\n", end="")
threading.Thread(target=train, daemon=True).start()
begun.wait()
print("end")
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr, done.returncode) == ("end\nnoticed\nsaved\n", "", 0)
