"""Exports to CTranslate2 and Marian, loaded by the engines themselves and compared with the model."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from exported_models import LINES, POST, comparison, files, positions

from nmt.bundle import Bundle
from nmt.config import ExportConfig, ModelConfig, Tie
from nmt.config.model import Activation, Norm, NormKind
from nmt.errors import UserError
from nmt.interop import EXPORTERS, Exporter, ctranslate2_export, marian_export
from nmt.interop.ctranslate2_export import CTranslate2Exporter
from nmt.interop.marian_export import MarianExporter, halves_order
from nmt.interop.parity import ComparedText, ParityError, compare
from nmt.interop.tasks import export
from nmt.model.positions import SineOrder, sinusoids

for package in ("ctranslate2", "transformers"):
    pytest.importorskip(package, reason="the extra export is not installed")

BundleOf = Callable[[ModelConfig], Bundle]

VARIANTS: dict[str, ModelConfig] = {
    "as in the paper": POST,
    "pre-norm": replace(POST, norm=Norm.pre),
    "two vocabularies": replace(POST, tie=Tie.target),
    "untied, with a bias": replace(POST, tie=Tie.none, output_bias=True),
    "untied, pre-norm": replace(POST, tie=Tie.none, norm=Norm.pre),
    "gelu": replace(POST, activation=Activation.gelu),
    "silu": replace(POST, activation=Activation.silu),
    # With more layers, products of random gates enlarge the rounding errors of both programs.
    "swiglu": replace(POST, activation=Activation.silu, gated=True, encoder_layers=1, decoder_layers=1),
    "reglu, pre-norm": replace(POST, gated=True, norm=Norm.pre, encoder_layers=1, decoder_layers=1),
    "rms": replace(POST, norm_kind=NormKind.rms),
    "rms, pre-norm": replace(POST, norm_kind=NormKind.rms, norm=Norm.pre),
    "bounded logits": replace(POST, logit_cap=3.0, output_bias=True),
    "relu2": replace(POST, activation=Activation.relu2),
    "unscaled": replace(POST, attention="dot"),
    "wide heads": replace(POST, key_width=12, value_width=12),
    "narrow heads, relative": replace(positions("relative", clip=3), key_width=6, value_width=6),
    "narrow heads, rotary": replace(positions("rotary"), key_width=6, value_width=6),
    "halves": positions("sinusoidal", layout="halves"),
    "tensor2tensor": positions("sinusoidal", layout="tensor2tensor"),
    "learned": positions("learned", max_positions=100),
    "none": positions("none"),
    "integer": positions("integer"),
    "binary": positions("binary"),
    "rotary": positions("rotary"),
    "rotary with another base": positions("rotary", base=500.0),
    "relative": positions("relative", clip=3),
    "relative without values": positions("relative", clip=3, values=False),
    "t5": positions("t5", buckets=8, max_distance=10),
    "t5, pre-norm": replace(positions("t5", buckets=8, max_distance=10), norm=Norm.pre),
    "rotary, then sinusoidal": positions("rotary", "sinusoidal"),
    "sinusoidal, then t5": positions("sinusoidal", "t5"),
}


LESS_COMMON = (
    *("reglu, pre-norm", "rms"),
    *("untied, pre-norm", "silu", "tensor2tensor", "none", "integer", "rotary with another base"),
    *("relative without values", "t5, pre-norm", "rotary, then sinusoidal"),
    *("narrow heads, relative", "narrow heads, rotary"),
)
"""Variants whose parts other variants have; they are tested with the slow tests."""
OF_MARIAN = ("as in the paper", "two vocabularies", "untied, with a bias", "gelu", "silu", "relu2", "halves")
EXPORTER_OF: dict[str, type[Exporter]] = {"ctranslate2": CTranslate2Exporter, "marian": MarianExporter}


@pytest.mark.parametrize(
    ("format", "name"),
    [
        *(
            pytest.param("ctranslate2", name, marks=[pytest.mark.slow] if name in LESS_COMMON else [])
            for name in VARIANTS
            if name != "relu2"
        ),
        *(("marian", name) for name in OF_MARIAN),
    ],
)
def test_an_export_computes_the_same(format: str, name: str, bundle_of: BundleOf, tmp_path: Path) -> None:
    bundle = bundle_of(VARIANTS[name])
    parity = comparison(EXPORTER_OF[format](), bundle, bundle, tmp_path / "out")
    assert parity.sentences == 33
    assert parity.largest_difference <= 1e-4
    assert parity.near_ties <= 2


def test_an_export_with_few_positions(bundle_of: BundleOf, tmp_path: Path) -> None:
    bundle = bundle_of(POST)
    tokenizer = bundle.tokenizer
    engine_folder = tmp_path / "out"
    engine_folder.mkdir()
    CTranslate2Exporter().write(bundle, engine_folder, quantization="float32", max_length=10)
    engine = CTranslate2Exporter().load(engine_folder, "float32")
    lines = ["ba da fu", "a"]
    sides = tokenizer.encode_source(lines), tokenizer.encode_target(lines)
    text = ComparedText("sentences", lines, lines, sides[0], *sides, longest=10)
    assert compare(bundle, engine, text).sentences == 2


def larger(weights: dict[str, torch.Tensor]) -> None:
    weights["decoder.1.feed_forward.outer.weight"] *= 1.01


def larger_output(weights: dict[str, torch.Tensor]) -> None:
    weights["encoder.0.self_attention.out.weight"] *= 1.01


def swapped(weights: dict[str, torch.Tensor]) -> None:
    rows = weights["target_embedding.weight"]
    rows[[-3, -2]] = rows[[-2, -3]]


def last_position(weights: dict[str, torch.Tensor]) -> None:
    weights["encoder_positions.table"][-2] += 0.1


LEARNED = positions("learned", max_positions=100)


@pytest.mark.parametrize(
    ("format", "config", "damage"),
    [
        *(("ctranslate2", LEARNED, damage) for damage in (larger, swapped, last_position)),
        *(("marian", POST, damage) for damage in (larger_output, swapped)),
    ],
)
def test_a_damaged_export_is_refused(
    format: str,
    config: ModelConfig,
    damage: Callable[[dict[str, torch.Tensor]], None],
    bundle_of: BundleOf,
    tmp_path: Path,
) -> None:
    original, exported = bundle_of(config), bundle_of(config)
    damage(exported.model.state_dict())
    with pytest.raises(ParityError, match=r"^sentence \d+: the log-probability of token \d+ of "):
        comparison(EXPORTER_OF[format](), exported, original, tmp_path / "out")


@pytest.mark.parametrize("format", EXPORTER_OF)
def test_another_normaliser_of_the_target_is_refused(
    format: str, bundle_of: BundleOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The ids of the source and all scores are the same: only the text differs."""
    bundle = bundle_of(POST)
    tokenizer, load = bundle.tokenizer, EXPORTER_OF[format].load

    def damaged(self: Exporter, folder: Path, quantization: str) -> Any:
        (folder / "target.spm").write_bytes(tokenizer.source.model)
        return load(self, folder, quantization)

    monkeypatch.setattr(EXPORTER_OF[format], "load", damaged)
    with pytest.raises(ParityError, match=r"^sentence 33: the text of a reference has '.*' in place of"):
        comparison(EXPORTER_OF[format](), bundle, bundle, tmp_path / "out")


