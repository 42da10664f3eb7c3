"""Trained toy models with a planted fault: the diagnosis at the end of the run names it."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata
from toy import WORDS, toy_config

from nmt.config import Average, AveragingConfig, CleaningConfig, ScheduleConfig, TrainConfig
from nmt.training.run import train

Change = Callable[[list[str]], list[str]]


def learning(data: Path, run: Path, change: Change, *, pairs: int = 2000, **training: Any) -> TrainConfig:
    """Writes a corpus of words and a number, and returns the options to learn it.

    A target has the letters of each word in reverse order. `change` changes the training targets.
    """
    chance = random.Random(1)
    data.mkdir()
    for split, count in (("train", pairs), ("valid", 60), ("test", 60)):
        sources = [chance.choices(WORDS, k=chance.randint(5, 8)) for _ in range(count)]
        for words in sources:
            words.insert(chance.randint(1, 5), str(chance.randint(20, 99)))
        targets = [[word if word.isdigit() else word[::-1] for word in words] for words in sources]
        if split == "train":
            targets = [*map(change, targets)]
        for end, lines in (("src", sources), ("tgt", targets)):
            text = "".join(" ".join(words) + "\n" for words in lines)
            (data / f"{split}.{end}").write_text(text, encoding="utf-8")
    options = {
        "max_updates": 400,
        "validate_every": 50,
        "checkpoint_every": 50,
        "criterion": "loss",
        "averaging": AveragingConfig(kind=Average.last, count=1),
        "schedule": ScheduleConfig(name="wsd", peak=4e-3, warmup_updates=50),
    }
    config = toy_config(data, run, dropout=0.0, **(options | training))
    return replace(config, data=replace(config.data, cleaning=CleaningConfig(drop_identical=False)))


def unchanged(words: list[str]) -> list[str]:
    return words


def cut(words: list[str]) -> list[str]:
    """Returns the words, or for every third sentence one letter."""
    return words if sum(map(len, words)) % 3 else ["a"]


CONSTANT = ScheduleConfig(name="constant", peak=3e-3, warmup_updates=0)
PLANTED: dict[str, tuple[Change, dict[str, Any], str]] = {
    "drops numbers": (lambda words: [word for word in words if not word.isdigit()], {}, "numbers"),
    "loops": (lambda words: [*words, *words[-1:] * 13], {}, "loops"),
    "copies": (lambda words: [word[:: 1 if word.isdigit() else -1] for word in words], {}, "copied"),
    "dirty": (cut, {"max_updates": 20, "validate_every": 5}, "dirty_data"),
    "overfitted": (unchanged, {"pairs": 40, "validate_every": 25, "schedule": CONSTANT}, "overfitted"),
    "too short": (unchanged, {"max_updates": 60, "validate_every": 10}, "still_improving"),
    "diverged": (unchanged, {"schedule": replace(CONSTANT, peak=3.0), "max_updates": 100}, "diverged"),
}


@pytest.mark.slow
@pytest.mark.parametrize("change, options, name", PLANTED.values(), ids=PLANTED)
def test_planted_faults(
    change: Change, options: dict[str, Any], name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = train(learning(tmp_path / "data", tmp_path / "run", change, **options))
    findings = json.loads((tmp_path / "run/results.json").read_text())["diagnosis"]
    assert name in [finding["name"] for finding in findings], text
    assert f"\n  {name}: " in text


@pytest.mark.slow
def test_a_sound_model_has_no_findings(tmp_path: Path) -> None:
    config = learning(tmp_path / "data", tmp_path / "run", unchanged)
    text = train(config)
    assert json.loads((tmp_path / "run/results.json").read_text())["diagnosis"] == [], text
    assert "diagnosis" not in text
    assert train(config) == text  # read from results.json
    board = EventAccumulator(str(tmp_path / "run/tensorboard"))
    board.Reload()
    assert len(board.Tensors("valid/samples/text_summary")) == 8
    assert [event.step for event in board.Scalars("final/test/bleu")] == [400]
    assert metadata.SESSION_START_INFO_TAG in board.summary_metadata
