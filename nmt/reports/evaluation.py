"""The sections of an evaluation: scores, where they come from, signs of faults, and single sentences."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from nmt.evaluation.analysis.bins import WORD
from nmt.evaluation.analysis.result import Analysis, Partition
from nmt.evaluation.analysis.segments import EXAMPLES, Segment
from nmt.evaluation.analysis.shown import calibration_table, rows_of, shown_signs, signs_table
from nmt.evaluation.analysis.signs import P_VALUE, SIGNS
from nmt.evaluation.report import Report
from nmt.evaluation.systems import the
from nmt.evaluation.tables import Table, metric_digits, metric_name, shown_score
from nmt.languages import language_of
from nmt.reports.differences import missing, runs, words_of
from nmt.reports.glossary import explained
from nmt.reports.page import Page, Section
from nmt.reports.summary import FEW, sentences_of, terms_of, tiles_of, verdict
from nmt.runtime.charts import grouped_bars, lines

_WIDTH = 10  # of a bin of chrF
_LINKS = 5  # to lines with a sign; the others are folded


def evaluation_page(report: Report) -> Page:
    """Returns the page of a report; its data are the report's JSON."""
    terms = explained(terms_of(report))
    content = {"sentences": sentences_of(report), "tiles": tiles_of(report), "terms": terms}
    summary = Section("summary", "In short", "summary", content)
    return Page(report.heading or report.title, [summary, *evaluation_sections(report)], report.as_dict())


def evaluation_sections(report: Report) -> Iterator[Section]:
    """Yields the sections of a report: its scores, then those of the analysis of each set."""
    tables = [
        (
            "Scores of all sets and groups" if report.sets else "Scores of all sentences",
            report.scores_table(report.systems),
        )
    ]
    yield Section("scores", "Scores", "tables", {"tables": tables, "sortable": False})
    for number, (name, part) in enumerate((report.sets or {"": report}).items(), 1):
        prefix, words = (f"set{number}-", f"{name}: ") if name else ("", "")
        for section in _of_set(part):
            title = section.title[0].lower() + section.title[1:] if words else section.title
            yield Section(f"{prefix}{section.name}", f"{words}{title}", section.template, section.content)


def _of_set(report: Report) -> Iterator[Section]:
    analysis, keys, systems = report.analysis, list(report.scores.values), report.systems
    if report.comparison:
        title = f"{systems[0]} compared with {the(systems[1])}"
        yield Section("comparison", title, "tables", {"tables": [_comparison(report)]})
    if analysis is None:
        return
    if analysis.partitions:
        yield Section("bins", "Where the scores come from", "bins", _bins(analysis, keys, systems))
    shown = {segment.row: segment for segment in analysis.segments}
    yield Section("signs", "Signs of faults", "signs", _signs(analysis, shown, systems))
    if analysis.calibration is not None:
        points = [((low + high) / 2, chrf) for low, high, chrf, _ in analysis.calibration.bins]
        content = {
            "chart": lines({"s1": points}, "Mean chrF2 by score of the model", markers=True),
            "table": calibration_table(analysis.calibration),
        }
        yield Section("calibration", "Calibration", "calibration", content)
    if shown:
        yield Section("sentences", "Sentences", "sentences", _sentences(analysis, shown, systems))


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
                report.comparison.shown_p_value(key),
                verdict(key, difference) or "no significant difference",
            ])  # fmt: skip
    header = [
        "metric",
        *(f"{system} (95% interval)" for system in report.systems),
        "difference",
        "p-value",
        "result",
    ]
    return " and ".join(report.systems), Table(header, rows)


def _bins(analysis: Analysis, keys: Sequence[str], systems: Sequence[str]) -> dict[str, Any]:
    partitions = [*analysis.partitions.values()]
    small = [partition for partition in partitions if set(partition.scores) == {"with", "without"}]
    parts = [
        _bins_of(partition.title, [partition], keys, systems)
        for partition in partitions
        if partition not in small
    ]
    if small:
        parts.append(_bins_of("kind of sentence", small, keys, systems))
    return {
        "parts": parts,
        "baseline": the(systems[1]) if any(part["legend"] for part in parts) else "",
        "has_rare_words": "rare_words" in analysis.partitions,
    }


def _bins_of(
    title: str, partitions: Sequence[Partition], keys: Sequence[str], systems: Sequence[str]
) -> dict[str, Any]:
    """Returns the chart and the table of partitions; the labels of several say of which they are.

    The first metric, that of the chart, has a column for each system and one for the difference.
    """
    name, *names = map(metric_name, keys)
    titles = [name]
    labels, rows, pale = [], [], []
    series: dict[str, list[float | None]] = {"s1": [], "s2": []}
    for partition in partitions:
        for label, (_, *cells) in zip(partition.scores, [*rows_of(partition, keys)][1:], strict=True):
            kinds = {"with": partition.title, "without": f"no {partition.title}"}
            labels.append(kinds.get(label, label.replace(" or more", "+")))
            if label in partition.baseline:
                titles = [*(f"{name} {system}" for system in systems), "difference"]
                theirs = shown_score(keys[0], partition.baseline[label].values.get(keys[0]))
                ours, _, difference = cells[1].partition(" ")
                cells[1:2] = [ours, theirs, difference.strip("()") or "-"]
            rows.append([labels[-1], *cells])
            if partition.scores[label].sentences < FEW:
                pale.append(len(labels) - 1)
            series["s1"].append(partition.scores[label].values.get(keys[0]))
            if label in partition.baseline:
                series["s2"].append(partition.baseline[label].values.get(keys[0]))
    if not series["s2"]:
        del series["s2"]
    return {
        "title": f"{name} by {title}",
        "chart": grouped_bars(labels, series, f"{name} by {title}. The table has the same figures.", pale),
        "words": f"Pale: fewer than {FEW} sentences." if pale else "",
        "legend": systems if "s2" in series else (),
        "table": Table([title, "sentences", *titles, *names], rows),
    }


