"""The final model: the best of its candidates, chosen again if `training.averaging` changes."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file
from toy import toy_config, write_toy

import nmt
from nmt.bundle import load_bundle
from nmt.config import (
    Average,
    AveragingConfig,
    Precision,
    ScheduleConfig,
    TrainConfig,
)
from nmt.training.run import train
from nmt.training.selection import average
from nmt.training.state.run_folder import RunFolder
from nmt.training.trainer import Trainer
from nmt.training.validation import Validator

FAST = ScheduleConfig(name="inverse_sqrt", peak=5e-3, warmup_updates=60)
"""After 160 updates the model has half learnt the toy; a mean of checkpoints is much worse than the last."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_toy(tmp_path_factory.mktemp("data"), train=2000, held_out=30)


@pytest.fixture(scope="module")
def learnt(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished run with `kind=auto`; tests take copies of it."""
    run = tmp_path_factory.mktemp("learnt") / "run"
    train(config(data, run))
    return run


def config(data: Path, run: Path, kind: Average = Average.auto, count: int = 5) -> TrainConfig:
    averaging = AveragingConfig(kind=kind, count=count)
    every = {"validate_every": 30, "checkpoint_every": 40}
    return toy_config(data, run, max_updates=160, averaging=averaging, schedule=FAST, **every)


@pytest.fixture
def copied(learnt: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(learnt, tmp_path / "run"))


def results(run: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((run / "results.json").read_text())
    return found


def without_times(found: dict[str, Any]) -> dict[str, Any]:
    training = {key: value for key, value in found["training"].items() if key != "judging_seconds"}
    return {**found, "training": training}


def weights(run: Path) -> dict[str, torch.Tensor]:
    return load_file(run / "model/model.safetensors")


def mean(run: Path, updates: list[int]) -> dict[str, torch.Tensor]:
    return average(updates, lambda u: load_file(run / f"checkpoints/update-{u:08d}/model.safetensors"))


def assert_weights(run: Path, expected: dict[str, torch.Tensor]) -> None:
    for name, weight in weights(run).items():
        assert torch.equal(weight, expected[name]), name


def test_the_best_candidate_is_delivered(learnt: Path) -> None:
    found = results(learnt)
    candidates = {one["name"]: one for one in found["training"]["candidates"]}
    assert {name: one["updates"] for name, one in candidates.items()} == {
        "best = last": [160],
        "mean of the best 2": [150, 160],
        "mean of the last 2": [120, 160],
        "mean of the best 3": [120, 150, 160],
        "mean of the last 3": [80, 120, 160],
        "mean of the best 5": [60, 90, 120, 150, 160],
        "mean of the last 4": [40, 80, 120, 160],
    }
    bleu = {name: one["bleu"] for name, one in candidates.items()}
    assert bleu["best = last"] - bleu["mean of the last 4"] > 10.0, "the mean is not far worse"
    delivered = found["training"]["delivered"]
    assert found["valid"]["bleu"] == bleu[delivered] == max(bleu.values())
    assert found["training"]["averaged_updates"] == candidates[delivered]["updates"]
    assert found["training"]["judging_seconds"] > 0
    assert_weights(learnt, mean(learnt, candidates[delivered]["updates"]))
    assert json.loads((learnt / "model/results.json").read_text()) == found


def test_the_log_has_all_figures(data: Path, copied: Path, said: pytest.LogCaptureFixture) -> None:
    (copied / "results.json").unlink()
    train(config(data, copied))
    found = results(copied)["training"]
    (words,) = (one.getMessage() for one in said.records if "candidates" in one.getMessage())
    first, *lines = words.splitlines()
    assert first.startswith("final model: 7 candidates, scored by BLEU on the validation set in ")
    for line, one in zip(lines, found["candidates"], strict=True):
        assert f"  loss {one['loss']:.4f}  BLEU {one['bleu']:6.2f}  update" in line
        mark = "->" if one["name"] == found["delivered"] else "  "
        assert line.startswith(f"  {mark} {one['name']} ")


class PowerCut(BaseException):
    pass


@pytest.mark.parametrize("where", ["in the judging", "before the results"])
def test_killed_at_the_end_it_ends_the_same(
    where: str, data: Path, learnt: Path, copied: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    original, calls = Validator.hypotheses, iter(range(100))

    def cut(self: Any, *args: Any) -> Any:
        if where != "in the judging" or next(calls) == 3:
            raise PowerCut
        return original(self, *args)

    with monkeypatch.context() as patch:
        if where == "in the judging":
            (copied / "results.json").unlink()
            patch.setattr(Validator, "hypotheses", cut)
        else:  # the results belong to another kind, the model is new
            train(config(data, copied, Average.last))
            patch.setattr(RunFolder, "write_results", cut)
        with pytest.raises(PowerCut):
            train(config(data, copied))
    text = train(config(data, copied))
    assert f"model: {copied / 'model'}" in text
    expected = without_times(results(learnt))
    assert without_times(results(copied)) == expected
    assert (copied / "model/model.safetensors").read_bytes() == (
        learnt / "model/model.safetensors"
    ).read_bytes()


def no_update(self: Trainer) -> None:
    raise AssertionError("an update was made")


@pytest.mark.parametrize(
    ("kind", "count", "updates"),
    [
        (Average.last, 2, [120, 160]),
        (Average.best, 3, [120, 150, 160]),
    ],
)
def test_another_kind_makes_the_model_of_a_finished_run_anew(
    kind: Average,
    count: int,
    updates: list[int],
    data: Path,
    learnt: Path,
    copied: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(Trainer, "_update", no_update)
    train(config(data, copied, kind, count))
    assert "training.averaging has changed: choosing the final model again, without training" in said.text
    assert results(copied)["training"]["averaged_updates"] == updates
    assert_weights(copied, mean(copied, updates))
    assert load_bundle(copied).config.training.averaging == AveragingConfig(kind, count)
    of_auto = {tuple(one["updates"]): one["bleu"] for one in results(learnt)["training"]["candidates"]}
    assert results(copied)["valid"]["bleu"] == of_auto[tuple(updates)]
    said.clear()
    train(config(data, copied, kind, count))
    assert "training is done already" in said.text and "final model" not in said.text
    train(config(data, copied))
    assert without_times(results(copied)) == without_times(results(learnt))


def assert_length_penalty(run: Path, data: Path) -> float:
    """Checks that the model has the best of the length penalties that were tried; returns it."""
    found = results(run)["length_penalty"]
    of_penalty = {one["length_penalty"]: one for one in found["tried"]}
    best = of_penalty[found["chosen"]]
    assert best["bleu"] * best["chrf"] == max(one["bleu"] * one["chrf"] for one in found["tried"])
    model = nmt.load(run / "model")
    assert model.config.decoding.length_penalty == found["chosen"]
    lines = (data / "valid.src").read_text("utf-8").splitlines()
    written = (run / "valid.hypotheses.txt").read_text("utf-8").splitlines()
    assert model.translate(lines) == written
    assert results(run)["valid"]["bleu"] == best["bleu"]
    assert "Length penalties, scored on 30 sentences" in (run / "report.html").read_text("utf-8")
    return float(found["chosen"])


def test_the_length_penalty_is_chosen_for_a_finished_run(
    data: Path,
    learnt: Path,
    copied: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(Trainer, "_update", no_update)
    options = config(data, copied)
    tuned = replace(options, training=replace(options.training, tune_length_penalty=True, report=True))
    train(tuned)
    assert "training.tune_length_penalty has changed: choosing the final model again" in said.text
    chosen = assert_length_penalty(copied, data)
    assert f"length penalty: {chosen:g} is chosen on 30 sentences of validation" in said.text
    said.clear()
    train(tuned)
    assert "training is done already" in said.text
    train(options)
    assert without_times(results(copied)) == without_times(results(learnt))


def test_a_length_penalty_that_is_too_high_becomes_lower(data: Path, tmp_path: Path) -> None:
    whole = {"max_updates": 120, "validate_every": 120, "schedule": FAST, "report": True}
    options = toy_config(data, tmp_path / "run", tune_length_penalty=True, **whole)
    train(replace(options, decoding=replace(options.decoding, length_penalty=3.0)))
    assert assert_length_penalty(tmp_path / "run", data) < 3.0


def test_checkpoints_that_are_gone_are_named(
    data: Path, copied: Path, said: pytest.LogCaptureFixture
) -> None:
    for update in (80, 120):
        shutil.rmtree(copied / f"checkpoints/update-{update:08d}")
    train(config(data, copied, Average.last, 4))
    assert (
        "training.averaging.kind=last training.averaging.count=4: the final model is chosen without the "
        "checkpoints of updates 80, 120, which were removed" in said.text
    )
    assert results(copied)["training"]["averaged_updates"] == [40, 160]


def test_a_damaged_checkpoint_is_left_out(data: Path, copied: Path, said: pytest.LogCaptureFixture) -> None:
    (copied / "checkpoints/update-00000150/model.safetensors").write_bytes(b"")
    (copied / "results.json").unlink()
    train(config(data, copied))
    assert "update-00000150" in said.text and "the final model is chosen without it" in said.text
    assert all(150 not in one["updates"] for one in results(copied)["training"]["candidates"])


def test_the_results_of_earlier_versions_are_not_made_anew(
    data: Path, copied: Path, said: pytest.LogCaptureFixture
) -> None:
    """Such results have no candidates; the config.yaml of the model records its averaging."""
    train(config(data, copied, Average.last))
    found = results(copied)
    for key in ("candidates", "delivered", "judging_seconds"):
        del found["training"][key]
    for path in (copied / "results.json", copied / "model/results.json"):
        path.write_text(json.dumps(found))
    said.clear()
    train(config(data, copied, Average.last))
    assert "training is done already" in said.text
    train(config(data, copied))
    assert results(copied)["training"]["delivered"] == "best = last"


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"criterion": "loss"}, "has loss 6."),
        pytest.param(
            {"criterion": "loss", "validate_sentences": 7},
            "on the validation of training",
            marks=pytest.mark.slow,
        ),
        pytest.param(
            {"criterion": "loss", "precision": Precision.bf16},
            "on the validation of training",
            marks=pytest.mark.slow,
        ),
        ({"criterion": "loss", "max_updates": 14}, "but the checkpoint of update 14 alone had 5."),
    ],
)
def test_a_kind_that_delivers_less_is_told(
    options: dict[str, Any], words: str, data: Path, tmp_path: Path, said: pytest.LogCaptureFixture
) -> None:
    averaging = AveragingConfig(kind=Average.last)
    train(toy_config(data, tmp_path / "run", averaging=averaging, **options))
    (warning,) = (record.getMessage() for record in said.records if "final model (" in record.getMessage())
    assert words in warning and "the same command with training.averaging.kind=auto chooses" in warning
    said.clear()
    train(toy_config(data, tmp_path / "run", averaging=AveragingConfig(), **options))
    assert "alone had" not in said.text
    losses = [one["loss"] for one in results(tmp_path / "run")["training"]["candidates"]]
    (best,) = results(tmp_path / "run")["training"]["averaged_updates"]
    assert best == options.get("max_updates", 12) and min(losses) == losses[0]


def test_the_weights_behind_a_running_mean_are_a_candidate(data: Path, tmp_path: Path) -> None:
    """After twelve updates the running mean still has a large share of the first weights."""
    options: dict[str, Any] = {"ema": 0.99, "criterion": "loss"}
    train(toy_config(data, tmp_path / "run", **options))
    found = results(tmp_path / "run")["training"]
    assert [one["name"] for one in found["candidates"]][:2] == ["best = last", "last, without ema"]
    assert found["delivered"] == "last, without ema"
    assert found["candidates"][1]["loss"] < found["candidates"][0]["loss"]
    assert "bleu" not in found["candidates"][0], "only the score of the criterion"
    beside = load_file(tmp_path / "run/checkpoints/update-00000012/optimizer.safetensors")
    assert_weights(tmp_path / "run", {name: beside[f"trained.{name}"] for name in weights(tmp_path / "run")})


def test_the_best_validation_has_a_checkpoint_where_none_is_scheduled(data: Path, tmp_path: Path) -> None:
    """The learning rate is so high that the loss rises again after the first validations."""
    rising = ScheduleConfig(name="constant", peak=0.02, warmup_updates=0)
    options = {"validate_every": 3, "criterion": "loss", "schedule": rising, "keep_checkpoints": 1}
    run = tmp_path / "run"
    for kind in (Average.auto, Average.none, Average.best):
        train(toy_config(data, run / kind.value, averaging=AveragingConfig(kind, 1), **options))
    validations = {}
    for line in (run / "auto/metrics.jsonl").read_text().splitlines():
        record = json.loads(line)
        if record["kind"] == "valid":
            validations[record["update"]] = record["loss"]
    best = min(validations, key=lambda update: validations[update])
    assert best % 4, "a checkpoint was scheduled at this update"
    for kind in (Average.auto, Average.none, Average.best):
        found = results(run / kind.value)["training"]
        assert found["averaged_updates"] == [best]
        assert found["candidates"][0]["loss"] == pytest.approx(validations[best])
        left = {path.name for path in (run / kind.value / "checkpoints").iterdir()}
        # The checkpoint of update 8 is retained for a rollback.
        assert left == {f"update-{best:08d}", "update-00000008", "update-00000012"}


def test_averaging_may_change_while_the_run_goes_on(data: Path, tmp_path: Path) -> None:
    options = {"criterion": "loss", "validate_every": 3, "max_updates": 6}
    first = toy_config(data, tmp_path / "run", averaging=AveragingConfig(kind=Average.last), **options)
    train(first)
    longer = replace(first.training, max_updates=12, averaging=AveragingConfig())
    train(replace(first, training=longer))
    whole = toy_config(data, tmp_path / "whole", **{**options, "max_updates": 12})
    train(whole)
    names = [f"checkpoints/update-{update:08d}/model.safetensors" for update in (4, 8, 12)]
    for name in names:
        assert (tmp_path / "run" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_another_licence_leaves_the_weights(
    data: Path,
    learnt: Path,
    copied: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: pytest.LogCaptureFixture,
) -> None:
    """It does not choose the model again: checkpoints may be gone."""
    monkeypatch.setattr(Trainer, "_update", no_update)
    for update in (80, 120):
        shutil.rmtree(copied / f"checkpoints/update-{update:08d}")
    train(replace(config(data, copied), licence="cc-by-4.0"))
    assert "licence has changed: writing the model folder again, with the same weights" in said.text
    assert load_bundle(copied).config.licence == "cc-by-4.0"
    assert "license: cc-by-4.0\n" in (copied / "model/README.md").read_text()
    for name in ("model/model.safetensors", "model/results.json", "results.json"):
        assert (copied / name).read_bytes() == (learnt / name).read_bytes()
    said.clear()
    train(replace(config(data, copied), licence="cc-by-4.0"))
    assert "licence has changed" not in said.text and "training is done already" in said.text
