"""The learning rate of every update."""

from __future__ import annotations

import math

from nmt.config import ScheduleConfig, ScheduleName


def learning_rate(update: int, config: ScheduleConfig, d_model: int, max_updates: int) -> float:
    """The learning rate of update number `update` (the first is 1).

    `noam` is equation 3 of Vaswani et al. 2017 times `scale`. The others rise linearly to `peak` over the
    warm-up; then `inverse_sqrt` falls with the root of the update (`noam` in other units), `linear` falls to
    `final` at `max_updates`, and `constant` stays.

    Args:
        update: counted from 1.
        config: shape and numbers of the schedule.
        d_model: width of the model, in `noam`.
        max_updates: where `linear` ends.
    """
    assert update >= 1, "updates are counted from 1"
    warmup = config.warmup_updates
    if config.name is ScheduleName.noam:
        rise = update / warmup**1.5 if warmup else math.inf
        return config.scale * min(1 / math.sqrt(update), rise) / math.sqrt(d_model)
    if update < warmup:
        return config.peak * update / warmup
    if config.name is ScheduleName.inverse_sqrt:
        return config.peak * math.sqrt(max(warmup, 1) / update)
    if config.name is ScheduleName.linear:
        left = max(0, max_updates - update) / max(1, max_updates - warmup)
        return config.final + (config.peak - config.final) * min(1.0, left)
    return config.peak
