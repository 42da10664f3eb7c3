"""Single sentences: the worst ones, those most unlike a baseline, those with signs of faults; calibration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from statistics import StatisticsError, correlation, fmean, median
from typing import Any

from nmt.evaluation.analysis.signs import OUTLIER, Count, Texts
from nmt.evaluation.metrics import metrics_for

_SHOWN = 10  # sentences of each list, and bins of calibration
EXAMPLES = 50
"""The most sentences of each sign and system that are shown."""
_CHARACTERS = 300_000  # of all these sentences: a page has less than 5 MB
_LEAST = 10  # sentences of a bin


@dataclass(frozen=True)
class Segment:
    """A sentence with its translations; `row` counts from 0, and `signs` are those of the hypothesis."""

    row: int
    source: str
    references: Sequence[str]
    hypothesis: str
    chrf: float
    signs: Sequence[str]
    baseline: str | None = None
    baseline_chrf: float | None = None
    baseline_signs: Sequence[str] = ()

    def as_dict(self) -> dict[str, Any]:
        """Returns the sentence for the JSON; its line counts from 1."""
        return {"line": self.row + 1} | {key: value for key, value in asdict(self).items() if key != "row"}


def sentence_chrf(lines: Sequence[str], texts: Texts) -> list[float]:
    """Returns the chrF2 of each line by itself."""
    metric = metrics_for(texts.target_lang, keys=["chrf"])["chrf"]
    rows = zip(lines, *texts.references, strict=True)
    return [
        metric.number([line], [[reference] for reference in references], []) for line, *references in rows
    ]


def chosen_segments(
    texts: Texts,
    systems: Sequence[Sequence[str]],
    chrf: Sequence[Sequence[float]],
    signs: Sequence[Mapping[str, Count]],
    low: Sequence[int] = (),
) -> tuple[list[Segment], ...]:
    """Returns the sentences with the worst chrF, those where each system is most ahead, and examples.

    The root of the length of the reference is a weight of the choice, since single words have the lowest
    chrF. The order of a list is that of chrF, or of the difference, itself. The examples are the first
    sentences with each sign and of `low`, without those of the other lists.

    Args:
        texts: the references and the sources, if they are known.
        systems: the hypotheses, and the lines of the baseline if there is one.
        chrf: the chrF of each line of each system.
        signs: those of each system.
        low: sentences with a low score of the model.
    """
    found = [{name: set(count.rows) for name, count in counts.items()} for counts in signs]

    def segment(row: int) -> Segment:
        ours, *others = ([name for name, rows in one.items() if row in rows] for one in found)
        references, source = [text[row] for text in texts.references], [*texts.sources[row : row + 1], ""][0]
        segment = Segment(row, source, references, systems[0][row], chrf[0][row], ours)
        if not others:
            return segment
        return replace(
            segment, baseline=systems[1][row], baseline_chrf=chrf[1][row], baseline_signs=others[0]
        )

    weights = [math.sqrt(len(reference)) for reference in texts.references[0]]
    chosen = [_largest([100 - value for value in chrf[0]], weights)]
    for sign in (1, -1):
        leads = [sign * (ours - theirs) for ours, theirs in zip(*chrf, strict=True)] if len(chrf) > 1 else []
        chosen.append(_largest(leads, weights))
    rows_of_signs = [low, *(count.rows for counts in signs for count in counts.values())]
    shown, examples, characters = {row for rows in chosen for row in rows}, set(), 0
    for place in range(EXAMPLES):
        for row in (rows[place] for rows in rows_of_signs if place < len(rows)):
            if row not in shown and characters < _CHARACTERS:
                shown.add(row)
                examples.add(row)
                characters += sum(len(text[row]) for text in (*systems, *texts.references))
    return tuple([*map(segment, rows)] for rows in (*chosen, sorted(examples)))


def _largest(values: Sequence[float], weights: Sequence[float]) -> list[int]:
    """Returns the rows of the largest weighted values above 0, in the order of the values."""
    rows = [row for row, value in enumerate(values) if value > 0]
    largest = sorted(rows, key=lambda row: -values[row] * weights[row])[:_SHOWN]
    return sorted(largest, key=lambda row: -values[row])


@dataclass(frozen=True)
class Calibration:
    """How well the model's own score predicts the chrF of a sentence.

    Attributes:
        correlation: Spearman's rank correlation; None if all scores or all chrF are equal.
        bins: lowest and highest score, mean chrF and number of sentences, of equally many sentences each.
        low: the sentences, from 0, whose log-probability per token is an outlier: a hallucination may have
            one. It is not compared with the references: a model finds its own translations more probable.
    """

    correlation: float | None
    bins: Sequence[tuple[float, float, float, int]]
    low: Sequence[int]

    @classmethod
    def of(
        cls, scores: Sequence[float], chrf: Sequence[float], token_scores: Sequence[float | None]
    ) -> Calibration:
        """Compares the score of each sentence with its chrF, and its score per token with the others'."""
        try:
            ranked = correlation(_ranks(scores), _ranks(chrf))
        except StatisticsError:
            ranked = None
        order = sorted(range(len(scores)), key=lambda row: scores[row])
        number = max(1, min(_SHOWN, len(order) // _LEAST))
        parts = [order[len(order) * n // number : len(order) * (n + 1) // number] for n in range(number)]
        bins = [
            (scores[part[0]], scores[part[-1]], fmean(chrf[row] for row in part), len(part)) for part in parts
        ]
        known = [score for score in token_scores if score is not None]
        middle = median(known) if known else 0.0
        limit = middle - OUTLIER * median(abs(score - middle) for score in known or [0.0])
        low = [row for row, score in enumerate(token_scores) if score is not None and score < limit]
        return cls(ranked, bins, low)

    def as_dict(self) -> dict[str, Any]:
        """Returns the calibration for the JSON; lines count from 1."""
        names = "lowest", "highest", "chrf", "sentences"
        bins = [dict(zip(names, part, strict=True)) for part in self.bins]
        return {"correlation": self.correlation, "bins": bins, "low_lines": [row + 1 for row in self.low]}


def _ranks(values: Sequence[float]) -> list[float]:
    """Returns the rank of each value; equal values share their mean rank."""
    order = sorted(values)
    first = {value: place for place, value in reversed([*enumerate(order)])}
    last = {value: place for place, value in enumerate(order)}
    return [(first[value] + last[value]) / 2 for value in values]
