"""The comparison of runs: a literal table, sacreBLEU's own figures, and runs that can't be compared."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from sacrebleu.metrics import BLEU
from sacrebleu.significance import PairedTest

from nmt.cli.evaluate import evaluate
from nmt.config import EvalConfig, TrainConfig
from nmt.config.storage import to_yaml
from nmt.data.corpora.text import file_facts
from nmt.errors import UserError
from nmt.options.arguments import Arguments, read_arguments
from nmt.options.compose import compose_jobs
from nmt.reports import comparison
from nmt.reports.comparison import compare_runs
from nmt.reports.comparison_page import comparison_page
from nmt.reports.comparison_runs import criterion_value
from nmt.reports.comparison_table import short_names
from nmt.reports.curves import figure

REFERENCES = [f"the {a} cat sees {b} small dogs near the old house" for a in "abcdefghij" for b in "xyz"]
BETTER = [line.replace("small", "little") if n % 5 == 0 else line for n, line in enumerate(REFERENCES)]
WORSE = [line.replace("old house", "new barn") if n % 2 else line for n, line in enumerate(REFERENCES)]
TABLE = """\
2 runs, scored on test

run                        BLEU  minutes  updates  target tokens  parameters
first               94.33 ±3.82      2.5    1,200         34,567       9,876
  seed=1 model.norm=post
second            89.32 ±3.56 *      2.5    1,200         34,567       9,876
  seed=2 model.norm=pre

Higher BLEU is better.
±: 95% interval. *: differs from first, p < 0.05 by paired bootstrap resampling (1000 resamples,
seed 12345).
The test compares two runs on the same sentences, so it can find a difference where the intervals
overlap.
With fewer than 100 sentences, intervals and p-values are not reliable.
minutes: 2 processes on CPU with 4 CPU cores.

