"""Every experiment completes its first updates on a local folder with the layout of its hub data set."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from commands import Toy

WORDS = "one two three four five six seven eight nine ten red green blue old new big small cat dog".split()
SPLITS = {"train": 300, "validation": 12, "test": 12}


def sentences(generator: random.Random, count: int) -> list[str]:
    return [" ".join(generator.choices(WORDS, k=generator.randint(3, 12))) for _ in range(count)]


def write_wmt(folder: Path, pair: str) -> None:
    """The layout of `wmt/wmt14`: a folder per language pair, Parquet, one struct of translations per row."""
    generator = random.Random(1)
    first, second = pair.split("-")
    (folder / pair).mkdir(parents=True)
    for split, count in SPLITS.items():
        rows = [{first: x, second: x[::-1]} for x in sentences(generator, count)]
        table = pa.table({"translation": pa.array(rows)})
        pq.write_table(table, folder / pair / f"{split}-00000-of-00001.parquet")


def write_multi30k(folder: Path) -> None:
    """The layout of `bentrevett/multi30k`: JSON lines with one key for each language."""
    generator = random.Random(2)
    folder.mkdir()
    for split, name in (("train", "train"), ("validation", "val"), ("test", "test")):
        rows = [{"en": x, "de": x[::-1]} for x in sentences(generator, SPLITS[split])]
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.mark.parametrize(
    ("experiment", "pair"),
    [
        ("multi30k", None),
        pytest.param("wmt14_en_de_base", "de-en", marks=pytest.mark.slow),
        pytest.param("wmt14_en_de_big", "de-en", marks=pytest.mark.slow),
        pytest.param("wmt14_en_fr_base", "fr-en", marks=pytest.mark.slow),
        pytest.param("wmt14_en_fr_big", "fr-en", marks=pytest.mark.slow),
    ],
)
def test_first_updates(experiment: str, pair: str | None, tmp_path: Path) -> None:
    hub = tmp_path / "hub"
    if pair:
        write_wmt(hub, pair)
    else:
        write_multi30k(hub)
    result = Toy(tmp_path, tmp_path / "cache").run(
        "nmt-train",
        f"experiment={experiment}",
        f"data.hub.path={hub}",
        "data.max_tokens=128",
        "training.max_updates=2",
        "training.schedule.warmup_updates=1",
        "training.devices=1",
        "model.encoder_layers=2",
        "model.decoder_layers=2",
        "decoding.beam_size=2",
        "decoding.max_length_offset=2",
    )
    message = result.stderr.decode()
    assert result.returncode == 0, message
    report = json.loads((tmp_path / "runs" / experiment / "results.json").read_text())
    assert report["training"]["updates"] == 2
    assert report["test"]["sentences"] == SPLITS["test"]
    assert report["data"]["cleaning"]["pairs"] == SPLITS["train"]
    assert (tmp_path / "runs" / experiment / "model" / "model.safetensors").is_file()