def test_shifted_positions_are_refused(
    bundle_of: BundleOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = ctranslate2_export._table

    def shifted(encoding: Any, d_model: int, max_length: int) -> torch.Tensor:
        return table(encoding, d_model, max_length + 1)[1:]

    monkeypatch.setattr(ctranslate2_export, "_table", shifted)
    monkeypatch.setattr(marian_export, "halves_order", torch.arange)  # a wrong permutation
    bundle = bundle_of(POST)
    for format, exporter in EXPORTER_OF.items():
        with pytest.raises(ParityError, match="the log-probability of token 1 of a reference"):
            comparison(exporter(), bundle, bundle, tmp_path / format)


def test_the_permutation_turns_one_table_into_the_other() -> None:
    assert halves_order(6).tolist() == [0, 2, 4, 1, 3, 5]
    interleaved, halves = sinusoids(50, 16), sinusoids(50, 16, SineOrder.halves)
    assert torch.equal(interleaved[:, halves_order(16)], halves)


def test_halves_are_written_byte_for_byte(bundle_of: BundleOf, tmp_path: Path) -> None:
    from safetensors.torch import load_file

    bundle = bundle_of(positions("sinusoidal", layout="halves"))
    MarianExporter().write(bundle, tmp_path, quantization="float32", max_length=64)
    theirs, ours = load_file(tmp_path / "model.safetensors"), bundle.model.state_dict()
    assert torch.equal(
        theirs["model.decoder.layers.2.fc2.weight"], ours["decoder.2.feed_forward.outer.weight"]
    )
    parts = [theirs[f"model.encoder.layers.1.self_attn.{one}_proj.weight"] for one in "qkv"]
    assert torch.equal(torch.cat(parts), ours["encoder.1.self_attention.qkv.weight"])


@pytest.mark.parametrize(
    ("format", "config", "reason"),
    [
        *(
            ("ctranslate2", *case)
            for case in (
                (
                    positions("alibi"),
                    "model.positions.name=alibi: CTranslate2 has no such encoding; it has sinusoidal, ",
                ),
                (
                    positions("rotary", "alibi"),
                    "model.positions.decoder=alibi: CTranslate2 has no such encoding",
                ),
                (
                    replace(POST, attention="additive"),
                    "model.attention=additive: CTranslate2 has scaled_dot and dot",
                ),
                (
                    replace(POST, attention_window=3),
                    "model.attention_window=3: CTranslate2 has no such window",
                ),
                (
                    replace(POST, key_width=6),
                    "model.key_width=6, model.value_width=8: CTranslate2 has one width for keys and values",
                ),
                (replace(POST, residual=False), "model.residual=false: CTranslate2 always has residual"),
                *(
                    (replace(POST, **{key: True}), f"model.{key}=true: CTranslate2 can't compute such layers")
                    for key in ("query_key_norm", "value_skip", "embedding_skip")
                ),
                (
                    replace(POST, bigram_rows=50),
                    "model.bigram_rows=50: CTranslate2 embeds each piece by itself",
                ),
                (
                    replace(POST, activation=Activation.relu2),
                    "model.activation=relu2: CTranslate2 has no such activation",
                ),
                (
                    replace(POST, architecture="rnn_attention", tie=Tie.all),
                    "model.architecture=rnn_attention: CTranslate2 has no such architecture",
                ),
            )
        ),
        *(
            ("marian", *case)
            for case in (
                (replace(POST, norm=Norm.pre), "model.norm=pre: transformers' Marian has post-norm alone"),
                (
                    positions("rotary"),
                    "model.positions.name=rotary: transformers' Marian has sinusoidal alone",
                ),
                (
                    positions("sinusoidal", "t5"),
                    "model.positions.decoder=t5: transformers' Marian has sinusoidal alone",
                ),
                (
                    positions("sinusoidal", layout="tensor2tensor"),
                    "model.positions.name=sinusoidal, layout=tensor2tensor, base=10000: "
                    "transformers' Marian has other",
                ),
                (
                    replace(POST, key_width=9, value_width=9),
                    "model.key_width=9, model.value_width=9: transformers' Marian has d_model / heads alone",
                ),
                (
                    replace(POST, attention="dot"),
                    "model.attention=dot: transformers' Marian has no such option",
                ),
                (
                    replace(POST, residual=False),
                    "model.residual=false: transformers' Marian has no such option",
                ),
                (
                    replace(POST, attention_window=3),
                    "model.attention_window=3: transformers' Marian has no such",
                ),
                (
                    replace(POST, norm_kind=NormKind.rms),
                    "model.norm_kind=rms: transformers' Marian has no such option",
                ),
                *(
                    (replace(POST, **{key: True}), f"model.{key}=true: transformers' Marian has no such")
                    for key in ("gated", "query_key_norm", "value_skip", "embedding_skip")
                ),
                (replace(POST, logit_cap=30.0), "model.logit_cap=30.0: transformers' Marian has no such"),
                (replace(POST, bigram_rows=50), "model.bigram_rows=50: transformers' Marian has no such"),
                (
                    replace(POST, architecture="rnn_attention"),
                    "model.architecture=rnn_attention: Marian has no such architecture",
                ),
            )
        ),
    ],
)
def test_models_that_an_engine_lacks_are_refused(
    format: str, config: ModelConfig, reason: str, bundle_of: BundleOf
) -> None:
    found = EXPORTER_OF[format]().reason_against(bundle_of(config))
    assert found is not None and found.startswith(reason)


def exported_card(output: Path, **options: Any) -> str:
    """Exports a model, and runs the example of its card; returns the card."""
    result = export(ExportConfig(output=str(output), **options, **files(output.parent)))
    assert json.loads((output / "export.json").read_text()) == result
    assert result["compared_on"] == "a.en and a.de" and result["exact"]["sentences"] == 33
    card = (output / "README.md").read_text()
    code = card.split("```python\n")[1].split("```")[0].replace("A sentence.", LINES[0])
    run = subprocess.run([sys.executable, "-c", code], cwd=output, capture_output=True, text=True)
    assert run.returncode == 0, run.stderr
    assert run.stdout.startswith(("['", '["'))
    return card


def test_the_card_shows_how_to_translate(bundle_of: BundleOf, tmp_path: Path) -> None:
    output, bundle = tmp_path / "out", bundle_of(replace(POST, tie=Tie.none))
    card = exported_card(output, model_dir=str(bundle.folder), licence="cc-by-4.0")
    assert {path.name for path in output.iterdir()} == {
        *("README.md", "SHA256SUMS", "config.json", "export.json", "model.bin", "source.spm", "target.spm"),
        *("source_vocabulary.json", "target_vocabulary.json"),
    }
    assert card.startswith("---\nlanguage:\n- en\n- de\nlicense: cc-by-4.0\nlibrary_name: ctranslate2\n")


@pytest.mark.slow
def test_the_card_of_marian_shows_how_to_translate(bundle_of: BundleOf, tmp_path: Path) -> None:
    output, bundle = tmp_path / "out", bundle_of(replace(POST, tie=Tie.none))
    card = exported_card(output, model_dir=str(bundle.folder), format="marian")
    generation = json.loads((output / "generation_config.json").read_text())
    assert generation["bad_words_ids"] == [[0], [1], [3]]
    assert generation.get("forced_eos_token_id") is None
    assert "library_name: transformers\n" in card


@pytest.mark.slow
def test_a_quantised_export_that_loses_too_much_is_deleted(
    bundle_of: BundleOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bundle, output, bleu = bundle_of(POST), tmp_path / "out", iter([30.0, 29.4, 30.0, 29.6])
    monkeypatch.setattr("nmt.interop.tasks.score_of", lambda *texts: next(bleu))
    config = ExportConfig(str(bundle.folder), str(output), quantization="int8", **files(tmp_path))
    with pytest.raises(UserError) as error:
        export(config)
    assert str(error.value) == (
        "quantization=int8: loses 0.60 BLEU (30.00 to 29.40 on a.en and a.de), more than max_bleu_loss=0.5. "
        "The export was deleted. Choose another quantization, or allow it with nmt-export max_bleu_loss=N."
    )
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.de", "a.en"]
    result = export(config)
    assert (result["bleu"], result["bleu_of_the_model"]) == (29.6, 30.0)
    fp32_bytes = 4 * (sum(p.numel() for p in bundle.model.parameters()) + 2 * 1024 * 32)  # and two tables
    assert (output / "model.bin").stat().st_size < 0.5 * fp32_bytes
    assert not (output / "float32").exists()


def test_a_different_export_is_deleted(
    bundle_of: BundleOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Damaging(CTranslate2Exporter):
        def write(self, bundle: Bundle, folder: Path, **options: Any) -> None:
            other = bundle_of(bundle.config.model)
            larger(other.model.state_dict())
            super().write(other, folder, **options)

    monkeypatch.setitem(EXPORTERS, "damaging", Damaging)
    bundle, output = bundle_of(POST), tmp_path / "out"
    with pytest.raises(UserError, match=r"^format=damaging: the export differs from the model on a\.en and"):
        export(ExportConfig(str(bundle.folder), str(output), "damaging", **files(tmp_path)))
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a.de", "a.en"]


@pytest.mark.slow
def test_without_validation_data_the_bundled_sentences_are_compared(
    bundle_of: BundleOf, tmp_path: Path
) -> None:
    bundle = bundle_of(POST)
    result = export(ExportConfig(str(bundle.folder), str(tmp_path / "out"), check_sentences=20))
    assert (result["compared_on"], result["sentences"]) == ("bundled sentences", 20)


def test_an_existing_folder_is_kept(bundle_of: BundleOf, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    with pytest.raises(UserError, match="already exists. Choose another name, or remove it.$"):
        export(ExportConfig(str(bundle_of(POST).folder), str(tmp_path / "out")))
    assert [path.name for path in (tmp_path / "out").iterdir()] == ["mine"]


def test_wrong_options() -> None:
    with pytest.raises(UserError, match="^references: must be given with check, its file line for line.$"):
        ExportConfig("m", "o", check="a")
    with pytest.raises(UserError, match=r"^quantization=int4: must be one of float32, int8, "):
        export(ExportConfig("m", "o", quantization="int4"))
    with pytest.raises(
        UserError,
        match=r"^format=odd: there is no export format odd. Choose from ctranslate2, argos, marian, nmt.$",
    ):
        export(ExportConfig("m", "o", format="odd"))


@pytest.mark.parametrize(
    ("format", "advice"),
    [
        ("onnx", "there is no export for ONNX. Export for transformers with format=marian; the package opt"),
        (
            "bergamot",
            "Bergamot reads models that Marian has trained. For small and fast models without PyTorch,",
        ),
        (
            "npz",
            "Marian's npz are imported (nmt-import), not written. Use format=marian for transformers, or ",
        ),
        ("HuggingFace", "transformers has Marian. Use format=marian."),
        ("argosmodel", "Use format=argos."),
        ("ct2", "Use format=ctranslate2."),
    ],
)
def test_formats_that_users_look_for(format: str, advice: str) -> None:
    with pytest.raises(UserError) as refused:
        export(ExportConfig("m", "o", format=format))
    assert str(refused.value).startswith(f"format={format}: {advice}")