Best BLEU on the validation set: second, 3.00; then first, 1.00.
On test, second is significantly worse in BLEU than first.
"""


def write_run(folder: Path, hypotheses: list[str], *words: str, criterion: float = 1.0) -> Path:
    """Writes the files of a finished run, which was scored on `folder/../test.de`."""
    sides = {}
    for side, lines in (("source", ["-"] * len(REFERENCES)), ("target", REFERENCES)):
        path = folder.parent / f"test.{side}"
        path.write_text("".join(f"{line}\n" for line in lines))
        sides[side] = [file_facts(path)]
    files = [f"data.test.{side}={folder.parent}/test.{side}" for side in sides]
    languages = "data=local", "data.source_lang=en", "data.target_lang=xx", "recipe=none"
    (config,) = compose_jobs(TrainConfig, "train", Arguments((*languages, *files, *words)))
    bleu = BLEU()
    value = bleu.corpus_score(hypotheses, [REFERENCES]).score
    results = {
        "test": {"bleu": value, "signatures": {"bleu": bleu.get_signature().format()}, "sentences": 30},
        "training": {
            **{"minutes": 2.5, "updates": 1200, "target_tokens": 34567, "parameters": 9876},
            **{"processes": 2, "device": "CPU", "cores": 4, "delivered": "last"},
            "candidates": [{"name": "best", "bleu": 99.0}, {"name": "last", "bleu": criterion, "loss": 2.0}],
        },
        "data": {"test": {"corpus": "c", "sentences": 30, "tag": None, **sides}, "valid": {"sentences": 3}},
    }
    folder.mkdir()
    (folder / "config.yaml").write_text(to_yaml(config))
    (folder / "results.json").write_text(json.dumps(results))
    (folder / "test.hypotheses.txt").write_text("".join(f"{line}\n" for line in hypotheses))
    return folder


@pytest.fixture
def runs(tmp_path: Path) -> list[Path]:
    first = write_run(tmp_path / "first", BETTER, "seed=1", "run_dir=a", "model.norm=post")
    return [
        first,
        write_run(tmp_path / "second", WORSE, "seed=2", "run_dir=b", "model.norm=pre", criterion=3.0),
    ]


def changed(folder: Path, **sections: object) -> None:
    file = folder / "results.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | sections))


def test_the_table_and_the_figures_of_sacrebleu(runs: list[Path]) -> None:
    compared = compare_runs(runs)
    assert compared.plain() == TABLE
    systems = [("Baseline: a", BETTER), ("b", WORSE)]
    _, figures = PairedTest(systems, {"BLEU": BLEU(references=[REFERENCES])}, None, "bs", 1000)()
    ours, (first, second) = compared.as_dict()["runs"], figures["BLEU"]
    assert (ours[0]["scores"]["bleu"], ours[0]["intervals"]["bleu"]) == (first.score, first.ci)
    assert (ours[1]["scores"]["bleu"], ours[1]["intervals"]["bleu"]) == (second.score, second.ci)
    assert ours[1]["comparison"]["bleu"]["p_value"] == second.p_value
    assert ours[1]["options"] == ["seed=2", "model.norm=pre"] and compared.best == "second"
    assert "| first | 1 | post | 94.33 ±3.82 | 2.5 | 1,200 | 34,567 | 9,876 |" in compared.rendered("x.md")
    assert "first & +5.01 & 0.038" in compared.rendered("x.tex")


def test_the_best_run_is_compared_with_every_other_run(
    runs: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last run is the best, the third is as good and smaller, and the first two are worse."""
    tests, original = [], comparison.compare
    monkeypatch.setattr(
        comparison, "compare", lambda *args, **words: tests.append(1) or original(*args, **words)
    )
    for name, line, criterion in (("small", 0, 4.0), ("top", 1, 5.0)):
        lines = [text.replace("dogs", "cats") if row == line else text for row, text in enumerate(REFERENCES)]
        runs.append(write_run(runs[0].parent / name, lines, "start_from=m", criterion=criterion))
    training = json.loads((runs[2] / "results.json").read_text())["training"]
    changed(runs[2], training=training | {"parameters": 5000, "processes": 1})
    compared = compare_runs(runs, swept=["model.norm"])
    assert len(tests) == 2 * len(runs) - 1
    assert compared.pair and (compared.pair.run.name, compared.pair.other.name) == ("top", "small")
    assert compared.verdict() == [
        "Best BLEU on the validation set: top, 5.00; then small, 4.00.",
        "On test, top is significantly better in BLEU than first and second.",
        "On test, top is not significantly better in BLEU than small (p-value 1.000): by BLEU, it is as "
        "good a choice.",
        "Of these, small has the fewest parameters: 5,000.",
        "Significantly better than the first run, first, in BLEU: small.",
        "Significantly worse than the first run, first, in BLEU: second.",
    ]
    written = compared.as_dict()
    assert (written["best"], written["as_good"]) == ("top", ["small"])
    first, second, small, top = written["runs"]
    assert (first["comparison"], top["comparison_with_best"]) == (None, None)
    assert first["comparison_with_best"]["bleu"]["delta"] == -top["comparison"]["bleu"]["delta"]
    assert first["comparison_with_best"]["bleu"]["p_value"] == top["comparison"]["bleu"]["p_value"]
    assert second["options"][0] == "model.norm=pre" and small["began_with"] == "the model m"
    assert compared.tables()["Compared with top, the best run"].rows[2] == ["small", "+0.00", "1.000"]
    notes = " ".join(written["notes"])
    assert "minutes: 2 processes on CPU with 4 CPU cores (first, second and top); 1 process on CPU" in notes


def test_few_options_are_columns_and_many_a_table(runs: list[Path]) -> None:
    few = compare_runs(runs).tables()
    assert len(few) == 2 and few["All runs"].header[:3] == ["run", "seed", "norm"]
    assert few["All runs"].notes[0] == "norm: model.norm."
    words = "model.norm=pre", "seed=3", "training.schedule.peak=0.1", "model.dropout=0.25"
    runs.append(write_run(runs[0].parent / "third", WORSE, *words))
    table = compare_runs(runs, swept=["model.norm"]).tables()["Options that differ"]
    assert table.header == ["option", "first", "second", "third"]
    assert table.rows[:2] == [["model.norm", "post", "pre", "pre"], ["seed", "1", "2", "3"]]
    names = ["seed", "decoding.seed", "model.norm", "a.b.peak", "c.peak"]
    assert short_names(names) == ["seed", "decoding.seed", "norm", "b.peak", "c.peak"]


