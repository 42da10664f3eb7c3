"""`data.valid.from_train` through real commands: stopped and resumed, evaluated again, and a rate search."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Toy
from test_resume import assert_same_run, interrupted
from toy import toy_config

from nmt.config import SplitConfig
from nmt.training.run import train


def test_a_stopped_run_ends_in_the_same_weights(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, stops in (("whole", []), ("parts", [4])):
        config = toy_config(data, tmp_path / name)
        config.data.valid, config.data.test = SplitConfig(from_train=12), SplitConfig(from_train=8)
        interrupted(monkeypatch, config, stops) if stops else train(config)
    assert_same_run(tmp_path / "parts", tmp_path / "whole")
    results = json.loads((tmp_path / "parts/results.json").read_text())
    assert (results["valid"]["sentences"], results["test"]["sentences"]) == (12, 8)


def test_commands(toy: Toy, tmp_path: Path) -> None:
    """The scores of nmt-eval are those of the run; find_rate leaves no files behind."""
    train_files = [option for option in toy.small() if not option.startswith(("data.valid", "data.test"))]
    options = [*train_files, "data.valid.from_train=20", f"run_dir={tmp_path / 'run'}", "recipe=none"]
    toy.done("nmt-train", *options, "find_rate=true", "training.schedule.name=constant")
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["find_rate.svg"]
    told = toy.done("nmt-train", *options).stderr.decode()
    assert (
        f"data.valid.from_train=20: drawn from the training text, in {tmp_path}/run/held_out/valid.xx" in told
    )
    results = json.loads((tmp_path / "run/results.json").read_text())
    page = tmp_path / "scores.json"
    toy.done("nmt-eval", f"model_dir={tmp_path / 'run'}", "split=valid", f"json={page}")
    assert json.loads(page.read_text())["bleu"] == pytest.approx(results["valid"]["bleu"])
    other = [option.replace("=20", "=30") for option in options]
    assert toy.refused("nmt-train", *other).startswith("data.valid.from_train=30: 20 pairs were drawn")
