"""The runs of a comparison: what their folders record, the options that differ, and the best of them."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from nmt.config import TrainConfig
from nmt.config.storage import flat_options
from nmt.data.corpora.text import read_lines
from nmt.errors import UserError
from nmt.evaluation.metrics import METRICS
from nmt.evaluation.scores import Comparison, Scores
from nmt.options.overrides import written
from nmt.reports.run import RunRecord
from nmt.reports.summary import verdict

COUNTS = {"minutes": "{:.1f}", "updates": "{:,}", "target_tokens": "{:,}", "parameters": "{:,}"}
"""Facts of the training that are columns of the table, each with its format."""
_MACHINE = ("processes", "device", "cores")
_OF_THE_FOLDER = frozenset({"run_dir", "name", "resume", "resume_from", "recipe_keeps"})


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
        with_best: with the best run; None for that, and if the two can't be compared.
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
    with_best: Comparison | None = None
    unlike: Collection[str] = ()

    def differs(self, key: str) -> bool:
        """Whether a score differs significantly from that of the first run."""
        difference = self.comparison and self.comparison.differences.get(key)
        return bool(difference and verdict(key, difference))

    def words(self) -> str:
        """Returns the options that differ, and the outcome if the run has no scores."""
        return " ".join([*self.options.values(), *([f"({self.outcome})"] if self.outcome else [])])

    def counts(self) -> dict[str, Any]:
        """Returns minutes, updates, target tokens and parameters; None of a run that has not ended."""
        return {key: self.record.training.get(key) for key in COUNTS}

    def machine(self) -> dict[str, Any]:
        """Returns processes, device and CPU cores, if they are recorded."""
        return {key: self.record.training[key] for key in _MACHINE if key in self.record.training}

    def began_with(self) -> str:
        """Returns the model or the checkpoint with which the run began; empty: new weights."""
        config = self.record.config
        if config.resume_from is not None:
            return f"its own update {config.resume_from}"
        return "" if config.start_from is None else f"the model {config.start_from}"

    def as_dict(self) -> dict[str, Any]:
        """Returns the run for the JSON."""
        return {
            "name": self.name,
            "run_dir": str(self.record.folder),
            "began_with": self.began_with() or None,
            "options": list(self.options.values()),
            "criterion": criterion_value(self.record),
            "validated_sentences": self.record.validated_sentences,
            "scores": self.scores and self.scores.as_dict(),
            "intervals": dict(self.intervals),
            "comparison": self.comparison and self.comparison.as_dict(),
            "comparison_with_best": self.with_best and self.with_best.as_dict(),
            "not_comparable": list(self.unlike),
            "training": self.counts() | self.machine(),
            "outcome": self.outcome or None,
        }


def read_runs(
    folders: Sequence[str],
    split: str,
    set_name: str | None,
    outcomes: Mapping[str, str],
    swept: Collection[str],
    notes: list[str],
) -> list[ComparedRun]:
    """Returns the runs of folders, with recorded scores and the options that differ; `swept` ones come first.

    A folder that is not that of a finished run is left out with a note, unless it has an outcome.
    """
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
    return [*_with_options([*runs.values()], swept)]


def differing(options: Sequence[Mapping[str, Any]]) -> list[str]:
    """Returns the names of flat options that differ, except those of the folder."""
    keys = dict.fromkeys(key for one in options for key in one if key not in _OF_THE_FOLDER)
    return [key for key in keys if any(one.get(key) != options[0].get(key) for one in options)]


def ranking(runs: Sequence[ComparedRun]) -> list[str]:
    """Returns the names of the runs from the best criterion on the validation set to the worst.

    None are returned if not all have the same criterion on the same text.
    """
    ended = [(run, value) for run in runs if (value := criterion_value(run.record)) is not None]
    criteria = {
        (one.config.training.criterion, one.config.training.criterion_set, identity(one.facts("valid")))
        for one in (run.record for run, _ in ended)
    }
    if len(criteria) != 1 or len(runs) < 2:
        return []
    sign = -1 if higher_is_better(ended[0][0].record.config.training.criterion) else 1
    return [run.name for run, _ in sorted(ended, key=lambda pair: sign * pair[1])]


def criterion_value(record: RunRecord) -> float | None:
    """Returns `training.criterion` of the final model on the validation set; None if it is not known."""
    training, key = record.training, record.config.training.criterion
    delivered = [one for one in training.get("candidates", ()) if one["name"] == training.get("delivered")]
    value = delivered[0].get(key) if delivered else None
    return value if isinstance(value, int | float) else None


def higher_is_better(criterion: str) -> bool:
    """Whether a higher value of `training.criterion` is better; the loss is not a metric."""
    return criterion in METRICS and METRICS[criterion].higher_is_better


def identity(facts: Mapping[str, Any]) -> str:
    """Returns a text that is equal for the same held-out text, wherever its files are."""

    def plain(value: Any) -> Any:
        if isinstance(value, Mapping):
            return {key: plain(item) for key, item in value.items() if key not in ("name", "corpus", "tag")}
        return [plain(item) for item in value] if isinstance(value, list) else value

    return json.dumps(plain(facts), sort_keys=True)


def _scored(run: ComparedRun, split: str, set_name: str | None) -> ComparedRun:
    """Returns a run with its recorded scores and translations.

    Raises:
        UserError: it has no such scores.
    """
    record = run.record
    scores, facts = record.results.get(split), record.facts(split)
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


def _with_options(runs: Sequence[ComparedRun], swept: Collection[str]) -> Iterator[ComparedRun]:
    """Yields the runs, each with the options that differ between them."""
    options = [flat_options(run.record.config) for run in runs]
    keys = sorted(differing(options), key=lambda key: key not in swept)
    for run, one in zip(runs, options, strict=True):
        yield replace(run, options={key: written(TrainConfig, key, one[key]) for key in keys if key in one})
