"""The page of a run from literal files: its sections, its curves, and figures that are those of the files."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from nmt.config import DataConfig, TrainConfig
from nmt.config.storage import to_yaml
from nmt.reports.page import Page, Section
from nmt.reports.run import RunRecord
from nmt.reports.run_page import run_page, with_run

HOSTILE = "</script><script>alert(1)</script>\"'&\u202e"
LENGTHS = {"edges": [0, 2, 4], "counts": [3, 6]}
SIDE = {"lang": "en", "tokens": 20, "mean_length": 2.25, "max_length": 3, "lengths": LENGTHS}
RULE = {
    "name": "leaked",
    "words": HOSTILE,
    "dropped": 1,
    "option": "data.cleaning.drop_leaked",
    "examples": [],
}
DATA = {
    **{
        "format": 3,
        "pairs": 10,
        "kept": 9,
        "vocab_size": 40,
        "rules": [RULE],
        "source": SIDE,
        "target": SIDE,
    },
    "stages": {"distilled": dict(lines=9, translations=8, kept=7, dropped_by_score=1, seconds=90.0)},
    "warnings": [HOSTILE],
}
RESULTS = {
    "before": {"test": {"bleu": 5.25, "signatures": {"bleu": "nrefs:1"}}},
    "test": {"bleu": 27.456, "signatures": {"bleu": "nrefs:1"}, "sentences": 3},
    "training": {
        **{
            "updates": 200,
            "ended": "training.max_updates=200 is reached",
            "minutes": 1.5,
            "delivered": "best",
        },
        "candidates": [
            {"name": "best", "updates": [150], "loss": 3.25, "bleu": 30.128},
            {"name": "last", "updates": [200], "loss": 3.5, "bleu": None},
        ],
    },
    "length_penalty": {
        "chosen": 1.0,
        "sentences": 1234,
        "tried": [
            {"length_penalty": 0.6, "bleu": 20.125, "chrf": None},
            {"length_penalty": 1.0, "bleu": 21.5, "chrf": 50.25},
        ],
    },
    "diagnosis": [
        {"name": "names", "finding": "Names are lost.", "evidence": "test: 16 of 22.", "option": ""},
        {"name": "overfitted", "finding": HOSTILE, "evidence": "e", "option": "training.patience=3"},
    ],
}


def record(kind: str, update: int, **figures: Any) -> dict[str, Any]:
    return {"kind": kind, "update": update, "time": 0.0, **figures}


def sample(text: str) -> list[dict[str, str]]:
    return [{"source": "a cat", "reference": "eine Katze", "hypothesis": text}]


RECORDS = [
    *(record("train", update, loss=9 - update / 50, eta_minutes=2.4) for update in (50, 100)),
    record("valid", 100, loss=7.0, bleu=10.0, samples=sample(f"eine {HOSTILE}")),
    *(record("train", update, loss=9 - update / 50, joules=1.8e6) for update in (150, 200)),
    record("valid", 150, loss=6.5, bleu=12.0, samples=sample(f"eine {HOSTILE}")),
    record("valid", 200, loss=6.25, bleu=11.5, samples=sample("eine Katze")),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The folder of an unfinished run."""
    data = DataConfig(name="local", source_lang="en", target_lang="de")
    (tmp_path / "config.yaml").write_text(to_yaml(TrainConfig(data=data, run_dir=HOSTILE)))
    return tmp_path


def finish(folder: Path) -> None:
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in RECORDS))
    (folder / "results.json").write_text(json.dumps(RESULTS))
    (folder / "data_report.json").write_text(json.dumps(DATA))


def read(folder: Path, attention: str | None = None) -> tuple[Page, str, dict[str, Any]]:
    """Returns a page, its HTML and its data."""
    page = run_page(RunRecord.read(folder), attention=attention)
    html = page.html()
    data = re.search(r'id="data">(.*?)</script>', html, re.DOTALL)
    assert data
    return page, html, json.loads(data[1])


