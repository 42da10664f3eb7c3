"""The comparison of runs: the options that differ, scores with intervals, and significant differences."""

from __future__ import annotations

import json
import os
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nmt.config import EvalConfig, EvaluationConfig, TrainConfig
from nmt.config.storage import flat_options
from nmt.data.corpora.held_out import HeldOut
from nmt.data.corpora.text import read_lines
from nmt.errors import UserError
from nmt.evaluation.metrics import METRICS, Metric, metrics_for
from nmt.evaluation.model_data import read_data
from nmt.evaluation.report import FEW, directions, test_in_words
from nmt.evaluation.scores import RESAMPLES, SIGNIFICANT, Comparison, Scores, compare
from nmt.evaluation.tables import Table, metric_name, rendered, shown_score
from nmt.options.overrides import written
from nmt.reports.run import RunRecord
from nmt.runtime.streams import progress, visible

_WIDTH = 100  # characters of a line of plain text
_UNCUT = 1000  # characters of a row, whose names are not cut
_ROUNDING = 1e-6
_OF_THE_FOLDER = frozenset({"run_dir", "name", "resume", "resume_from", "recipe_keeps"})
_COUNTS = {"minutes": "{:.1f}", "updates": "{:,}", "target_tokens": "{:,}", "parameters": "{:,}"}


@dataclass(frozen=True)
class ComparedRun:
    """A run of a comparison.

    Attributes:
        name: its folder, below the folder that all runs share.
        record: what its folder says.
        options: the options that differ between the runs: full name → `name=value`, as on a command line.
        scores: the recorded scores; None if the run has not ended.
        outcome: why it has no scores; empty if it has.
        facts: the recorded facts of the scored text.
        hypotheses: the translations; empty if they are missing or are not those of the scores.
        intervals: key of each metric → half the width of the 95% interval of its score, if it is known.
        comparison: with the first run; None for that, and if the two can't be compared.
        unlike: keys of the metrics whose scores can't be compared with those of the first run.
    """

    name: str
    record: RunRecord
    options: Mapping[str, str] = field(default_factory=dict)
    scores: Scores | None = None
    outcome: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict, repr=False)
    hypotheses: Sequence[str] = field(default=(), repr=False)
    intervals: Mapping[str, float] = field(default_factory=dict)
    comparison: Comparison | None = None
    unlike: Collection[str] = ()

    def differs(self, key: str) -> bool:
        """Whether a score differs significantly from that of the first run."""
        difference = self.comparison and self.comparison.differences.get(key)
        return bool(difference and difference.p_value < SIGNIFICANT)

    def words(self) -> str:
        """Returns the options that differ, and the outcome if the run has no scores."""
        return " ".join([*self.options.values(), *([f"({self.outcome})"] if self.outcome else [])])

    def counts(self) -> dict[str, Any]:
        """Returns minutes, updates, target tokens and parameters; None of a run that has not ended."""
        return {key: self.record.training.get(key) for key in _COUNTS}

    def as_dict(self) -> dict[str, Any]:
        """Returns the run for the JSON."""
        return {
            "name": self.name,
            "run_dir": str(self.record.folder),
            "options": list(self.options.values()),
            "scores": self.scores and self.scores.as_dict(),
            "intervals": dict(self.intervals),
            "comparison": self.comparison and self.comparison.as_dict(),
            "not_comparable": list(self.unlike),
            "training": self.counts(),
            "outcome": self.outcome or None,
        }


