"""The decision of the last update: in simulated trainings, and in real ones that are made longer."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from toy_trainings import prepared_pairs, toy_trainer

from nmt.config import ScheduleConfig, TrainingConfig
from nmt.training.ending import End, Ending
from nmt.training.state.progress import LIMITS, Progress, value_of
from nmt.training.update.schedule import Decay, build_schedule, learning_rate

WSD = ScheduleConfig(name="wsd", peak=0.01, warmup_updates=4)


class Clock:
    """A forecast of updates of `pace` seconds, which may change."""

    def __init__(self, options: TrainingConfig, pace: float, final: float = 0.0) -> None:
        self.options, self.pace, self.final = options, pace, final

    def ends(self, progress: Progress) -> dict[str, float]:
        ends = {"max_updates": float(self.options.max_updates)}
        if self.options.budget_minutes is not None:
            left = 60 * self.options.budget_minutes - progress.total_seconds - self.final
            ends["budget"] = progress.update + left / self.pace
        return ends


def simulated(
    clock: Clock, progress: Progress, *, slower: tuple[int, float] = (10**9, 1.0), finish: int = 10**9
) -> Progress:
    """Trains without a model; from one update each is slower, from another an end is requested."""
    options = clock.options
    schedule = build_schedule(options.schedule, 512, options.max_updates)
    ending: Any = Ending(options, schedule, clock, lambda: progress.update >= finish)  # type: ignore[arg-type]
    while progress.ended(options) is None:
        progress.advance()
        if progress.update == slower[0]:
            clock.pace *= slower[1]
        progress.total_seconds += clock.pace
        if (end := ending.decided(progress)) is not None:
            rate = learning_rate(schedule, progress.update, progress.decays)
            value = value_of(end.limit, options)
            progress.decays.append(Decay(progress.update, end.last, rate, end.limit, value))
    return progress


def test_the_rate_falls_in_the_last_quarter() -> None:
    done = simulated(Clock(TrainingConfig(schedule=WSD, max_updates=100), 1.0), Progress())
    assert done.decays == [Decay(75, 100, 0.01, "max_updates", 100.0)]
    schedule = build_schedule(WSD, 512, 100)
    rates = [learning_rate(schedule, update, done.decays) for update in (1, 4, 75, 80, 99, 100)]
    assert rates == pytest.approx([0.0025, 0.01, 0.01, 0.008, 0.0004, 0.0])


@pytest.mark.parametrize(("slower", "seconds"), [((10**9, 1.0), 540), ((500, 1.5), 540), ((420, 0.5), 540)])
def test_a_budget_is_used_whatever_the_speed(slower: tuple[int, float], seconds: float) -> None:
    options = TrainingConfig(schedule=WSD, max_updates=10**6, budget="10m")
    done = simulated(Clock(options, 1.0, final=60.0), Progress(), slower=slower)
    assert done.ended(options) == "training.budget=10m is reached"
    assert done.total_seconds == pytest.approx(seconds, rel=0.025)
    rates = [learning_rate(build_schedule(WSD, 512, 1), n, done.decays) for n in range(4, done.update + 1)]
    assert rates == sorted(rates, reverse=True) and rates[-1] == 0.0


def test_early_stopping_begins_the_fall() -> None:
    options = TrainingConfig(schedule=WSD, max_updates=1000, patience=2)
    done = simulated(Clock(options, 1.0), Progress(update=299, worse_validations=2))
    assert done.decays == [Decay(300, 400, 0.01, "patience", 2.0)]
    assert done.ended(options) == "training.patience=2 is reached"


@pytest.mark.parametrize(
    ("name", "finish", "decays"),
    [
        ("wsd", 60, [Decay(60, 80, 0.01, "finish", 100.0)]),
        ("wsd", 80, [Decay(75, 100, 0.01, "max_updates", 100.0)]),  # it falls already
        ("constant", 60, [Decay(60, 60, 0.01, "finish", 100.0)]),
    ],
)
def test_a_requested_end(name: str, finish: int, decays: list[Decay]) -> None:
    options = TrainingConfig(schedule=replace(WSD, name=name), max_updates=100)
    done = simulated(Clock(options, 1.0), Progress(), finish=finish)
    assert done.decays == decays and done.update == decays[0].end
    assert done.ended(options) in ("the end was requested", "training.max_updates=100 is reached")


def test_a_budget_that_is_used_already_allows_a_short_fall() -> None:
    options = TrainingConfig(schedule=WSD, max_updates=1000, budget="1m")
    done = simulated(Clock(options, 1.0), Progress(update=199, total_seconds=199.0))
    assert done.decays == [Decay(200, 210, 0.01, "budget", 1.0)]


def test_a_smaller_limit_shortens_the_fall() -> None:
    begun = Progress(update=80, decays=[Decay(75, 100, 0.01, "max_updates", 100.0)])
    done = simulated(Clock(TrainingConfig(schedule=WSD, max_updates=90), 1.0), begun)
    assert done.update == 90 and done.decays[1] == Decay(81, 90, pytest.approx(0.0076), "max_updates", 90.0)


def test_another_schedule_ends_when_the_budget_is_used() -> None:
    options = TrainingConfig(max_updates=1000, budget="2m")
    done = simulated(Clock(options, 1.0, final=20.0), Progress())
    assert done.update == 100 and done.ended(options) == "training.budget=2m is reached"


@pytest.mark.parametrize("limit", LIMITS)
def test_every_limit_has_a_value(limit: str) -> None:
    expected = {"max_updates": 7.0, "finish": 7.0}.get(limit, math.inf)
    assert value_of(limit, TrainingConfig(max_updates=7)) == expected
    two_hours = TrainingConfig(max_updates=7, budget="2h")
    assert (value_of("budget", two_hours), value_of("finish", two_hours)) == (120.0, 127.0)
    assert End(3, limit).limit == limit


def test_a_longer_training_is_that_without_the_fall(tmp_path: Path) -> None:
    """Its weights are, bit for bit, those of a training that had this length from the start."""
    prepared = prepared_pairs(tmp_path)
    options = {"schedule": WSD, "checkpoint_every": 7, "validate_every": 5, "patience": 50}
    whole = toy_trainer(prepared, tmp_path / "whole", max_updates=32, **options)
    assert whole.train()
    assert toy_trainer(prepared, tmp_path / "parts", max_updates=20, **options).train()
    parts = toy_trainer(prepared, tmp_path / "parts", max_updates=32, **options)
    assert parts.train()
    assert parts.progress.decays == whole.progress.decays == [Decay(24, 32, 0.01, "max_updates", 32.0)]
    assert parts.progress.worse_validations == whole.progress.worse_validations > 0
    for a, b in zip(whole.model.parameters(), parts.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_a_stop_in_the_fall_changes_nothing(tmp_path: Path) -> None:
    prepared = prepared_pairs(tmp_path)
    options = {"schedule": WSD, "max_updates": 24, "validate_every": 100}
    whole = toy_trainer(prepared, tmp_path / "whole", **options)
    assert whole.train()
    stopped = toy_trainer(prepared, tmp_path / "parts", **options)
    stopped.stop = lambda: stopped.progress.update == 20
    assert not stopped.train()
    resumed = toy_trainer(prepared, tmp_path / "parts", **options)
    assert resumed.train() and resumed.progress.decays == whole.progress.decays
    for a, b in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        assert torch.equal(a, b)


def test_the_file_finish_ends_a_training_that_may_become_longer(tmp_path: Path) -> None:
    prepared = prepared_pairs(tmp_path)
    options: dict[str, Any] = {"schedule": WSD, "max_updates": 40, "validate_every": 100}
    stopped = toy_trainer(prepared, tmp_path / "run", **options)
    stopped.stop = lambda: stopped.progress.update == 11
    assert not stopped.train()
    stopped.folder.finish.touch()
    resumed = toy_trainer(prepared, tmp_path / "run", **options)
    assert resumed.train() and resumed.progress.decays == [Decay(14, 19, 0.01, "finish", 40.0)]
    assert not stopped.folder.finish.exists()
    again = toy_trainer(prepared, tmp_path / "run", **options)
    assert again.train() and again.progress.update == 19
    longer = toy_trainer(prepared, tmp_path / "run", **{**options, "max_updates": 44})
    assert longer.train() and longer.progress.decays == [Decay(33, 44, 0.01, "max_updates", 44.0)]


def test_a_finished_training_writes_nothing(tmp_path: Path) -> None:
    prepared = prepared_pairs(tmp_path)
    options = {"schedule": WSD, "max_updates": 5, "validate_every": 5}
    assert toy_trainer(prepared, tmp_path / "run", **options).train()
    state = tmp_path / "run" / "checkpoints" / "update-00000005" / "state.json"
    before = state.stat().st_mtime_ns, state.stat().st_ino
    assert toy_trainer(prepared, tmp_path / "run", **options).train()
    assert (state.stat().st_mtime_ns, state.stat().st_ino) == before
