"""Learning rates against numbers worked out by hand."""

from __future__ import annotations

import pytest

from nmt.config import ScheduleConfig, ScheduleName
from nmt.training.schedule import learning_rate

NOAM, ROOT = ScheduleName.noam, ScheduleName.inverse_sqrt
LINEAR, CONSTANT = ScheduleName.linear, ScheduleName.constant


@pytest.mark.parametrize(
    ("update", "rate"),
    [
        (1, 1.7469e-07),  # 512**-0.5 * 4000**-1.5
        (2000, 3.4939e-04),
        (4000, 6.9877e-04),  # the top: 512**-0.5 * 4000**-0.5
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
def test_schedules_with_a_peak(name: ScheduleName, warmup: int, rates: dict[int, float]) -> None:
    config = ScheduleConfig(name=name, warmup_updates=warmup, peak=1.0, final=0.1)
    found = {update: learning_rate(update, config, 512, 24) for update in rates}
    assert found == pytest.approx(rates)


def test_no_warmup_and_a_warmup_longer_than_the_run() -> None:
    assert learning_rate(1, ScheduleConfig(name=NOAM, warmup_updates=0), 4, 10) == 0.5
    config = ScheduleConfig(name=LINEAR, warmup_updates=100, peak=1.0)
    assert learning_rate(10, config, 4, 10) == pytest.approx(0.1)
