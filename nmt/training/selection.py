"""The final model: the checkpoints to retain for it, the candidates, their means, and the choice among them.

Candidates are single checkpoints and means of several. Each is scored on the validation set.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import astuple, dataclass
from typing import Any

from torch import Tensor

from nmt.bundle import load_weights
from nmt.config import Average, AveragingConfig, TrainConfig, TrainingConfig
from nmt.errors import UserError
from nmt.model import Seq2Seq
from nmt.runtime.streams import log, progress
from nmt.training.figures.validated import Criterion, criterion_for
from nmt.training.processes.ranks import Ranks
from nmt.training.state.checkpoint import CheckpointFolder, DamagedCheckpoint
from nmt.training.state.progress import Progress, Saved
from nmt.training.update.ema import trained_weights
from nmt.training.validation import Validator

_LONG = 60.0  # seconds; a longer scoring is announced in the log


@dataclass(frozen=True)
class Candidate:
    """Weights that can become the final model.

    Attributes:
        name: such as `last` or `mean of the best 3`; several names if they are the same weights.
        updates: the updates whose checkpoints are averaged, oldest first.
        without_ema: whether the weights are the trained ones, not their running mean.
    """

    name: str
    updates: tuple[int, ...]
    without_ema: bool = False


@dataclass(frozen=True)
class ScoredCandidate:
    """A candidate and its figures on the whole validation sets that the criterion needs: means over them.

    Attributes:
        candidate: the candidate.
        criterion: by which candidates are compared.
        loss: label-smoothed cross-entropy, the mean a target token.
        score: of its translations, in the metric of the criterion; None without a metric.
        hypotheses: name of each set → its translations; None with `training.criterion=loss`.
    """

    candidate: Candidate
    criterion: Criterion
    loss: float
    score: float | None = None
    hypotheses: Mapping[str, Sequence[str]] | None = None

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


def among_best(progress: Progress, config: AveragingConfig) -> bool:
    """Returns whether the current weights are among the best validated ones that `config` needs.

    If so, they get a checkpoint, scheduled or not.
    """
    now = progress.validated_now()
    if now is None or config.kind is Average.last:
        return False
    return now in _best_first([*progress.checkpoints, *progress.extras, now])[: _num_best(config)]


def updates_to_retain(progress: Progress, config: AveragingConfig, keep: int) -> set[int]:
    """Returns the updates whose checkpoints rotation retains: the newest `keep`, the best, the averaged."""
    best = _best_first([*progress.checkpoints, *progress.extras])[: _num_best(config)]
    by_age = config.kind in (Average.auto, Average.last) or (config.kind is Average.best and not best)
    # The end of the run may add one checkpoint, so `last` needs no others than these.
    newest = progress.checkpoints[-max(keep, config.count if by_age else 1) :]
    begins = [decay.begin for decay in progress.decays[:1]]  # a longer training resumes from there
    return {*(saved.update for saved in [*newest, *best]), *begins}


def most_retained(options: TrainingConfig) -> int:
    """Returns the largest number of checkpoints that rotation retains; see `updates_to_retain`."""
    averaging = options.averaging
    return max(options.keep_checkpoints, averaging.count) + _num_best(averaging)


def final_candidates(config: TrainConfig, checkpoints: CheckpointFolder, run: Progress) -> list[Candidate]:
    """Returns the candidates for the final model of a run.

    They use the scheduled checkpoints, those of the best validations, and the last one of the run. A
    checkpoint that was removed or can't be read is left out, with a warning.

    Raises:
        UserError: no checkpoint can be read.
    """
    options, present = config.training, set(checkpoints.updates())
    if removed := sorted(_updates(_possible(run, options)) - present):
        log.warning(
            "%s: the final model is chosen without the checkpoints of updates %s, which were removed "
            "(training.keep_checkpoints retains more)",
            *(_averaging_options(options.averaging), _listed(removed)),
        )
    while possible := _possible(run, options, present):
        otherwise = "the final model is chosen without it"
        damaged = {each for each in _updates(possible) if not _can(checkpoints.weights, each, otherwise)}
        if not damaged:
            _warn_of_few(options, possible)
            otherwise = "its weights without the running mean are left out of the candidates"
            return [
                candidate
                for candidate in possible
                if not candidate.without_ema or _can(checkpoints.load, candidate.updates[-1], otherwise)
            ]
        present -= damaged
    raise UserError(f"{checkpoints.folder}: no checkpoint can be read. Remove the run folder to train again.")


def _possible(
    run: Progress, options: TrainingConfig, present: Collection[int] | None = None
) -> list[Candidate]:
    """Returns the candidates of all checkpoints of a run, or of the `present` ones; may be empty."""
    end = Saved(run.update, run.quality_now())
    scheduled = [saved for saved in run.checkpoints if saved.update != end.update] + [end]
    best = {saved.update: saved for saved in (run.best, *run.extras) if saved is not None}
    extras = [best[update] for update in sorted(best.keys() - {saved.update for saved in scheduled})]
    if present is not None:
        scheduled, extras = (
            [saved for saved in group if saved.update in present] for group in (scheduled, extras)
        )
    if not scheduled:
        scheduled, extras = extras[-1:], extras[:-1]
    return candidates(scheduled, options.averaging, extras, ema=options.ema > 0.0) if scheduled else []


def averaged_updates(
    checkpoints: Sequence[Saved], config: AveragingConfig, extras: Sequence[Saved] = ()
) -> tuple[int, ...]:
    """Returns the updates whose checkpoints are averaged for a kind other than `auto`, oldest first.

    `last` takes the last `count` checkpoints. `best` takes the `count` with the best validations, and `none`
    only the best one; without validated checkpoints, both take the last. Of equals, the earlier is better.

    Args:
        checkpoints: the scheduled ones and that of the end of the run, oldest first, not empty.
        config: kind and number.
        extras: those of the best validations where no checkpoint was scheduled; `last` ignores them.
    """
    assert checkpoints, "a run that ends has at least one checkpoint"
    count = 1 if config.kind is Average.none else config.count
    judged = _best_first([*checkpoints, *extras])
    if config.kind is Average.last or not judged:
        return tuple(saved.update for saved in checkpoints[-count:])
    return tuple(sorted(saved.update for saved in judged[:count]))


def candidates(
    checkpoints: Sequence[Saved], config: AveragingConfig, extras: Sequence[Saved] = (), *, ema: bool = False
) -> list[Candidate]:
    """Returns the candidates for the final model: several for `auto`, one for every other kind.

    `auto` has the last checkpoint, the best one, and the means of the last n and of the best n. The values of
    n are `count` and its halves, rounded up, down to 2 (5, 3, 2). With a running mean, the last weights
    without it are a candidate too. Candidates of the same checkpoints are merged.

    `checkpoints` and `extras` are as for `averaged_updates`; with `ema` they hold running means.

    Returns:
        The candidates, those of the fewest checkpoints first, then the earliest; of equals, the first wins.
    """
    if config.kind is not Average.auto:
        updates = averaged_updates(checkpoints, config, extras)
        kind = Average.last if config.kind is Average.last else Average.best
        return [Candidate(_name(kind, len(updates)), updates)]
    names: dict[tuple[int, ...], dict[str, None]] = {}
    judged = bool(_best_first([*checkpoints, *extras]))
    for size in [1, *_sizes(config.count)]:
        for kind in (Average.best, Average.last) if judged else (Average.last,):
            updates = averaged_updates(checkpoints, AveragingConfig(kind, size), extras)
            names.setdefault(updates, {})[_name(kind, len(updates))] = None
    possible = [Candidate(" = ".join(words), updates) for updates, words in names.items()]
    if ema:
        possible.append(Candidate("last, without ema", (checkpoints[-1].update,), without_ema=True))
    return sorted(possible, key=lambda other: (len(other.updates), other.without_ema, other.updates))


def select_best(
    config: TrainConfig,
    possible: Sequence[Candidate],
    checkpoints: CheckpointFolder,
    model: Seq2Seq,
    validator: Validator,
    ranks: Ranks,
) -> Selection:
    """Validates every candidate and loads the weights of the best into `model`; of equals, the first wins.

    All ranks call it together. Only rank 0 reads checkpoints.

    Rank 0 has the `possible` candidates. The validator is that of `model`, on the whole validation set.

    Returns:
        The selection; only rank 0 has the weights.

    Raises:
        UserError: a checkpoint can no longer be read, or a batch does not fit into memory.
    """
    criterion = criterion_for(config.training.criterion)
    possible = [
        Candidate(name, tuple(updates), without_ema)
        for name, updates, without_ema in ranks.share([astuple(candidate) for candidate in possible])
    ]

    def load(candidate: Candidate) -> dict[str, Tensor]:
        weights = weights_of(candidate, checkpoints) if ranks.is_main else {}
        if ranks.is_main:
            load_weights(model, weights, checkpoints.folder)
        ranks.share(None)  # the others wait without a timeout for what rank 0 reads
        ranks.copy_(model.state_dict().values())
        return weights

    started = time.perf_counter()
    scored: list[ScoredCandidate] = []
    words = f"scoring {len(possible)} candidates" if len(possible) > 1 else "translating valid"
    with progress(total=len(possible) * validator.num_sentences, unit="sentences", description=words) as bar:
        for candidate in possible:
            load(candidate)
            scored.append(ScoredCandidate(candidate, criterion, *validator.judge(criterion, bar.update)))
            if len(scored) == 1:
                _log_expected_time(len(possible), validator, time.perf_counter() - started)
    best = max(scored, key=lambda other: other.quality)  # the first of equals
    return Selection(scored, best, load(best.candidate), time.perf_counter() - started)


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


def average(updates: Sequence[int], weights: Callable[[int], Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Returns the mean of the weights after each of `updates`, summed in float64.

    One set of weights at a time is in memory.
    """
    first = weights(updates[0])
    dtypes = {name: tensor.dtype for name, tensor in first.items()}
    sums = {name: tensor.double() for name, tensor in first.items()}
    del first
    for update in updates[1:]:
        for name, tensor in weights(update).items():
            sums[name] += tensor
    return {name: (total / len(updates)).to(dtypes[name]) for name, total in sums.items()}


