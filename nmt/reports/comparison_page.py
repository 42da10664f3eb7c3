"""The page of a comparison: the table of all runs, their learning curves, and where two of them differ."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from nmt.evaluation.analysis.result import analyse
from nmt.evaluation.analysis.signs import Texts
from nmt.evaluation.metrics import metrics_for
from nmt.evaluation.report import Report
from nmt.evaluation.scores import Scores, listed
from nmt.evaluation.tables import metric_name
from nmt.reports.comparison import ComparedRun, RunComparison, higher_is_better
from nmt.reports.curves import Points, figure, thinned
from nmt.reports.evaluation import evaluation_sections
from nmt.reports.page import Page, Section

_MOST_CURVES = 8  # the style sheet has a colour and a dash for each


def comparison_page(compared: RunComparison) -> Page:
    """Returns the page of a comparison; its data are the JSON of the comparison, and the curves."""
    table = [("All runs", compared.table())]
    sections = [
        Section("summary", "In short", "summary", {"sentences": [*_sentences(compared)], "tiles": []}),
        Section("runs", "Runs", "tables", {"tables": table}),
    ]
    words = f"the first {_MOST_CURVES} runs" if len(compared.runs) > _MOST_CURVES else ""
    charts, curves = [], {}
    for title, series in _curves(compared):
        if chart := figure(title, words, series, markers="alidation" in title):
            charts.append(chart)
            curves[title] = series
    if charts:
        sections.append(Section("curves", "Learning curves", "curves", {"charts": charts}))
    if (other := _other(compared)) is not None:
        sections += _between(compared, other)
    return Page(compared.title, sections, {**compared.as_dict(), "curves": curves})


def _sentences(compared: RunComparison) -> Iterator[str]:
    runs, first = [run for run in compared.runs if run.scores], compared.runs[0]
    criterion = metric_name(first.record.config.training.criterion)
    if compared.best is not None:
        yield f"{compared.best} has the best {criterion} on the validation set."
    keys = compared.keys()[:1] if first.comparison is None else []
    for key in keys:
        tested = [run for run in runs[1:] if run.comparison and run.comparison.differences.get(key)]
        sign = 1 if higher_is_better(key) else -1
        groups: dict[str, list[str]] = {"better": [], "worse": [], "": []}
        for run in tested:
            assert run.comparison and (difference := run.comparison.differences[key])
            word = "better" if sign * difference.delta > 0 else "worse"
            groups[word if run.differs(key) else ""].append(run.name)
        for word in ("better", "worse"):
            if groups[word]:
                yield f"Significantly {word} than {first.name} in {metric_name(key)}: {listed(groups[word])}."
        if groups[""]:
            yield f"No significant difference from {first.name} in {metric_name(key)}: {listed(groups[''])}."
    if (other := _other(compared)) is not None:
        yield f"Sentence by sentence, {other.name} (hypotheses) is compared with {first.name} (baseline)."
    yield from compared.notes


def _curves(compared: RunComparison) -> Iterator[tuple[str, Mapping[str, Points]]]:
    """Yields the title and the curves of each figure: name of the run → points."""
    criterion = compared.runs[0].record.config.training.criterion
    shown = [("Validation loss", "valid", "loss"), ("Training loss", "train", "loss")]
    if criterion != "loss":
        shown.insert(0, (f"{metric_name(criterion)} in validation", "valid", criterion))
    for title, kind, key in [*shown, ("Learning rate", "train", "learning_rate")]:
        series = {run.name: run.record.series(kind, key) for run in compared.runs[:_MOST_CURVES]}
        yield title, {name: thinned(points) for name, points in series.items() if points}


def _other(compared: RunComparison) -> ComparedRun | None:
    """Returns the run to compare with the first one sentence by sentence: the best, or else the second."""
    tested = [run for run in compared.runs if run.comparison]
    return next((run for run in tested if run.name == compared.best), tested[0] if tested else None)


def _between(compared: RunComparison, other: ComparedRun) -> Iterator[Section]:
    """Yields the sections of an evaluation of a run, with the first run as the baseline."""
    first, text, scores = compared.runs[0], compared.text, other.scores
    assert text and scores and other.comparison
    keys = [key for key, difference in other.comparison.differences.items() if difference]
    metrics = metrics_for(text.target_lang, keys=keys)
    analysis = analyse(
        other.hypotheses,
        Texts([text.references], text.sources, text.source_lang, text.target_lang),
        metrics,
        baseline=first.hypotheses,
        comparison=other.comparison,
        target_langs=text.target_langs,
    )
    values = Scores({key: scores.values[key] for key in keys}, scores.signatures, scores.sentences)
    report = Report(f"{other.name} and {first.name}", values, comparison=other.comparison, analysis=analysis)
    report = replace(report, systems=(other.name, first.name))
    for section in evaluation_sections(report):
        if section.name == "comparison":
            yield replace(section, title=f"{other.name} compared with {first.name}")
        elif section.name != "scores":
            yield section
