"""The summary of an evaluation: plain sentences, and the figures of the tiles."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from nmt.evaluation.analysis.result import Analysis
from nmt.evaluation.analysis.shown import words_of_faults
from nmt.evaluation.metrics import METRICS, Difference
from nmt.evaluation.report import Report
from nmt.evaluation.scores import SIGNIFICANT, listed
from nmt.evaluation.systems import the
from nmt.evaluation.tables import metric_digits, metric_name, shown_score

FEW = 30
"""Bins with fewer sentences are pale in charts, and not named in the summary."""
_LENGTH = 0.04  # change of length that it names


def verdict(key: str, difference: Difference) -> str:
    """Returns whether the hypotheses are `better` or `worse` than the baseline; empty: not significantly."""
    if difference.p_value >= SIGNIFICANT or not difference.delta:
        return ""
    return "better" if (difference.delta > 0) == _higher_is_better(key) else "worse"


def sentences_of(report: Report) -> list[str]:
    """Returns the results of a report in plain sentences."""
    if not report.sets:
        return list(_sentences_of_set(report))
    sentences = []
    for key in [*report.scores.values][:1]:
        values = {name: part.scores.values.get(key) for name, part in report.sets.items()}
        known = {name: value for name, value in values.items() if value is not None}
        if known:
            worst = (min if _higher_is_better(key) else max)(known, key=lambda name: known[name])
            sentences.append(
                f"{metric_name(key)} is {shown_score(key, report.scores.values[key])} in the mean of "
                f"{len(values)} sets, and worst on {worst}: {shown_score(key, known[worst])}."
            )
    for name, part in report.sets.items():
        if rest := [*_sentences_of_set(part)][1:]:
            sentences.append(f"{name}: {' '.join(rest)}")
    return sentences


def tiles_of(report: Report) -> list[tuple[str, str]]:
    """Returns value and words of the figures of a report: the scores and the size of the text."""
    tiles = []
    analysis, tested = report.analysis, report.comparison.differences if report.comparison else {}
    intervals = dict(analysis.intervals) if analysis else {}
    intervals |= {key: difference.interval for key, difference in tested.items() if difference}
    for key, value in report.scores.values.items():
        words = metric_name(key) + (f" of {report.systems[0]}" if tested else "")
        words += "" if _higher_is_better(key) else ", lower is better"
        if key in intervals:
            words += f"; ±{intervals[key]:.{metric_digits(key)}f} (95% interval)"
        tiles.append((shown_score(key, value), words))
    tiles.append((f"{report.scores.sentences:,}", "sentences" + (" of all sets" if report.sets else "")))
    if analysis:
        tiles.append(
            (
                f"{analysis.length_ratio:.1%}",
                "length of the hypotheses in characters; 100%: that of the references",
            )
        )
    return tiles


def terms_of(report: Report) -> list[str]:
    """Returns the words of a report that `glossary.explained` may know."""
    parts = [report, *report.sets.values()]
    return [
        *(*report.scores.values, "hypotheses", "references"),
        *(["interval", "p"] if any(part.comparison or part.analysis for part in parts) else ()),
        *(["sign test"] if any(part.analysis for part in parts) else ()),
    ]


def _higher_is_better(key: str) -> bool:
    return key not in METRICS or METRICS[key].higher_is_better


def _sentences_of_set(report: Report) -> Iterator[str]:
    """Yields the verdict or the score first; then the bins, the length, and the faults."""
    analysis, key = report.analysis, next(iter(report.scores.values))
    if report.comparison:
        yield " ".join(_verdicts(report))
        if analysis:
            yield _wins(analysis, report.systems)
    else:
        interval = analysis.intervals.get(key) if analysis else None
        value = shown_score(key, report.scores.values[key])
        if interval is not None:
            value += f" ±{interval:.{metric_digits(key)}f} (95% interval)"
        yield f"{metric_name(key)} is {value} on {report.scores.sentences:,} sentences."
    if analysis is None:
        return
    yield from _bins(analysis, key, report.systems)
    if abs(change := analysis.length_ratio - 1) > _LENGTH:
        shorter = "shorter" if change < 0 else "longer"
        why = ", which BLEU punishes by its brevity penalty" if change < 0 and key == "bleu" else ""
        text = f"The text of {report.systems[0]} is" if report.comparison else "The hypotheses are"
        yield f"{text} {abs(change):.0%} {shorter} than the references{why}."
    for sentence in words_of_faults(analysis, report.systems):
        yield sentence.removeprefix("* ")


def _verdicts(report: Report) -> Iterator[str]:
    assert report.comparison is not None
    ours, theirs = map(the, report.systems)
    results: dict[str, list[str]] = {"better": [], "worse": [], "": []}
    for key, difference in report.comparison.differences.items():
        if difference is not None:
            p_value = report.comparison.shown_p_value(key)
            figures = f"{difference.delta:+.{metric_digits(key)}f}, p-value {p_value}"
            results[verdict(key, difference)].append(f"{metric_name(key)} ({figures})")
    for result in ("better", "worse"):
        if results[result]:
            metrics = listed(results[result])
            yield f"The scores of {ours} are significantly {result} than those of {theirs} in {metrics}."
    if results[""]:
        yield f"No significant difference between {ours} and {theirs} in {listed(results[''])}."


def _wins(analysis: Analysis, systems: Sequence[str]) -> str:
    pairs = [*zip(*analysis.sentence_chrf, strict=True)]
    more, fewer = sum(ours > theirs for ours, theirs in pairs), sum(ours < theirs for ours, theirs in pairs)
    counts = f"{more:,} sentences, lower in {fewer:,} and equal in {len(pairs) - more - fewer:,}"
    return f"Compared with {the(systems[1])}, the chrF2 of {the(systems[0])} is higher in {counts}."


def _bins(analysis: Analysis, key: str, systems: Sequence[str]) -> Iterator[str]:
    """Yields the bins with the largest and smallest lead over a baseline, and that with the worst score."""
    sign, name = 1 if _higher_is_better(key) else -1, metric_name(key)
    scores, leads = {}, {}
    for kind, partition in analysis.partitions.items():
        for label, bin_scores in partition.scores.items():
            value = bin_scores.values.get(key)
            if value is None or bin_scores.sentences < FEW:
                continue
            place = f"{_place(kind, partition.title, label)} ({bin_scores.sentences:,} sentences)"
            scores[place] = value
            theirs = partition.baseline[label].values.get(key) if label in partition.baseline else None
            if theirs is not None:
                leads[place] = value - theirs
    if len(leads) > 1:
        best, least = _extremes(leads, -sign), _extremes(leads, sign)
        digits = metric_digits(key)
        yield (
            f"The difference in {name} is most favourable to {the(systems[0])} on {best}: "
            f"{leads[best]:+.{digits}f}, and least on {least}: {leads[least]:+.{digits}f}."
        )
    if len(scores) > 1:
        worst = _extremes(scores, sign)
        lowest = shown_score(key, scores[worst])
        whose = f" of {the(systems[0])}" if leads else ""
        yield f"Of parts with {FEW} sentences or more, {name}{whose} is worst on {worst}: {lowest}."


def _place(kind: str, title: str, label: str) -> str:
    """Returns the sources of a bin in words."""
    if kind == "length":
        return f"sources of {label} {title.removeprefix('source ')}"
    if kind == "rare_words":
        return f"sources whose rarest word occurs in training {label} times"
    return f"sources {label} {title}"


def _extremes(values: dict[str, float], sign: int) -> str:
    """Returns the name of the lowest value; of the highest if `sign` is -1."""
    return min(values, key=lambda name: sign * values[name])
