"""A comparison of runs in words and tables: which one to choose, scores, options and differences."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nmt.data.corpora.held_out import HeldOut
from nmt.evaluation.metrics import METRICS
from nmt.evaluation.report import FEW, directions, test_in_words
from nmt.evaluation.scores import SIGNIFICANT, Comparison, listed
from nmt.evaluation.tables import Table, metric_digits, metric_name, rendered, shown_score
from nmt.reports.comparison_runs import COUNTS, ComparedRun, criterion_value
from nmt.reports.summary import verdict
from nmt.runtime.streams import visible

_WIDTH = 100  # characters of a line of plain text
_UNCUT = 1000  # characters of a row, whose names are not cut
OPTIONS = "Options that differ"
"""Name of the table of options if they are many."""
_FEW = 3  # options that are columns of the table of scores
_VALUE = 16  # characters of a value in such a column


@dataclass(frozen=True)
class RunPair:
    """Two runs to compare sentence by sentence: of two the second and the first, of more the best two.

    Attributes:
        run: the run whose faults are looked for.
        other: the run that it is compared with.
        comparison: the test of their difference.
        text: the text that both were scored on.
    """

    run: ComparedRun
    other: ComparedRun
    comparison: Comparison
    text: HeldOut


@dataclass(frozen=True)
class RunComparison:
    """Several runs, compared with the first one and with the best one.

    Attributes:
        runs: in the given order.
        split: what was scored: `test`, `valid`, or one of their sets, such as `test.news`.
        notes: what the reader must know, such as runs on other test sets.
        ranking: names of the runs, the best on the validation set first; empty if that is not known.
        pair: the runs to compare sentence by sentence; None if no two can be compared.
    """

    runs: Sequence[ComparedRun]
    split: str
    notes: Sequence[str]
    ranking: Sequence[str] = ()
    pair: RunPair | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        """The first line."""
        return f"{len(self.runs)} run{'s' if len(self.runs) > 1 else ''}, scored on {self.split}"

    @property
    def languages(self) -> str:
        """Source and target language of the first run."""
        data = self.runs[0].record.config.data
        return f"{data.source_lang}–{data.target_lang}"

    @property
    def best(self) -> str | None:
        """Name of the run with the best criterion on the validation set; None if that can't be said."""
        return self.ranking[0] if self.ranking else None

    @property
    def criterion(self) -> str:
        """Key of the criterion of the first run."""
        return self.runs[0].record.config.training.criterion

    def keys(self) -> list[str]:
        """Returns the keys of all metrics."""
        return list(dict.fromkeys(key for run in self.runs if run.scores for key in run.scores.values))

    def tested(self, with_best: bool) -> dict[str, Comparison]:
        """Returns the tests of runs by their names, with the best run or else with the first."""
        tests = {run.name: run.with_best if with_best else run.comparison for run in self.runs}
        return {name: test for name, test in tests.items() if test}

    def groups(self, with_best: bool) -> dict[str, list[str]]:
        """Returns the runs that are significantly `better` or `worse` than the best or first run, or neither.

        The metric is the criterion, or the first one if the criterion is not a metric of the runs.
        """
        groups: dict[str, list[str]] = {"better": [], "worse": [], "": []}
        for name, test in self.tested(with_best).items():
            if difference := test.differences.get(self._key):
                groups[verdict(self._key, difference)].append(name)
        return groups

    def verdict(self) -> list[str]:
        """Returns in sentences which run to choose, and how sure that is."""
        return [*self._verdict()]

    def validated(self) -> str:
        """Returns which sentences validations during the training used; empty if they used all."""
        counts = {run.name: run.record.validated_sentences for run in self.runs if run.scores}
        if not any(counts.values()):
            return ""
        words = {
            name: f"the first {count:,} sentences" if count else "all sentences"
            for name, count in counts.items()
        }
        return f"validations used {self._by_reason(words)}; final scores use all"

    def tables(self) -> dict[str, Table]:
        """Returns the table of scores, that of the options if many differ, and those of the differences."""
        names = [*dict.fromkeys(key for run in self.runs for key in run.options)]
        values = {
            run.name: [run.options.get(key, "=-").partition("=")[2] for key in names] for run in self.runs
        }
        few = len(names) <= _FEW and all(len(cell) <= _VALUE for row in values.values() for cell in row)
        short, shown = short_names(names) if few else [], values if few else {}
        outcomes = ["outcome"] if any(run.outcome for run in self.runs) else []
        header = ["run", *short, *self._titles(), *outcomes]
        rows = [
            [run.name, *shown.get(run.name, ()), *self._cells(run), *(run.outcome for _ in outcomes)]
            for run in self.runs
        ]
        full = [f"{one}: {key}." for one, key in zip(short, names, strict=False) if one != key]
        tables = {"All runs": Table(header, rows, [*full, *self._explained(), *self.notes])}
        if not few:
            grid = [["option", *names], *([name, *cells] for name, cells in values.items())]
            if len(names) > len(self.runs):
                grid = [*map(list, zip(*grid, strict=True))]
            tables[OPTIONS] = Table(grid[0], grid[1:])
        for words, name, with_best in (("best", self.best, True), ("first", self.runs[0].name, False)):
            tests = self.tested(with_best)
            if tests if with_best else name != self.best and len(tests) > 1:
                tables[f"Compared with {name}, the {words} run"] = _differences(f"minus {name}", tests)
        return tables

    def plain(self) -> str:
        """Returns the comparison as plain text, with the options that differ below the name of each run."""
        rows = [[run.name, *self._cells(run)] for run in self.runs]
        header, *lines_of_runs = Table(["run", *self._titles()], rows).lines(_UNCUT)
        lines = [visible(self.title), "", header]
        for run, line in zip(self.runs, lines_of_runs, strict=True):
            words = textwrap.wrap(visible(run.words()), _WIDTH, break_on_hyphens=False)
            lines += [line, *(f"  {part}" for part in words)]
        for paragraphs in ([*self._explained(), *self.notes], self.verdict()):
            lines.append("")
            for note in paragraphs:
                lines += textwrap.wrap(visible(note), _WIDTH, break_on_hyphens=False)
        return "\n".join(lines).rstrip("\n") + "\n"

    def rendered(self, path: str) -> str:
        """Returns the tables in LaTeX if the path ends in `.tex`, else in Markdown."""
        first, *others = self.tables().values()
        first = Table(first.header, first.rows, [*first.notes, *self.verdict()])
        return rendered(self.title, [first, *others], path)

    def as_dict(self) -> dict[str, Any]:
        """Returns the comparison for the JSON."""
        return {
            "title": self.title,
            "languages": self.languages,
            "split": self.split,
            "text": dict(self.runs[0].facts),
            "best": self.best,
            "as_good": self.groups(with_best=True)[""],
            "verdict": self.verdict(),
            "runs": [run.as_dict() for run in self.runs],
            "notes": [*self._explained(), *self.notes],
        }

    @property
    def _key(self) -> str:
        keys = self.keys()
        return self.criterion if self.criterion in keys or not keys else keys[0]

    def _titles(self) -> list[str]:
        return [*map(metric_name, self.keys()), *(key.replace("_", " ") for key in COUNTS)]

    def _cells(self, run: ComparedRun) -> list[str]:
        cells = [_score_cell(run, key) for key in self.keys()]
        counts = run.counts()
        return cells + [
            "-" if counts[key] is None else form.format(counts[key]) for key, form in COUNTS.items()
        ]

    def _verdict(self) -> Iterator[str]:
        best, first, name = self.best, self.runs[0].name, metric_name(self._key)
        groups, tests, on = self.groups(with_best=True), self.tested(with_best=True), f"On {self.split}, "
        if best is not None:
            values = [f"{run}, {self._criterion(run)}" for run in self.ranking[:2]]
            yield f"Best {metric_name(self.criterion)} on the validation set: {'; then '.join(values)}."
            if groups["worse"]:
                yield f"{on}{best} is significantly better in {name} than {listed(groups['worse'])}."
            if equal := groups[""]:
                words = listed([f"{run} ({self._doubt(tests[run])})" for run in equal])
                choice = "they are" if len(equal) > 1 else "it is"
                yield (
                    f"{on}{best} is not significantly better in {name} than {words}: by {name}, {choice} as "
                    "good a choice."
                )
                yield from self._smallest([best, *equal])
            if groups["better"]:
                yield f"{on}{best} is significantly worse in {name} than {listed(groups['better'])}."
        elif len(self.runs) > 1:
            yield "The best run is not known: the runs have other criteria or other validation sets."
        for word, runs in self.groups(with_best=False).items() if best != first else ():
            if others := [run for run in runs if run != best]:
                start = f"Significantly {word} than" if word else "Not significantly different from"
                yield f"{start} the first run, {first}, in {name}: {listed(others)}."
        if self.split.partition(".")[0] == "valid":
            yield (
                "The validation set also chose the models, so these scores are optimistic. Report the score "
                "of the chosen run on a test set, with split=test."
            )

    def _doubt(self, test: Comparison) -> str:
        """Returns the p-value of a test, and the other metrics with a significant difference."""
        words = [f"p-value {test.shown_p_value(self._key)}"]
        for key, difference in test.differences.items():
            if key != self._key and difference and (word := verdict(key, difference)):
                words.append(f"{word} in {metric_name(key)}")
        return ", ".join(words)

    def _criterion(self, name: str) -> str:
        (value,) = (criterion_value(run.record) for run in self.runs if run.name == name)
        return f"{value:.4f}" if self.criterion == "loss" else shown_score(self.criterion, value)

    def _smallest(self, names: Sequence[str]) -> Iterator[str]:
        """Yields which of the runs have the smallest model, if they differ."""
        sizes = {run.name: run.counts()["parameters"] for run in self.runs if run.name in names}
        if None not in sizes.values() and len(set(sizes.values())) > 1:
            least = min(sizes.values())
            smallest = [name for name, size in sizes.items() if size == least]
            yield f"Of these, {listed(smallest)} has the fewest parameters: {least:,}."

    def _explained(self) -> Iterator[str]:
        yield directions(self.keys())
        tested = [run for run in self.runs if run.comparison]
        if tested and (comparison := tested[0].comparison):
            words = test_in_words(comparison)
            yield f"±: 95% interval. *: differs from {self.runs[0].name}, p < {SIGNIFICANT} by {words}."
            yield (
                "The test compares two runs on the same sentences, so it can find a difference where the "
                "intervals overlap."
            )
            if any(run.scores and run.scores.sentences < FEW for run in tested):
                yield f"With fewer than {FEW} sentences, intervals and p-values are not reliable."
        for key in self.keys():
            limit = METRICS[key].limit if key in METRICS else ""
            reasons = {
                run.name: (limit or "it is not a number")
                if key in run.scores.values
                else "it was not computed"
                for run in self.runs
                if run.scores and run.scores.values.get(key) is None
            }
            if reasons:
                yield f"{metric_name(key)} -: {self._by_reason(reasons)}."
        machines = {
            run.name: f"{machine['processes']} process{'es' if machine['processes'] > 1 else ''} on "
            f"{machine['device']} with {machine['cores']} CPU cores"
            for run in self.runs
            if len(machine := run.machine()) == 3
        }
        if machines:
            yield f"minutes: {self._by_reason(machines)}."

    def _by_reason(self, words: Mapping[str, str]) -> str:
        """Joins words by the names of runs, each with the runs that have them, unless all have the same."""
        groups: dict[str, list[str]] = {}
        for name, text in words.items():
            groups.setdefault(text, []).append(name)
        everywhere = len(groups) == 1 and len(words) == sum(run.scores is not None for run in self.runs)
        return "; ".join(
            text if everywhere else f"{text} ({listed(names)})" for text, names in groups.items()
        )


