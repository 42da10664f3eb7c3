"""`scripts/multi30k.sh`: its four steps on a toy pair of languages."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path

import pytest
from commands import environment
from toy import write_toy

SCRIPT = Path(__file__).parents[2] / "scripts" / "multi30k.sh"
SMALL = [
    "data.tokenizer.vocab_size=320",
    "data.max_tokens=256",
    "model.encoder_layers=1",
    "model.decoder_layers=1",
    "model.d_model=32",
    "model.d_ff=64",
    "model.heads=2",
    "training.max_updates=6",
    "training.validate_every=3",
    "training.checkpoint_every=2",
    "training.devices=1",
]


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
    """Multi30k's files as it has them, one compressed, a capital letter in each line."""
    toy = write_toy(tmp_path / "toy", train=300, held_out=8)
    folder = tmp_path / "corpus"
    folder.mkdir()
    for name, split in {"train": "train", "val": "valid", "test_2016_flickr": "test"}.items():
        for lang, ending in {"en": "src", "de": "tgt"}.items():
            lines = (toy / f"{split}.{ending}").read_text("utf-8").splitlines()
            text = "".join(f"{line.capitalize()}\n" for line in lines)
            (folder / f"{name}.{lang}").write_text(text, "utf-8")
    packed = folder / "train.de"
    (folder / "train.de.gz").write_bytes(gzip.compress(packed.read_bytes()))
    packed.unlink()
    return folder


def german(corpus: Path) -> list[str]:
    with gzip.open(corpus / "train.de.gz", "rt", encoding="utf-8") as file:
        return file.read().splitlines()


@pytest.mark.slow
def test_its_steps_follow_each_other_and_are_done_once(corpus: Path, tmp_path: Path) -> None:
    done = run_script(tmp_path, str(corpus), "run", *SMALL)
    assert done.returncode == 0, done.stderr
    assert done.stdout.count("test (en-de)") == 1, "the report of the last step, and of it alone"
    text = tmp_path / "run" / "text"
    lines = {path.name: path.read_text("utf-8").splitlines() for path in text.iterdir()}
    assert lines["val.en"] == (corpus / "val.en").read_text("utf-8").lower().splitlines()
    assert lines["train.de"] == [line.lower() for line in german(corpus)]
    assert [len(lines[name]) for name in ("train.de", "distilled.de", "back.en")] == [300, 300, 300]
    assert not [name for name in lines if name.startswith(".")]

    before = {path: path.stat().st_mtime_ns for path in (text / "distilled.de", text / "back.en")}
    again = run_script(tmp_path, str(corpus), "run", *SMALL)
    assert again.returncode == 0, again.stderr
    assert again.stdout == done.stdout
    assert {path: path.stat().st_mtime_ns for path in (text / "distilled.de", text / "back.en")} == before


def test_it_says_how_it_is_used(tmp_path: Path) -> None:
    done = run_script(tmp_path, "corpus", "seed=2")
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "usage: scripts/multi30k.sh FOLDER RUN [key=value ...]\n"
    assert not list(tmp_path.iterdir())
