"""Single sentences: the worst ones, those most unlike a baseline, some with signs of faults; calibration."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from statistics import StatisticsError, correlation, fmean, median
from typing import Any

from nmt.evaluation.analysis.signs import OUTLIER, Count, Texts
from nmt.evaluation.metrics import metrics_for

_SHOWN = 10  # sentences of each list, and bins of calibration
_EXAMPLES = 5  # sentences of each sign
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
    signs: Mapping[str, Count],
    low: Sequence[int] = (),
) -> tuple[list[Segment], list[Segment], list[Segment]]:
    """Returns the sentences with the worst chrF, those that differ most from the baseline, and examples.

    The examples are the first sentences with each sign and of `low`, without those of the other two lists.

    The root of the length of the reference is a weight, since single words have the lowest chrF.

    Args:
        texts: the references and the sources, if they are known.
        systems: the hypotheses, and the lines of the baseline if there is one.
        chrf: the chrF of each line of each system.
        signs: those of the hypotheses.
        low: sentences with a low score of the model.
    """

    def segment(row: int) -> Segment:
        found = [name for name, count in signs.items() if row in count.rows]
        references, source = [text[row] for text in texts.references], [*texts.sources[row : row + 1], ""][0]
        theirs = (systems[1][row], chrf[1][row]) if len(systems) > 1 else ()
        return Segment(row, source, references, systems[0][row], chrf[0][row], found, *theirs)

    weights = [math.sqrt(len(reference)) for reference in texts.references[0]]
    losses = [(100 - ours) * weight for ours, weight in zip(chrf[0], weights, strict=True)]
    worst = _largest(losses)
    rows = zip(*chrf, weights, strict=True) if len(chrf) > 1 else ()
    leads = [abs(ours - theirs) * weight for ours, theirs, weight in rows]
    different = _largest(leads)
    lists = [low, *(count.rows for count in signs.values())]
    shown = {row for rows in lists for row in rows[:_EXAMPLES]} - {*worst, *different}
    return [*map(segment, worst)], [*map(segment, different)], [*map(segment, sorted(shown))]


def _largest(values: Sequence[float]) -> list[int]:
    """Returns the rows of the largest values above 0, the largest first."""
    return sorted((row for row, value in enumerate(values) if value > 0), key=lambda row: -values[row])[
        :_SHOWN
    ]


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
