"""Runs with compiled layers: bit-identical when resumed, and close to runs without compilation."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from test_resume import assert_same_run, interrupted
from toy import toy_config, write_toy

from nmt.config import Precision, TrainConfig
from nmt.runtime import choose_device
from nmt.training.run import train

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("g++") is None, reason="needs g++, which torch.compile calls"),
]


on_a_gpu = [pytest.mark.gpu, pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")]


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    yield
    torch.compiler.reset()


def config(data: Path, run: Path, *, compile: bool = True, precision: Precision) -> TrainConfig:
    """54 updates of two batches each, of many sizes; on a GPU with deterministic algorithms."""
    options = {
        "deterministic": torch.cuda.is_available(),
        "max_updates": 54,
        "validate_every": 18,
        "checkpoint_every": 18,
        "log_every": 6,
    }
    return toy_config(
        data, run, max_tokens=256, precision=precision, compile=compile, micro_batches=2, **options
    )


def records(run: Path, kind: str) -> list[dict[str, float]]:
    lines = (run / "metrics.jsonl").read_text().splitlines()
    return [record for record in map(json.loads, lines) if record["kind"] == kind]


@pytest.mark.parametrize("precision", [Precision.fp32, Precision.bf16])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=on_a_gpu)])
def test_a_compiled_run(
    device: str, precision: Precision, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert choose_device("auto").type == device
    data = write_toy(tmp_path / "data", train=1500, held_out=8)
    plain, whole, stopped = (tmp_path / name for name in ("plain", "whole", "stopped"))
    train(config(data, plain, compile=False, precision=precision))
    train(config(data, whole, precision=precision))

    # No compilation after the first update, in 106 batches of all sizes.
    assert [record["recompilations"] for record in records(whole, "train")] == [0] * 9
    names = [list(load_file(run / "model/model.safetensors")) for run in (plain, whole)]
    assert names[0] == names[1]
    for one, two in zip(records(whole, "valid"), records(plain, "valid"), strict=True):
        assert one["loss"] == pytest.approx(two["loss"], rel=0.05)  # on a GPU the dropout masks differ

    interrupted(monkeypatch, config(data, stopped, precision=precision), [7, 30])
    assert_same_run(stopped, whole)
