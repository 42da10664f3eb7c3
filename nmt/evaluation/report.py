"""The report of an evaluation, as a table and as JSON."""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nmt.evaluation.analysis.result import Analysis
from nmt.evaluation.analysis.shown import tables_of
from nmt.evaluation.metrics import METRICS
from nmt.evaluation.scores import Comparison, Scores, listed, mean_of_sets
from nmt.evaluation.systems import SYSTEMS
from nmt.evaluation.tables import WIDTH, Table, metric_digits, metric_name, rendered, shown_score
from nmt.runtime.streams import visible

FEW = 100
"""Number of sentences below which the table warns about the p-value: such a small sample is not reliable."""


@dataclass(frozen=True)
class Report:
    """The results of one evaluation.

    Attributes:
        title: the scored texts or model, in one line.
        scores: scores of all sentences together; with several sets, the means over the sets.
        groups: label → scores of its sentences.
        comparison: the difference from the baseline and its significance.
        details: further entries of the JSON, such as the model, the data and the decoding options.
        hypotheses: the translations that were scored; not part of the JSON.
        before: the report of the model before fine-tuning, on the same text; not part of the JSON.
        sets: name → report of each set; empty if there is one set without a name.
        analysis: the scores of bins and the signs of faults, if they were asked for.
        systems: the names of the hypotheses and of the baseline on a page.
        heading: the title of a page; empty: `title`.
    """

    title: str
    scores: Scores
    groups: Mapping[str, Scores] = field(default_factory=dict)
    comparison: Comparison | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    hypotheses: Sequence[str] = field(default=(), repr=False)
    before: Report | None = field(default=None, repr=False)
    sets: Mapping[str, Report] = field(default_factory=dict, repr=False)
    analysis: Analysis | None = field(default=None, repr=False)
    systems: Sequence[str] = SYSTEMS
    heading: str = ""

    @classmethod
    def of_sets(cls, title: str, sets: Mapping[str, Report], **fields: Any) -> Report:
        """Creates the report of several sets, or returns that of a single set, whose name is empty."""
        if "" in sets:
            return replace(sets[""], title=title, **fields)
        return cls(title, mean_of_sets([report.scores for report in sets.values()]), sets=sets, **fields)

    def results(self) -> dict[str, Any]:
        """Returns the scores in the format of `results.json`: those of all sentences, groups and sets."""
        results = self.scores.as_dict()
        if self.groups:
            results["groups"] = {label: scores.as_dict() for label, scores in self.groups.items()}
        if self.sets:
            results["sets"] = {
                name: {**part.results(), **part._further()} for name, part in self.sets.items()
            }
        return results

    @classmethod
    def from_results(
        cls, title: str, results: Mapping[str, Any], before: Mapping[str, Any] | None = None
    ) -> Report:
        """Reverses `results`. `before` has the results of the model before fine-tuning.

        Raises:
            AttributeError, KeyError, TypeError: a part is missing or has the wrong type.
        """
        old = (before or {}).get("sets", {})
        return cls(
            title,
            Scores.from_dict({key: part for key, part in results.items() if key not in ("groups", "sets")}),
            {label: Scores.from_dict(group) for label, group in results.get("groups", {}).items()},
            before=None if before is None else cls.from_results(title, before),
            sets={
                name: cls.from_results(name, part, old.get(name))
                for name, part in results.get("sets", {}).items()
            },
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns the results with the title, and the comparison with a baseline and details if any."""
        report = {"title": self.title, **self.results()}
        if self.comparison:
            report |= {"baseline": self.comparison.as_dict(), "systems": [*self.systems]}
        return {**report, **self._further()}

    def _further(self) -> dict[str, Any]:
        """Returns the entries of the JSON that are not scores."""
        return {**self.details, **({"analysis": self.analysis.as_dict()} if self.analysis else {})}

    def table(self) -> str:
        """Returns the report as lines of at most 80 characters; titles and signatures may be longer."""
        scores, *others = self._tables()
        explained = textwrap.wrap(self._explanation(), WIDTH)
        lines = [visible(self.title), "", *scores.lines(), "", *explained, *self._signature_lines()]
        for table in others:
            notes = [line for note in table.notes for line in textwrap.wrap(note, WIDTH)]
            lines += ["", *table.lines(), *notes]
        return "\n".join(lines) + "\n"

    def rendered(self, path: str) -> str:
        """Returns the report in LaTeX if the path ends in `.tex`, else in Markdown."""
        return rendered(self.title, self._tables(), path)

    def scores_table(self, systems: Sequence[str] = SYSTEMS) -> Table:
        """Returns the scores of sentences, sets and groups; explanation and signatures are notes."""
        notes = [*filter(None, [self._explanation()]), *self._signature_lines()]
        header = ["", "sentences", *map(metric_name, self.scores.values)]
        return Table(header, [*self._rows(systems)], notes)

    def _tables(self) -> Iterator[Table]:
        """Yields the table of the scores, then those of the analysis of each set."""
        yield self.scores_table()
        for name, part in (self.sets or {"": self}).items():
            for table in tables_of(part.analysis, list(part.scores.values)) if part.analysis else ():
                first, *numbers = table.header
                yield replace(table, header=[f"{name}: {first}" if name else first, *numbers])

    def _rows(self, systems: Sequence[str]) -> Iterator[list[str]]:
        whole = "mean" if self.sets else "all" if self.groups else systems[0]
        parts = list(self.sets.items())
        if len(parts) != 1:
            parts.append((whole, self))
        for label, part in parts:
            yield from part._score_rows(label, list(self.scores.values))
        if self.comparison:
            yield [systems[1], str(self.scores.sentences), *self._differences("baseline", "{:.{}f}")]
            yield ["  95% interval", "", *self._differences("baseline_interval", "±{:.{}f}")]
            yield ["difference", "", *self._differences("delta", "{:+.{}f}")]
            yield ["  p-value", "", *map(self.comparison.shown_p_value, self.scores.values)]

    def _score_rows(self, name: str, keys: Sequence[str]) -> Iterator[list[str]]:
        """Yields the scores of all sentences and of the groups, each with those before fine-tuning."""
        yield _score_row(name, self.scores, keys)
        if self.before:
            yield from _rows_before("  ", self.before.scores, self.scores)
        if self.comparison:
            yield ["  95% interval", "", *self._differences("interval", "±{:.{}f}")]
        elif self.analysis:
            intervals = {key: self.analysis.intervals.get(key) for key in keys}
            shown = [f"±{shown_score(key, value)}".replace("±-", "-") for key, value in intervals.items()]
            yield ["  95% interval", "", *shown]
        for label, scores in self.groups.items():
            yield _score_row(f"  {_shown_label(label)}", scores, keys)
            if self.before and label in self.before.groups:
                yield from _rows_before("    ", self.before.groups[label], scores)

    def _differences(self, attribute: str, pattern: str) -> list[str]:
        assert self.comparison is not None
        differences = {key: self.comparison.differences.get(key) for key in self.scores.values}
        return [
            "-" if difference is None else pattern.format(getattr(difference, attribute), metric_digits(key))
            for key, difference in differences.items()
        ]

    def _explanation(self) -> str:
        notes = directions(self.scores.values)
        if self.before:
            notes += " before: the model in start_from."
        for key, value in self.scores.values.items():
            if value is None and key in METRICS and METRICS[key].limit:
                notes += f" {metric_name(key)} is omitted: {METRICS[key].limit}."
        if self.comparison:
            notes += (
                " The p-value is the probability of such a difference between two equally good systems,"
                f" by {test_in_words(self.comparison)}."
            )
            if self.scores.sentences < FEW:
                notes += f" With fewer than {FEW} sentences it is not reliable."
        return notes.strip()

    def _signature_lines(self) -> Iterator[str]:
        for key in self.scores.values:
            signatures = list(self._signatures(key))
            if len({signature for signature, _ in signatures}) == 1:
                signatures = [(signatures[0][0], "")]
            for signature, label in signatures:
                yield f"{metric_name(key)}|{signature}{label and f' ({label})'}"

    def _signatures(self, key: str) -> Iterator[tuple[str, str]]:
        """Yields the signatures of a metric, each with the set or group, such as a language, that has it."""
        for name, part in (self.sets or {"": self}).items():
            yield (whole := part.scores.signatures[key]), name
            for label, scores in part.groups.items():
                if (signature := scores.signatures.get(key)) not in (None, whole):
                    yield signature, ", ".join(filter(None, (name, _shown_label(label))))


def test_in_words(comparison: Comparison) -> str:
    """Returns the test of a comparison, with its number of resamples or trials and its seed."""
    if comparison.trials is not None:
        return f"approximate randomisation ({comparison.trials} trials, seed {comparison.seed})"
    return f"paired bootstrap resampling ({comparison.resamples} resamples, seed {comparison.seed})"


def directions(keys: Iterable[str]) -> str:
    """Returns a sentence that says in which metrics higher scores are better, and in which lower ones."""
    known = [METRICS[key] for key in keys if key in METRICS]
    higher = [metric.name for metric in known if metric.higher_is_better]
    lower = [metric.name for metric in known if not metric.higher_is_better]
    if not higher or not lower:
        word = "Higher" if higher else "Lower"
        verb = "is" if len(known) == 1 else "are"
        return f"{word} {listed(higher or lower)} {verb} better." if known else ""
    return f"Higher {listed(higher)} {'are' if len(higher) > 1 else 'is'} better, and lower {listed(lower)}."


def _shown_label(label: str) -> str:
    return visible(label) if label.strip() else "(no label)"


def _rows_before(indent: str, before: Scores, scores: Scores) -> Iterator[list[str]]:
    """Yields the scores before fine-tuning, and their differences from the scores now."""
    pairs = {key: (before.values.get(key), value) for key, value in scores.values.items()}
    yield [f"{indent}before", "", *(shown_score(key, old) for key, (old, _) in pairs.items())]
    differences = [
        "-" if old is None or new is None else f"{new - old:+.{metric_digits(key)}f}"
        for key, (old, new) in pairs.items()
    ]
    yield [f"{indent}difference", "", *differences]


def _score_row(label: str, scores: Scores, keys: Iterable[str]) -> list[str]:
    return [label, str(scores.sentences), *(shown_score(key, scores.values.get(key)) for key in keys)]
