"""Completion: the words that it offers, and its scripts in real shells."""

from __future__ import annotations

import os
import pty
import re
import select
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.cli.app import run
from nmt.cli.completion import completed, script
from nmt.config import SCHEMAS, TrainConfig
from nmt.errors import UserError


@pytest.mark.parametrize(
    ("command", "word", "expected"),
    [
        ("train", "tr", ["training."]),
        ("train", "see", ["seed="]),
        ("train", "training.av", ["training.averaging."]),
        ("train", "training.averaging.", ["training.averaging.count=", "training.averaging.kind="]),
        ("train", "training.pat", ["training.patience="]),
        ("train", "training.patience=", ["training.patience=0"]),
        (
            "train",
            "training.precision=",
            [f"training.precision={p}" for p in ("auto", "fp32", "bf16", "fp16")],
        ),
        ("train", "training.precision=b", ["training.precision=bf16"]),
        ("train", "training.deterministic=", ["training.deterministic=true", "training.deterministic=false"]),
        (
            "train",
            "model=",
            [f"model={name}" for name in ("base", "big", "quickstart", "rnn", "small", "tiny")],
        ),
        ("train", "model/", ["model/positions="]),
        ("train", "experiment=quick", ["experiment=quickstart"]),
        ("train", "data=wmt19", ["data=wmt19_de_en", "data=wmt19_zh_en"]),
        ("train", "data.train.cor", ["data.train.corpora."]),
        ("train", "data.train.corpora.", []),
        ("train", "data.train.corpora.news.w", ["data.train.corpora.news.weight="]),
        ("train", "data.train.corpora.news.hub.p", ["data.train.corpora.news.hub.path="]),
        ("train", "data.train.source=", []),
        ("train", "data.train.source=[a", ["data.train.source=[a b.en", "data.train.source=[ab/"]),
        ("train", "data.train.source=[x,ab/", ["data.train.source=[x,ab/c.en"]),
        ("train", "data.train.source=[none/", []),
        ("train", "--c", ["--config-dir", "--completion"]),
        ("train", "nothing", []),
        ("translate", "mod", ["model_dir="]),
        ("translate", "data", []),
        ("translate", "scores=", ["scores=true", "scores=false"]),
        ("eval", "data=q", ["data=quickstart"]),
        ("eval", "data.source_l", ["data.source_lang="]),
        ("eval", "re", ["references=", "report="]),
    ],
)
def test_words(
    command: str, word: str, expected: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "ab").mkdir()
    for name in ("a b.en", "ab/c.en", "ab/.hidden", ".astray"):
        (tmp_path / name).touch()
    assert completed(SCHEMAS[f"nmt-{command}"], command, word) == expected


def test_every_option_of_help_is_offered() -> None:
    from nmt.cli.help import help_text

    def leaves(word: str) -> set[str]:
        found = set()
        for one in completed(TrainConfig, "train", word):
            found |= {one} if one.endswith("=") else leaves(one)
        return found

    reported = {line.split("=")[0].strip() + "=" for line in help_text(TrainConfig, "train", "").splitlines()}
    missing = {key for key in leaves("") if key not in reported}
    assert missing == set() and len(leaves("")) > 90


def test_another_shell_is_refused() -> None:
    with pytest.raises(UserError, match=r"^--completion fish: must be bash or zsh\.$"):
        script("fish")


def test_the_command_prints_the_script(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys, "argv", ["nmt-train", "--completion", "bash"])
    with pytest.raises(SystemExit) as end:
        run(lambda config: None, TrainConfig, "train", "")
    assert end.value.code == 0
    assert capsys.readouterr().out == script("bash")


