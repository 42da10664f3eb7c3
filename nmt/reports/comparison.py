"""The comparison of runs: the tests of their scores against those of the first run and of the best one."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path

from nmt.config import EvalConfig, EvaluationConfig
from nmt.data.corpora.held_out import HeldOut
from nmt.errors import UserError
from nmt.evaluation.metrics import Metric, metrics_for
from nmt.evaluation.model_data import read_data
from nmt.evaluation.scores import RESAMPLES, Comparison, compare
from nmt.evaluation.tables import metric_name
from nmt.reports.comparison_runs import ComparedRun, identity, ranking, read_runs
from nmt.reports.comparison_table import RunComparison, RunPair
from nmt.runtime.streams import progress

_ROUNDING = 1e-6


def compare_runs(
    folders: Iterable[str | Path],
    options: EvaluationConfig | None = None,
    *,
    split: str = "test",
    set_name: str | None = None,
    trials: int | None = None,
    outcomes: Mapping[str, str] | None = None,
    swept: Collection[str] = (),
) -> RunComparison:
    """Reads run folders and compares the runs with the first one, and with the best. Nothing is translated.

    The best run has the best criterion on the validation set. So n runs need at most 2n - 1 tests.

    Args:
        folders: the folders; a folder that is not that of a finished run is left out with a note.
        options: the options of metrics such as COMET.
        split: `test` or `valid`.
        set_name: one of several sets of the split.
        trials: as for `nmt.evaluation.scores.compare`.
        outcomes: run folder → why it has no scores. These runs are not left out.
        swept: full names of the options of a sweep, which come first.

    Raises:
        UserError: no folder is that of a finished run with scores of the split.
    """
    key = split if set_name is None else f"{split}.{set_name}"
    notes: list[str] = []
    runs = read_runs(list(map(str, folders)), split, set_name, outcomes or {}, swept, notes)
    if not any(run.scores for run in runs):
        other = "valid" if split == "test" else "test"
        raise UserError(
            f"runs: no finished run with scores of {key}. {' '.join(notes)} Give other folders, or "
            f"split={other}."
        )
    runs.sort(key=lambda run: run.scores is None)  # the first one has scores
    texts = _texts(runs, split, set_name, notes)
    tests = _Tests(texts, key, options, trials, notes)
    runs = [tests.checked(run, runs[0]) for run in runs]
    ranked = ranking(runs)
    first, best = runs[0], next((run for run in runs if run.name in ranked[:1]), None)
    compared: list[ComparedRun] = []
    with progress(total=len(runs), unit="runs", description="Comparing") as bar:
        for run in runs:
            comparison = tests.of(run, first)
            with_best = comparison if best is first else tests.of(run, best) if best else None
            intervals = tests.intervals(run, comparison or with_best)
            compared.append(replace(run, comparison=comparison, with_best=with_best, intervals=intervals))
            bar.update(1)
    return RunComparison(compared, key, notes, ranked, tests.pair(compared, ranked))


def _texts(
    runs: Sequence[ComparedRun], split: str, set_name: str | None, notes: list[str]
) -> dict[str, HeldOut]:
    """Returns the scored texts that are at hand, by `identity`; notes those that are not."""
    texts: dict[str, HeldOut] = {}
    problems: dict[str, str] = {}
    for run in runs:
        of_run = identity(run.facts)
        if of_run in texts or not run.scores:
            continue
        if "sets" in run.facts:
            problems[of_run] = f"{split} has several sets. set=NAME compares one of them."
            continue
        try:
            config = EvalConfig(model_dir=str(run.record.folder), split=split, set=set_name)
            (text,) = read_data(config, run.record).values()
        except UserError as error:
            problems.setdefault(of_run, f"{run.name}: {error}")
        else:
            texts[of_run] = text
    missing = [problem for of_run, problem in problems.items() if of_run not in texts]
    notes += [f"No intervals and no test of differences: {problem}" for problem in missing]
    return texts


class _Tests:
    """The intervals of runs and the tests of their differences, on the texts that are at hand.

    All runs share the metrics, so that one such as COMET, which remembers texts, scores each run once.
    """

    def __init__(
        self,
        texts: Mapping[str, HeldOut],
        key: str,
        options: EvaluationConfig | None,
        trials: int | None,
        notes: list[str],
    ) -> None:
        self._texts, self._key, self._trials, self._notes = texts, key, trials, notes
        self._testable: dict[str, dict[str, Metric]] = {}
        """Name of each run → the metrics that its translations can be tested in."""
        self._metric = cache(lambda target_lang, name: metrics_for(target_lang, options, [name])[name])

    def checked(self, run: ComparedRun, first: ComparedRun) -> ComparedRun:
        """Returns a run with `unlike`, and finds the metrics that it can be tested in."""
        if run.scores is None:
            return run
        text = self._texts.get(identity(run.facts))
        run = replace(run, unlike=_unlike(run, first, self._notes))
        if text is not None and run.hypotheses:
            self._testable[run.name] = {
                key: metric
                for key, metric in self._metrics(run, text).items()
                if metric.left_out([run.hypotheses, text.references]) is None
            }
        elif text is not None:
            self._notes.append(
                f"{run.name}: no intervals, {self._key}.hypotheses.txt is missing or has other lines."
            )
        return run

    def of(self, run: ComparedRun, other: ComparedRun) -> Comparison | None:
        """Returns the test of the differences from another run; None if the two can't be compared."""
        ours, theirs = (self._testable.get(one.name, {}) for one in (run, other))
        if run is other or not (ours and theirs) or identity(run.facts) != identity(other.facts):
            return None
        assert run.scores and other.scores
        signatures = run.scores.signatures, other.scores.signatures
        metrics = {
            key: metric
            for key, metric in ours.items()
            if key in theirs and signatures[0][key] == signatures[1][key]
        }
        if not metrics:
            return None
        text = self._texts[identity(run.facts)]
        texts = run.hypotheses, other.hypotheses, [text.references], metrics
        return compare(*texts, sources=text.sources, trials=self._trials)

    def intervals(self, run: ComparedRun, comparison: Comparison | None) -> dict[str, float]:
        """Returns the intervals of the scores; those of a test of the run are not computed again."""
        tested = comparison.differences if comparison else {}
        intervals = {key: difference.interval for key, difference in tested.items() if difference}
        for key, metric in self._testable.get(run.name, {}).items():
            if key not in intervals:
                text = self._texts[identity(run.facts)]
                sides = run.hypotheses, [text.references], text.sources
                intervals[key] = metric.interval(*sides, RESAMPLES)
        return intervals

    def pair(self, runs: Sequence[ComparedRun], ranked: Sequence[str]) -> RunPair | None:
        """Returns the first pair that can be compared: of two runs both, of more the best and the next best.

        Without a ranking, it is a run and the first one.
        """
        named = {run.name: run for run in runs}
        pairs = [(run, runs[0]) for run in runs[1:]]
        if ranked and len(runs) > 2:
            pairs = [(named[ranked[0]], named[name]) for name in ranked[1:]]
        for run, other in pairs:
            known = run.comparison if other is runs[0] else None
            if comparison := known or self.of(run, other):
                return RunPair(run, other, comparison, self._texts[identity(run.facts)])
        return None

    def _metrics(self, run: ComparedRun, text: HeldOut) -> dict[str, Metric]:
        """Returns the metrics of a run that give the recorded scores again."""
        assert run.scores
        metrics: dict[str, Metric] = {}
        for key, value in run.scores.values.items():
            try:
                metric = self._metric(text.target_lang, key)
            except UserError as error:
                self._notes.append(f"{run.name}: no interval of {metric_name(key)}: {error}")
                continue
            if value is None:
                continue
            computed = metric.number(run.hypotheses, [text.references], text.sources)
            if metric.signature(1) == run.scores.signatures.get(key) and abs(computed - value) < _ROUNDING:
                metrics[key] = metric
            else:
                self._notes.append(
                    f"{run.name}: no interval of {metric_name(key)}; the translations do not give the "
                    "recorded score."
                )
        return metrics


def _unlike(run: ComparedRun, first: ComparedRun, notes: list[str]) -> Sequence[str]:
    """Returns the metrics that can't be compared with those of the first run; notes the reason."""
    assert run.scores and first.scores
    ours, theirs = run.scores.signatures, first.scores.signatures
    if identity(run.facts) != identity(first.facts):
        notes.append(f"{run.name} †: scored on another text than {first.name}, so they can't be compared.")
        return list(run.scores.values)
    unlike = [key for key in ours if key in theirs and ours[key] != theirs[key]]
    for key in unlike:
        notes.append(
            f"{run.name} †: {metric_name(key)} can't be compared with that of {first.name}; the signatures "
            f"are {ours[key]} and {theirs[key]}."
        )
    return unlike
