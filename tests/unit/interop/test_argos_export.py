"""Packages for Argos Translate. NMT_ARGOS_PYTHON names an interpreter that has Argos Translate itself."""

from __future__ import annotations

import json
import os
import sys
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("ctranslate2", reason="the extra export is not installed")

from exported_models import LINES, POST, comparison, files, positions  # noqa: E402

import nmt  # noqa: E402
from nmt.bundle import Bundle, load_bundle  # noqa: E402
from nmt.config import CorpusConfig, DataConfig, ExportConfig, ModelConfig, Tie  # noqa: E402
from nmt.errors import UserError  # noqa: E402
from nmt.interop import argos_export  # noqa: E402
from nmt.interop.argos_export import ArgosExporter, argos_code, translated_by_argos  # noqa: E402
from nmt.interop.tasks import export  # noqa: E402

BundleOf = Callable[[ModelConfig], Bundle]
PYTHON = os.environ.get("NMT_ARGOS_PYTHON", "")
NUMBERS = [
    f"{a} {b} {c}" for a in ("one", "two", "ten", "six") for b in ("two", "five") for c in ("one", "four")
]


def exported(folder: Path, tmp_path: Path, **options: Any) -> tuple[dict[str, Any], Path]:
    config = ExportConfig(str(folder), str(tmp_path / "out"), "argos", **{"check_sentences": 10, **options})
    return export(config), tmp_path / "out" / "nmt-en_de.argosmodel"


