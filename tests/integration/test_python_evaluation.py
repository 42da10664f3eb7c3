"""`nmt.evaluate`: the same scores and errors as the command; process state is unchanged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from commands import Toy

import nmt


@pytest.fixture
def in_tmp(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty folder, which is the working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.slow
def test_an_evaluation_equals_the_command(
    there: Toy, trained: Path, tmp_path: Path, unchanged: None, capfd: pytest.CaptureFixture[str]
) -> None:
    report = nmt.evaluate(model_dir=trained, overrides=["split=valid", "decoding.beam_size=3"])
    assert capfd.readouterr() == ("", "")
    options = [f"model_dir={trained}", "split=valid", "decoding.beam_size=3", f"json={tmp_path / 'report'}"]
    reported = there.run("nmt-eval", *options)
    assert report.table() == reported.stdout.decode()
    assert report.as_dict() == json.loads((tmp_path / "report").read_text())

    again = nmt.evaluate(report.hypotheses, "valid.tgt", target_lang="yy")
    assert again.scores == report.scores and again.title == "hypotheses on valid.tgt"
    other = nmt.evaluate(
        model_dir=trained, sources="valid.src", references=Path("valid.tgt"), metrics=["chrf"]
    )
    assert other.scores.values.keys() == {"chrf"}
    lines = Path("valid.src").read_text().splitlines(), Path("valid.tgt").read_text().splitlines()
    assert (
        nmt.evaluate(model_dir=trained, sources=lines[0], references=lines[1], metrics="chrf").scores
        == other.scores
    )


def test_texts_in_memory_and_in_files_have_the_same_scores(in_tmp: Path, unchanged: None) -> None:
    texts = {
        "ours, 'v1'.de": ["das ist ein Haus", "ein Hund läuft", "nichts"],
        "theirs[1].de": ["das ist Haus", "Hund läuft", "nichts da"],
        "a.de": ["das ist das Haus", "ein Hund läuft", "nichts"],
        "b.de": ["dies ist ein Haus", "es läuft ein Hund", "gar nichts"],
        "labels": ["x", "y", "x"],
    }
    for name, lines in texts.items():
        Path(name).write_text("".join(f"{line}\n" for line in lines), encoding="utf-8")
    ours, theirs, a, b, labels = texts.values()
    files = nmt.evaluate(
        "ours, 'v1'.de",
        [Path("a.de"), Path("b.de")],
        baseline="theirs[1].de",
        groups="labels",
        target_lang="de",
    )
    memory = nmt.evaluate(iter(ours), [a, b], baseline=theirs, groups=labels, target_lang="de")
    assert memory.scores == files.scores and "nrefs:2" in memory.scores.signatures["bleu"]
    assert memory.groups == files.groups and list(memory.groups) == ["x", "y"]
    assert memory.comparison == files.comparison is not None
    assert memory.hypotheses == ours == list(files.hypotheses)
    assert (memory.title, files.title) == ("hypotheses on references", "ours, 'v1'.de on a.de, b.de")


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        ({}, "nothing to score. Give model_dir=DIR, or hypotheses=FILE and references=FILE."),
        ({"hypotheses": ["a"]}, "hypotheses: references=FILE is missing."),
        ({"hypotheses": ["a"], "references": ["a", "b"]}, "unequal numbers of sentences: "),
        ({"hypotheses": ["a"], "references": ["a"], "overrides": ["json=x"]}, "json: nmt.evaluate writes no"),
        (
            {"hypotheses": ["a"], "overrides": ["hypotheses=x"]},
            "hypotheses: given both as an argument and as",
        ),
        (
            {"hypotheses": ["a"], "references": ["a"], "metrics": ["bleu", "blue"]},
            "evaluation.metrics=[bleu,blue]: there is no metric blue. Choose from bleu",
        ),
        (
            {"model_dir": "m", "references": ["a"], "sources": ["a"], "overrides": ["score=true"]},
            "score: nmt.evaluate returns no such scores. Call nmt.load(DIR).score(pairs).",
        ),
    ],
)
def test_evaluations_that_are_refused(given: dict[str, Any], reported: str, unchanged: None) -> None:
    with pytest.raises(nmt.UserError) as raised:
        nmt.evaluate(**given)
    assert reported in str(raised.value)


@pytest.mark.parametrize(
    ("given", "reported"),
    [
        (
            {"hypotheses": ["a"], "references": [["a"], "b"]},
            "references: must be lines, a file, or a list of",
        ),
        ({"hypotheses": ["a", 3], "references": ["a", "b"]}, "hypotheses, line 2: must be a str, not int"),
    ],
)
def test_evaluations_of_other_types(given: dict[str, Any], reported: str) -> None:
    with pytest.raises(TypeError, match=reported):
        nmt.evaluate(**given)