def test_the_validation_set_and_missing_scores_are_explained(runs: list[Path]) -> None:
    for folder, extra in zip(runs, ({"ter": None}, {}), strict=True):
        results = json.loads((folder / "results.json").read_text())
        data = results["data"] | {"valid": results["data"]["test"]}
        valid = results["test"] | extra
        valid["signatures"] |= dict.fromkeys(extra, "nrefs:1")
        changed(folder, valid=valid, data=data)
        text = (folder / "config.yaml").read_text().replace("validate_sentences: 0", "validate_sentences: 20")
        (folder / "config.yaml").write_text(text if extra else text.replace("sentences: 20", "sentences: 30"))
    compared = compare_runs(runs, split="valid")
    assert compared.verdict()[-1].startswith(
        "The validation set also chose the models, so these scores are opt"
    )
    assert (
        "TER -: a line has more than 1,000 words (first); it was not computed (second)." in compared.plain()
    )
    used = "validations used the first 20 sentences (first); all sentences (second); final scores use all"
    assert compared.validated() == used


def test_a_run_with_a_score_from_elsewhere_is_marked_and_not_compared(runs: list[Path]) -> None:
    other = json.loads((runs[1] / "results.json").read_text())["data"]
    other["test"]["target"][0]["sha256"] = "0" * 64
    changed(runs[1], data=other)
    compared = compare_runs(runs)
    assert compared.runs[1].comparison is None and "89.32 †" in compared.plain()
    notes = " ".join(compared.notes)
    assert "second †: scored on another text than first, so they can't be compared." in notes
    assert "No intervals and no test of differences: second: data.test.target=" in notes


def test_other_signatures_are_not_compared(runs: list[Path]) -> None:
    test = json.loads((runs[1] / "results.json").read_text())["test"]
    changed(runs[1], test={**test, "signatures": {"bleu": "nrefs:1|tok:none"}})
    compared = compare_runs(runs)
    assert compared.runs[1].unlike == ["bleu"] and compared.runs[1].comparison is None
    assert "BLEU can't be compared with that of first; the signatures are nrefs:1|tok:none" in str(
        compared.notes
    )


def test_references_that_are_gone_leave_the_recorded_scores(runs: list[Path]) -> None:
    (runs[0].parent / "test.target").unlink()
    compared = compare_runs(runs)
    assert [len(run.intervals) for run in compared.runs] == [0, 0]
    assert "94.33 " in compared.plain() and "No intervals and no test of differences" in compared.plain()


def test_translations_that_are_not_those_of_the_scores(runs: list[Path]) -> None:
    (runs[1] / "test.hypotheses.txt").write_text("x\n" * 30)
    assert "do not give the recorded score" in " ".join(compare_runs(runs).notes)
    (runs[1] / "test.hypotheses.txt").write_text("x\n")
    assert (
        "second: no intervals, test.hypotheses.txt is missing or has other lines." in compare_runs(runs).notes
    )


def test_folders_that_are_left_out(runs: list[Path]) -> None:
    begun, nothing = runs[0].parent / "begun", runs[0].parent / "nothing"
    for folder in (begun, nothing):
        folder.mkdir()
    (begun / "config.yaml").write_bytes((runs[0] / "config.yaml").read_bytes())
    compared = compare_runs([nothing, begun, runs[0], runs[0] / ".", runs[1]])
    assert [run.name for run in compared.runs] == ["first", "second"]
    assert compared.notes == [
        "nothing: left out, not a run folder: it has no config.yaml. Check the name.",
        "begun: left out, its training has not ended.",
    ]
    with_outcome = compare_runs([begun, *runs], outcomes={str(begun): "pruned after update 8"})
    assert "(pruned after update 8)\n" in with_outcome.plain()
    with pytest.raises(UserError, match="runs: no finished run with scores of test. begun: left out"):
        compare_runs([begun])
    with pytest.raises(UserError, match="no scores of valid.* Give other folders, or split=test.$"):
        compare_runs(runs, split="valid")


