"""The sections of an evaluation: scores, where they come from, signs of faults, and single sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nmt.evaluation.analysis.result import Analysis, Partition
from nmt.evaluation.analysis.segments import Segment
from nmt.evaluation.analysis.shown import calibration_table, rows_of, signs_table
from nmt.evaluation.analysis.signs import SIGNS
from nmt.evaluation.report import Report
from nmt.evaluation.tables import Table, metric_digits, metric_name, shown_score
from nmt.languages import language_of
from nmt.reports.differences import missing, runs, words_of
from nmt.reports.page import Page, Section
from nmt.reports.summary import FEW, sentences_of, tiles_of, verdict
from nmt.runtime.charts import grouped_bars, lines

_WIDTH = 10  # of a bin of chrF
SYSTEMS = ("hypotheses", "baseline")


def evaluation_page(report: Report) -> Page:
    """Returns the page of a report; its data are the report's JSON."""
    content = {"sentences": sentences_of(report), "tiles": tiles_of(report)}
    summary = Section("summary", "In short", "summary", content)
    return Page(report.title, [summary, *evaluation_sections(report)], report.as_dict())


def evaluation_sections(report: Report) -> Iterator[Section]:
    """Yields the sections of a report: its scores, then those of the analysis of each set."""
    tables = [
        ("Scores of all sets and groups" if report.sets else "Scores of all sentences", report.scores_table())
    ]
    yield Section("scores", "Scores", "tables", {"tables": tables, "sortable": False})
    for number, (name, part) in enumerate((report.sets or {"": report}).items(), 1):
        prefix, words = (f"set{number}-", f"{name}: ") if name else ("", "")
        for section in _of_set(part):
            title = section.title[0].lower() + section.title[1:] if words else section.title
            yield Section(f"{prefix}{section.name}", f"{words}{title}", section.template, section.content)


def _of_set(report: Report) -> Iterator[Section]:
    analysis, keys = report.analysis, list(report.scores.values)
    if report.comparison:
        yield Section("comparison", "Compared with the baseline", "tables", {"tables": [_comparison(report)]})
    if analysis is None:
        return
    if analysis.partitions:
        yield Section("bins", "Where the scores come from", "bins", _bins(analysis, keys))
    shown = {segment.row: segment for segment in (*analysis.worst, *analysis.different, *analysis.examples)}
    yield Section("signs", "Signs of faults", "signs", _signs(analysis, shown))
    if analysis.calibration is not None:
        points = [((low + high) / 2, chrf) for low, high, chrf, _ in analysis.calibration.bins]
        content = {
            "chart": lines({"s1": points}, "Mean chrF2 by score of the model", markers=True),
            "table": calibration_table(analysis.calibration),
        }
        yield Section("calibration", "Calibration", "calibration", content)
    if shown:
        yield Section("sentences", "Sentences", "sentences", _sentences(analysis, shown))


def _comparison(report: Report) -> tuple[str, Table]:
    assert report.comparison is not None
    rows = []
    for key, difference in report.comparison.differences.items():
        if difference is not None:
            digits, score = metric_digits(key), shown_score(key, report.scores.values[key])
            rows.append([
                metric_name(key),
                f"{score} ±{difference.interval:.{digits}f}",
                f"{difference.baseline:.{digits}f} ±{difference.baseline_interval:.{digits}f}",
                f"{difference.delta:+.{digits}f}",
                f"{difference.p_value:.3f}",
                verdict(key, difference) or "no significant difference",
            ])  # fmt: skip
    header = [
        "metric",
        *(f"{system} (95% interval)" for system in SYSTEMS),
        "difference",
        "p-value",
        "result",
    ]
    return "Hypotheses and baseline", Table(header, rows)


def _bins(analysis: Analysis, keys: Sequence[str]) -> dict[str, Any]:
    partitions = [*analysis.partitions.values()]
    small = [partition for partition in partitions if set(partition.scores) == {"with", "without"}]
    parts = [
        _bins_of(partition.title, [partition], keys) for partition in partitions if partition not in small
    ]
    if small:
        parts.append(_bins_of("kind of sentence", small, keys))
    return {
        "parts": parts,
        "has_baseline": any(part["legend"] for part in parts),
        "has_rare_words": "rare_words" in analysis.partitions,
    }


