"""The watchdog: other processes that end with or without a message, one log line, foreign connections."""

from __future__ import annotations

import json
import math
import queue
import signal
import socket
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist

from nmt.errors import UserError
from nmt.runtime.signals import Terminated
from nmt.runtime.streams import log
from nmt.training.processes import watchdog
from nmt.training.processes.ranks import Ranks
from nmt.training.processes.watchdog import Watchdog, watched

PATIENCE = 30.0
HOSTS = ["one", "two", "three"]


class Others:
    """A watchdog with simulated other processes; records the exit status instead of exiting."""

    def __init__(self, rank: int, others: list[int], logs: bool = True) -> None:
        pairs = {other: socket.socketpair() for other in others}
        self.lines = {other: pair[1] for other, pair in pairs.items()}
        for line in self.lines.values():
            line.settimeout(PATIENCE)
        self.ends: queue.Queue[int] = queue.Queue()
        own = {other: pair[0].makefile("rwb") for other, pair in pairs.items()}
        self.watch = Watchdog(rank, own, HOSTS, logs=logs, end=self.ends.put)

    def say(self, other: int, status: int, text: str = "") -> None:
        self.lines[other].sendall(json.dumps({"status": status, "text": text}).encode() + b"\n")

    def hear(self, other: int) -> Any:
        return json.loads(self.lines[other].makefile().readline())

    def end(self) -> int:
        return self.ends.get(timeout=PATIENCE)


def test_a_death_without_a_word_ends_the_others_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    others = Others(0, [1, 2])
    others.lines[1].close()
    assert others.hear(2) == {"status": 1, "text": ""}
    assert others.end() == 1
    others.lines[2].close()  # it ends too
    assert [record.message.partition(":")[0] for record in caplog.records] == [
        "process 1 of the run, on two, ended without a message"
    ]
    assert others.ends.empty()


def test_an_error_of_another_process_comes_through(caplog: pytest.LogCaptureFixture) -> None:
    others = Others(0, [1, 2])
    others.say(2, 2, "reported: data.train.source=x: mend it")
    assert others.end() == 2
    assert others.hear(1) == {"status": 2, "text": ""}
    assert caplog.messages == ["process 2 of the run, on three, reported: data.train.source=x: mend it"]


def test_the_main_process_tells_its_own_error(caplog: pytest.LogCaptureFixture) -> None:
    others = Others(1, [0])
    others.say(0, 2, "mend it")
    assert others.end() == 2
    assert not caplog.messages


@pytest.mark.parametrize("logs", [False, True])
def test_the_death_of_the_main_process(logs: bool, caplog: pytest.LogCaptureFixture) -> None:
    log.setLevel("CRITICAL")  # as on all ranks but 0
    others = Others(1, [0], logs)
    others.lines[0].close()
    assert others.end() == 1
    assert ["process 0 of the run, on one," in text for text in caplog.messages] == [True] * logs


def test_done_is_no_death_and_waits_for_the_main_process() -> None:
    main, other = Others(0, [1]), Others(1, [0])
    main.say(1, 0)
    main.lines[1].close()
    done = threading.Thread(target=other.watch.finish)
    done.start()
    assert other.hear(0) == {"status": 0, "text": ""}
    done.join(0.1)
    assert done.is_alive()
    other.say(0, 0)
    done.join(PATIENCE)
    main.watch.finish()
    assert not done.is_alive() and main.ends.empty() and other.ends.empty()


@pytest.mark.parametrize("status", [None, 2])
def test_the_main_process_may_fail_after_the_others_are_done(status: int | None) -> None:
    """Rank 0 may fail while it creates and tests the model: then all ranks fail."""
    other = Others(1, [0])
    threading.Thread(target=other.watch.finish, daemon=True).start()
    assert other.hear(0) == {"status": 0, "text": ""}
    if status is not None:
        other.say(0, status)
    other.lines[0].shutdown(socket.SHUT_RDWR)
    assert other.end() == (status or 1)


class StrangerFirst(Ranks):
    """Ranks as threads of this process; before the others, another program connects to the port."""

    def share(self, value: Any, seconds: float = math.inf) -> Any:
        if self.is_main:
            with socket.create_connection(("localhost", value[0])) as stranger:
                stranger.sendall(b'{"key": "guessed", "rank": 1}\n')
        return super().share(value, seconds)


def test_the_processes_find_each_other(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MASTER_ADDR", "localhost")
    store = dist.HashStore()

    def work(rank: int) -> int:
        with watched(StrangerFirst(rank, 2, torch.device("cpu"), store), logs=True):
            return rank

    with ThreadPoolExecutor() as threads:
        assert list(threads.map(work, range(2), timeout=PATIENCE)) == [0, 1]


def test_a_rank_that_ended_while_it_joined_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watchdog, "_CONNECT", 0.1)
    ranks = Ranks(0, 2, torch.device("cpu"), dist.HashStore())
    with pytest.raises(UserError, match=r"^process 1 of the run \(of 2, .*\) ended while it joined"):
        watchdog.connect(ranks, logs=True)


def test_alone_there_is_nobody_to_watch() -> None:
    with watched(Ranks(0, 1, torch.device("cpu")), logs=True):
        pass


@pytest.mark.parametrize("logs", [False, True])
def test_a_signal_that_the_parent_relays_ends_a_process_at_once(
    logs: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    sent: list[int] = []

    class Recorder:
        def fail(self, status: int, text: str) -> None:
            """Notes the message; that of a watchdog waits some seconds before it is sent."""
            sent.append(status)

    monkeypatch.setattr(watchdog, "connect", lambda ranks, *, logs: Recorder())
    with pytest.raises(Terminated), watched(Ranks(1, 2, torch.device("cpu")), logs=logs):
        raise Terminated(signal.SIGTERM)
    assert sent == ([128 + signal.SIGTERM] if logs else [])
