"""Selection of the final model: scores each candidate on the validation set and takes the best."""

from __future__ import annotations

import math
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from torch import Tensor

from nmt.bundle import load_weights
from nmt.config import Average, AveragingConfig, TrainConfig, TrainingConfig
from nmt.errors import UserError
from nmt.model import Seq2Seq
from nmt.runtime import log, progress
from nmt.training.criterion import Criterion, criterion_for
from nmt.training.state.averaging import Candidate, average, candidates
from nmt.training.state.checkpoint import CheckpointFolder, DamagedCheckpoint
from nmt.training.state.progress import Progress, Saved
from nmt.training.update.ema import trained_weights
from nmt.training.validation import Validator

_LONG = 60.0  # seconds; a longer scoring is announced in the log


@dataclass(frozen=True)
class ScoredCandidate:
    """A candidate and its figures on the whole validation set.

    Attributes:
        candidate: the candidate.
        criterion: by which candidates are compared.
        loss: label-smoothed cross-entropy, the mean a target token.
        score: of its translations, in the metric of the criterion; None without a metric.
        hypotheses: its translations; None with `training.criterion=loss`, which needs none.
    """

    candidate: Candidate
    criterion: Criterion
    loss: float
    score: float | None = None
    hypotheses: Sequence[str] | None = None

    @property
    def quality(self) -> float:
        """The value of the criterion as a quality: higher is better."""
        return self.criterion.quality(self.score if self.criterion.metric else self.loss)

    def as_dict(self) -> dict[str, Any]:
        """Returns the figures for `results.json`."""
        loss = self.loss if math.isfinite(self.loss) else None
        values = {"name": self.candidate.name, "updates": list(self.candidate.updates), "loss": loss}
        return {**values, self.criterion.key: self.score} if self.criterion.metric else values


@dataclass(frozen=True)
class Selection:
    """The final model among its candidates.

    Attributes:
        scored: all candidates; of equals, the earlier wins.
        best: the candidate that becomes the final model.
        weights: the weights of `best`.
        seconds: the time that scoring took.
    """

    scored: list[ScoredCandidate]
    best: ScoredCandidate
    weights: dict[str, Tensor]
    seconds: float


def final_candidates(config: TrainConfig, checkpoints: CheckpointFolder, run: Progress) -> list[Candidate]:
    """Returns the candidates for the final model of a run.

    They use the scheduled checkpoints, those of the best validations, and the last one of the run. A
    checkpoint that was removed or can't be read is left out, with a warning.

    Raises:
        UserError: no checkpoint can be read.
    """
    options = config.training
    end = Saved(run.update, run.quality_now())
    ema = options.ema > 0.0

    def found(scheduled: Sequence[Saved], extras: Sequence[Saved]) -> list[Candidate]:
        return candidates([*scheduled, end], options.averaging, extras, ema=ema)

    scheduled, extras = (
        [one for one in some if one.update != end.update] for some in _known_checkpoints(run)
    )
    wanted = _updates(found(scheduled, extras))
    present = set(checkpoints.updates())
    if gone := sorted(wanted - present):
        log.warning(
            "%s: the final model is chosen without the checkpoints of updates %s, which were removed "
            "(training.keep_checkpoints retains more)",
            *(_averaging_options(options.averaging), _listed(gone)),
        )
    while True:
        scheduled, extras = ([one for one in some if one.update in present] for some in (scheduled, extras))
        if end.update not in present:
            if not scheduled and not extras:
                break
            end = (scheduled or extras).pop()
        possible = found(scheduled, extras)
        damaged = {update for update in _updates(possible) if not _readable(checkpoints, update)}
        if not damaged:
            _warn_of_few(options, possible)
            return [one for one in possible if not one.without_ema or _loadable(checkpoints, end.update)]
        present -= damaged
    raise UserError(f"{checkpoints.folder}: no checkpoint can be read. Remove the run folder to train again.")


def _warn_of_few(options: TrainingConfig, possible: Sequence[Candidate]) -> None:
    """Warns if fewer checkpoints are averaged than `training.averaging` names."""
    wanted = options.averaging.count
    if options.averaging.kind in (Average.last, Average.best) and len(possible[0].updates) < wanted:
        log.warning(
            "training.averaging.count=%d: the run has only %d of them (training.checkpoint_every=%d)",
            *(wanted, len(possible[0].updates), options.checkpoint_every),
        )


