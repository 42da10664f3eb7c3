"""Imports of OPUS-MT's zips in Marian's own format, against CTranslate2's converter, and hostile ones."""

from __future__ import annotations

import io
import sys
import tracemalloc
import zipfile
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

pytest.importorskip("ctranslate2", reason="the extra export is not installed")
pytest.importorskip("transformers", reason="the extra export is not installed")

from exported_models import sentences  # noqa: E402
from opus_archives import NPZ, SMALL, npz, opus_parts, opus_zip  # noqa: E402

import nmt  # noqa: E402
from nmt.bundle import load_bundle  # noqa: E402
from nmt.config import Activation, ImportConfig, Norm, Tie  # noqa: E402
from nmt.errors import UserError  # noqa: E402
from nmt.interop import opus_import  # noqa: E402
from nmt.interop.opus_files import OpusFiles  # noqa: E402
from nmt.interop.opus_vocabulary import parse_vocabulary  # noqa: E402
from nmt.interop.tasks import import_model  # noqa: E402

LANGUAGES = {"source_lang": "en", "target_lang": "de"}


def imported(model: Path, output: Path, **options: Any) -> dict[str, Any]:
    return import_model(
        ImportConfig(str(model), str(output), **{"check_sentences": 5, **LANGUAGES, **options})
    )


def unpacked(archive: Path, folder: Path) -> Path:
    with zipfile.ZipFile(archive) as opened:
        opened.extractall(folder)
    return folder


@pytest.mark.parametrize(
    "config",
    [
        SMALL,
        pytest.param(replace(SMALL, tie=Tie.none), marks=pytest.mark.slow),
        pytest.param(replace(SMALL, tie=Tie.target), marks=pytest.mark.slow),
        pytest.param(replace(SMALL, norm=Norm.pre, activation=Activation.relu), marks=pytest.mark.slow),
    ],
    ids=["as OPUS-MT", "untied", "two vocabularies", "pre-norm, relu"],
)
def test_it_translates_as_the_converted_original(config: Any, tmp_path: Path) -> None:
    """CTranslate2 converts the files as they are, but for the sinusoids, which it has from transformers."""
    import ctranslate2
    import sentencepiece as spm
    from ctranslate2.converters import OpusMTConverter

    archive = opus_zip(tmp_path / "opus.zip", config)
    facts = imported(archive, tmp_path / "ours")
    assert facts["sentences"] == 5 and facts["largest_difference"] <= 1e-4
    bundle = load_bundle(tmp_path / "ours")
    decoding = bundle.config.decoding
    assert (decoding.beam_size, decoding.length_penalty, decoding.max_source_tokens) == (6, 1.0, 512)
    assert bundle.config.model.tie is config.tie and bundle.config.model.norm is config.norm

    folder = unpacked(archive, tmp_path / "theirs")
    with np.load(folder / NPZ) as arrays:
        # Marian, node_initializers.cpp: frequencies exp(-i * log(10000) / (d / 2 - 1)), sines before cosines.
        angles = np.arange(200)[:, None] * np.exp(-np.arange(16) * np.log(10000) / 15)
        table = np.concatenate([np.sin(angles), np.cos(angles)], 1).astype(np.float32)
        np.savez(folder / NPZ, **{**arrays, "Wpos": table})
    OpusMTConverter(str(folder)).convert(str(tmp_path / "converted"))
    engine = ctranslate2.Translator(str(tmp_path / "converted"), compute_type="float32", intra_threads=1)
    processor = spm.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    lines = [*sentences(25, 9), 'Größe "quoted" it\'s: \\ #1 no', "a ñandú <unk> </s> <pad> </s>"]
    results = engine.translate_batch(
        [processor.encode(line, out_type=str) for line in lines],
        beam_size=1,
        max_decoding_length=20,
        min_decoding_length=0,
        suppress_sequences=[["<unk>"]],
    )
    expected = ["".join(one.hypotheses[0]).replace("▁", " ").strip() for one in results]
    model = nmt.load(str(tmp_path / "ours"), device="cpu")
    options = {"beam_size": 1, "max_length_factor": 0.0, "max_length_offset": 21, "placeholders": False}
    assert model.translate(lines, **options) == expected
    assert len({*expected}) > 5


