"""nmt-export as a process."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sentencepiece
from commands import LEARNING, Toy

from nmt.bundle import load_bundle

ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra export is not installed")


def test_an_export_and_its_report(toy: Toy, trained: Path, tmp_path: Path) -> None:
    output = tmp_path / "exported"
    result = toy.done("nmt-export", f"model_dir={trained}", f"output={output}", fresh=True)
    assert result.stdout == b""
    report = json.loads((output / "export.json").read_text())
    assert report["compared_on"] == "validation data of the model" and report["sentences"] == 20

    assert report["exact"]["largest_difference"] <= 1e-4
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(output / "source.spm"))
    translator = ctranslate2.Translator(str(output))
    (found,) = translator.translate_batch([pieces.encode("bada feno", out_type=str)], max_decoding_length=9)
    assert 0 < len(found.hypotheses[0]) <= 9

    assert toy.refused("nmt-translate", f"model_dir={output}", text="bada\n") == (
        f"model_dir={output}: is an export for CTranslate2. Give the model that it was made from. "
        "nmt-translate and nmt-serve also read the export, with backend=ctranslate2."
    )
    again = toy.refused("nmt-export", f"model_dir={trained}", f"output={output}")
    assert again == f"output={output}: already exists. Choose another name, or remove it."


def ids_by_the_readme(folder: Path, text: str) -> list[list[int]]:
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(folder / "source.spm"))
    tagged = [["<2yy>", *sentence] for sentence in pieces.encode([text], out_type=str)]
    return [pieces.piece_to_id(sentence) for sentence in tagged]


@pytest.mark.slow
def test_a_model_with_tags_is_compared_with_them(toy: Toy, tmp_path: Path) -> None:
    run, output = tmp_path / "run", tmp_path / "exported"
    tags = [f"data.{split}.tag=<2yy>" for split in ("train", "valid", "test")]
    toy.done("nmt-train", *toy.small(f"run_dir={run}", *tags, *LEARNING))
    toy.done("nmt-export", f"model_dir={run}", f"output={output}")
    report = json.loads((output / "export.json").read_text())
    assert report["compared_on"] == "validation data of the model" and report["sentences"] == 20
    card = (output / "README.md").read_text()
    assert '["<2yy>", *sentence] for sentence in source.encode' in card
    ids = load_bundle(run).tokenizer.encode_source(["<2yy> bada feno"])
    exported = ids_by_the_readme(output, "bada feno")
    assert exported == ids
    text = "<2yy> mu ga fi\n<2yy>\nko bu\n"
    own, engine = (
        toy.run("nmt-translate", f"model_dir={run}", f"backend={backend}", text=text)
        for backend in ("nmt", "ctranslate2")
    )
    assert own.returncode == engine.returncode == 0, engine.stderr.decode()
    assert own.stdout == engine.stdout and own.stdout.count(b"\n") == 3
