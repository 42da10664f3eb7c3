"""Scores as a table to read and as JSON to keep."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nmt.evaluation.metrics import METRICS
from nmt.evaluation.scores import Scores, listed
from nmt.evaluation.significance import Comparison

WIDTH = 80
"""Columns of a table."""

FEW = 100
"""Sentences below which a p-value is printed with a warning: so few seldom hold what the next ones bring."""

_SENTENCES, _SCORE, _FEWEST = 11, 9, 20  # columns of two kinds of numbers, and at least of a label


@dataclass(frozen=True)
class Report:
    """Everything one evaluation has to say.

    Attributes:
        title: what was scored, in one line.
        scores: of all sentences together.
        groups: label → scores of its sentences.
        comparison: the baseline and how sure the difference from it is.
        details: what else belongs into the JSON, such as the model, the data and the search.
        hypotheses: the translations that were scored; not part of the JSON.
    """

    title: str
    scores: Scores
    groups: Mapping[str, Scores] = field(default_factory=dict)
    comparison: Comparison | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    hypotheses: Sequence[str] = field(default=(), repr=False)

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
        numbers = _SENTENCES + _SCORE * len(self.scores.values)
        width = min(max(map(len, labels)) + 2, max(WIDTH - numbers, _FEWEST))
        yield _row(width, "", "sentences", list(map(_name, self.scores.values)))
        keys = list(self.scores.values)
        yield _scored(width, "all" if self.groups else "hypotheses", self.scores, keys)
        if self.comparison:
            yield _row(width, "  95% interval", "", self._differences("interval", "±{:.{}f}"))
        for label, scores in self.groups.items():
            yield _scored(width, f"  {_named(label)}", scores, keys)
        if self.comparison:
            yield _row(
                width, "baseline", str(self.scores.sentences), self._differences("baseline", "{:.{}f}")
            )
            yield _row(width, "  95% interval", "", self._differences("baseline_interval", "±{:.{}f}"))
            yield _row(width, "difference", "", self._differences("delta", "{:+.{}f}"))
            yield _row(width, "  p-value", "", self._differences("p_value", "{:.3f}"))

    def _differences(self, attribute: str, pattern: str) -> list[str]:
        assert self.comparison is not None
        found = {key: self.comparison.differences.get(key) for key in self.scores.values}
        return [
            "-" if one is None else pattern.format(getattr(one, attribute), _digits(key))
            for key, one in found.items()
        ]

    def _notes(self) -> Iterator[str]:
        notes = _directions(self.scores.values)
        for key, value in self.scores.values.items():
            if value is None and key in METRICS and METRICS[key].limit:
                notes += f" {_name(key)} is left out: {METRICS[key].limit}."
        if self.comparison:
            notes += (
                " The p-value is the chance of leading by so much without being better,"
                f" by paired bootstrap resampling ({self.comparison.resamples} resamples,"
                f" seed {self.comparison.seed})."
            )
            if self.scores.sentences < FEW:
                notes += f" Of fewer than {FEW} sentences it says little."
        yield from textwrap.wrap(notes.strip(), WIDTH)
        for key in self.scores.values:
            yield f"{_name(key)}|{self.scores.signatures[key]}"


def _name(key: str) -> str:
    """The name of a metric; its key, if it was registered when the scores were made and is not now."""
    return METRICS[key].name if key in METRICS else key


def _digits(key: str) -> int:
    return METRICS[key].digits if key in METRICS else 2


def _directions(keys: Iterable[str]) -> str:
    known = [METRICS[key] for key in keys if key in METRICS]
    higher = [metric.name for metric in known if metric.higher_is_better]
    lower = [metric.name for metric in known if not metric.higher_is_better]
    if not higher or not lower:
        word = "Higher" if higher else "Lower"
        one = len(known) == 1
        return f"{word} {listed(higher or lower)} {'is' if one else 'are'} better." if known else ""
    return f"Higher {listed(higher)} {'are' if len(higher) > 1 else 'is'} better, and lower {listed(lower)}."


def _named(label: str) -> str:
    return label if label.strip() else "(no label)"


def _scored(width: int, label: str, scores: Scores, keys: Iterable[str]) -> str:
    found = {key: scores.values.get(key) for key in keys}
    values = ["-" if value is None else f"{value:.{_digits(key)}f}" for key, value in found.items()]
    return _row(width, label, str(scores.sentences), values)


def _row(width: int, label: str, sentences: str, values: list[str]) -> str:
    if len(label) > width:
        label = label[: width - 3] + "..."
    return f"{label:<{width}}{sentences:>11}" + "".join(f"{value:>9}" for value in values)