@dataclass(frozen=True)
class RunComparison:
    """Several runs, compared with the first one.

    Attributes:
        runs: in the given order.
        split: what was scored: `test`, `valid`, or one of their sets, such as `test.news`.
        notes: what the reader must know, such as runs on other test sets.
        best: name of the run with the best criterion on the validation set; None if that can't be said.
        text: the text that the first run was scored on; None if it is not at hand.
    """

    runs: Sequence[ComparedRun]
    split: str
    notes: Sequence[str]
    best: str | None = None
    text: HeldOut | None = field(default=None, repr=False)

    @property
    def title(self) -> str:
        """The first line."""
        return f"{len(self.runs)} run{'s' if len(self.runs) > 1 else ''}, scored on {self.split}"

    def keys(self) -> list[str]:
        """Returns the keys of all metrics."""
        return list(dict.fromkeys(key for run in self.runs if run.scores for key in run.scores.values))

    def table(self) -> Table:
        """Returns the table, whose last column has the options that differ."""
        header = ["run", *self._titles(), "options"]
        rows = [[run.name, *self._cells(run), run.words()] for run in self.runs]
        return Table(header, rows, [*self._explained(), *self.notes])

    def plain(self) -> str:
        """Returns the table as plain text, with the options that differ below the name of each run."""
        rows = [[run.name, *self._cells(run)] for run in self.runs]
        header, *lines_of_runs = Table(["run", *self._titles()], rows).lines(_UNCUT)
        lines = [visible(self.title), "", header]
        for run, line in zip(self.runs, lines_of_runs, strict=True):
            words = textwrap.wrap(visible(run.words()), _WIDTH, break_on_hyphens=False)
            lines += [line, *(f"  {part}" for part in words)]
        lines.append("")
        for note in [*self._explained(), *self.notes]:
            lines += textwrap.wrap(visible(note), _WIDTH, break_on_hyphens=False)
        return "\n".join(lines) + "\n"

    def rendered(self, path: str) -> str:
        """Returns the table in LaTeX if the path ends in `.tex`, else in Markdown."""
        return rendered(self.title, [self.table()], path)

    def as_dict(self) -> dict[str, Any]:
        """Returns the comparison for the JSON."""
        runs = [run.as_dict() for run in self.runs]
        notes = [*self._explained(), *self.notes]
        return {"title": self.title, "split": self.split, "best": self.best, "runs": runs, "notes": notes}

    def _titles(self) -> list[str]:
        return [*map(metric_name, self.keys()), *(key.replace("_", " ") for key in _COUNTS)]

    def _cells(self, run: ComparedRun) -> list[str]:
        cells = [_score_cell(run, key) for key in self.keys()]
        counts = run.counts()
        return cells + [
            "-" if counts[key] is None else form.format(counts[key]) for key, form in _COUNTS.items()
        ]

    def _explained(self) -> Iterator[str]:
        yield directions(self.keys())
        tested = [run for run in self.runs if run.comparison]
        if tested and (comparison := tested[0].comparison):
            words = test_in_words(comparison)
            yield f"±: 95% interval. *: differs from {self.runs[0].name}, p < {SIGNIFICANT} by {words}."
            if any(run.scores and run.scores.sentences < FEW for run in tested):
                yield f"With fewer than {FEW} sentences, intervals and p-values are not reliable."
        if self.best is not None:
            criterion = self.runs[0].record.config.training.criterion
            yield f"Best {metric_name(criterion)} on the validation set: {self.best}."


def compare_runs(
    folders: Iterable[str | Path],
    options: EvaluationConfig | None = None,
    *,
    split: str = "test",
    set_name: str | None = None,
    trials: int | None = None,
    outcomes: Mapping[str, str] | None = None,
) -> RunComparison:
    """Reads run folders and compares the runs with the first one. Nothing is translated.

    Args:
        folders: the folders; a folder that is not that of a finished run is left out with a note.
        options: the options of metrics such as COMET.
        split: `test` or `valid`.
        set_name: one of several sets of the split.
        trials: as for `nmt.evaluation.scores.compare`.
        outcomes: run folder → why it has no scores. These runs are not left out.

    Raises:
        UserError: no folder is that of a finished run with scores of the split.
    """
    key = split if set_name is None else f"{split}.{set_name}"
    notes: list[str] = []
    runs = [*_with_options(_read_runs(list(map(str, folders)), split, set_name, outcomes or {}, notes))]
    if not any(run.scores for run in runs):
        other = "valid" if split == "test" else "test"
        raise UserError(
            f"runs: no finished run with scores of {key}. {' '.join(notes)} Give other folders, or "
            f"split={other}."
        )
    runs.sort(key=lambda run: run.scores is None)  # the first one has scores
    texts = _texts(runs, split, set_name, notes)
    compared: list[ComparedRun] = []
    with progress(total=len(runs), unit="runs", description="Comparing") as bar:
        for run in runs:
            text = texts.get(_identity(run.facts)) if run.scores else None
            compared.append(_compared(run, compared[:1], text, key, options, trials, notes))
            bar.update(1)
    return RunComparison(compared, key, notes, _best(runs), texts.get(_identity(runs[0].facts)))


