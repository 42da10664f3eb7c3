"""Learning rates against values computed by hand."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from nmt.config import ScheduleConfig
from nmt.errors import UserError
from nmt.training.update import schedule
from nmt.training.update.schedule import SCHEDULES, Schedule, WarmedUp, build_schedule

NOAM, ROOT = "noam", "inverse_sqrt"
LINEAR, CONSTANT = "linear", "constant"


def learning_rate(update: int, config: ScheduleConfig, d_model: int, max_updates: int) -> float:
    return schedule.learning_rate(build_schedule(config, d_model, max_updates), update)


@pytest.mark.parametrize(
    ("update", "rate"),
    [
        (1, 1.7469e-07),  # 512**-0.5 * 4000**-1.5
        (2000, 3.4939e-04),
        (4000, 6.9877e-04),  # the maximum: 512**-0.5 * 4000**-0.5
        (16000, 3.4939e-04),
        (100000, 1.3975e-04),
    ],
)
def test_noam_is_equation_3(update: int, rate: float) -> None:
    config = ScheduleConfig(name=NOAM, warmup_updates=4000)
    assert learning_rate(update, config, 512, 100_000) == pytest.approx(rate, rel=1e-4)
    doubled = ScheduleConfig(name=NOAM, warmup_updates=4000, scale=2.0)
    assert learning_rate(update, doubled, 512, 100_000) == pytest.approx(2 * rate, rel=1e-4)


@pytest.mark.parametrize(
    ("name", "warmup", "rates"),
    [
        (ROOT, 4, {1: 0.25, 2: 0.5, 4: 1.0, 16: 0.5, 100: 0.2}),
        (LINEAR, 4, {1: 0.25, 4: 1.0, 8: 0.82, 14: 0.55, 24: 0.1, 30: 0.1}),
        (CONSTANT, 4, {1: 0.25, 3: 0.75, 4: 1.0, 5: 1.0, 1000: 1.0}),
        (ROOT, 0, {1: 1.0, 4: 0.5}),
        (CONSTANT, 0, {1: 1.0}),
        (LINEAR, 0, {12: 0.55, 24: 0.1}),
    ],
)
def test_schedules_with_a_peak(name: str, warmup: int, rates: dict[int, float]) -> None:
    config = ScheduleConfig(name=name, warmup_updates=warmup, peak=1.0, final=0.1)
    found = {update: learning_rate(update, config, 512, 24) for update in rates}
    assert found == pytest.approx(rates)


def test_no_warmup_and_a_warmup_longer_than_the_run() -> None:
    assert learning_rate(1, ScheduleConfig(name=NOAM, warmup_updates=0), 4, 10) == 0.5
    config = ScheduleConfig(name=LINEAR, warmup_updates=100, peak=1.0)
    assert learning_rate(10, config, 4, 10) == pytest.approx(0.1)


def test_linear_alone_depends_on_the_number_of_updates() -> None:
    built_in = {name: SCHEDULES[name].depends_on_max_updates for name in (NOAM, ROOT, LINEAR, CONSTANT)}
    assert built_in == {"noam": False, "inverse_sqrt": False, "linear": True, "constant": False}


class Steps(WarmedUp):
    """A schedule of a plugin: multiplies the rate by `factor` every `every` updates after the warm-up."""

    @dataclass(frozen=True)
    class Options:
        factor: float = 0.5
        every: int = 10

    def after_warmup(self, update: int) -> float:
        steps = (update - self.config.warmup_updates) // self.options.every
        return self.config.peak * self.options.factor**steps


@pytest.fixture
def steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(SCHEDULES, "steps", Steps)


def stepped(**options: Any) -> ScheduleConfig:
    return ScheduleConfig(name="steps", warmup_updates=4, peak=1.0, options=options)


@pytest.mark.usefixtures("steps")
def test_a_schedule_of_a_plugin_has_options_of_its_own() -> None:
    rates = {update: learning_rate(update, stepped(every=2), 512, 24) for update in (2, 4, 5, 6, 8, 11)}
    assert rates == {2: 0.5, 4: 1.0, 5: 1.0, 6: 0.5, 8: 0.25, 11: 0.125}
    assert learning_rate(24, stepped(factor=0.25), 512, 24) == 0.0625


@pytest.mark.usefixtures("steps")
@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            ScheduleConfig(name="cosine"),
            "training.schedule.name=cosine: there is no schedule cosine. "
            "Choose from noam, inverse_sqrt, linear, constant, wsd, steps.",
        ),
        (
            ScheduleConfig(name=LINEAR, options={"final": 0.1}),
            "training.schedule.options.final: not an option of training.schedule.name=linear. It has none.",
        ),
    ],
)
def test_wrong_names_and_options_are_one_line(config: ScheduleConfig, message: str) -> None:
    with pytest.raises(UserError) as caught:
        build_schedule(config, 512, 24)
    assert str(caught.value) == message


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -0.25])
def test_a_rate_that_is_not_finite_or_negative_is_refused(
    value: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Wrong(Schedule):
        def rate(self, update: int) -> float:
            return value

    monkeypatch.setitem(SCHEDULES, "wrong", Wrong)
    with pytest.raises(UserError) as caught:
        learning_rate(7, ScheduleConfig(name="wrong"), 512, 24)
    assert str(caught.value) == (
        f"training.schedule.name=wrong: the learning rate of update 7 is {value}. "
        "Correct the schedule or its options."
    )


def test_a_schedule_that_reads_the_number_of_updates_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    class Silent(Schedule):
        def rate(self, update: int) -> float:
            return 1 / self.max_updates

    monkeypatch.setitem(SCHEDULES, "silent", Silent)
    with pytest.raises(AssertionError, match="Silent must set depends_on_max_updates = True"):
        learning_rate(1, ScheduleConfig(name="silent"), 512, 24)
    monkeypatch.setattr(Silent, "depends_on_max_updates", True)
    assert learning_rate(1, ScheduleConfig(name="silent"), 512, 20) == 0.05
