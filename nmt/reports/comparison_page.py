"""The page of a comparison: which run to choose, the tables, learning curves, and where two runs differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from nmt.evaluation.analysis.result import analyse
from nmt.evaluation.analysis.signs import Texts
from nmt.evaluation.metrics import metrics_for
from nmt.evaluation.report import Report
from nmt.evaluation.scores import Scores
from nmt.evaluation.tables import Table, metric_name
from nmt.reports.comparison_table import OPTIONS, RunComparison, RunPair
from nmt.reports.curves import Points, figure, thinned
from nmt.reports.evaluation import evaluation_sections
from nmt.reports.glossary import explained
from nmt.reports.page import Page, Section
from nmt.reports.summary import sentences_of, terms_of

_MOST_CURVES = 8  # the style sheet has a colour and a dash for each


def comparison_page(compared: RunComparison) -> Page:
    """Returns the page of a comparison; its data are the JSON of the comparison, and the curves."""
    sentences, tables = compared.verdict(), compared.tables()
    report = _report(compared.pair) if compared.pair else None
    sentences += sentences_of(report) if report else []
    options = tables.pop(OPTIONS, None)
    sections = [
        Section(
            "summary",
            "In short",
            "summary",
            {
                "sentences": sentences,
                "tiles": [],
                "terms": explained(terms_of(report)) if report else [],
            },
        ),
        Section("runs", "Runs", "tables", {"tables": [*tables.items()]}),
    ]
    if options:
        sections.append(_plain_tables("options", OPTIONS, {"Full names and values": options}))
    charts, curves = [], {}
    first = f"the first {_MOST_CURVES} runs" if len(compared.runs) > _MOST_CURVES else ""
    for title, series in _curves(compared):
        in_validation = "alidation" in title
        words = "; ".join(filter(None, [first, compared.validated() if in_validation else ""]))
        if chart := figure(title, words, series, markers=in_validation):
            charts.append(chart)
            curves[title] = series
    if charts:
        sections.append(Section("curves", "Learning curves", "curves", {"charts": charts}))
    if report:  # the table of all runs has the scores
        sections += [section for section in evaluation_sections(report) if section.name != "scores"]
    sections.append(_plain_tables("texts", "Text and folders", _facts(compared)))
    title = f"{compared.title} ({compared.languages})"
    return Page(title, sections, {**compared.as_dict(), "curves": curves})


def _plain_tables(name: str, title: str, tables: Mapping[str, Table]) -> Section:
    """Returns a section with tables of text, whose cells are wrapped."""
    return Section(name, title, "tables", {"tables": [*tables.items()], "sortable": False, "text": True})


def _facts(compared: RunComparison) -> dict[str, Table]:
    """Returns the tables of the scored text with the signatures, and of the folders."""
    first = compared.runs[0]
    assert first.scores
    rows = [["languages", compared.languages], *_flat(first.facts, "")]
    rows += [[f"signature of {metric_name(key)}", words] for key, words in first.scores.signatures.items()]
    began = ["began with"] if any(run.began_with() for run in compared.runs) else []
    folders = [
        [run.name, str(run.record.folder), *(run.began_with() or "new weights" for _ in began)]
        for run in compared.runs
    ]
    return {
        f"Text that {first.name} was scored on": Table(["fact", "value"], rows),
        "Folders": Table(["run", "folder", *began], folders),
    }


def _flat(value: Any, name: str) -> Iterator[list[str]]:
    """Yields names and values of facts; a file has its name and its SHA-256 alone."""
    if isinstance(value, list):
        for item in value:
            yield from _flat(item, name)
    elif isinstance(value, Mapping) and "sha256" in value:
        yield [f"{name}: SHA-256 of {value.get('name', '?')}", value["sha256"]]
    elif isinstance(value, Mapping):
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else key)
    elif value is not None:
        yield [name, f"{value:,}" if isinstance(value, int) else str(value)]


def _curves(compared: RunComparison) -> Iterator[tuple[str, Mapping[str, Points]]]:
    """Yields the title and the curves of each figure: name of the run → points."""
    criterion = compared.criterion
    shown = [("Validation loss", "valid", "loss"), ("Training loss", "train", "loss")]
    if criterion != "loss":
        shown.insert(0, (f"{metric_name(criterion)} in validation", "valid", criterion))
    for title, kind, key in [*shown, ("Learning rate", "train", "learning_rate")]:
        series = {run.name: run.record.series(kind, key) for run in compared.runs[:_MOST_CURVES]}
        yield title, {name: thinned(points) for name, points in series.items() if points}


def _report(pair: RunPair) -> Report:
    """Returns the evaluation of a run, with another one as the baseline."""
    run, other, text, scores = pair.run, pair.other, pair.text, pair.run.scores
    assert scores
    keys = [key for key, difference in pair.comparison.differences.items() if difference]
    analysis = analyse(
        run.hypotheses,
        Texts([text.references], text.sources, text.source_lang, text.target_lang),
        metrics_for(text.target_lang, keys=keys),
        baseline=other.hypotheses,
        comparison=pair.comparison,
        target_langs=text.target_langs,
    )
    values = Scores({key: scores.values[key] for key in keys}, scores.signatures, scores.sentences)
    title, systems = f"{run.name} and {other.name}", (run.name, other.name)
    return Report(title, values, comparison=pair.comparison, analysis=analysis, systems=systems)
