"""Averaging of checkpoints: the candidates for the final model, the checkpoints to retain, and the mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.config import Average, AveragingConfig
from nmt.training.state.progress import Progress, Saved


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

    Args:
        checkpoints: as for `averaged_updates`.
        config: kind and number.
        extras: as for `averaged_updates`.
        ema: whether the checkpoints hold running means.

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
    found = [Candidate(" = ".join(words), updates) for updates, words in names.items()]
    if ema:
        found.append(Candidate("last, without ema", (checkpoints[-1].update,), without_ema=True))
    return sorted(found, key=lambda one: (len(one.updates), one.without_ema, one.updates))


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
    return {saved.update for saved in [*newest, *best]}


def average(updates: Iterable[int], weights: Callable[[int], Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """Returns the mean of the weights after each of `updates`, summed in float64.

    Args:
        updates: at least one.
        weights: returns the weights after an update; one set at a time is in memory.
    """
    sums: dict[str, Tensor] = {}
    dtypes: dict[str, torch.dtype] = {}
    count = 0
    for update in updates:
        count += 1
        for name, tensor in weights(update).items():
            dtypes[name] = tensor.dtype
            if name in sums:
                sums[name] += tensor
            else:
                sums[name] = tensor.double()
    assert count, "nothing to average"
    return {name: (total / count).to(dtypes[name]) for name, total in sums.items()}


def _best_first(checkpoints: Iterable[Saved]) -> list[Saved]:
    """Returns the validated checkpoints, best first; of equals, the earlier."""
    judged = [(-saved.quality, saved.update, saved) for saved in checkpoints if saved.quality is not None]
    return [saved for _, _, saved in sorted(judged, key=lambda one: one[:2])]


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
