"""Runs cases, several at a time, and collects the faults of each."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from attack.case import Case
from attack.judge import complaints
from attack.prepared import TRAINING, write_corpus
from attack.process import Running, scratch, start
from attack.room import Room

_POLL = 0.01  # seconds


@dataclass(frozen=True)
class Outcome:
    """The outcome of a case.

    Attributes:
        case: the case.
        status: the exit status, -N after signal N; None after a hang.
        seconds: its duration.
        complaints: its faults; empty if it is correct.
        stderr: the end of standard error.
    """

    case: Case
    status: int | None
    seconds: float
    complaints: Sequence[str]
    stderr: str


def prepare(folder: Path) -> Path:
    """Creates the starting point of all cases in `folder`, unless it exists; see `prepared`."""
    if (folder / "run" / "model").is_dir():
        return folder
    toy = folder / "toy"
    write_corpus(toy)
    (folder / "cache").mkdir()
    case = Case("prepare/run", "nmt-train", TRAINING, expected=None)  # type: ignore[arg-type]
    room = Room(scratch(folder, "room"), folder)
    running = start(case, room, fresh=False)
    while (status := running.poll()) is None:
        time.sleep(_POLL)
    if status != 0:
        raise RuntimeError(f"the training that cases start from failed:\n{room.stderr.read_text()}")
    shutil.rmtree(folder / "cache")
    shutil.move(room.cache, folder / "cache")
    shutil.move(room.work / "run", folder / "run")
    shutil.rmtree(room.folder)
    return folder


def run(
    cases: Iterable[Case],
    prepared: Path,
    rooms: Path,
    *,
    jobs: int = 1,
    fresh: bool = False,
    keep: bool = False,
    told: Callable[[Outcome], None] = lambda outcome: None,
) -> list[Outcome]:
    """Runs cases.

    Args:
        cases: the cases.
        prepared: the folder that `prepare` returned.
        rooms: a folder for their rooms.
        jobs: the number of cases that run at a time.
        fresh: whether each runs in a fresh interpreter instead of a fork.
        keep: whether to retain the rooms of failing cases.
        told: called with each outcome.
    """
    outcomes = []
    for outcome in _outcomes(list(cases), prepared, rooms, jobs, fresh, keep):
        outcomes.append(outcome)
        told(outcome)
    return outcomes


def _outcomes(
    waiting: list[Case], prepared: Path, rooms: Path, jobs: int, fresh: bool, keep: bool
) -> Iterator[Outcome]:
    waiting.reverse()
    running: list[tuple[Running, dict[str, str]]] = []
    count = 0
    while waiting or running:
        while waiting and len(running) < jobs:
            case = waiting.pop()
            count += 1
            room = Room(scratch(rooms, f"{count:04d}"), prepared)
            if case.setup is not None:
                case.setup(room)
            before = room.snapshot()
            room.stderr.touch()
            running.append((start(case, room, fresh=fresh), before))
        for entry in list(running):
            process, before = entry
            status = process.poll()
            if status is None and not process.overdue():
                continue
            running.remove(entry)
            yield _finished(process, status, before, keep)
        time.sleep(_POLL)


def _finished(process: Running, status: int | None, before: dict[str, str], keep: bool) -> Outcome:
    room, seconds = process.room, time.monotonic() - process.started
    if status is None:
        process.kill()
        found = [f"hangs: not done after {seconds:.0f} s"]
    else:
        found = [f"a process was left behind: {line}" for line in process.left_behind()]
        found += complaints(process.case, room, status, before)
    stderr = room.stderr.read_bytes().decode(errors="replace")[-1500:]
    if not (keep and found):
        shutil.rmtree(room.folder, ignore_errors=True)
    return Outcome(process.case, status, seconds, found, stderr)
