"""`python -m nmt`: the three commands by name, and the message without a command."""

from __future__ import annotations

import subprocess
import sys

import pytest

from nmt import __version__
from nmt.__main__ import OVERVIEW, main


def said(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, str]:
    monkeypatch.setattr("nmt.cli.app.log_to_stderr", lambda: None)  # its handler would remain after the test
    monkeypatch.setattr(sys, "argv", ["/somewhere/nmt/__main__.py", *arguments])
    with pytest.raises(SystemExit) as end:
        main()
    out, err = capsys.readouterr()
    assert isinstance(end.value.code, int) and not (out and err)
    return end.value.code, out + err


@pytest.mark.parametrize("arguments", [(), ("--help",), ("-h",), ("help",)])
def test_the_overview(
    arguments: tuple[str, ...], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert said(monkeypatch, capsys, *arguments) == (0, OVERVIEW)
    assert len(OVERVIEW.splitlines()) < 20


@pytest.mark.parametrize(
    ("arguments", "status", "beginning"),
    [
        (["--version"], 0, f"nmt {__version__}\n"),
        (["train", "--version"], 0, f"nmt {__version__}\n"),
        (["train", "--help"], 0, "Trains a translation model"),
        (["nmt-train", "--help"], 0, "Trains a translation model"),
        (["translate", "--help"], 0, "Translates"),
        (["eval", "--help"], 0, "Scores a model"),
        (["train", "seed=-1"], 2, "nmt-train: seed=-1: must be between"),
        (["eval"], 2, "nmt-eval: nothing to score"),
        (["--completion", "bash"], 0, "_nmt() {"),
        (["--completion=zsh"], 0, "(( $+functions[compdef] ))"),
        (["--completion"], 2, "nmt: --completion: must be bash or zsh"),
        (["trian"], 2, "nmt: trian: there is no such command. Did you mean train? The commands are"),
        (["evaluate"], 2, "nmt: evaluate: there is no such command. Did you mean eval? "),
        (["training"], 2, "nmt: training: there is no such command. Did you mean train? "),
        (["translation"], 2, "nmt: translation: there is no such command. Did you mean translate? "),
        (["serve", "--help"], 0, "Serves translations"),
        (["serve"], 2, "nmt-serve: model_dir: must be given."),
        (["import"], 2, "nmt-import: model, output: must be given."),
        (["import", "--help"], 0, "Imports a model"),
        ([""], 2, "nmt: : there is no such command. The commands are"),
        (
            ["seed=1"],
            2,
            "nmt: seed=1: is not a command. Give one first, such as python -m nmt train seed=1.\n",
        ),
        (
            ["--show"],
            2,
            "nmt: --show: is not a command. Give one first, such as python -m nmt train --show.\n",
        ),
    ],
)
def test_what_it_says(
    arguments: list[str],
    status: int,
    beginning: str,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    found = said(monkeypatch, capsys, *arguments)
    assert found[0] == status and found[1].startswith(beginning), found


@pytest.mark.parametrize(
    "arguments",
    [[], *([name, "--help"] for name in ("train", "translate", "eval")), ["eval", "--complete", "re"]],
)
def test_as_a_process_it_imports_nothing_heavy(arguments: list[str]) -> None:
    code = (
        f"import runpy, sys; sys.argv = ['nmt', *{arguments!r}]\n"
        "try: runpy.run_module('nmt', run_name='__main__', alter_sys=True)\n"
        "except SystemExit as end: assert end.code == 0\n"
        "heavy = {'torch', 'hydra', 'datasets', 'sacrebleu', 'sentencepiece', 'numpy', 'jinja2'}\n"
        "assert not heavy & set(sys.modules), heavy & set(sys.modules)"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")
    assert result.stdout