def _signs(analysis: Analysis, shown: dict[int, Segment], systems: Sequence[str]) -> dict[str, Any]:
    """Returns the table of signs, and the lines that show each: linked, folded, and not on the page."""
    table = signs_table(analysis, systems)
    rows = []
    for name, cells in zip(shown_signs(analysis), table.rows, strict=True):
        lines = {"": set(analysis.signs[name].rows)}
        if analysis.baseline_signs:
            ours, theirs = lines[""], set(analysis.baseline_signs[name].rows)
            lines = {f"only {systems[0]}": ours - theirs, f"only {systems[1]}": theirs - ours}
            lines["both"] = ours & theirs
        groups = []
        for words, found in lines.items():
            here = [line + 1 for line in sorted(found) if line in shown]
            if found:
                first = len(here) if len(here) < 2 * _LINKS else _LINKS
                groups.append((words, here[:first], here[first:], len(found) - len(here)))
        sign = SIGNS[name]
        rows.append({
            "cells": cells, "meaning": sign.meaning, "groups": groups,
            "is_fault": analysis.signs[name].is_fault,
        })  # fmt: skip
    return {"header": table.header, "rows": rows, "notes": table.notes, "most": EXAMPLES, "level": P_VALUE}


def _sentences(analysis: Analysis, shown: dict[int, Segment], systems: Sequence[str]) -> dict[str, Any]:
    labels = [*(f"{low}-{low + _WIDTH - 1}" for low in range(0, 90, _WIDTH)), "90+"]
    counts = {
        f"s{place}": [float(number) for number in _counts(chrf)]
        for place, chrf in enumerate(analysis.sentence_chrf, 1)
    }
    lists = {
        f"{system} better": part for system, part in zip(systems, (analysis.won, analysis.lost), strict=True)
    }
    rows = {words: [segment.row for segment in part] for words, part in lists.items()}
    rows["worst by chrF2" + (f", {systems[0]}" if len(counts) > 1 else "")] = [
        segment.row for segment in analysis.worst
    ]
    if analysis.calibration:
        rows["low score of the model"] = sorted(shown.keys() & analysis.calibration.low)
    for name, sign in SIGNS.items():
        rows[sign.words] = sorted(
            row for row, one in shown.items() if name in (*one.signs, *one.baseline_signs)
        )
    return {
        "chart": grouped_bars(labels, counts, "Number of sentences by chrF2"),
        "legend": systems if len(counts) > 1 else (),
        "lists": [(words, [row + 1 for row in part]) for words, part in rows.items() if part],
        "segments": [_segment(segment, analysis, systems) for segment in shown.values()],
        "systems": systems if len(counts) > 1 else (),
        "has_unseen": bool(analysis.unseen),
    }


def _counts(chrf: Sequence[float]) -> list[int]:
    bins = [min(int(value / _WIDTH), 100 // _WIDTH - 1) for value in chrf]
    return [bins.count(place) for place in range(100 // _WIDTH)]


def _segment(segment: Segment, analysis: Analysis, systems: Sequence[str]) -> dict[str, Any]:
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
        ("reference", "", runs(reference, {"h": pairs[place][1]} if place == closest else {}))
        for place, reference in enumerate(references)
    ]
    chrf, ours, theirs = f"chrF2 {shown_score('chrf', segment.chrf)}", "", []
    signs = [SIGNS[name].words for name in segment.signs]
    if segment.baseline is not None and segment.baseline_chrf is not None:
        ours, lead = systems[0], segment.chrf - segment.baseline_chrf
        chrf = f"chrF2: {ours} {shown_score('chrf', segment.chrf)}, {systems[1]} "
        chrf += f"{shown_score('chrf', segment.baseline_chrf)}, difference {lead:+.{metric_digits('chrf')}f}"
        found = zip(systems, (segment.signs, segment.baseline_signs), strict=True)
        signs = [f"{system}: {SIGNS[name].words}" for system, names in found for name in names]
        baseline = words_of(segment.baseline, by_character=by_character)
        marks["b"], not_ours = missing(hypothesis, baseline)
        not_in_reference, _ = missing(baseline, references[closest])
        theirs = [("baseline", systems[1], runs(baseline, {"r": not_in_reference, "h": not_ours}))]
    return {
        "line": segment.row + 1,
        "signs": signs,
        "chrf": chrf,
        "source": _with_unseen(segment.source, analysis.unseen or ()),
        "source_lang": analysis.source_lang,
        "target_lang": analysis.target_lang,
        "texts": [*texts, ("hypothesis", ours, runs(hypothesis, marks)), *theirs],
    }


def _with_unseen(source: str, unseen: Sequence[str]) -> list[tuple[str, str]]:
    """Returns a source as runs of text; words that the training text does not have are marked by `u`."""
    parts, end = [], 0
    for match in WORD.finditer(source):
        if match[0].casefold() in unseen:
            parts += [(source[end : match.start()], ""), (match[0], "u")]
            end = match.end()
    return [part for part in (*parts, (source[end:], "")) if part[0]]
