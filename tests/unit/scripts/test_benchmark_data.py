"""The benchmark of the data stage on tiny data: its output, and its counts."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import benchmark_data
import pytest

from nmt.data.batches.batching import Batch

KEYS = {
    "pairs": int,
    "workers": int,
    "prepare_pairs_per_second": int,
    "sentencepiece_pairs_per_second": int,
    "prepare_ratio_to_sentencepiece": float,
    "prepare_ratios": list,
    "prepare_peak_bytes": int,
    "tokenizer_peak_bytes": int,
    "cached_start_seconds": float,
    "first_update_seconds": float,
    "first_update_seconds_workers": float,
    "loader_target_tokens_per_second": int,
    "loader_added_bytes": int,
    "filling": float,
    "filling_of_budget": float,
    "mean_target_tokens": float,
    "loader_target_tokens_per_second_sampled": int,
    "loader_target_tokens_per_second_sampled_workers": int,
    "loader_target_tokens_per_second_unspaced": int,
    "loader_target_tokens_per_second_unspaced_workers": int,
    "epoch_order_seconds": float,
    "epoch_order_pairs": int,
}


@pytest.mark.slow
def test_all_figures_are_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def here(work: Callable[[], Any]) -> tuple[Any, int]:
        return work(), 7

    monkeypatch.setattr(benchmark_data, "in_process", here)
    monkeypatch.setattr(benchmark_data, "EPOCH_PAIRS", 100_000)
    monkeypatch.setattr(benchmark_data, "VOCABULARY", 2600)
    file = tmp_path / "data.json"
    options = ["--pairs", "400", "--workers", "1", "--rounds", "2", "--seconds", "0.05"]
    options += ["--folder", str(tmp_path)]
    monkeypatch.setattr(sys, "argv", ["benchmark_data", *options, "--json", str(file)])
    benchmark_data.main()
    figures = json.loads(file.read_text())
    assert json.loads(capsys.readouterr().out) == figures
    assert {name: type(value) for name, value in figures.items()} == KEYS
    assert (figures["pairs"], figures["workers"], figures["prepare_peak_bytes"]) == (400, 1, 7)
    first, second = figures["prepare_ratios"]
    assert figures["prepare_ratio_to_sentencepiece"] == pytest.approx((first + second) / 2, abs=2e-4)
    assert all(figures[name] > 0 for name in figures if name.startswith("loader_target"))
    assert 0.5 < figures["filling_of_budget"] <= 1 and 0.9 < figures["filling"] <= 1


def test_filling_is_of_both_sides() -> None:
    filling = benchmark_data.Filling()
    filling.add(Batch.of([[7] * 5], [[7] * 4]).filled(8))  # 6 and 5 tokens, padded to 8 and 8
    filling.add(Batch.of([[7] * 7], [[7] * 6]).filled(8))  # 8 and 7 tokens, padded to 16 and 8
    assert (filling.batches, filling.target, filling.padding, filling.capacity) == (2, 12, 14, 40)


def test_memory_of_a_family_is_that_of_its_processes() -> None:
    own = benchmark_data.anonymous_bytes("self")
    assert own > 1_000_000
    assert benchmark_data.anonymous_bytes_of_family(os.getpid()) >= own // 2
    assert benchmark_data.anonymous_bytes("999999999") == 0
