"""Untrusted model and run folders, through the real commands: their configurations are only data."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest
from commands import Toy

SECRET = "s3cr3t-of-the-user"
ENV = "${oc.env:NMT_TEST_SECRET}"


@pytest.fixture
def strange(toy: Toy, trained: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of a run; wherever its configurations allow text, they name variables and files of the user."""
    monkeypatch.setenv("NMT_TEST_SECRET", SECRET)
    (tmp_path / "secret.txt").write_text(f"{SECRET}\n" * 20)
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    (run / "model/SHA256SUMS").unlink()
    for path in (run / "config.yaml", run / "model/config.yaml"):
        text = path.read_text()
        for old, new in (
            ("  name: local\n", f'  name: "{ENV}"\n'),
            ("\nname: local\n", f'\nname: "x{ENV}"\n'),
            ("  cache_dir: null\n", f'  cache_dir: "{tmp_path}/{ENV}"\n'),
            ("    path: null\n    name: null\n", f'    path: "x/{ENV}"\n    name: "{ENV}"\n'),
            ("source: test.src", f"source: {tmp_path}/secret.txt"),
            ("target: test.tgt", f"target: {tmp_path}/secret.txt"),
        ):
            assert old in text, old
            text = text.replace(old, new)
        path.write_text(text)
    return run


def test_no_command_resolves_or_reads_what_a_stranger_names(toy: Toy, strange: Path) -> None:
    model = f"model_dir={strange}"
    files = ["source=test.src", "references=test.tgt"]
    start = [f"start_from={strange}", "training.max_updates=2", "run_dir=taken"]
    pieces = [f"data.tokenizer.path={strange}", "prepare_only=true", "run_dir=pieces"]
    commands = [
        (0, toy.run("nmt-translate", model, text="ba be\n")),
        (0, toy.run("nmt-eval", model, *files, "json=strange.json", "output=strange.txt")),
        (2, toy.run("nmt-eval", model)),
        (0, toy.run("nmt-train", *toy.small(*start))),
        (0, toy.run("nmt-train", *toy.small(*pieces))),
        (2, toy.run("nmt-train", *toy.small(f"run_dir={strange}"))),
    ]
    for status, done in commands:
        assert done.returncode == status, done.stderr.decode()
        assert SECRET.encode() not in done.stdout + done.stderr
        assert b"Traceback" not in done.stderr
    assert b"secret.txt: not the file that the model's results.json has recorded" in commands[2][1].stderr
    written = [path for name in ("taken", "pieces", "strange.*") for path in toy.folder.glob(f"{name}/**/*")]
    written += toy.folder.glob("strange.*")
    assert not any(SECRET.encode() in path.read_bytes() for path in written if path.is_file())
    names = [name for _, folders, files in os.walk(strange.parent) for name in (*folders, *files)]
    assert not any(SECRET in name for name in names)


def test_a_terminal_is_not_told_to_do_anything(toy: Toy, trained: Path, tmp_path: Path) -> None:
    run = Path(shutil.copytree(trained, tmp_path / "run"))
    (run / "model/SHA256SUMS").unlink()
    path = run / "model/config.yaml"
    controls = '"a\\e]0;x\\a\\e[2Jb\\x9bc\\u202e"'
    path.write_text(path.read_text().replace("  name: local\n", f"  name: {controls}\n"))
    done = toy.run("nmt-eval", f"model_dir={run}")
    assert rb"on a\x1b]0;x\x07\x1b[2Jb\x9bc\u202e (test)" in done.stdout
    path.write_text(path.read_text().replace("source: test.src", f"source: {controls}"))
    done = toy.run("nmt-eval", f"model_dir={run}")
    assert done.returncode == 2 and rb"data.test.source=a\x1b]0;x\x07" in done.stderr
    assert b"\x1b" not in done.stdout + done.stderr and b"\xe2\x80\xae" not in done.stdout + done.stderr
