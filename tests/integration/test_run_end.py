"""A run that was interrupted in its last steps repeats them once; a finished run logs that it is finished."""

from __future__ import annotations

import json
import shutil
import signal
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from test_resume import assert_same_run, progress
from toy import toy_config

from nmt.config import Average, AveragingConfig, ScheduleConfig
from nmt.errors import UserError
from nmt.training.run import train
from nmt.training.validation import Validator

FLAT = ScheduleConfig(name="constant", peak=1e-30, warmup_updates=0)
"""The weights do not change, and no validation is better than the first."""


def test_stop_in_the_last_validation(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, said: pytest.LogCaptureFixture
) -> None:
    """No checkpoint is scheduled at this update, and its weights are the best in validation."""
    options = {
        "max_updates": 10,
        "criterion": "loss",
        "averaging": AveragingConfig(kind=Average.none),
    }
    train(toy_config(data, tmp_path / "whole", **options))
    results = json.loads((tmp_path / "whole/results.json").read_text())
    assert results["training"]["averaged_updates"] == [10]
    config = toy_config(data, tmp_path / "run", **options)
    original, calls = Validator.validate, iter(range(100))

    def with_interrupt(self: Validator, stop: Any) -> Any:
        if next(calls) == 2:
            signal.raise_signal(signal.SIGINT)
        return original(self, stop)

    with monkeypatch.context() as patch:
        patch.setattr(Validator, "validate", with_interrupt)
        with pytest.raises(SystemExit):
            train(config)
    assert not progress(tmp_path / "run", "update-00000010")["settled"]
    train(config)
    assert_same_run(tmp_path / "run", tmp_path / "whole")
    said.clear()
    train(config)
    assert "done already; a larger training.max_updates resumes it" in said.text
    assert "final model" not in said.text


def test_interrupted_end_is_made_up_for(data: Path, tmp_path: Path, said: pytest.LogCaptureFixture) -> None:
    config = toy_config(data, tmp_path / "run")
    text = train(config)
    shutil.rmtree(tmp_path / "run/model")
    assert train(config).splitlines()[:5] == text.splitlines()[:5]
    assert (tmp_path / "run/model/model.safetensors").is_file()
    said.clear()
    assert train(config).splitlines()[:5] == text.splitlines()[:5]
    assert "done already; a larger training.max_updates resumes it" in said.text


def test_a_finished_run_with_other_data_is_refused_and_left_as_it_is(data: Path, tmp_path: Path) -> None:
    changed = tmp_path / "data"
    shutil.copytree(data, changed)
    run = tmp_path / "run"
    train(toy_config(changed, run))
    before = {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}
    for name, updates in (("valid.tgt", 12), ("train.src", 20)):
        shutil.copy(data / "valid.tgt", changed)
        lines = (changed / name).read_text().splitlines()
        (changed / name).write_text("\n".join(["bada", *lines[1:]]) + "\n")
        with pytest.raises(UserError, match="update-00000012: the data changed since this checkpoint"):
            train(toy_config(changed, run, max_updates=updates))
    assert before == {path: path.read_bytes() for path in run.rglob("*") if path.is_file()}


def test_few_checkpoints_to_average_are_mentioned(
    data: Path, tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    averaging = AveragingConfig(kind=Average.last, count=5)
    train(toy_config(data, tmp_path / "run", averaging=averaging))
    warning = "training.averaging.count=5: the run has only 3 of them (training.checkpoint_every=4)"
    assert warning in said.messages
    said.clear()
    train(toy_config(data, tmp_path / "other", averaging=replace(averaging, count=3)))
    assert not any("of them" in message for message in said.messages)


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({"max_epochs": 1}, "; a larger training.max_epochs resumes it"),
        ({"max_minutes": 1e-9}, "; a larger training.max_minutes resumes it"),
        ({"patience": 1, "validate_every": 1, "schedule": FLAT}, ""),
        (
            {"max_updates": 4, "schedule": ScheduleConfig(name="linear")},
            "",
        ),  # the learning rate is zero at update 4
    ],
)
def test_a_finished_run_names_what_goes_on(
    options: dict[str, Any], more: str, data: Path, tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    config = toy_config(data, tmp_path / "run", **{"max_updates": 40, **options})
    train(config)
    said.clear()
    train(config)
    assert said.records[-1].getMessage() == f"{tmp_path / 'run'}: training is done already{more}"


def test_a_run_whose_end_was_requested_names_what_goes_on(
    data: Path, tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "run").mkdir()
    (tmp_path / "run/finish").touch()
    schedule = ScheduleConfig(name="wsd", peak=0.02, warmup_updates=2)
    for budget, option in ((None, "max_updates"), ("1d", "budget")):
        config = toy_config(data, tmp_path / "run", schedule=schedule, max_updates=40, budget=budget)
        train(config)
        train(config)
        more = f"; a larger training.{option} resumes it"
        assert said.records[-1].getMessage() == f"{tmp_path / 'run'}: training is done already{more}"
        (tmp_path / "run/finish").touch()
