"""A user-defined metric in a whole run: validation, criterion, choice of the final model, results."""

from __future__ import annotations

import json
import signal
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy import toy_config

from nmt.config import AveragingConfig, EvaluationConfig
from nmt.errors import UserError
from nmt.evaluation.metrics import METRICS, Metric, ScoringStopped, Text
from nmt.training.processes.stopping import Stopped
from nmt.training.run import train
from nmt.training.trainer import Trainer


class Letters(Metric):
    """The mean difference between the numbers of characters of source and hypothesis; lower is better."""

    key, name, higher_is_better, digits, needs_sources = "letters", "letters", False, 3, True
    seen: list[Sequence[str]] = []

    def score(self, hypotheses: Text, references: Sequence[Text], sources: Text) -> float:
        Letters.seen.append(sources)
        pairs = list(zip(hypotheses, sources, strict=True))
        return sum(abs(len(ours) - len(source)) for ours, source in pairs) / len(pairs)


@pytest.fixture(autouse=True)
def letters(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, Letters.key, Letters)
    monkeypatch.setattr(Letters, "seen", [])


def test_a_metric_from_validation_to_results(
    data: Path, tmp_path: Path, said: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = toy_config(data, tmp_path / "run", criterion="letters", averaging=AveragingConfig(count=2))
    config = replace(config, evaluation=EvaluationConfig(metrics=["letters", "chrfpp"]))
    config.data.valid.tag = "<x>"  # a metric receives the sources without the tag
    config.data.tokenizer.user_symbols = ["<x>"]
    text = train(config)
    sources = (data / "valid.src").read_text().splitlines()
    assert sources in Letters.seen and not any("<x>" in line for lines in Letters.seen for line in lines)

    lines = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    valid = [record for record in lines if record["kind"] == "valid"]
    assert [list(record)[3:] for record in valid] == [
        ["loss", "ppl", "bleu", "chrf", "letters", "samples"]
    ] * 3
    assert f", letters {valid[0]['letters']:.3f}" in said.text

    results = json.loads((tmp_path / "run/results.json").read_text())
    training = results["training"]
    best = min(valid, key=lambda record: record["letters"])
    assert training["best"] == {"update": best["update"], "letters": best["letters"]}
    candidates = training["candidates"]
    assert all(list(one) == ["name", "updates", "loss", "letters"] for one in candidates)
    values = [one["letters"] for one in candidates]
    delivered = next(one for one in candidates if one["name"] == training["delivered"])
    assert delivered["letters"] == min(values) == results["valid"]["letters"]
    assert f"loss {delivered['loss']:.4f}  letters {delivered['letters']:7.3f}  update" in said.text
    assert "scored by letters on the validation set" in said.text

    for split in ("valid", "test"):
        assert list(results[split]) == ["letters", "chrfpp", "signatures", "sentences"]
    assert "sentences  letters  chrF2++\n" in text
    assert "Higher chrF2++ is better, and lower letters.\n" in text

    monkeypatch.setattr(Trainer, "_update", lambda self: pytest.fail("training is over"))
    said.clear()
    assert train(config) == text and "training is done already" in said.text
    more = replace(config, evaluation=EvaluationConfig(metrics=["letters", "bleu"]))
    assert "sentences  letters     BLEU\n" in train(more)
    assert "evaluation.metrics has metrics that the results lack: computing them again" in said.text
    assert list(json.loads((tmp_path / "run/results.json").read_text())["test"])[:2] == ["letters", "bleu"]


class Interrupted(Letters):
    """Receives a stop signal while it scores the second validation."""

    key = "interrupted"
    validations = 0

    def score(self, hypotheses: Text, references: Sequence[Text], sources: Text) -> float:
        Interrupted.validations += 1
        if Interrupted.validations == 2:
            signal.raise_signal(signal.SIGINT)
            assert self.interrupted()
            raise ScoringStopped
        assert not self.interrupted()
        return super().score(hypotheses, references, sources)


def test_a_stop_while_a_metric_scores(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(METRICS, Interrupted.key, Interrupted)
    options: dict[str, Any] = {"validate_metrics": ["interrupted"], "criterion": "loss"}
    with pytest.raises(Stopped):
        train(toy_config(data, tmp_path / "run", **options))
    train(toy_config(data, tmp_path / "run", **options))
    lines = map(json.loads, (tmp_path / "run/metrics.jsonl").read_text().splitlines())
    valid = [record for record in lines if record["kind"] == "valid"]
    assert [record["update"] for record in valid] == [4, 8, 12]
    assert [list(record)[3:] for record in valid] == [["loss", "ppl", "interrupted", "samples"]] * 3


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"criterion": "blue"},
            "training.criterion=blue: there is no such criterion. Choose from loss, bleu, ",
        ),
        (
            {"validate_metrics": ["blue"]},
            "training.validate_metrics=[blue]: there is no metric blue. Choose ",
        ),
        ({"criterion": "comet"}, "evaluation.comet.command: not set, but the metric comet requires it. "),
    ],
)
def test_mistakes_are_found_before_the_data_are_read(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(UserError) as caught:
        train(toy_config(tmp_path / "no", tmp_path / "run", **options))
    assert str(caught.value).startswith(message)
    assert not (tmp_path / "run").exists()
