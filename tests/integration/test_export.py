"""nmt-export as a process, and a translation by the engine with its export."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sentencepiece
from commands import Toy

ctranslate2 = pytest.importorskip("ctranslate2", reason="the extra export is not installed")


def test_an_export_translates_like_the_model(toy: Toy, trained: Path, tmp_path: Path) -> None:
    output = tmp_path / "exported"
    result = toy.run("nmt-export", f"model_dir={trained}", f"output={output}")
    assert result.returncode == 0, result.stderr.decode()
    assert result.stdout == b""
    report = json.loads((output / "export.json").read_text())
    assert report["compared_on"] == "validation data of the model" and report["sentences"] == 20

    lines = (toy.folder / "test.src").read_text()
    own = toy.run("nmt-translate", f"model_dir={trained}", "decoding.beam_size=1", text=lines)
    assert own.returncode == 0, own.stderr.decode()
    pieces = sentencepiece.SentencePieceProcessor(model_file=str(output / "joint.spm"))
    found = ctranslate2.Translator(str(output)).translate_batch(
        pieces.encode(lines.splitlines(), out_type=str),
        beam_size=1,
        max_decoding_length=100,
        suppress_sequences=[["<pad>"], ["<s>"], ["<unk>"]],
    )
    texts = [pieces.decode(one.hypotheses[0]) for one in found]
    same = sum(a == b for a, b in zip(texts, own.stdout.decode().splitlines(), strict=True))
    assert same >= len(texts) - 1  # a near tie may differ

    again = toy.run("nmt-export", f"model_dir={trained}", f"output={output}")
    assert again.returncode == 2
    assert again.stderr.decode() == (
        f"nmt-export: output={output}: already exists. Choose another name, or remove it.\n"
    )
