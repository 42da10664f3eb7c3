"""The report of an evaluation, as a table and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nmt.evaluation.metrics import METRICS
from nmt.evaluation.scores import Comparison, Scores, listed

WIDTH = 80
"""Width of a table in characters."""

FEW = 100
"""Number of sentences below which the table warns about the p-value: such a small sample is not reliable."""

_SENTENCES_WIDTH, _SCORE_WIDTH, _MIN_LABEL_WIDTH = 11, 9, 20  # widths in characters


@dataclass(frozen=True)
class Report:
    """The results of one evaluation.

    Attributes:
        title: the scored texts or model, in one line.
        scores: scores of all sentences together.
        groups: label → scores of its sentences.
        comparison: the difference from the baseline and its significance.
        details: further entries of the JSON, such as the model, the data and the decoding options.
        hypotheses: the translations that were scored; not part of the JSON.
        before: the report of the model before fine-tuning, on the same text; not part of the JSON.
    """

    title: str
    scores: Scores
    groups: Mapping[str, Scores] = field(default_factory=dict)
    comparison: Comparison | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    hypotheses: Sequence[str] = field(default=(), repr=False)
    before: Report | None = field(default=None, repr=False)

    def as_dict(self) -> dict[str, Any]:
        """Returns the scores in the format of `results.json`, and `groups`, `baseline` and details if any."""
        report = {"title": self.title, **self.scores.as_dict()}
        if self.groups:
            report["groups"] = {label: scores.as_dict() for label, scores in self.groups.items()}
        if self.comparison:
            report["baseline"] = self.comparison.as_dict()
        return {**report, **self.details}

    def table(self) -> str:
        """Returns the report as lines of at most 80 characters; titles and signatures may be longer."""
        return "\n".join([self.title, "", *self._rows(), "", *self._notes()]) + "\n"

    def _rows(self) -> Iterator[str]:
        labels = ["  95% interval", *(f"  {_shown_label(label)}" for label in self.groups)]
        if self.before:
            labels.append("    difference")
        numbers = _SENTENCES_WIDTH + _SCORE_WIDTH * len(self.scores.values)
        width = min(max(map(len, labels)) + 2, max(WIDTH - numbers, _MIN_LABEL_WIDTH))
        yield _row(width, "", "sentences", list(map(_name, self.scores.values)))
        keys = list(self.scores.values)
        yield _score_row(width, "all" if self.groups else "hypotheses", self.scores, keys)
        if self.before:
            yield from _rows_before(width, "  ", self.before.scores, self.scores)
        if self.comparison:
            yield _row(width, "  95% interval", "", self._differences("interval", "±{:.{}f}"))
        for label, scores in self.groups.items():
            yield _score_row(width, f"  {_shown_label(label)}", scores, keys)
            if self.before and label in self.before.groups:
                yield from _rows_before(width, "    ", self.before.groups[label], scores)
        if self.comparison:
            yield _row(
                width, "baseline", str(self.scores.sentences), self._differences("baseline", "{:.{}f}")
            )
            yield _row(width, "  95% interval", "", self._differences("baseline_interval", "±{:.{}f}"))
            yield _row(width, "difference", "", self._differences("delta", "{:+.{}f}"))
            yield _row(width, "  p-value", "", self._differences("p_value", "{:.3f}"))

    def _differences(self, attribute: str, pattern: str) -> list[str]:
        assert self.comparison is not None
        differences = {key: self.comparison.differences.get(key) for key in self.scores.values}
        return [
            "-" if difference is None else pattern.format(getattr(difference, attribute), _digits(key))
            for key, difference in differences.items()
        ]

    def _notes(self) -> Iterator[str]:
        notes = _directions(self.scores.values)
        if self.before:
            notes += " before: the model in start_from."
        for key, value in self.scores.values.items():
            if value is None and key in METRICS and METRICS[key].limit:
                notes += f" {_name(key)} is omitted: {METRICS[key].limit}."
        if self.comparison:
            notes += (
                " The p-value is the probability of such a difference between two equally good systems,"
                f" by paired bootstrap resampling ({self.comparison.resamples} resamples,"
                f" seed {self.comparison.seed})."
            )
            if self.scores.sentences < FEW:
                notes += f" With fewer than {FEW} sentences it is not reliable."
        yield from textwrap.wrap(notes.strip(), WIDTH)
        for key in self.scores.values:
            yield f"{_name(key)}|{self.scores.signatures[key]}"
            for label, scores in self.groups.items():  # of a language with another tokenizer
                if (signature := scores.signatures.get(key)) not in (None, self.scores.signatures[key]):
                    yield f"{_name(key)}|{signature} ({_shown_label(label)})"


def _name(key: str) -> str:
    """Returns the name of a metric; its key if the metric is no longer registered."""
    return METRICS[key].name if key in METRICS else key


def _digits(key: str) -> int:
    return METRICS[key].digits if key in METRICS else 2


def _directions(keys: Iterable[str]) -> str:
    known = [METRICS[key] for key in keys if key in METRICS]
    higher = [metric.name for metric in known if metric.higher_is_better]
    lower = [metric.name for metric in known if not metric.higher_is_better]
    if not higher or not lower:
        word = "Higher" if higher else "Lower"
        verb = "is" if len(known) == 1 else "are"
        return f"{word} {listed(higher or lower)} {verb} better." if known else ""
    return f"Higher {listed(higher)} {'are' if len(higher) > 1 else 'is'} better, and lower {listed(lower)}."


def _shown_label(label: str) -> str:
    return label if label.strip() else "(no label)"


def _rows_before(width: int, indent: str, before: Scores, scores: Scores) -> Iterator[str]:
    """Yields the scores before fine-tuning, and their differences from the scores now."""
    pairs = {key: (before.values.get(key), value) for key, value in scores.values.items()}
    yield _row(width, f"{indent}before", "", [_formatted(key, old) for key, (old, _) in pairs.items()])
    differences = [
        "-" if old is None or new is None else f"{new - old:+.{_digits(key)}f}"
        for key, (old, new) in pairs.items()
    ]
    yield _row(width, f"{indent}difference", "", differences)


def _score_row(width: int, label: str, scores: Scores, keys: Iterable[str]) -> str:
    values = [_formatted(key, scores.values.get(key)) for key in keys]
    return _row(width, label, str(scores.sentences), values)


def _formatted(key: str, value: float | None) -> str:
    return "-" if value is None else f"{value:.{_digits(key)}f}"


def _row(width: int, label: str, sentences: str, values: list[str]) -> str:
    if len(label) > width:
        label = label[: width - 3] + "..."
    return f"{label:<{width}}{sentences:>11}" + "".join(f"{value:>9}" for value in values)
