"""The intervals and p-values of nmt-eval are those that the command line of sacreBLEU prints."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from nmt.cli.evaluate import evaluate
from nmt.config import EvalConfig, Significance
from nmt.errors import UserError

REFERENCES = [
    f"Sentence {row} is a little longer than the others, about {row % 7} words." for row in range(60)
]
OURS = [line.replace("little", "bit") if row % 4 == 0 else line for row, line in enumerate(REFERENCES)]
THEIRS = [line.replace("longer than", "short") if row % 5 == 1 else line for row, line in enumerate(OURS)]
THEIRS[3:9] = REFERENCES[3:9]


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for name, lines in {"ours": OURS, "theirs": THEIRS, "ref": REFERENCES}.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")


def sacrebleu(*arguments: str) -> str:
    command = [sys.executable, "-m", "sacrebleu", "ref", "-m", "bleu", "chrf", "ter", "-w", "4", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


@pytest.mark.parametrize(
    "significance, option",
    [(Significance.bootstrap, "--paired-bs"), (Significance.randomisation, "--paired-ar")],
)
@pytest.mark.usefixtures("files")
def test_p_values_and_intervals(
    significance: Significance, option: str, capsys: pytest.CaptureFixture[str]
) -> None:
    evaluate(
        EvalConfig(
            hypotheses="ours", references="ref", baseline="theirs", significance=significance, json="j"
        )
    )
    ours = json.loads(Path("j").read_text())["baseline"]
    printed = sacrebleu("-i", "theirs", "ours", option, "-f", "text")
    for key in ("bleu", "chrf", "ter"):
        assert f"(p = {ours[key]['p_value']:.4f})" in printed, key
    single = {
        score["name"]: score for score in json.loads(sacrebleu("-i", "ours", "--confidence", "-f", "json"))
    }
    for key, name in (("bleu", "BLEU"), ("chrf", "chrF2"), ("ter", "TER")):
        assert f"{ours[key]['interval']:.4f}" == f"{single[name]['confidence_var']:.4f}"
    noted = " ".join(capsys.readouterr().out.split())
    by = {"--paired-bs": "paired bootstrap resampling (1000 resamples, seed 12345).",
          "--paired-ar": "approximate randomisation (10000 trials, seed 12345)."}  # fmt: skip
    assert f"by {by[option]}" in noted


def test_a_test_needs_a_baseline() -> None:
    with pytest.raises(UserError, match=r"significance=randomisation: baseline=FILE is missing."):
        evaluate(EvalConfig(hypotheses="ours", references="ref", significance=Significance.randomisation))
