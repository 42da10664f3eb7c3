"""The exports of an engine: made once, found again, made again if the model or a file has changed."""

from __future__ import annotations

import json
import logging
import os
import shutil
from dataclasses import fields
from pathlib import Path

import pytest

pytest.importorskip("ctranslate2", reason="the extra export is not installed")

from number_words import trained_model  # noqa: E402

from nmt.bundle import load_bundle, save_bundle, write_results  # noqa: E402
from nmt.config import DecodingConfig, ExportConfig, ServeConfig, TranslateConfig  # noqa: E402
from nmt.data.letter_case import CaseFacts  # noqa: E402
from nmt.decoding.facts import TextFacts  # noqa: E402
from nmt.errors import UserError  # noqa: E402
from nmt.interop import ENGINES, stored_exports  # noqa: E402
from nmt.interop.record import Record, read_record  # noqa: E402
from nmt.interop.stored_exports import read_export, stored_export  # noqa: E402
from nmt.interop.tasks import export  # noqa: E402
from nmt.options.arguments import Arguments  # noqa: E402
from nmt.options.compose import compose_jobs  # noqa: E402
from nmt.runtime.hub import find_model_folder  # noqa: E402


@pytest.fixture
def own(model: Path, tmp_path: Path) -> Path:
    """A copy of the model without exports."""
    return Path(shutil.copytree(model, tmp_path / "m", ignore=shutil.ignore_patterns("exports")))


@pytest.fixture(autouse=True)
def few_sentences(monkeypatch: pytest.MonkeyPatch) -> None:
    """Compares few sentences: the proof has its own tests."""
    monkeypatch.setattr(stored_exports, "_SENTENCES", 5)


def made(folder: Path, quantization: str = "float32", decoding: DecodingConfig | None = None) -> Path:
    options = decoding or DecodingConfig()
    return stored_export(str(folder), "ctranslate2", quantization, options, key="backend", threads=1)[0]


def stamp(folder: Path) -> int:
    return (folder / "model.bin").stat().st_mtime_ns


def test_an_export_is_made_once(own: Path) -> None:
    first = made(own)
    assert first == own / "exports" / "ctranslate2-float32"
    before = stamp(first)
    assert made(own) == first and stamp(first) == before
    assert made(own, "int8") == own / "exports" / "ctranslate2-int8"
    assert stamp(first) == before
    report = json.loads((first / "export.json").read_text())
    assert report["source_lang"] == "en" and report["decoding"]["beam_size"] == 3
    assert report["max_source_tokens"] == report["max_target_tokens"] == 2048


def test_longer_sentences_have_an_export_of_their_own(own: Path) -> None:
    assert made(own, decoding=DecodingConfig(max_source_tokens=1998)).name == "ctranslate2-float32"
    assert made(own, decoding=DecodingConfig(max_source_tokens=1999)).name == "ctranslate2-float32-4096"


def test_a_changed_model_gets_a_new_export(own: Path, tmp_path: Path, caplog) -> None:
    folder = made(own)
    before = (folder / "model.bin").read_bytes()
    other = load_bundle(trained_model(tmp_path / "other", seed=2, updates=1))
    saved = tmp_path / "saved"
    shutil.copytree(own / "exports", saved)
    save_bundle(own, other.config, other.model.state_dict(), other.tokenizer, {})
    shutil.copytree(saved, own / "exports")
    with caplog.at_level(logging.INFO):
        assert made(own) == folder
    assert (folder / "model.bin").read_bytes() != before
    assert "belongs to another version of the model, or is damaged" in caplog.text


def test_changed_facts_and_options_get_a_new_export(own: Path) -> None:
    def recorded() -> Record:
        return read_record(made(own))

    model = load_bundle(own)
    write_results(own, model.config, model.tokenizer, {"data": {"text": {"characters": 77}}})
    assert recorded().characters == 77
    model.config.decoding.beam_size = 7
    save_bundle(own, model.config, model.model.state_dict(), model.tokenizer, {})
    assert (recorded().characters, recorded().decoding.beam_size) == (None, 7)


@pytest.mark.parametrize("name", ["model.bin", "source.spm", "export.json", "SHA256SUMS", "config.json"])
@pytest.mark.parametrize("damage", ["cut", "removed"])
def test_a_damaged_export_is_made_again(own: Path, name: str, damage: str) -> None:
    folder = made(own)
    whole = (folder / "model.bin").read_bytes()
    path = folder / name
    if damage == "cut":
        path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    else:
        path.unlink()
    assert made(own) == folder
    assert (folder / "model.bin").read_bytes() == whole and path.stat().st_size > 0