def short_names(names: Sequence[str]) -> list[str]:
    """Returns the last part of each full name of an option, with parts before it where that is ambiguous."""
    short = []
    for name in names:
        parts = name.split(".")
        ends = [".".join(parts[place:]) for place in reversed(range(len(parts)))]
        unique = (end for end in ends if sum(f".{other}".endswith(f".{end}") for other in names) == 1)
        short.append(next(unique, name))
    return short


def _differences(title: str, tests: Mapping[str, Comparison]) -> Table:
    """Returns the differences of runs from another run, with their p-values."""
    keys = dict.fromkeys(key for test in tests.values() for key in test.differences)
    header, rows = [title], []
    for key in keys:
        header += [metric_name(key), f"p-value of {metric_name(key)}"]
    for name, test in tests.items():
        cells = [name]
        for key in keys:
            difference = test.differences.get(key)
            delta = f"{difference.delta:+.{metric_digits(key)}f}" if difference else "-"
            cells += [delta, test.shown_p_value(key)]
        rows.append(cells)
    return Table(header, rows)


def _score_cell(run: ComparedRun, key: str) -> str:
    cell = shown_score(key, run.scores.values.get(key) if run.scores else None)
    if key in run.intervals:
        cell += f" ±{shown_score(key, run.intervals[key])}"
    return f"{cell} {'†' if key in run.unlike else '*'}" if key in run.unlike or run.differs(key) else cell
