"""Random models to export, text to compare them on, and the comparison."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

from nmt.bundle import Bundle
from nmt.config import ModelConfig, PositionsConfig
from nmt.interop import Exporter
from nmt.interop.parity import ComparedText, Parity, compare

WORDS = [a + b for a in "bdfgklmn" for b in "aeiou"]


def sentences(count: int, seed: int) -> list[str]:
    chance = random.Random(seed)
    return [" ".join(chance.choices(WORDS, k=chance.randint(1, 20))) for _ in range(count)]


LINES = [*sentences(30, 1), "Größe 不 \t  x", "a", "Ｆ"]
REFERENCES = [*sentences(30, 2), "不 ok", "", "（不）\u00a0…  ½"]

POST = ModelConfig(encoder_layers=2, decoder_layers=3, d_model=32, d_ff=48, heads=4)


def positions(name: str, decoder: str | None = None, **options: Any) -> ModelConfig:
    return replace(POST, positions=PositionsConfig(name=name, options=options, decoder=decoder))


def comparison(
    exporter: Exporter, exported: Bundle, original: Bundle, folder: Path, max_length: int = 256
) -> Parity:
    folder.mkdir(parents=True)
    assert exporter.reason_against(exported) is None
    exporter.write(exported, folder, quantization="float32", max_length=max_length)
    engine = exporter.load(folder, "float32")
    tokenizer = original.tokenizer
    sides = tokenizer.encode_source(LINES), tokenizer.encode_target(REFERENCES)
    longest = min(max_length, original.model.max_source_len or max_length)
    return compare(
        original, engine, ComparedText("sentences", LINES, REFERENCES, sides[0], *sides, longest=longest)
    )


def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "a.en").write_text("\n".join(LINES) + "\n", encoding="utf-8")
    (tmp_path / "a.de").write_text("\n".join(REFERENCES) + "\n", encoding="utf-8")
    return {"check": str(tmp_path / "a.en"), "references": str(tmp_path / "a.de")}
