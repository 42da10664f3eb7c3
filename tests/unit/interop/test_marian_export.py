"""Exports to transformers' Marian, loaded by transformers and compared with the model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from exported_models import LINES, POST, comparison, files, positions

from nmt.bundle import Bundle
from nmt.config import ExportConfig, ModelConfig, Tie
from nmt.config.model import Activation, Norm
from nmt.interop.marian_export import MarianExporter, halves_order
from nmt.interop.parity import ParityError
from nmt.interop.tasks import export
from nmt.model.positions import SineOrder, sinusoids

pytest.importorskip("transformers", reason="the extra export is not installed")

VARIANTS: dict[str, ModelConfig] = {
    "as in the paper": POST,
    "two vocabularies": replace(POST, tie=Tie.target),
    "untied, with a bias": replace(POST, tie=Tie.none, output_bias=True),
    "gelu": replace(POST, activation=Activation.gelu),
    "silu": replace(POST, activation=Activation.silu),
    "halves": positions("sinusoidal", layout="halves"),
}


@pytest.mark.parametrize("name", VARIANTS)
def test_an_export_computes_the_same(
    name: str, bundle_of: Callable[[ModelConfig], Bundle], tmp_path: Path
) -> None:
    bundle = bundle_of(VARIANTS[name])
    assert MarianExporter().reason_against(bundle) is None
    parity = comparison(MarianExporter(), bundle, bundle, tmp_path / "out")
    assert parity.sentences == 32
    assert parity.largest_difference <= 1e-4
    assert parity.near_ties <= 2


def test_the_permutation_turns_one_table_into_the_other() -> None:
    assert halves_order(6).tolist() == [0, 2, 4, 1, 3, 5]
    interleaved, halves = sinusoids(50, 16), sinusoids(50, 16, SineOrder.halves)
    assert torch.equal(interleaved[:, halves_order(16)], halves)


def test_halves_are_written_byte_for_byte(bundle_of: Callable[[ModelConfig], Bundle], tmp_path: Path) -> None:
    from safetensors.torch import load_file

    bundle = bundle_of(positions("sinusoidal", layout="halves"))
    MarianExporter().write(bundle, tmp_path, quantization="float32", max_length=64)
    theirs, ours = load_file(tmp_path / "model.safetensors"), bundle.model.state_dict()
    assert torch.equal(
        theirs["model.decoder.layers.2.fc2.weight"], ours["decoder.2.feed_forward.outer.weight"]
    )
    parts = [theirs[f"model.encoder.layers.1.self_attn.{one}_proj.weight"] for one in "qkv"]
    assert torch.equal(torch.cat(parts), ours["encoder.1.self_attention.qkv.weight"])


def larger(weights: dict[str, torch.Tensor]) -> None:
    weights["encoder.0.self_attention.out.weight"] *= 1.01


def swapped(weights: dict[str, torch.Tensor]) -> None:
    rows = weights["target_embedding.weight"]
    rows[[-3, -2]] = rows[[-2, -3]]


@pytest.mark.parametrize("damage", [larger, swapped])
def test_a_damaged_export_is_refused(
    damage: Callable[[dict[str, torch.Tensor]], None],
    bundle_of: Callable[[ModelConfig], Bundle],
    tmp_path: Path,
) -> None:
    original, exported = bundle_of(POST), bundle_of(POST)
    damage(exported.model.state_dict())
    with pytest.raises(ParityError, match=r"^sentence \d+: the log-probability of token \d+ of "):
        comparison(MarianExporter(), exported, original, tmp_path / "out")


def test_a_wrong_permutation_is_refused(
    bundle_of: Callable[[ModelConfig], Bundle], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from nmt.interop import marian_export

    monkeypatch.setattr(marian_export, "halves_order", torch.arange)
    bundle = bundle_of(POST)
    with pytest.raises(ParityError, match="the log-probability of token 1 of a reference"):
        comparison(MarianExporter(), bundle, bundle, tmp_path / "out")


@pytest.mark.parametrize(
    ("config", "reason"),
    [
        (replace(POST, norm=Norm.pre), "model.norm=pre: transformers' Marian has post-norm alone"),
        (positions("rotary"), "model.positions.name=rotary: transformers' Marian has sinusoidal alone"),
        (
            positions("sinusoidal", "t5"),
            "model.positions.decoder=t5: transformers' Marian has sinusoidal alone",
        ),
        (
            positions("sinusoidal", layout="tensor2tensor"),
            "model.positions.name=sinusoidal, layout=tensor2tensor, base=10000: "
            "transformers' Marian has other",
        ),
        (replace(POST, attention="dot"), "model.attention=dot: transformers' Marian has no such option"),
        (replace(POST, residual=False), "model.residual=false: transformers' Marian has no such option"),
        (replace(POST, attention_window=3), "model.attention_window=3: transformers' Marian has no such"),
        (
            replace(POST, architecture="rnn_attention"),
            "model.architecture=rnn_attention: Marian has no such architecture",
        ),
    ],
)
def test_models_that_marian_lacks_are_refused(
    config: ModelConfig, reason: str, bundle_of: Callable[[ModelConfig], Bundle]
) -> None:
    found = MarianExporter().reason_against(bundle_of(config))
    assert found is not None and found.startswith(reason)


@pytest.mark.slow
def test_the_card_shows_how_to_translate(bundle_of: Callable[[ModelConfig], Bundle], tmp_path: Path) -> None:
    bundle, output = bundle_of(replace(POST, tie=Tie.none)), tmp_path / "out"
    result = export(ExportConfig(str(bundle.folder), str(output), "marian", **files(tmp_path)))
    assert result["exact"]["sentences"] == 32
    generation = json.loads((output / "generation_config.json").read_text())
    assert generation["bad_words_ids"] == [[0], [1], [3]]
    assert generation.get("forced_eos_token_id") is None
    card = (output / "README.md").read_text()
    assert "library_name: transformers\n" in card
    code = card.split("```python\n")[1].split("```")[0].replace("A sentence.", LINES[0])
    run = subprocess.run([sys.executable, "-c", code], cwd=output, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith("['") or run.stdout.startswith('["')