def test_a_wrong_import_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    right = opus_import.our_weights

    def wrong(*args: Any) -> Any:
        config, weights = right(*args)
        weights["decoder.2.cross_attention.kv.bias"] += 0.05
        return config, weights

    monkeypatch.setattr(opus_import, "our_weights", wrong)
    with pytest.raises(UserError, match=r"^format=marian: the imported model differs .* It was deleted\.$"):
        imported(opus_zip(tmp_path / "opus.zip"), tmp_path / "ours")
    assert [path.name for path in tmp_path.iterdir()] == ["opus.zip"]


def test_the_unpacked_folder_and_a_zip_with_a_folder(tmp_path: Path) -> None:
    archive = opus_zip(tmp_path / "opus.zip")
    folder = unpacked(archive, tmp_path / "unpacked")
    imported(folder, tmp_path / "a", check_sentences=1)
    with zipfile.ZipFile(tmp_path / "b.zip", "w") as again:
        for path in folder.iterdir():
            again.write(path, f"opus-2020-02-26/{path.name}")
    imported(tmp_path / "b.zip", tmp_path / "b", check_sentences=1)
    first, second = (load_bundle(tmp_path / name) for name in "ab")
    assert first.tokenizer.fingerprint == second.tokenizer.fingerprint
    assert first.tokenizer.encode_source([">>deu<< ba"])[0][0] == first.tokenizer.source_symbols[">>deu<<"]


Files = dict[str, bytes]
Damage = Callable[[Files, dict[str, Any], dict[str, Any]], None]


def option(key: str, value: Any) -> Damage:
    return lambda files, arrays, options: options.update({key: value})


def array(name: str, value: Any) -> Damage:
    return lambda files, arrays, options: arrays.update({name: value})


def text(name: str, old: str, new: str) -> Damage:
    def change(files: Files, arrays: dict[str, Any], options: dict[str, Any]) -> None:
        assert old.encode() in files[name]
        files[name] = files[name].replace(old.encode(), new.encode())

    return change


def without(name: str) -> Damage:
    def remove(files: Files, arrays: dict[str, Any], options: dict[str, Any]) -> None:
        for part in (files, arrays, options):
            part.pop(name, None)

    return remove


def bomb(files: Files, arrays: dict[str, Any], options: dict[str, Any]) -> None:
    content = io.BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("Wemb.npy", bytes(70_000_000))
    files[NPZ] = content.getvalue()


def lying(shape: tuple[int, ...]) -> Damage:
    """Puts an array into the npz that states another size than it has."""

    def change(files: Files, arrays: dict[str, Any], options: dict[str, Any]) -> None:
        content, header = io.BytesIO(npz({}, options)), io.BytesIO()
        np.lib.format.write_array_header_1_0(header, {"descr": "<f4", "fortran_order": False, "shape": shape})
        with zipfile.ZipFile(content, "a") as archive:
            archive.writestr("Wemb.npy", header.getvalue() + bytes(8))
        files[NPZ] = content.getvalue()

    return change