def select_best(
    config: TrainConfig,
    possible: Sequence[Candidate],
    checkpoints: CheckpointFolder,
    model: Seq2Seq,
    validator: Validator,
) -> Selection:
    """Validates every candidate and loads the weights of the best into `model`; of equals, the first wins.

    Args:
        config: the options of the run.
        possible: the candidates.
        checkpoints: the checkpoints of the run.
        model: the weights of each candidate are loaded into it in turn.
        validator: of that model, on the whole validation set.

    Raises:
        UserError: a checkpoint can no longer be read, or a batch does not fit into memory.
    """
    criterion = criterion_for(config.training.criterion)
    started = time.perf_counter()
    scored: list[ScoredCandidate] = []
    words = f"scoring {len(possible)} candidates" if len(possible) > 1 else "translating valid"
    with progress(total=len(possible) * validator.num_sentences, unit="sentences", description=words) as bar:
        for candidate in possible:
            load_weights(model, weights_of(candidate, checkpoints), checkpoints.folder)
            loss = validator.losses()[0]
            if criterion.metric:
                hypotheses = validator.hypotheses(bar.update)
                score = validator.score(criterion.metric, hypotheses)
                scored.append(ScoredCandidate(candidate, criterion, loss, score, hypotheses))
            else:
                scored.append(ScoredCandidate(candidate, criterion, loss))
                bar.update(validator.num_sentences)
            if len(scored) == 1:
                _log_expected_time(len(possible), validator, time.perf_counter() - started)
    best = max(scored, key=lambda one: one.quality)  # the first of equals
    weights = weights_of(best.candidate, checkpoints)
    load_weights(model, weights, checkpoints.folder)
    return Selection(scored, best, weights, time.perf_counter() - started)


def weights_of(candidate: Candidate, checkpoints: CheckpointFolder) -> dict[str, Tensor]:
    """Returns the weights of a candidate.

    Raises:
        UserError: a checkpoint can't be read.
    """
    try:
        if candidate.without_ema:
            state = checkpoints.load(candidate.updates[-1])
            return trained_weights((state.model, state.optimizer), str(checkpoints.folder))
        return average(candidate.updates, checkpoints.weights)
    except DamagedCheckpoint as damage:
        raise UserError(f"{damage}. The same command chooses the final model without it.") from damage


def table(selection: Selection) -> str:
    """Returns a table of the candidates and their figures; an arrow marks the final model."""
    names = [one.candidate.name for one in selection.scored]
    width = max(map(len, names))
    lines = []
    for name, one in zip(names, selection.scored, strict=True):
        score = f"  {one.criterion.figure(one.score)}" if one.criterion.metric else ""
        mark = "->" if one is selection.best else "  "
        updates = f"update{'s' if len(one.candidate.updates) > 1 else ''} {_listed(one.candidate.updates)}"
        lines.append(f"  {mark} {name:<{width}}  loss {one.loss:.4f}{score}  {updates}")
    return "\n".join(lines)


def origin(candidate: Candidate) -> str:
    """Describes the checkpoints that a candidate consists of."""
    updates = _listed(candidate.updates)
    if len(candidate.updates) > 1:
        return f"the mean of the checkpoints of updates {updates}"
    return (
        f"the checkpoint of update {updates}{', without its running mean' if candidate.without_ema else ''}"
    )


def _known_checkpoints(run: Progress) -> tuple[list[Saved], list[Saved]]:
    """Returns all scheduled checkpoints, removed ones included, and the best validations at other updates.

    The latter have a checkpoint or not.
    """
    scheduled = {saved.update for saved in run.checkpoints}
    others = {saved.update: saved for saved in (run.best, *run.extras) if saved is not None}
    return list(run.checkpoints), [others[update] for update in sorted(others.keys() - scheduled)]


def _updates(possible: Sequence[Candidate]) -> set[int]:
    return {update for candidate in possible for update in candidate.updates}


def _readable(checkpoints: CheckpointFolder, update: int) -> bool:
    try:
        checkpoints.weights(update)
    except DamagedCheckpoint as damage:
        log.warning("%s; the final model is chosen without it", damage)
        return False
    return True


def _loadable(checkpoints: CheckpointFolder, update: int) -> bool:
    try:
        checkpoints.load(update)
    except DamagedCheckpoint as damage:
        log.warning("%s; its weights without the running mean are left out of the candidates", damage)
        return False
    return True


def _log_expected_time(count: int, validator: Validator, seconds: float) -> None:
    if count > 1 and count * seconds > _LONG:
        log.info(
            "scoring %d candidates for the final model on %d sentences: about %.0f minutes "
            "(training.averaging.count=1 has two candidates, training.averaging.kind=last has one)",
            *(count, validator.num_sentences, max(1.0, count * seconds / 60)),
        )


def _averaging_options(averaging: AveragingConfig) -> str:
    kind = averaging.kind
    count = "" if kind is Average.none else f" training.averaging.count={averaging.count}"
    return f"training.averaging.kind={kind.value}{count}"


def _listed(updates: Sequence[int]) -> str:
    if len(updates) <= 6:
        return ", ".join(map(str, updates))
    first, last = (", ".join(map(str, part)) for part in (updates[:2], updates[-2:]))
    return f"{first}, ..., {last} ({len(updates)} in all)"