def test_an_interrupted_export_leaves_nothing_that_is_used(own: Path, monkeypatch) -> None:
    def killed(*arguments: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr("nmt.interop.tasks.compare", killed)
        with pytest.raises(KeyboardInterrupt):
            made(own)
    assert [path.name for path in (own / "exports").iterdir()] == [".ctranslate2-float32.lock"]
    rest = own / "exports" / ".ctranslate2-float32.tmp"  # what a killed process leaves
    rest.mkdir()
    (rest / "model.bin").write_bytes(b"half")
    assert made(own).name == "ctranslate2-float32"
    assert not rest.exists()


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(own: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    own.chmod(0o500)
    assert made(own).parent == tmp_path / "cache" / "exports"


def test_a_folder_without_permission_uses_the_cache(own: Path, tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr(stored_exports.os, "access", lambda path, mode: False)
    folder = made(own)
    assert folder.parent == tmp_path / "cache" / "exports"
    assert not (own / "exports").exists()
    before = stamp(folder)
    assert made(own) == folder and stamp(folder) == before


def test_the_folder_of_an_export(own: Path, tmp_path: Path) -> None:
    place = tmp_path / "exported"
    export(ExportConfig(str(own), str(place), quantization="int8", check_sentences=5, max_bleu_loss=100))
    folder, record = read_export(str(place), "ctranslate2", None)
    assert (folder, record.quantization, record.target_lang) == (place, "int8", "de")
    assert read_export(str(place), "ctranslate2", "int8")[0] == place
    with pytest.raises(UserError) as wrong:
        read_export(str(place), "ctranslate2", "float32")
    assert str(wrong.value) == (
        f"quantization=float32: the weights of the export {place} are int8. Remove this option, or give the "
        "model that it was made from."
    )
    # The options of decoding are those of the model that it was made from.
    for schema, name in ((TranslateConfig, "translate"), (ServeConfig, "serve")):
        arguments = Arguments((f"model_dir={place}", "backend=ctranslate2", "decoding.nbest=1"))
        [job] = compose_jobs(schema, name, arguments)
        assert (job.decoding.beam_size, job.decoding.max_length_offset) == (3, 20)

    with pytest.raises(UserError, match="is an export for CTranslate2. Give the model that it was made"):
        find_model_folder(place)
    (place / "model.bin").write_bytes(b"")
    with pytest.raises(UserError) as damaged:
        read_export(str(place), "ctranslate2", None)
    assert str(damaged.value) == (
        f"{place / 'model.bin'}: is damaged or missing: its checksum is not the one in SHA256SUMS. Copy the "
        "file again, or export the model again."
    )


def test_an_export_of_another_format_or_version(tmp_path: Path) -> None:
    report = tmp_path / "export.json"
    report.write_text('{"nmt": "0.1.0", "format": "ctranslate2"}')
    with pytest.raises(UserError) as old:
        read_export(str(tmp_path), "ctranslate2", None)
    assert str(old.value) == (f"{report}: was written by an earlier version of nmt. Export the model again.")
    values = {"format": "marian", "quantization": "float32", "source_lang": "en", "target_lang": "de"}
    values |= {"made_from": "", "decoding": {}, "max_source_tokens": 9, "max_target_tokens": 9}
    report.write_text(json.dumps(values))
    with pytest.raises(UserError) as other:
        read_export(str(tmp_path), "ctranslate2", None)
    assert str(other.value) == (
        f"model_dir={tmp_path}: is an export for marian, not for ctranslate2. Give the model that it "
        "was made from."
    )
    report.write_text(json.dumps(values | {"max_source_tokens": "many"}))
    with pytest.raises(UserError, match="is damaged: max_source_tokens=many: must be a whole number"):
        read_export(str(tmp_path), "ctranslate2", None)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 2}, "decoding.samples=2: backend=ctranslate2 does not have it. Set decoding.samples=0"),
        (
            {"mbr": "chrf", "nbest": 2},
            "decoding.mbr=chrf: backend=ctranslate2 does not have it. Set",
        ),
        ({"diversity": 0.5}, "decoding.diversity=0.5: backend=ctranslate2"),
        ({"coverage_penalty": 0.2}, "decoding.coverage_penalty=0.2: backend=ctranslate2"),
        (
            {"processors": {"no_repeat_ngram": {}}},
            "decoding.processors=no_repeat_ngram: backend=ctranslate2 does not have it. Set "
            "decoding.processors={}, or use backend=nmt.",
        ),
    ],
)
def test_options_that_the_engine_lacks(options: dict[str, object], message: str) -> None:
    decoding = DecodingConfig(**options)  # type: ignore[arg-type]
    with pytest.raises(UserError) as refused:
        ENGINES["ctranslate2"]().check(TranslateConfig("missing", backend="ctranslate2", decoding=decoding))
    assert str(refused.value).startswith(message)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"alignments": "a.txt"},
            "alignments=a.txt: backend=ctranslate2 has none. Remove it, or use backend=nmt.",
        ),
        ({"terminology": "t"}, "terminology=t: backend=ctranslate2 has none. Remove it, or use backend=nmt."),
        (
            {"precision": "bf16"},
            "precision=bf16: is for backend=nmt. Remove it. quantization=int8 or another number format has "
            "this effect here.",
        ),
        (
            {"device": "mps"},
            "device=mps: backend=ctranslate2 has auto, cpu, cuda, and numbered GPUs such as cuda:1.",
        ),
    ],
)
def test_options_of_the_command_that_the_engine_lacks(options: dict[str, str], message: str) -> None:
    config = TranslateConfig("missing", backend="ctranslate2", **options)  # type: ignore[arg-type]
    with pytest.raises(UserError) as refused:
        ENGINES["ctranslate2"]().check(config)
    assert str(refused.value) == message


