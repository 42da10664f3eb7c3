"""The data report is written to the run folder after preparation; a training then uses this folder."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from toy import toy_config, write_toy

from nmt.bundle import read_config
from nmt.config import TokenizerConfig, TrainConfig
from nmt.training.run import train


def test_report_of_a_preparation_and_of_the_run_after_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = toy_config(write_toy(tmp_path / "data", 300, 10), tmp_path / "run", max_updates=2)
    said = train(replace(config, prepare_only=True))
    run = tmp_path / "run"
    assert sorted(path.name for path in run.iterdir()) == ["data_report.html", "data_report.json"]
    kept = json.loads((run / "data_report.json").read_text(encoding="utf-8"))["kept"]
    assert said == f"{kept:,} training pairs prepared"
    stamps = {path: path.stat().st_mtime_ns for path in run.iterdir()}
    with caplog.at_level("INFO", "nmt"):
        train(config)
    assert f"new run in {run}" in caplog.text
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert (run / "results.json").exists()


def test_the_chosen_size_of_the_vocabulary_stays_with_the_run(tmp_path: Path) -> None:
    """`data.tokenizer.vocab_size=auto` becomes a number in config.yaml, model/ and results; runs resume."""

    def auto(max_updates: int) -> TrainConfig:
        config = toy_config(tmp_path / "data", tmp_path / "run", max_updates=max_updates)
        return replace(config, data=replace(config.data, tokenizer=TokenizerConfig(vocab_size="auto")))

    write_toy(tmp_path / "data", 300, 10)
    train(auto(2))
    run = tmp_path / "run"
    for path in (run / "config.yaml", run / "model/config.yaml"):
        assert read_config(path).data.tokenizer.vocab_size == 2000
    assert json.loads((run / "results.json").read_text())["data"]["vocab_size"] == 2000
    assert json.loads((run / "data_report.json").read_text())["vocab_size"] == 2000
    train(auto(4))
    assert read_config(run / "config.yaml").data.tokenizer.vocab_size == 2000
    assert json.loads((run / "results.json").read_text())["training"]["updates"] == 4
