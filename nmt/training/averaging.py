"""Which checkpoints the final model is made of, and their mean."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

import torch
from torch import Tensor

from nmt.config import Average, AveragingConfig
from nmt.training.progress import Saved


def chosen(checkpoints: Sequence[Saved], config: AveragingConfig) -> list[int]:
    """The updates whose checkpoints the final model is the mean of, oldest first.

    `last` takes the last `count`. `best` takes the `count` that validation liked best, and `none` that one
    alone; where no validation fell on a checkpoint, they go by age. Of equals the earlier counts as better.

    Args:
        checkpoints: what there is, oldest first, not empty.
        config: kind and number.
    """
    assert checkpoints, "a run that ends has at least one checkpoint"
    count = 1 if config.kind is Average.none else config.count
    judged = [saved for saved in checkpoints if saved.quality is not None]
    if config.kind is Average.last or not judged:
        return [saved.update for saved in checkpoints[-count:]]
    best_first = sorted(judged, key=lambda saved: -_quality(saved))
    return sorted(saved.update for saved in best_first[:count])


def needed(checkpoints: Sequence[Saved], config: AveragingConfig, keep: int) -> set[int]:
    """The updates whose checkpoints rotation must leave: the newest `keep`, the best, the averaged."""
    if not checkpoints:
        return set()
    best = chosen(checkpoints, AveragingConfig(kind=Average.none))
    # The checkpoint of the run's end may be one more than these, so `last` never needs others than now.
    return {*(saved.update for saved in checkpoints[-keep:]), *best, *chosen(checkpoints, config)}


def average(updates: Iterable[int], weights: Callable[[int], Mapping[str, Tensor]]) -> dict[str, Tensor]:
    """The mean of the weights after each of `updates`, summed in float64.

    Args:
        updates: which, at least one.
        weights: gives the weights after an update; one such set is held at a time.
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


def _quality(saved: Saved) -> float:
    assert saved.quality is not None
    return saved.quality
