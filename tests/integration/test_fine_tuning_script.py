"""`scripts/fine_tuning.py`: its steps with the real commands, on a toy pair of languages with a topic."""

from __future__ import annotations

import gzip
import os
import subprocess
import sys
from pathlib import Path
from random import Random

import pytest
from commands import SMALL, environment
from toy import WORDS

from nmt.runtime.files import parse_json

SCRIPT = Path(__file__).parents[2] / "scripts" / "fine_tuning.py"
ARGUMENTS = ["corpus", "run", "--split=valid", "--json=out.json", *SMALL, "training.devices=1"]


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    """Text with the file names of Multi30k; a third of the sources has a word of the topic."""
    folder, chance = tmp_path / "corpus", Random(1)
    folder.mkdir()
    for name, count in {"train": 300, "val": 12, "test_2016_flickr": 12}.items():
        sources = [" ".join(chance.choices(WORDS, k=chance.randint(2, 6))) for _ in range(count)]
        sources = [f"{source} tennis" if number % 3 == 0 else source for number, source in enumerate(sources)]
        targets = [source[::-1] for source in sources]
        for language, lines in (("en", sources), ("de", targets)):
            content = "".join(f"{line}\n" for line in lines).encode()
            (folder / f"{name}.{language}.gz").write_bytes(gzip.compress(content))
    return folder


@pytest.mark.slow
def test_its_steps_with_the_real_commands(corpus: Path, tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the extra export is not installed")
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

    def run() -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, str(SCRIPT), *ARGUMENTS],
            cwd=tmp_path,
            env=environment(tmp_path / "cache") | {"PATH": path},
            capture_output=True,
            encoding="utf-8",
            timeout=900,
        )

    done = run()
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    names = ["before", "tuned", "mixed", "l2", "frozen"]
    assert [line.split(" | ")[0] for line in lines[2:]] == [f"| {name}" for name in names]
    scores = parse_json((tmp_path / "out.json").read_text())["scores"]
    assert list(scores) == names
    assert scores["before"]["topic"]["sentences"] == 4 + 12 and scores["tuned"]["general"]["sentences"] == 8
    folders = [tmp_path / "run/valid" / name for name in names[1:]]
    befores = [parse_json((folder / "results.json").read_text())["before"] for folder in folders]
    assert all(before == befores[0] for before in befores)
    weights = [tmp_path / "run" / each / "model.safetensors" for each in ("general/model", "imported")]
    assert weights[0].read_bytes() == weights[1].read_bytes()  # exported and imported
    times = {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("model.safetensors")}
    again = run()
    assert (again.returncode, again.stdout) == (0, done.stdout)
    assert {file: file.stat().st_mtime_ns for file in (tmp_path / "run").rglob("model.safetensors")} == times