def table(selection: Selection) -> str:
    """Returns a table of the candidates and their figures; an arrow marks the final model."""
    width = max(len(scored.candidate.name) for scored in selection.scored)
    lines = []
    for scored in selection.scored:
        name, updates = scored.candidate.name, scored.candidate.updates
        score = f"  {scored.criterion.figure(scored.score)}" if scored.criterion.metric else ""
        mark = "->" if scored is selection.best else "  "
        words = f"update{'s' if len(updates) > 1 else ''} {_listed(updates)}"
        lines.append(f"  {mark} {name:<{width}}  loss {scored.loss:.4f}{score}  {words}")
    return "\n".join(lines)


def origin(candidate: Candidate) -> str:
    """Describes the checkpoints that a candidate consists of."""
    updates = _listed(candidate.updates)
    if len(candidate.updates) > 1:
        return f"the mean of the checkpoints of updates {updates}"
    return (
        f"the checkpoint of update {updates}{', without its running mean' if candidate.without_ema else ''}"
    )


def _warn_of_few(options: TrainingConfig, possible: Sequence[Candidate]) -> None:
    """Warns if fewer checkpoints are averaged than `training.averaging` names."""
    wanted = options.averaging.count
    if options.averaging.kind in (Average.last, Average.best) and len(possible[0].updates) < wanted:
        log.warning(
            "training.averaging.count=%d: the run has only %d of them (training.checkpoint_every=%d)",
            *(wanted, len(possible[0].updates), options.checkpoint_every),
        )


def _best_first(checkpoints: Iterable[Saved]) -> list[Saved]:
    """Returns the validated checkpoints, best first; of equals, the earlier."""
    judged = [saved for saved in checkpoints if saved.quality is not None]
    return sorted(judged, key=lambda saved: (-(saved.quality or 0.0), saved.update))


def _num_best(config: AveragingConfig) -> int:
    return config.count if config.kind in (Average.auto, Average.best) else 1


def _sizes(count: int) -> list[int]:
    sizes = []
    while count > 1:
        sizes.append(count)
        count = -(-count // 2) if count > 2 else 1
    return sizes[::-1]


def _name(kind: Average, count: int) -> str:
    return kind.value if count == 1 else f"mean of the {kind.value} {count}"


def _updates(possible: Sequence[Candidate]) -> set[int]:
    return {update for candidate in possible for update in candidate.updates}


def _can(read: Callable[[int], object], update: int, otherwise: str) -> bool:
    """Whether a checkpoint can be read; if not, the log says what happens otherwise."""
    try:
        read(update)
    except DamagedCheckpoint as damage:
        log.warning("%s; %s", damage, otherwise)
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
