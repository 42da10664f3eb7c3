"""Scores as a table to read and as JSON to keep."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from nmt.evaluation.scores import METRICS, TER_WORDS, Scores
from nmt.evaluation.significance import Comparison

WIDTH = 80
"""Columns of a table."""

FEW = 100
"""Sentences below which a p-value is printed with a warning: so few seldom hold what the next ones bring."""

_NUMBERS = 11 + 9 * len(METRICS)
_LABEL = WIDTH - _NUMBERS


@dataclass(frozen=True)
class Report:
    """Everything one evaluation has to say.

    Attributes:
        title: what was scored, in one line.
        scores: of all sentences together.
        groups: label → scores of its sentences.
        comparison: the baseline and how sure the difference from it is.
        details: what else belongs into the JSON, such as the model, the data and the search.
    """

    title: str
    scores: Scores
    groups: Mapping[str, Scores] = field(default_factory=dict)
    comparison: Comparison | None = None
    details: Mapping[str, Any] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """The scores in the shape of `results.json`; `groups`, `baseline` and details where there are any."""
        report = {"title": self.title, **self.scores.as_dict()}
        if self.groups:
            report["groups"] = {label: scores.as_dict() for label, scores in self.groups.items()}
        if self.comparison:
            report["baseline"] = self.comparison.as_dict()
        return {**report, **self.details}

    def table(self) -> str:
        """The report as lines of text, 80 columns at most but for long titles and signatures."""
        return "\n".join([self.title, "", *self._rows(), "", *self._notes()]) + "\n"

    def _rows(self) -> Iterator[str]:
        labels = ["  95% interval", *(f"  {_named(label)}" for label in self.groups)]
        width = min(max(map(len, labels)) + 2, _LABEL)
        yield _row(width, "", "sentences", list(METRICS.values()))
        yield _scored(width, "all" if self.groups else "hypotheses", self.scores)
        if self.comparison:
            yield _row(width, "  95% interval", "", self._differences("interval", "±{:.2f}"))
        for label, scores in self.groups.items():
            yield _scored(width, f"  {_named(label)}", scores)
        if self.comparison:
            yield _row(width, "baseline", str(self.scores.sentences), self._differences("baseline", "{:.2f}"))
            yield _row(width, "  95% interval", "", self._differences("baseline_interval", "±{:.2f}"))
            yield _row(width, "difference", "", self._differences("delta", "{:+.2f}"))
            yield _row(width, "  p-value", "", self._differences("p_value", "{:.3f}"))

    def _differences(self, attribute: str, pattern: str) -> list[str]:
        found = (getattr(self.comparison, key) for key in METRICS)
        return ["-" if one is None else pattern.format(getattr(one, attribute)) for one in found]

    def _notes(self) -> Iterator[str]:
        notes = "Higher BLEU and chrF2 are better, and lower TER."
        if self.scores.ter is None:
            notes += f" TER is left out: a line has more than {TER_WORDS:,} words."
        if self.comparison:
            notes += (
                " The p-value is the chance of leading by so much without being better,"
                f" by paired bootstrap resampling ({self.comparison.resamples} resamples,"
                f" seed {self.comparison.seed})."
            )
            if self.scores.sentences < FEW:
                notes += f" Of fewer than {FEW} sentences it says little."
        yield from textwrap.wrap(notes, WIDTH)
        for key, name in METRICS.items():
            yield f"{name}|{self.scores.signatures[key]}"


def _named(label: str) -> str:
    return label if label.strip() else "(no label)"


def _scored(width: int, label: str, scores: Scores) -> str:
    found = (getattr(scores, key) for key in METRICS)
    values = ["-" if value is None else f"{value:.2f}" for value in found]
    return _row(width, label, str(scores.sentences), values)


def _row(width: int, label: str, sentences: str, values: list[str]) -> str:
    if len(label) > width:
        label = label[: width - 3] + "..."
    return f"{label:<{width}}{sentences:>11}" + "".join(f"{value:>9}" for value in values)
