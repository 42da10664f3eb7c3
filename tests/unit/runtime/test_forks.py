"""Forks of a process that uses nmt: no child waits forever, and no lock is lost."""

from __future__ import annotations

import multiprocessing
import os
import subprocess
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch

from nmt.errors import UserError
from nmt.runtime import forks, guest
from nmt.runtime.forks import is_forked, own_forks, undivided
from nmt.runtime.machine import set_threads

FORK: Any = multiprocessing.get_context("fork")
DIVIDED = "this process was forked while another thread of its parent used nmt. Fork it before, or use the"


def in_child(work: Callable[[], Any]) -> Any:
    """Returns what `work` returns, or the message of its error, in a forked process; it has ten seconds."""
    here, there = FORK.Pipe()

    def run() -> None:
        try:
            there.send(work())
        except Exception as error:
            there.send(str(error))

    process = FORK.Process(target=run, daemon=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        process.start()
    try:
        assert here.poll(10), "the child hangs"
        return here.recv()
    finally:
        process.kill()
        process.join()


@contextmanager
def in_thread(section: Any) -> Iterator[threading.Event]:
    """Another thread is in `section` until the event is set, or the body has ended."""
    entered, leave = threading.Event(), threading.Event()

    def work() -> None:
        with section:
            entered.set()
            leave.wait(20)

    thread = threading.Thread(target=work)
    thread.start()
    assert entered.wait(10)
    try:
        yield leave
    finally:
        leave.set()
        thread.join()


def enter() -> str:
    with undivided(), undivided():
        return "entered"


def test_a_fork_waits_for_the_sections_of_other_threads() -> None:
    with in_thread(undivided()) as leave:
        threading.Timer(0.1, leave.set).start()
        assert in_child(lambda: (leave.is_set(), enter(), len(forks._forks.sections))) == (True, "entered", 0)
    assert enter() == "entered"


def test_a_fork_does_not_wait_for_its_own_section() -> None:
    with undivided():
        assert in_child(enter) == "entered"
    assert not forks._forks.sections


def test_a_child_of_a_divided_section_says_so_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(forks, "_PATIENCE", 0.05)
    with in_thread(undivided()):
        assert in_child(enter).startswith(DIVIDED)
        with own_forks():
            assert in_child(enter) == "entered"
    with pytest.raises(UserError, match=DIVIDED):
        monkeypatch.setattr(forks._forks, "divided", True)
        enter()


def test_a_forked_process_computes_with_one_thread() -> None:
    def threads() -> tuple[bool, int]:
        set_threads(2)
        return is_forked(), torch.get_num_threads()

    before = torch.get_num_threads()
    try:
        assert threads() == (False, 2)
        torch.randn(1000, 1000).exp()  # starts the threads of OpenMP
        assert in_child(threads) == (True, 1)
        with own_forks():  # its caller sets the threads
            assert in_child(threads) == (False, 2)
    finally:
        torch.set_num_threads(before)


def test_a_child_restores_the_state_that_only_other_threads_have_changed() -> None:
    name = "NMT_ONLY_IN_A_CALL"

    @contextmanager
    def changed() -> Iterator[None]:
        os.environ[name] = "1"
        yield
        os.environ.pop(name, None)

    shared = guest._Shared(changed)

    def seen() -> tuple[bool, int]:
        with shared.preserved():
            pass
        return name in os.environ, len(shared._threads)

    with in_thread(shared.preserved()):
        assert in_child(lambda: name in os.environ) is False
        assert in_child(seen) == (False, 0)
        with shared.preserved():
            assert in_child(lambda: (name in os.environ, len(shared._threads))) == (True, 1)
    assert seen() == (False, 0)


def test_the_end_of_the_program_waits_for_the_section_of_a_daemon_thread() -> None:
    script = """
import atexit, threading, time
def end():
    sections = len(done)
    time.sleep(0.2)
    print(sections > 0, len(done) == sections, nmt.runtime.forks.undivided().__enter__())
atexit.register(end)  # runs after the handler of nmt, which is registered later
import nmt.runtime.forks
done, begun = [], threading.Event()
def translate():
    while True:
        with nmt.runtime.forks.undivided():
            begun.set()
            time.sleep(0.05)
            done.append("section")
threading.Thread(target=translate, daemon=True).start()
begun.wait()
"""
    ended = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)
    assert (ended.stdout, ended.stderr, ended.returncode) == ("True True None\n", "", 0)