class Traitor:
    """Would write a file if it were unpickled."""

    def __reduce__(self) -> Any:
        return open, ("pickled", "w")


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (without("decoder.yml"), "opus.zip: lacks decoder.yml, so it is not an OPUS-MT model"),
        (without("source.spm"), "opus.zip: lacks source.spm, so it is not an OPUS-MT model"),
        (without("opus.vocab.yml"), "opus.zip: lacks opus.vocab.yml"),
        (
            text("decoder.yml", NPZ, "../../x.npz"),
            "models: '../../x.npz': must be the name of a file next to",
        ),
        (text("decoder.yml", NPZ, "model.bin"), "models: 'model.bin': must be the name of a file next to"),
        (
            text("decoder.yml", f"- {NPZ}", "- a.npz\n- b.npz"),
            "models: must be a list of one file, but has 2.",
        ),
        (text("decoder.yml", "models:", "models: &a"), "decoder.yml: is damaged: "),
        (text("opus.vocab.yml", "</s>", "</x>"), "opus.vocab.yml: lacks </s> or <unk>."),
        (
            text("opus.vocab.yml", '"<unk>": 1', '"<unk>": 0'),
            "opus.vocab.yml: is damaged: two pieces have the",
        ),
        (
            text("opus.vocab.yml", '"<unk>": 1', '"<unk>": 9999'),
            "opus.vocab.yml: has more pieces than the model",
        ),
        (
            text("opus.vocab.yml", '"<unk>": 1', '"<unk>"'),
            "opus.vocab.yml: is damaged: line 2: must be a piece",
        ),
        (lambda files, *_: files.update({"target.spm": b"x"}), "target.spm: is damaged: not a Sentence"),
        (lambda files, *_: files.update({NPZ: b"x"}), f"{NPZ}: is damaged: File is not a zip file."),
        (bomb, f"{NPZ}: is damaged: its files would have 70,000,000 bytes."),
        (lying((10**6, 10**6)), "'Wemb.npy' does not have the size that it states."),
        (lying((10**30,)), "'Wemb.npy' does not have the size that it states."),
        (lying((-1, -2)), "'Wemb.npy' does not have the size that it states."),
        (array("Wemb", np.array([Traitor()], object)), "'Wemb.npy' has objects of Python"),
        (without("transformer-dim-ffn"), "transformer-dim-ffn=null: must be a whole number from 1 on."),
        (option("type", "amun"), 'type="amun": must be "transformer".'),
        (option("transformer-ffn-activation", "gelu"), "must be relu or swish; nmt's gelu is another"),
        (option("transformer-ffn-depth", 3), "transformer-ffn-depth=3: must be 2."),
        (option("transformer-train-positions", True), "transformer-train-positions=true: must be false."),
        (option("transformer-tied-layers", [1, 1]), "transformer-tied-layers=[1, 1]: must be []."),
        (option("transformer-preprocess", "d"), 'transformer-preprocess="d", transformer-postprocess="dan"'),
        (option("transformer-preprocess", ["a\nb"]), 'transformer-preprocess=["a\\nb"], transformer-post'),
        (option("enc-depth", 10**9), "enc"),
        (option("enc-depth", 3), "lacks the weight encoder_l3_self_Wq, which its options need."),
        (option("enc-depth", 1), 'nmt has no place for 16 of its weights, such as "encoder_l2_ffn_W1".'),
        (option("dim-emb", 64), "Wemb: has the size "),
        (option("dim-emb", "x" * 9999), "dim-emb="),
        (option("transformer-heads", 5), "heads"),
        (without("decoder_l3_ffn_b2"), "lacks the weight decoder_l3_ffn_b2, which its options need."),
        (array("odd", np.zeros(3, np.float32)), 'nmt has no place for 1 of its weights, such as "odd".'),
        (array("decoder_l1_ffn_b2", np.zeros((1, 7), np.float32)), "decoder_l1_ffn_b2: has the size 1 x 7."),
        (array("decoder_l1_ffn_W2", np.zeros(7, np.float32)), "decoder_l1_ffn_W2: must be a matrix, but"),
        (array("decoder_l1_ffn_W1", np.zeros((48, 32), np.float32)), "decoder_l1_ffn_W1: has the size 48 x"),
        (
            array("decoder_l1_ffn_b2", np.zeros((1, 32), np.int32)),
            "decoder_l1_ffn_b2: must hold fp32 or fp16",
        ),
        (array("decoder_l1_ffn_b2", np.full((1, 32), np.nan, np.float32)), "decoder_l1_ffn_b2: holds NaN"),
    ],
)
def test_hostile_models(
    damage: Damage, message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    files, arrays, options = opus_parts()
    damage(files, arrays, options)
    with zipfile.ZipFile("opus.zip", "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in ({NPZ: npz(arrays, options)} | files).items():
            archive.writestr(name, content)
    with pytest.raises(UserError) as refused:
        imported(Path("opus.zip"), Path("ours"))
    assert message in str(refused.value) and "\n" not in str(refused.value)
    assert [path.name for path in tmp_path.iterdir()] == ["opus.zip"]


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("../evil", "'../evil' is a path out of it."),
        ("/etc/evil", "'/etc/evil' is a path out of it."),
        ("a\\..\\evil", "is a path out of it."),
        ("decoder.yml", "two of its files have one name."),
    ],
)
@pytest.mark.filterwarnings("ignore:Duplicate name")
def test_paths_in_a_zip(name: str, message: str, tmp_path: Path) -> None:
    with zipfile.ZipFile(opus_zip(tmp_path / "opus.zip"), "a") as archive:
        archive.writestr(name, b"x")
    with pytest.raises(UserError) as refused:
        imported(tmp_path / "opus.zip", tmp_path / "ours")
    assert message in str(refused.value)


