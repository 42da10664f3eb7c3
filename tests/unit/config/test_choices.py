"""The names that help and completion offer are those of the registries."""

from __future__ import annotations

from dataclasses import fields

import pytest

from nmt.cli.completion import completed
from nmt.cli.help import help_text
from nmt.config import ModelConfig, PositionsConfig, TrainConfig, TrainingConfig
from nmt.config.schema import choices_of
from nmt.config.training import OptimizerConfig, ScheduleConfig
from nmt.evaluation.metrics import METRICS
from nmt.model import MODELS, POSITIONS
from nmt.model.attention import SCORES
from nmt.training.update.optimizer import OPTIMIZERS
from nmt.training.update.schedule import SCHEDULES


@pytest.mark.parametrize(
    ("section", "option", "names"),
    [
        (ModelConfig, "architecture", MODELS),
        (ModelConfig, "attention", SCORES),
        (PositionsConfig, "name", POSITIONS),
        (PositionsConfig, "decoder", POSITIONS),
        (OptimizerConfig, "name", OPTIMIZERS),
        (ScheduleConfig, "name", SCHEDULES),
        (TrainingConfig, "criterion", ["loss", *METRICS]),
    ],
)
def test_the_registered_names_are_offered(section: type, option: str, names: list[str]) -> None:
    [field] = [field for field in fields(section) if field.name == option]
    assert sorted(choices_of(field, str)) == sorted(names)


def test_completion_and_help_offer_them() -> None:
    word = "training.schedule.name="
    offered = completed(TrainConfig, "train", word)
    assert offered == [f"{word}{name}" for name in ("noam", "inverse_sqrt", "linear", "constant", "wsd")]
    assert "noam|inverse_sqrt|linear|constant|wsd." in help_text(TrainConfig, "train", "")
