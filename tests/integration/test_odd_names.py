"""Files and folders with names that are special in shells, YAML and Hydra's grammar; folders of a sweep."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from commands import Toy
from toy import write_toy

pytestmark = pytest.mark.slow

NAME = "it's a(1) #&日本 seed=1, 50%"
FEW = ("training.max_updates=2", "training.validate_every=2", "training.checkpoint_every=2")


def test_a_folder_with_an_odd_name(toy: Toy, tmp_path: Path) -> None:
    """The folder holds data, cache, run, input and outputs; a second command finds the run."""
    folder = tmp_path / NAME
    folder.mkdir()
    own = Toy(write_toy(folder / "2026_11_23", train=100, held_out=5), toy.cache)
    data = [
        f"data.{split}.{side}={own.folder}/{split}.{ending}"
        for split in ("train", "valid", "test")
        for side, ending in (("source", "src"), ("target", "tgt"))
    ]
    run = f"{NAME}/1.10"
    training = [*own.small(*data, f"run_dir={run}", f"data.cache_dir={folder}/cache"), *FEW]
    for words in ("new run in", "training is done already"):
        result = Toy(tmp_path, toy.cache).run("nmt-train", *training)
        assert result.returncode == 0, result.stderr.decode()
        assert words in result.stderr.decode()
    assert sorted(path.name for path in folder.iterdir()) == ["1.10", "2026_11_23", "cache"]
    here = Toy(folder, toy.cache)
    text = (own.folder / "test.src").read_bytes()
    piped = here.run("nmt-translate", "model_dir=1.10", text=text)
    assert piped.returncode == 0, piped.stderr.decode()
    written = here.run(
        "nmt-translate", f'model_dir=[1.10,"{folder}/1.10"]', "input=2026_11_23/test.src", "output=1e3"
    )
    assert (written.returncode, (folder / "1e3").read_bytes()) == (0, piped.stdout), written.stderr.decode()
    scored = here.run("nmt-eval", "model_dir=1.10", "json=a,b [1].json", "output=true")
    assert scored.returncode == 0, scored.stderr.decode()
    assert json.loads((folder / "a,b [1].json").read_text())["sentences"] == 5
    assert (folder / "true").read_bytes() == piped.stdout


def test_an_ensemble_of_a_sweep(toy: Toy, tmp_path: Path) -> None:
    """The commands of the README, on the toy corpus."""
    own = Toy(write_toy(tmp_path, train=100, held_out=5), toy.cache)
    swept = own.run("nmt-train", "-m", *own.small("run_dir=runs/toy", "seed=1,2,3"), *FEW)
    assert swept.returncode == 0, swept.stderr.decode()
    assert sorted(path.name for path in (tmp_path / "runs/toy").iterdir()) == ["seed-1", "seed-2", "seed-3"]
    models = "model_dir=[runs/toy/seed-1,runs/toy/seed-2,runs/toy/seed-3]"
    translated = own.run("nmt-translate", models, "input=test.src", "output=test.out")
    assert translated.returncode == 0, translated.stderr.decode()
    assert (tmp_path / "test.out").read_bytes().count(b"\n") == 5
    assert own.run("nmt-eval", models).returncode == 0
