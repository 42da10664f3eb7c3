"""The data report is in the run folder as soon as the data are prepared, and the run goes on from there."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
from toy import toy_config, write_toy

from nmt.training.run import train


def test_report_of_a_preparation_and_of_the_run_after_it(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    config = toy_config(write_toy(tmp_path / "data", 300, 10), tmp_path / "run", max_updates=2)
    said = train(replace(config, prepare_only=True))
    run = tmp_path / "run"
    assert sorted(path.name for path in run.iterdir()) == ["data_report.html", "data_report.json"]
    kept = json.loads((run / "data_report.json").read_text(encoding="utf-8"))["kept"]
    assert said == f"{kept:,} training pairs are prepared"
    stamps = {path: path.stat().st_mtime_ns for path in run.iterdir()}
    with caplog.at_level("INFO", "nmt"):
        train(config)
    assert f"new run in {run}" in caplog.text
    assert {path: path.stat().st_mtime_ns for path in stamps} == stamps
    assert (run / "results.json").exists()