def test_other_mistakes(own: Path, translator_of) -> None:
    config = TranslateConfig("m", quantization="int8")
    with pytest.raises(UserError) as refused:
        ENGINES["nmt"]().check(config)
    assert str(refused.value) == (
        "quantization=int8: backend=nmt has no quantized weights. Add backend=ctranslate2, or remove it."
    )
    config = TranslateConfig(["a", "b"], backend="ctranslate2")
    with pytest.raises(UserError) as several:
        ENGINES["ctranslate2"]().load(config, ["a", "b"])
    assert str(several.value) == ("model_dir=[a,b]: backend=ctranslate2 has no ensembles. Give one model.")
    with pytest.raises(UserError, match="^quantization=int3: must be one of float32, int8, "):
        made(own, "int3")
    with pytest.raises(UserError, match="^backend=marian9: there is no backend marian9. Choose from nmt, "):
        ENGINES.find("marian9", "backend=marian9")
    translator = translator_of(own, "ctranslate2")
    for name, wanted in (("attention", {"attention": True}), ("constraints", {"constraints": [["a"]]})):
        with pytest.raises(UserError) as lacking:
            translator.translate(["one"], **wanted)
        assert str(lacking.value) == f"{name}: backend=ctranslate2 has none. Use backend=nmt."


@pytest.mark.parametrize(
    ("tokens", "factor", "positions"), [(10, 1, 2048), (2048, 1, 4096), (100_000, 3, 131_072)]
)
def test_positions_of_an_export(tokens: int, factor: float, positions: int) -> None:
    options = DecodingConfig(max_source_tokens=tokens, max_length_factor=factor)
    assert stored_exports._length(options) == positions


def test_a_table_of_positions_has_a_bound() -> None:
    assert ExportConfig("m", "o", max_length=131_072).max_length == 131_072
    with pytest.raises(UserError, match=r"^max_length=131073: must be between 1 and 131,072\.$"):
        ExportConfig("m", "o", max_length=131_073)


def test_a_model_that_the_engine_cannot_compute(own: Path, monkeypatch) -> None:
    from nmt.interop.ctranslate2_export import CTranslate2Exporter

    monkeypatch.setattr(
        CTranslate2Exporter, "reason_against", lambda self, bundle: "model.residual=false: no"
    )
    with pytest.raises(UserError) as refused:
        made(own)
    assert str(refused.value) == f"backend=ctranslate2: {own} can't be exported: model.residual=false: no."


def test_an_export_has_the_facts_about_the_text_of_its_model(own: Path) -> None:
    bundle = load_bundle(own)
    case = {"capitals": 0.25, "title": 0.0, "initial": 0.5, "mixed": 1.0}
    text = {"case": case, "several_sentences": 0.5, "characters": 90, "number_words": 0.03}
    results = {**bundle.results, "data": {**bundle.results.get("data", {}), "text": text}}
    save_bundle(own, bundle.config, bundle.model.state_dict(), bundle.tokenizer, results)
    record = read_export(str(made(own)), "ctranslate2", None)[1]
    facts = TextFacts(**{fact.name: getattr(record, fact.name) for fact in fields(TextFacts)})
    languages = bundle.config.data.source_lang, bundle.config.data.target_lang
    assert facts == TextFacts(*languages, 0.5, 90, CaseFacts(**case), 0.03)
    assert facts == TextFacts.of(bundle.config.data, results)
