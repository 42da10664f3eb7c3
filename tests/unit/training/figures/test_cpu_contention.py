"""The warning that other programs use the cores: its condition, its words, and that it is logged once."""

from __future__ import annotations

import logging

import pytest

from nmt.runtime import log, machine, queued_seconds
from nmt.training.figures import meter
from nmt.training.figures.meter import CpuContention


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> pytest.LogCaptureFixture:
    monkeypatch.setattr(log, "propagate", True)
    monkeypatch.setattr(meter, "available_cores", lambda: 2)
    caplog.set_level(logging.INFO, "nmt")
    return caplog


class Machine:
    """A simulated clock, and the time that the threads have waited."""

    def __init__(self) -> None:
        self.time, self.waited = 100.0, 1.0

    def watch(self, threads: int, processes: int = 1) -> CpuContention:
        return CpuContention(threads, processes, lambda: self.waited, lambda: self.time)


@pytest.mark.parametrize(
    ("threads", "processes", "waited", "words"),
    [
        (2, 1, 0.5, None),
        (2, 1, 9.9, None),
        (2, 1, 10.1, "training waits 25% of its time for a CPU core (MFU 7%)"),
        (2, 1, 20.0, "or give training.threads=1: threads also wait"),
        (1, 2, 10.0, "or give training.devices=1 training.threads=1: threads also wait"),
        (1, 1, 10.0, "other programs use the 2 cores of this machine. End them or use another machine"),
        (1, 1, 30.0, "waits 100% of"),  # a thread other than the computing ones waits too
    ],
)
def test_it_warns_when_a_quarter_of_the_time_is_lost(
    threads: int, processes: int, waited: float, words: str | None, said: pytest.LogCaptureFixture
) -> None:
    here = Machine()
    watch = here.watch(threads, processes)
    here.time, here.waited = 119.0, 30.0
    watch.look(0.07)
    assert not said.messages  # the period is too short
    here.time, here.waited = 120.0, 1.0 + waited
    watch.look(0.07)
    assert len(said.messages) == (words is not None)
    if words is not None:
        assert words in said.messages[0]
        assert (threads * processes > 1) == ("threads=1" in said.messages[0])


def test_it_warns_once_and_looks_at_the_last_seconds(said: pytest.LogCaptureFixture) -> None:
    here = Machine()
    watch = here.watch(1)
    for _ in range(9):  # three quiet minutes
        here.time += 20.0
        watch.look(0.5)
    for _ in range(3):
        here.time, here.waited = here.time + 20.0, here.waited + 15.0
        watch.look(0.1)
    assert len(said.messages) == 1


def test_where_nothing_is_told_nothing_is_said(said: pytest.LogCaptureFixture) -> None:
    times = iter([0.0, 50.0, 100.0])
    watch = CpuContention(1, 1, lambda: None, lambda: next(times))
    watch.look(0.1)
    watch.look(0.1)
    assert not said.messages


def test_the_wait_of_all_threads_is_added_up(tmp_path: machine.Path) -> None:
    for name, text in (("7", "900 1500000000 3\n"), ("8", "900 500000000 3\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "schedstat").write_text(text)
    (tmp_path / "9").mkdir()  # a thread that has ended
    assert queued_seconds(tmp_path) == 2.0
    assert queued_seconds(tmp_path / "none") is None
    (tmp_path / "7/schedstat").write_text("0 0 0\n")
    (tmp_path / "8/schedstat").write_text("0 0 0\n")
    assert queued_seconds(tmp_path) is None  # a kernel without these counts