def test_the_criterion_is_that_of_the_delivered_candidate(runs: list[Path]) -> None:
    record = compare_runs(runs).runs[0].record
    assert criterion_value(record) == 1.0
    record.config.training.criterion = "loss"
    assert criterion_value(record) == 2.0


def test_the_command(runs: list[Path], tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    odd = runs[1].rename(tmp_path / "it's, [odd]")
    (tmp_path / "notes.txt").touch()
    words = [
        str(runs[0]),
        str(odd),
        str(tmp_path / "notes.txt"),
        f"json={tmp_path}/c.json",
        f"table={tmp_path}/c.md",
    ]
    (config,) = compose_jobs(EvalConfig, "eval", read_arguments(words, EvalConfig))
    assert config.runs == words[:3]
    evaluate(config)
    assert "it's, [odd]" in capsys.readouterr().out
    assert [run["name"] for run in json.loads((tmp_path / "c.json").read_text())["runs"]] == [
        "first",
        odd.name,
    ]
    assert (tmp_path / "c.md").read_text().startswith("# 2 runs, scored on test\n")
    config.model_dir = "m"
    with pytest.raises(UserError, match="^model_dir=m: has no meaning for run folders"):
        evaluate(config)
    with pytest.raises(UserError, match="^.*notes.txt: options are written key=value"):
        read_arguments(words[2:3], EvalConfig)


def test_the_page(runs: list[Path]) -> None:
    odd = runs[1].rename(runs[1].parent / "<b>&'bold")
    record = '{"kind": "valid", "update": %d, "loss": %.1f, "bleu": null}\n'
    (runs[0] / "metrics.jsonl").write_text(record % (100, 8.5) + record % (200, 7.5))
    (odd / "metrics.jsonl").write_text(record % (100, 7.5) + record % (200, 6.5))
    compared = compare_runs([runs[0], odd])
    page = comparison_page(compared)
    assert [section.name for section in page.sections] == [
        *("summary", "runs", "curves", "comparison", "signs", "sentences", "texts"),
    ]
    assert page.sections[0].content["sentences"] == [
        *compared.verdict(),
        "The scores of <b>&'bold are significantly worse than those of first in BLEU (-5.01, p-value 0.038).",
        "Compared with first, the chrF2 of <b>&'bold is higher in 3 sentences, lower in 15 and equal in 12.",
        "No sign of faults is significantly more frequent than in the references (p < 0.001).",
    ]
    assert "BLEU" in [name for name, _ in page.sections[0].content["terms"]]
    text, folders = (table for _, table in page.sections[-1].content["tables"])
    assert text.rows[:2] == [["languages", "en–xx"], ["corpus", "c"]] and text.rows[2] == ["sentences", "30"]
    assert text.rows[-1][0] == "signature of BLEU" and folders.rows[0] == ["first", str(runs[0])]
    html = page.html()
    data = json.loads(
        html.partition('<script type="application/json" id="data">')[2].partition("</script>")[0]
    )
    assert {key: data[key] for key in compared.as_dict()} == json.loads(json.dumps(compared.as_dict()))
    assert data["curves"] == {
        "Validation loss": {"first": [[100, 8.5], [200, 7.5]], odd.name: [[100, 7.5], [200, 6.5]]}
    }
    assert "<b>" not in html and "&lt;b&gt;&amp;&#39;bold" in html


def test_equal_curves_are_drawn_once() -> None:
    points = [(1, 2.0), (2, 1.0)]
    chart = figure("loss", "", {"a": points, "b": points, "c": [*points, (3, 0.5)]})
    assert chart and chart["legend"] == ["a and b (equal)", "", "c"]
    assert [curve.name for curve in chart["chart"].curves] == ["s1", "s3"]