def criterion_value(record: RunRecord) -> float | None:
    """Returns `training.criterion` of the final model on the validation set; None if it is not known."""
    training, key = record.training, record.config.training.criterion
    delivered = [one for one in training.get("candidates", ()) if one["name"] == training.get("delivered")]
    value = delivered[0].get(key) if delivered else None
    return value if isinstance(value, int | float) else None


def higher_is_better(criterion: str) -> bool:
    """Whether a higher value of `training.criterion` is better; the loss is not a metric."""
    return criterion in METRICS and METRICS[criterion].higher_is_better


def _read_runs(
    folders: Sequence[str],
    split: str,
    set_name: str | None,
    outcomes: Mapping[str, str],
    notes: list[str],
) -> list[ComparedRun]:
    runs: dict[str, ComparedRun] = {}
    shared = os.path.commonpath([os.path.dirname(os.path.abspath(folder)) for folder in folders])
    for folder in folders:
        name = os.path.relpath(os.path.abspath(folder), shared)
        try:
            record = RunRecord.read(folder)
            outcome = outcomes.get(folder, "")
            if outcome or record.training:
                run = ComparedRun(name, record, outcome=outcome)
                runs.setdefault(os.path.realpath(folder), run if outcome else _scored(run, split, set_name))
            else:
                notes.append(f"{name}: left out, its training has not ended.")
        except UserError as error:
            if folder in outcomes:
                notes.append(f"{name}: {outcomes[folder]}")
            else:
                notes.append(f"{name}: left out, {str(error).removeprefix(f'{folder}: ')}")
    return list(runs.values())


def _scored(run: ComparedRun, split: str, set_name: str | None) -> ComparedRun:
    """Returns a run with its recorded scores and translations.

    Raises:
        UserError: it has no such scores.
    """
    record = run.record
    scores, facts = record.results.get(split), record.results.get("data", {}).get(split, {})
    try:
        if scores is not None and set_name is not None:
            scores, facts = scores.get("sets", {}).get(set_name), facts.get("sets", {}).get(set_name, {})
        if scores is None:
            raise UserError(f"{record.folder}: no scores of {split}{f'.{set_name}' if set_name else ''}.")
        plain = {key: value for key, value in scores.items() if key not in ("groups", "sets")}
        recorded = Scores.from_dict(plain)
    except (KeyError, TypeError, AttributeError) as error:
        raise UserError(f"{record.files.results}: is damaged. Copy the file again.") from error
    path = record.files.hypotheses(split if set_name is None else f"{split}.{set_name}")
    lines = list(read_lines(path)) if path.is_file() and not scores.get("sets") else []
    whole = len(lines) == recorded.sentences
    return replace(run, scores=recorded, facts=facts, hypotheses=lines if whole else [])


def _with_options(runs: Sequence[ComparedRun]) -> Iterator[ComparedRun]:
    """Yields the runs, each with the options that differ between them."""
    options = [flat_options(run.record.config) for run in runs]
    keys = [key for key in dict.fromkeys(key for one in options for key in one) if key not in _OF_THE_FOLDER]
    differing = [key for key in keys if any(one.get(key) != options[0].get(key) for one in options)]
    for run, one in zip(runs, options, strict=True):
        words = {key: written(TrainConfig, key, one[key]) for key in differing if key in one}
        yield replace(run, options=words)


