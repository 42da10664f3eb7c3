"""The whole program learns a toy language up to a BLEU that chance does not reach."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from toy import toy_config, write_toy

from nmt.bundle import load_bundle
from nmt.config import Average, AveragingConfig, Precision, ScheduleConfig
from nmt.training.run import train


@pytest.mark.slow
@pytest.mark.parametrize("precision", [Precision.fp32, Precision.bf16])
def test_a_tiny_model_learns_to_turn_sentences_round(precision: Precision, tmp_path: Path) -> None:
    config = toy_config(
        write_toy(tmp_path / "data", train=4000, held_out=100),
        tmp_path / "run",
        dropout=0.0,
        max_updates=700,
        validate_every=175,
        checkpoint_every=25,
        precision=precision,
        averaging=AveragingConfig(kind=Average.last, count=3),
        schedule=ScheduleConfig(name="linear", peak=4e-3, warmup_updates=100, final=1e-4),
    )
    text = train(config)
    results = json.loads((tmp_path / "run/results.json").read_text())
    assert results["test"]["bleu"] > 80, text
    assert results["valid"]["bleu"] > 80
    assert f"{results['test']['bleu']:.2f}" in text and results["test"]["signatures"]["bleu"] in text
    assert results["training"]["updates"] == 700
    bundle = load_bundle(tmp_path / "run")
    assert bundle.results["test"] == results["test"]
