"""The number format of hidden states between sub-layers, chosen for a device."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.config import DataConfig, ModelConfig, Precision, TrainConfig, TrainingConfig
from nmt.config.storage import to_yaml
from nmt.training import run
from nmt.training.run import with_choices
from nmt.training.state.run_folder import RunFolder
from nmt.training.update.precision import residual_dtype

GPU, CPU = torch.device("cuda", 0), torch.device("cpu")


def config(precision: Precision = Precision.bf16, half: bool | None = None, **model: Any) -> TrainConfig:
    data = DataConfig(name="x", source_lang="de", target_lang="en")
    training = TrainingConfig(precision=precision, half_residual=half)
    return TrainConfig(run_dir="run", data=data, training=training, model=ModelConfig(**model))


@pytest.mark.parametrize("half", [None, False, True])
def test_the_residual_has_16_bits_on_request(half: bool | None) -> None:
    for precision, dtype in ((Precision.bf16, torch.bfloat16), (Precision.fp16, torch.float16)):
        assert residual_dtype(config(precision, half).training) is (dtype if half else None)


@pytest.mark.parametrize(
    ("begun", "expected"), [("", False), ("false", False), ("true", True), (None, False)]
)
def test_a_run_is_resumed_as_it_was_begun(
    begun: str | None, expected: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new run has no 16 bits between sub-layers unless it asks for them."""
    monkeypatch.setattr(run, "choose_device", lambda name: GPU)
    folder = RunFolder(tmp_path)
    if begun != "":
        (folder.checkpoints / "1").mkdir(parents=True)
        monkeypatch.setattr(RunFolder, "holds_checkpoints", lambda self: True)
        lines = to_yaml(replace(config(), training=replace(config().training, devices="1"))).splitlines()
        kept = [line for line in lines if "half_residual" not in line]
        place = kept.index("training:") + 1
        recorded = [] if begun is None else [f"  half_residual: {begun}"]
        folder.config.write_text("\n".join([*kept[:place], *recorded, *kept[place:]]) + "\n")
    found = with_choices(config(), folder, 1)
    assert found.training.half_residual is expected
    folder.check(found)
