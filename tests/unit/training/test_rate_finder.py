"""The learning rate range test: its curve, and the suggestion."""

from __future__ import annotations

import math
from pathlib import Path
from xml.etree import ElementTree

import pytest
import torch
from toy_trainings import prepared_pairs, toy_trainer

from nmt.config import ModelConfig, ScheduleConfig, TrainConfig, TrainingConfig
from nmt.training import rate_finder
from nmt.training.processes.ranks import Ranks
from nmt.training.rate_finder import Point, has_diverged, measured, option, picture, smoothed, suggested


def curve(losses: list[float]) -> list[Point]:
    """Returns points with 50 learning rates a decade from 1e-5 on."""
    return [Point(1e-5 * 10 ** (number / 50), loss) for number, loss in enumerate(losses)]


FALLS = [8.0] * 50 + [8 - 4 * n / 100 for n in range(100)] + [4 + n / 5 for n in range(20)]


def test_the_mean_is_without_bias() -> None:
    assert smoothed(curve([8.0] * 4)) == pytest.approx([8.0] * 4)
    assert smoothed(curve([8.0, 2.0])) == pytest.approx([8.0, (0.9 * 8 + 2) / 1.9])


def test_the_suggestion_is_below_the_rate_with_the_lowest_loss() -> None:
    rate = suggested(curve(FALLS))  # the lowest loss is at 1e-2, and a tenth of that is suggested
    assert rate is not None and math.log10(rate) == pytest.approx(-3, abs=0.1)
    assert suggested(curve([8.0] * 100)) is None and suggested([]) is None


def test_when_a_loss_has_diverged() -> None:
    assert not has_diverged([]) and not has_diverged(curve(FALLS[:155])) and has_diverged(curve(FALLS))
    assert not has_diverged(curve([8.0, 7.0, 9.0]))  # too few to tell


@pytest.mark.parametrize(
    ("schedule", "expected"),
    [
        (ScheduleConfig(name="wsd"), "training.schedule.peak=5.0e-03"),
        (
            ScheduleConfig(name="noam", warmup_updates=400),
            "training.schedule.scale=2.3",
        ),  # 5e-3 (512 400)^0.5
    ],
)
def test_the_option(schedule: ScheduleConfig, expected: str) -> None:
    config = TrainConfig(model=ModelConfig(d_model=512), training=TrainingConfig(schedule=schedule))
    assert option(config, 5e-3) == expected


def test_the_picture_is_svg() -> None:
    root = ElementTree.fromstring(picture(curve(FALLS), 1e-3))
    lines = {e.get("class"): e.get("points", "").split() for e in root.iter() if e.tag.endswith("polyline")}
    assert {name: len(points) for name, points in lines.items()} == {
        **{"curve each": len(FALLS), "curve mean": len(FALLS)},
        "curve chosen": 2,
    }
    texts = [element.text for element in root.iter() if element.tag.endswith("text")]
    assert "1e-03" in texts and "suggested 1.0e-03" in (texts[-1] or "")


def test_the_test_is_a_pure_function_of_the_options(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rate_finder, "_UPDATES", 12)
    prepared, ranks = prepared_pairs(tmp_path), Ranks.join(0, 1, 0, torch.device("cpu"))
    config = toy_trainer(prepared, tmp_path / "run", dropout=0.1, micro_batches=2).config
    points = measured(config, prepared, ranks)
    assert [point.rate for point in points[::11]] == pytest.approx([1e-5, 1.0])
    assert points == measured(config, prepared, ranks)