@pytest.fixture
def shell(tmp_path: Path) -> dict[str, str]:
    """An environment whose PATH has the commands; the current folder contains a few files."""
    bin_folder = tmp_path / "bin"
    bin_folder.mkdir()
    for name in SCHEMAS:
        path = bin_folder / name
        path.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m nmt {name} "$@"\n')
        path.chmod(0o755)
    for name in ("train.en", "train.de"):
        (tmp_path / name).touch()
    root = str(Path(__file__).resolve().parents[3])
    return {**os.environ, "PATH": f"{bin_folder}:{os.environ['PATH']}", "PYTHONPATH": root}


BASH = """
eval "$(nmt-train --completion bash)"
COMP_LINE=$1; COMP_POINT=${#1}
IFS=' '; read -ra COMP_WORDS <<< "$1"; COMP_CWORD=$(( ${#COMP_WORDS[@]} - 1 ))
_nmt "${COMP_WORDS[0]}" "${COMP_WORDS[COMP_CWORD]}" "${COMP_WORDS[COMP_CWORD-1]}"
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("nmt-train tra", ["training."]),
        (
            "nmt-train seed=1 model=",
            ["base", "big", "quickstart", "rnn", "small", "tiny"],
        ),  # after the break at =
        ("nmt-train model=t", ["tiny"]),
        ("nmt-train data.train.source=[tr", ["[train.de", "[train.en"]),
        ("nmt-train data.train.source=tr", [""]),  # no words: bash completes file names
        ("nmt-train --config-dir x", [""]),
        ("nmt-eval ref", ["references="]),
        ("nmt-translate model_d", ["model_dir="]),
    ],
)
def test_bash(shell: dict[str, str], tmp_path: Path, line: str, expected: list[str]) -> None:
    result = subprocess.run(
        ["bash", "-c", BASH, "bash", line], env=shell, cwd=tmp_path, capture_output=True, text=True
    )
    assert (result.stdout.split("\n")[:-1], result.stderr) == (expected, "")


TYPED = {
    "tra": "training.",
    "model=ti": "model=tiny",
    "data.train.source=train.e": "data.train.source=train.en",
    "training.averaging.k": "training.averaging.kind=",
}
"""The text typed before a tab, and the text after it."""


def test_in_an_interactive_bash(shell: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "rc").write_text("PS1='> '\nbind 'set enable-bracketed-paste off'\n" + script("bash"))
    assert typed(["bash", "--noprofile", "--rcfile", "rc", "-i"], shell, tmp_path) == TYPED


@pytest.mark.skipif(shutil.which("zsh") is None, reason="zsh is not installed")
def test_in_an_interactive_zsh(shell: dict[str, str], tmp_path: Path) -> None:
    start = "PS1='> '\nunsetopt zle_bracketed_paste\nautoload -Uz compinit && compinit -u -D\nbindkey -e\n"
    (tmp_path / ".zshrc").write_text(start + script("zsh"))
    assert typed(["zsh", "-i"], shell | {"ZDOTDIR": str(tmp_path)}, tmp_path) == TYPED


def typed(command: list[str], environment: dict[str, str], folder: Path) -> dict[str, str]:
    """Types `nmt-train `, each word of `TYPED` and a tab; returns the completed words on the terminal."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(folder)
        os.execvpe(command[0], command, environment | {"TERM": "dumb", "HISTFILE": "/dev/null"})
    found = {}
    try:
        for word in TYPED:
            # A tab, then quotes around the line, so that it is printed instead of run.
            os.write(terminal, f"nmt-train {word}\t\x05'\x01echo '::\n".encode())
            found[word] = _echoed(terminal)
    finally:
        os.kill(pid, signal.SIGKILL)
        os.close(terminal)
        os.waitpid(pid, 0)
    return found


def _echoed(terminal: int) -> str:
    """The line as `echo` prints it."""
    text = ""
    while not (line := re.search("\n::nmt-train (.*?)\r", text)):
        ready, _, _ = select.select([terminal], [], [], 60)
        assert ready, text
        text += os.read(terminal, 4096).decode(errors="replace")
    return line[1].rstrip(" ")  # zsh removes the space when another character is typed