def test_sections_and_figures_of_a_finished_run(folder: Path) -> None:
    finish(folder)
    page, html, data = read(folder, f"<p>{HOSTILE}</p>")
    assert [section.name for section in page.sections] == (
        "summary diagnosis curves samples attention data training options commands".split()
    )
    assert "alert(1)</script>" not in html and html.count("<script") == html.count("</script>") == 2
    assert (
        '<iframe class="attention" title="Attention of the model in a few sentences" srcdoc="&lt;p&gt;'
        in html
    )
    assert (data["results"], data["joules"]) == (RESULTS, 3.6e6)
    assert data["curves"]["valid"] == {
        "loss": [[100, 7.0], [150, 6.5], [200, 6.25]],
        "bleu": [[100, 10.0], [150, 12.0], [200, 11.5]],
    }
    for text in (
        "27.46",
        "1.5 min",
        "1 kWh",
        "→ best",
        "30.13",
        "training.patience=3",
        "<td>8</td>",
        "1.5</td>",
        "5.25",
        "Length penalties, scored on 1,234 sentences of validation",
        "→ 1<",
        "50.2",
    ):
        assert text in html, text
    assert page.sections[0].content["sentences"] == [
        "The model is trained on 9 pairs of sentences.",
        "The training ended after 200 updates: training.max_updates=200 is reached.",
        f"{HOSTILE} Change: training.patience=3. The diagnosis has 1 more.",
        "The validation loss was lowest at update 200, the last one: 6.250.",
    ]
    assert data["best_validation_loss"] == [200, 6.25]
    assert "test: 16 of 22. Names: only capitalised words count" in html
    assert [word for word, _ in page.sections[0].content["terms"]] == [
        "BLEU",
        "Update",
        "Loss",
        "Token, piece",
    ]


def test_a_validation_loss_that_rose(folder: Path) -> None:
    finish(folder)
    records = [*RECORDS, record("valid", 250, loss=7.5)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    words = "The validation loss was lowest at update 200: 6.250. The last one is 7.500, 20.0% higher."
    assert words in read(folder)[0].sections[0].content["sentences"]


def test_curves_and_samples(folder: Path) -> None:
    finish(folder)
    page, _, _ = read(folder)
    charts, samples = (section.content for section in page.sections if section.name in ("curves", "samples"))
    loss, bleu = charts["charts"]
    assert (loss["title"], loss["legend"]) == ("Loss", ["training", "validation"])
    assert loss["chart"].label == "Loss by update; last values: training 5, validation 6.25"
    (training, validation), area = loss["chart"].curves, loss["chart"]
    assert training.points[0] == (area.left, area.top) and training.points[-1] == (area.right, area.bottom)
    assert (len(validation.points), bleu["legend"], bleu["words"]) == (3, (), "by update")
    assert bleu["chart"].curves[0].titles == ["100: 10", "150: 12", "200: 11.5"]
    versions = samples["samples"][0]["versions"]
    assert [update for update, _ in versions] == [100, 200]  # the version of update 150 is that of 100
    assert versions[0][1][0] == ("eine", "") and versions[1][1] == [("eine Katze", "")]


def test_curves_say_that_validations_used_the_first_sentences(folder: Path) -> None:
    finish(folder)
    config = (folder / "config.yaml").read_text()
    (folder / "config.yaml").write_text(config.replace("validate_sentences: 0", "validate_sentences: 5"))
    (curves,) = (section.content for section in read(folder)[0].sections if section.name == "curves")
    assert curves["charts"][1]["words"] == "on the first 5 sentences; by update"


def test_a_run_that_goes_on_and_one_that_has_not_begun(folder: Path) -> None:
    page, html, _ = read(folder)
    assert [section.name for section in page.sections] == ["summary", "options", "commands"]
    assert "The training has not begun." in html
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in RECORDS[:3]))
    _, html, _ = read(folder)
    assert "this page is of update 100, about 2 minutes before the end of the training." in html


def test_long_curves_are_thinned_to_their_last_point(folder: Path) -> None:
    records = [record("train", update, loss=1.0) for update in range(1, 1202)]
    (folder / "metrics.jsonl").write_text("".join(json.dumps(one) + "\n" for one in records))
    _, _, data = read(folder)
    points = data["curves"]["train"]["loss"]
    assert (len(points), points[0], points[-1]) == (401, [1, 1.0], [1201, 1.0])


def test_an_evaluation_of_a_run_has_the_sections_of_the_run(folder: Path) -> None:
    page = Page(
        "title", [Section("summary", "In short", "summary", {"sentences": [], "tiles": []})], {"a": 1}
    )
    assert with_run(page, str(folder)) is page  # no records: a model folder
    assert with_run(page, [str(folder)]) is with_run(page, None) is page
    finish(folder)
    whole = with_run(page, str(folder))
    assert [section.name for section in whole.sections] == (
        "summary diagnosis curves samples data training options commands".split()
    )
    assert whole.data["a"] == 1 and whole.data["run"]["results"] == RESULTS
