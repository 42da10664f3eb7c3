"""`scripts/multi30k.sh`: its steps on a toy pair of languages."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import SMALL, environment
from toy import write_toy

SCRIPT = Path(__file__).parents[2] / "scripts" / "multi30k.sh"
OPTIONS = [*SMALL, "training.devices=1"]


def run_script(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return subprocess.run(
        ["bash", str(SCRIPT), *arguments],
        cwd=folder,
        env=environment(folder / "cache") | {"PATH": path},
        capture_output=True,
        encoding="utf-8",
        timeout=600,
    )


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """The toy corpus with the file names of Multi30k; one file is compressed, each line is capitalised."""
    toy = write_toy(tmp_path / "toy", train=300, held_out=8)
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, split in {"train": "train", "val": "valid", "test_2016_flickr": "test"}.items():
        for lang, ending in {"en": "src", "de": "tgt"}.items():
            lines = (toy / f"{split}.{ending}").read_text("utf-8").splitlines()
            text = "".join(f"{line.capitalize()}\n" for line in lines).encode()
            if (split, lang) == ("train", "de"):
                (folder / f"{name}.{lang}.gz").write_bytes(gzip.compress(text))
            else:
                (folder / f"{name}.{lang}").write_bytes(text)
    return folder


@pytest.mark.slow
@pytest.mark.parametrize("form", ["lower", "cased"])
def test_its_steps_follow_each_other_and_are_done_once(form: str, corpus: Path, tmp_path: Path) -> None:
    arguments = [*(["--cased"] if form == "cased" else []), str(corpus), "run", *OPTIONS]
    done = run_script(tmp_path, *arguments)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("run/final + run/plain1 + run/plain2 on multi30k (test), en-de\n")
    assert done.stdout.count(" (test), ") == 1, "only the report of the last step"
    toy, run = tmp_path / "toy", tmp_path / "run"
    text = run / form
    assert len(list(text.iterdir())) == 6
    for name, ending in {"val.en": "valid.src", "train.de": "train.tgt"}.items():
        lines = (toy / ending).read_text("utf-8").splitlines()
        given = [line.capitalize() for line in lines] if form == "cased" else lines
        assert (text / name).read_text("utf-8").splitlines() == given

    steps = ("both", "forward", "final", "plain1", "plain2")
    models = [run / step / "model" / "model.safetensors" for step in steps]
    before = [path.stat().st_mtime_ns for path in models]
    assert len({path.read_bytes() for path in models}) == 5
    again = run_script(tmp_path, *arguments)
    assert again.returncode == 0, again.stderr
    assert again.stdout == done.stdout
    assert [path.stat().st_mtime_ns for path in models] == before
    assert len((run / "test.de").read_text("utf-8").splitlines()) == 8


def test_it_says_how_it_is_used(tmp_path: Path) -> None:
    done = run_script(tmp_path, "corpus", "seed=2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "usage: scripts/multi30k.sh [--cased] FOLDER RUN [key=value ...]\n"
    assert not list(tmp_path.iterdir())


def test_a_file_that_is_missing_is_named_before_anything_is_written(corpus: Path, tmp_path: Path) -> None:
    (corpus / "val.de").unlink()
    done = run_script(tmp_path, str(corpus), "run")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"{corpus}/val.de: no such file, nor {corpus}/val.de.gz\n"
    assert not (tmp_path / "run").exists()