def without_argos(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(argos_export, "argos_python", lambda: None)


def test_a_package(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    without_argos(monkeypatch)
    report, package = exported(model, tmp_path)
    assert report["exact"]["largest_difference"] <= 1e-4 and report["argos_translate"] is None
    with zipfile.ZipFile(package) as archive:
        names = archive.namelist()
        metadata = json.loads(archive.read("nmt-en_de/metadata.json"))
    assert {name.split("/")[0] for name in names} == {"nmt-en_de"}
    assert {"nmt-en_de/model/model.bin", "nmt-en_de/sentencepiece.model"} <= {*names}
    languages = {"from_code": "en", "from_name": "English", "to_code": "de", "to_name": "German"}
    assert languages.items() <= metadata.items()
    assert sorted(path.name for path in package.parent.iterdir()) == [
        *("README.md", "SHA256SUMS", "export.json", "nmt-en_de.argosmodel"),
    ]
    assert 'translate.translate("A sentence.", "en", "de")' in (package.parent / "README.md").read_text()


def test_pieces_that_are_never_written(bundle_of: BundleOf, tmp_path: Path) -> None:
    """Argos Translate forbids no piece: without the bias, this model would write <unk> alone."""
    bundle = bundle_of(replace(POST, output_bias=True))
    bundle.model.state_dict()["logit_bias"][3] = 50.0
    exporter = ArgosExporter()
    prepared = exporter.prepared(bundle)
    parity = comparison(exporter, prepared, prepared, tmp_path / "out")
    assert parity.largest_difference <= 1e-4
    assert "<unk>" not in exporter.load(tmp_path / "out", "float32").searched(LINES[:3])


def test_two_vocabularies(bundle_of: BundleOf, tmp_path: Path) -> None:
    exporter, bundle = ArgosExporter(), bundle_of(replace(POST, tie=Tie.none))
    assert exporter.reason_against(bundle) is None
    prepared = exporter.prepared(bundle)
    assert comparison(exporter, prepared, prepared, tmp_path / "out").largest_difference <= 1e-4


def test_models_that_argos_cannot_have(bundle_of: BundleOf, tmp_path: Path) -> None:
    bundle, exporter = bundle_of(POST), ArgosExporter()

    def with_data(**options: Any) -> Bundle:
        return replace(bundle, config=replace(bundle.config, data=replace(bundle.config.data, **options)))

    corpora = {name: CorpusConfig(tag=f"<2{name}>", target_lang=name) for name in ("de", "fr")}
    train = replace(DataConfig().train, corpora=corpora)
    assert exporter.reason_against(with_data(train=train)) == (
        "its tags choose the target language (de, fr), and Argos Translate has no tags"
    )
    assert exporter.reason_against(with_data(source_lang="en-US", target_lang="en-GB")) == (
        "data.source_lang and data.target_lang are both en for Argos Translate"
    )
    reason = exporter.reason_against(bundle_of(positions("alibi")))
    assert reason is not None and reason.startswith("model.positions.name=alibi: CTranslate2 has no such")


@pytest.mark.parametrize(
    ("code", "expected"),
    [
        *(
            ("en", "en"),
            ("de_DE", "de"),
            ("zh", "zh"),
            ("zh-Hant", "zt"),
            ("zh-TW", "zt"),
            ("zho_Hans", "zh"),
            ("zh-Hans-TW", "zh"),
        ),
        *(("pt-BR", "pb"), ("pt", "pt"), ("iw", "he"), ("xx", "xx")),
    ],
)
def test_codes(code: str, expected: str) -> None:
    assert argos_code(code) == expected


def test_an_export_that_argos_translates_otherwise_is_deleted(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def other(python: str, package: Path, quantization: str, lines: list[str]) -> dict[str, Any]:
        return {
            "version": "1",
            "splitter": None,
            "sentences": [[line] for line in lines],
            "translations": lines,
        }

    monkeypatch.setattr(argos_export, "argos_python", lambda: "python")
    monkeypatch.setattr(argos_export, "translated_by_argos", other)
    with pytest.raises(
        UserError, match=r"^format=argos: the export differs from the model on sentence 1: Argos"
    ):
        exported(model, tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_an_interpreter_without_argos_is_one_line(
    model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(argos_export, "argos_python", lambda: sys.executable)
    with pytest.raises(UserError) as refused:
        exported(model, tmp_path)
    assert str(refused.value) == (
        "format=argos: Argos Translate can't use the export (ModuleNotFoundError: No module named "
        "'argostranslate'). The export was deleted."
    )


SPLITTER = """
import re

class models:
    list_models = staticmethod(lambda: ["en"])

class SBDetect:
    def __init__(self, language, use_gpu):
        pass

    def sentences(self, text):
        return re.split("(?<=[.]) ", text)
"""
"""In place of minisbd, which downloads a model."""


@pytest.mark.slow
@pytest.mark.skipif(not PYTHON, reason="NMT_ARGOS_PYTHON does not name an interpreter with argostranslate")
@pytest.mark.parametrize("quantization", ["float32", "int8"])
@pytest.mark.parametrize("splitter", [SPLITTER, None], ids=["split", "unsplit"])
def test_argos_translate_installs_it_and_translates_equally(
    splitter: str | None, quantization: str, model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if splitter is not None:
        (tmp_path / "stub").mkdir()
        (tmp_path / "stub" / "minisbd.py").write_text(splitter)
        monkeypatch.setenv("PYTHONPATH", str(tmp_path / "stub"))
    monkeypatch.setattr(argos_export, "argos_python", lambda: PYTHON)
    lines = [f"{line}. {other}." if splitter else line for line in NUMBERS for other in NUMBERS][:200]
    for name in ("a.en", "a.de"):
        (tmp_path / name).write_text("\n".join(lines) + "\n")
    text = {"check": str(tmp_path / "a.en"), "references": str(tmp_path / "a.de"), "check_sentences": 200}
    report, package = exported(model, tmp_path, **text, max_bleu_loss=100, quantization=quantization)
    name = "MiniSBDSentencizer" if splitter else None
    assert (report["argos_lines"], report["argos_splitter"]) == (200, name)
    if quantization == "float32":  # greedy search has no length penalty: the same text as by nmt
        answer = translated_by_argos(PYTHON, package, "float32", lines, beam_size=1)
        assert [len(one) for one in answer["sentences"]] == [2 if splitter else 1] * 200
        if splitter is None:
            translate = nmt.load(str(model), device="cpu").translate
            options = {"beam_size": 1, "split_sentences": False, "placeholders": False}
            assert answer["translations"] == translate(lines, **options)


def test_lines_with_underscores_are_compared(
    bundle_of: BundleOf, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    without_argos(monkeypatch)
    bundle = bundle_of(POST)
    export(
        ExportConfig(str(bundle.folder), str(tmp_path / "out"), "argos", **files(tmp_path), check_sentences=5)
    )
    exporter = ArgosExporter()
    engine = exporter.load(tmp_path / "out", "float32")
    ids = load_bundle(bundle.folder).tokenizer.encode_target(["a_b ba"])
    assert engine.decode(ids) == ["a_b ba"]
