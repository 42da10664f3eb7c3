"""Several corpora with real commands: trained on with a tag and weights, resumed, translated with the tag."""

from __future__ import annotations

import json
from pathlib import Path

from commands import Toy
from toy import write_toy


def test_two_corpora_and_a_tag(toy: Toy, tmp_path: Path) -> None:
    write_toy(toy.folder / "more", train=100, held_out=5, seed=9)
    mixture = (
        "data.train.source=null",
        "data.train.target=null",
        "+data.train.corpora.real.source=train.src",
        "+data.train.corpora.real.target=train.tgt",
        "+data.train.corpora.back.source=more/train.src",
        "+data.train.corpora.back.target=more/train.tgt",
        "+data.train.corpora.back.weight=2",
        "+data.train.corpora.back.tag='<bt>'",
        "run_dir=mixed",
    )
    result = toy.run("nmt-train", *toy.small(*mixture, "training.max_updates=3"))
    assert result.returncode == 0, result.stderr.decode()
    results = json.loads((toy.folder / "mixed/results.json").read_text())
    corpora = results["data"]["train"]["corpora"]
    assert [corpora[name]["cleaning"]["pairs"] for name in ("real", "back")] == [400, 100]
    assert corpora["back"]["draws_per_epoch"] == 2 * corpora["back"]["cleaning"]["kept"]

    other = toy.run("nmt-train", *toy.small(*mixture, "data.train.corpora.back.weight=3"))
    assert other.returncode == 2
    assert "data.train.corpora.back.weight=2.0, not 3.0" in other.stderr.decode()
    assert toy.run("nmt-train", *toy.small(*mixture, "training.max_updates=4")).returncode == 0

    source = (toy.folder / "test.src").read_text().splitlines()[:3]
    lines = "".join(f"{line}\n<bt> {line}\n" for line in source)
    translated = toy.run("nmt-translate", "model_dir=mixed", text=lines)
    assert translated.returncode == 0, translated.stderr.decode()
    assert translated.stdout.decode().count("\n") == 6