def _identity(facts: Mapping[str, Any]) -> str:
    """Returns a text that is equal for the same held-out text, wherever its files are."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(item) for key, item in value.items() if key not in ("name", "corpus", "tag")}
        return [plain(item) for item in value] if isinstance(value, list) else value

    return json.dumps(plain(facts), sort_keys=True)


def _texts(
    runs: Sequence[ComparedRun], split: str, set_name: str | None, notes: list[str]
) -> dict[str, HeldOut]:
    """Returns the scored texts that are at hand, by `_identity`; notes those that are not."""
    texts: dict[str, HeldOut] = {}
    problems: dict[str, str] = {}
    for run in runs:
        identity = _identity(run.facts)
        if identity in texts or not run.scores:
            continue
        if "sets" in run.facts:
            problems[identity] = f"{split} has several sets. set=NAME compares one of them."
            continue
        try:
            config = EvalConfig(model_dir=str(run.record.folder), split=split, set=set_name)
            (text,) = read_data(config, run.record).values()
        except UserError as error:
            problems.setdefault(identity, f"{run.name}: {error}")
        else:
            texts[identity] = text
    missing = [problem for identity, problem in problems.items() if identity not in texts]
    notes += [f"No intervals and no test of differences: {problem}" for problem in missing]
    return texts


def _compared(
    run: ComparedRun,
    first: Sequence[ComparedRun],
    text: HeldOut | None,
    key: str,
    options: EvaluationConfig | None,
    trials: int | None,
    notes: list[str],
) -> ComparedRun:
    """Returns a run with its intervals and, if it is not the first, the test of its differences."""
    if run.scores is None:
        return run
    for other in first:
        run = replace(run, unlike=_unlike(run, other, notes))
    if text is None:
        return run
    if not run.hypotheses:
        notes.append(f"{run.name}: no intervals, {key}.hypotheses.txt is missing or has other lines.")
        return run
    metrics, sides = _metrics(run, text, options, notes), ([text.references], text.sources)
    comparison, tested = None, {}
    for other in first:
        tested = {key: metrics[key] for key in metrics if key in other.intervals and key not in run.unlike}
        texts = run.hypotheses, other.hypotheses, [text.references], tested
        comparison = compare(*texts, sources=text.sources, trials=trials) if tested else None
    intervals: dict[str, float] = {}
    for name, metric in metrics.items():
        if comparison and name in tested:
            difference = comparison.differences[name]
            intervals |= {name: difference.interval} if difference else {}
        elif metric.left_out([run.hypotheses, text.references]) is None:
            intervals[name] = metric.interval(run.hypotheses, *sides, RESAMPLES)
    return replace(run, intervals=intervals, comparison=comparison)


def _unlike(run: ComparedRun, first: ComparedRun, notes: list[str]) -> Sequence[str]:
    """Returns the metrics that can't be compared with those of the first run; notes the reason."""
    assert run.scores and first.scores
    ours, theirs = run.scores.signatures, first.scores.signatures
    if _identity(run.facts) != _identity(first.facts):
        notes.append(f"{run.name} †: scored on another text than {first.name}, so they can't be compared.")
        return list(run.scores.values)
    unlike = [key for key in ours if key in theirs and ours[key] != theirs[key]]
    for key in unlike:
        notes.append(
            f"{run.name} †: {metric_name(key)} can't be compared with that of {first.name}; the signatures "
            f"are {ours[key]} and {theirs[key]}."
        )
    return unlike


def _metrics(
    run: ComparedRun, text: HeldOut, options: EvaluationConfig | None, notes: list[str]
) -> dict[str, Metric]:
    """Returns the metrics of a run that give the recorded scores again."""
    assert run.scores
    metrics: dict[str, Metric] = {}
    for key, value in run.scores.values.items():
        try:
            metric = metrics_for(text.target_lang, options, [key])[key]
        except UserError as error:
            notes.append(f"{run.name}: no interval of {metric_name(key)}: {error}")
            continue
        if value is None:
            continue
        computed = metric.number(run.hypotheses, [text.references], text.sources)
        if metric.signature(1) == run.scores.signatures.get(key) and abs(computed - value) < _ROUNDING:
            metrics[key] = metric
        else:
            name = metric_name(key)
            notes.append(
                f"{run.name}: no interval of {name}; the translations do not give the recorded score."
            )
    return metrics


def _score_cell(run: ComparedRun, key: str) -> str:
    cell = shown_score(key, run.scores.values.get(key) if run.scores else None)
    if key in run.intervals:
        cell += f" ±{shown_score(key, run.intervals[key])}"
    return f"{cell} {'†' if key in run.unlike else '*'}" if key in run.unlike or run.differs(key) else cell


def _best(runs: Sequence[ComparedRun]) -> str | None:
    """Returns the name of the run with the best criterion, if all have the same one on the same text."""
    ended = [(run, value) for run in runs if (value := criterion_value(run.record)) is not None]
    criteria = {
        (one.config.training.criterion, one.config.training.criterion_set, _identity(_valid_facts(one)))
        for one in (run.record for run, _ in ended)
    }
    if len(criteria) != 1 or len(runs) < 2:
        return None
    sign = 1 if higher_is_better(ended[0][0].record.config.training.criterion) else -1
    return max(ended, key=lambda pair: sign * pair[1])[0].name


def _valid_facts(record: RunRecord) -> Mapping[str, Any]:
    facts: Mapping[str, Any] = record.results.get("data", {}).get("valid", {})
    return facts