def _bins_of(title: str, partitions: Sequence[Partition], keys: Sequence[str]) -> dict[str, Any]:
    """Returns the chart and the table of partitions; the labels of several say of which they are."""
    labels, rows, pale = [], [], []
    series: dict[str, list[float | None]] = {"s1": [], "s2": []}
    for partition in partitions:
        for label, (_, *cells) in zip(partition.scores, [*rows_of(partition, keys)][1:], strict=True):
            kinds = {"with": partition.title, "without": f"no {partition.title}"}
            labels.append(kinds.get(label, label.replace(" or more", "+")))
            rows.append([labels[-1], *cells])
            if partition.scores[label].sentences < FEW:
                pale.append(len(labels) - 1)
            series["s1"].append(partition.scores[label].values.get(keys[0]))
            if label in partition.baseline:
                series["s2"].append(partition.baseline[label].values.get(keys[0]))
    if not series["s2"]:
        del series["s2"]
    name = metric_name(keys[0])
    return {
        "title": f"{name} by {title}",
        "chart": grouped_bars(labels, series, f"{name} by {title}. The table has the same figures.", pale),
        "words": f"Pale: fewer than {FEW} sentences." if pale else "",
        "legend": SYSTEMS if "s2" in series else (),
        "table": Table([title, "sentences", *map(metric_name, keys)], rows),
    }


def _signs(analysis: Analysis, shown: dict[int, Segment]) -> dict[str, Any]:
    table = signs_table(analysis)
    names = [name for name, count in analysis.signs.items() if count.hypotheses or count.references]
    rows = [
        {"cells": row, "lines": [line + 1 for line in analysis.signs[name].rows if line in shown],
         "all": len(analysis.signs[name].rows), "is_fault": analysis.signs[name].is_fault}
        for name, row in zip(names, table.rows, strict=True)
    ]  # fmt: skip
    return {"header": table.header, "rows": rows, "notes": table.notes}


def _sentences(analysis: Analysis, shown: dict[int, Segment]) -> dict[str, Any]:
    labels = [*(f"{low}-{low + _WIDTH - 1}" for low in range(0, 90, _WIDTH)), "90+"]
    counts = {
        f"s{place}": [float(number) for number in _counts(chrf)]
        for place, chrf in enumerate(analysis.sentence_chrf, 1)
    }
    words = {
        "worst": "worst by chrF2",
        "different": "most different",
        "low": "low score of the model",
    }
    words |= {name: sign.words for name, sign in SIGNS.items()}
    chosen = {name: {row for row, one in shown.items() if name in one.signs} for name in words}
    chosen["worst"] = {segment.row for segment in analysis.worst}
    chosen["different"] = {segment.row for segment in analysis.different}
    if analysis.calibration:
        chosen["low"] = shown.keys() & analysis.calibration.low
    return {
        "chart": grouped_bars(labels, counts, "Number of sentences by chrF2"),
        "legend": SYSTEMS if len(counts) > 1 else (),
        "lists": [(name, words[name], len(rows)) for name, rows in chosen.items() if rows],
        "segments": [
            _segment(segment, analysis, [name for name, rows in chosen.items() if row in rows], words)
            for row, segment in shown.items()
        ],
        "has_baseline": len(counts) > 1,
    }  # fmt: skip


def _counts(chrf: Sequence[float]) -> list[int]:
    bins = [min(int(value / _WIDTH), 100 // _WIDTH - 1) for value in chrf]
    return [bins.count(place) for place in range(100 // _WIDTH)]


def _segment(
    segment: Segment, analysis: Analysis, lists: Sequence[str], words: dict[str, str]
) -> dict[str, Any]:
    """Returns the texts of a sentence as runs of marked words.

    The marks name the other text that lacks a word: `r` the (closest) reference, `h` the hypothesis, `b` the
    baseline.
    """
    by_character = not language_of(analysis.target_lang).has_spaces
    hypothesis = words_of(segment.hypothesis, by_character=by_character)
    references = [words_of(reference, by_character=by_character) for reference in segment.references]
    pairs = [missing(hypothesis, reference) for reference in references]
    closest = min(range(len(pairs)), key=lambda place: sum(pairs[place][0]))
    marks = {"r": pairs[closest][0]}
    texts = [
        ("reference", runs(reference, {"h": pairs[place][1]} if place == closest else {}))
        for place, reference in enumerate(references)
    ]
    theirs = []
    if segment.baseline is not None:
        baseline = words_of(segment.baseline, by_character=by_character)
        marks["b"], not_ours = missing(hypothesis, baseline)
        not_in_reference, _ = missing(baseline, references[closest])
        theirs = [("baseline", runs(baseline, {"r": not_in_reference, "h": not_ours}))]
    return {
        "line": segment.row + 1,
        "lists": lists,
        "signs": [words[name] for name in segment.signs],
        "chrf": shown_score("chrf", segment.chrf),
        "baseline_chrf": None if theirs == [] else shown_score("chrf", segment.baseline_chrf),
        "source": segment.source,
        "source_lang": analysis.source_lang,
        "target_lang": analysis.target_lang,
        "texts": [*texts, ("hypothesis", runs(hypothesis, marks)), *theirs],
    }