def test_files_that_are_not_zips(tmp_path: Path) -> None:
    opus_zip(tmp_path / "opus.zip")
    content = (tmp_path / "opus.zip").read_bytes()
    for damaged in (b"", b"PK\3\4", content[:-30], content[:9000] + b"\0" * 99 + content[9099:]):
        (tmp_path / "opus.zip").write_bytes(damaged)
        with pytest.raises(UserError, match=r"opus\.zip.*: is damaged: "):
            imported(tmp_path / "opus.zip", tmp_path / "ours")
    with pytest.raises(UserError, match=r"^model=.*odd\.tar: there is no such folder"):
        imported(tmp_path / "odd.tar", tmp_path / "ours")
    (tmp_path / "odd.npz").touch()
    with pytest.raises(UserError, match=r"^model=.*odd\.npz: must be a folder or a file \*\.zip\.$"):
        imported(tmp_path / "odd.npz", tmp_path / "ours")


def test_a_false_size_in_a_zip_does_not_fill_the_memory(tmp_path: Path) -> None:
    path = tmp_path / "opus.zip"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("decoder.yml", b"\0" * 30_000_000)
    true, false = (size.to_bytes(4, "little") for size in (30_000_000, 100))
    path.write_bytes(path.read_bytes().replace(true, false))
    tracemalloc.start()
    try:
        with OpusFiles(path) as files, pytest.raises(UserError, match="decoder.yml: is damaged: Bad CRC"):
            files.read("decoder.yml")
        assert tracemalloc.get_traced_memory()[1] < 3_000_000
    finally:
        tracemalloc.stop()


def test_a_zip_needs_no_transformers(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    imported(opus_zip(tmp_path / "opus.zip"), tmp_path / "ours")


def test_the_languages_are_asked_for(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"^source_lang: the model does not say it\. Give source_lang=en"):
        imported(opus_zip(tmp_path / "opus.zip"), tmp_path / "ours", source_lang=None)


def test_vocabularies_of_marian() -> None:
    content = """"</s>": 0\n<unk>: 1\n"\\"": 2\n'''': 3\n"\\\\": 4\n"▁\\x85": 5\n▁no: 6\n~: 7\n1.0: 8
? "▁long"\n: 9\n"a: b": 10\n'#': 11\n"\\u2028": 12\n::: 13\n- : 14\n"▁": 15\n"""
    pieces = [
        "</s>",
        "<unk>",
        '"',
        "'",
        "\\",
        "▁\x85",
        "▁no",
        "~",
        "1.0",
        "▁long",
        "a: b",
        "#",
        "\u2028",
        "::",
    ]
    assert parse_vocabulary(content) == {piece: id for id, piece in enumerate([*pieces, "-", "▁"])}
    assert parse_vocabulary('a: 0\r\n"b": 1\r\n') == {"a": 0, "b": 1}
    for damaged in ("a: 0\na: 1", "a: 0\nb: 0", "a", "a: -1", ": 1", "a: 1e5", "a: " + "9" * 5000, "? a\nb"):
        with pytest.raises(ValueError, match=r"line \d|two pieces"):
            parse_vocabulary(damaged)
