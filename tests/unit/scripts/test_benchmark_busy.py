"""The results of the benchmark of busy cores."""

from __future__ import annotations

from pathlib import Path

import pytest
from benchmark_busy import Case, logged_seconds, records, speed, table


def test_speed_is_of_all_updates_together() -> None:
    updates = [{"filling": 1.0, "tokens_per_second": 100.0}, {"filling": 0.5, "tokens_per_second": 25.0}]
    assert speed(updates) == pytest.approx(50.0)  # 1.5 batches of 100 in 1 + 2 seconds


def test_a_half_written_record_is_left_out(tmp_path: Path) -> None:
    assert records(tmp_path / "none") == []
    (tmp_path / "metrics.jsonl").write_text('{"kind": "valid"}\n{"kind": "train", "update": 1}\n{"kind": "tr')
    assert records(tmp_path / "metrics.jsonl") == [{"kind": "train", "update": 1}]


def test_seconds_are_those_of_the_summary() -> None:
    assert logged_seconds("warning: x\n30 lines, 1,412 tokens, 11.3 s, 3 lines/s\n") == 10.0
    assert logged_seconds("1,200 lines, 9 tokens, 0.3 s, 2,400 lines/s\n") == 0.5


def test_ratios_are_against_one_thread_on_cores_as_busy() -> None:
    found: dict[Case, list[float]] = {}
    for what, values in (("training", [200.0, 100.0, 40.0, 80.0]), ("translating", [0.5, 1.0, 4.0, 2.0])):
        cases = [(threads, busy) for busy in (False, True) for threads in ("default", "threads=1")]
        for (threads, busy), value in zip(cases, values, strict=True):
            found[what, threads, busy] = [value, value * 2, value / 2]
    lines = table(found).splitlines()
    ratios = ["2.00x", "1.00x", "0.50x", "1.00x"]
    assert [line.split()[-1] for line in lines[1:9]] == ratios * 2
    assert lines[3].split() == ["training", "busy", "default", "40", "20-80", "0.50x"]
    assert lines[7].split() == ["translating", "busy", "default", "4.00", "2.00-8.00", "0.50x"]
