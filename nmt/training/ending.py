"""When a training ends: its last update is decided in time for the learning rate to fall before it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import NamedTuple

from nmt.config import TrainingConfig
from nmt.training.forecast import Forecast
from nmt.training.state.progress import TIMES, Progress
from nmt.training.update.schedule import Schedule

_SHORTEST = 0.05
"""The shortest fall of the learning rate, relative to the updates before it. A budget that is already used
allows none."""
_OFF = 0.02
"""A planned end that misses a limit by more, relative to all updates, is corrected."""
_CORRECTIONS = 10
"""Corrections of the end while the learning rate falls, at most."""


class End(NamedTuple):
    """The end of a training.

    Attributes:
        last: the last update.
        limit: what ends it, one of `LIMITS`.
    """

    last: int
    limit: str


class Ending:
    """Decides the last update of a training.

    With a schedule that decays, the decision is made while `training.schedule.decay_share` of the training is
    left. It is corrected if the speed of the machine changes. With another schedule, only a budget and a
    request need a decision; `Progress.ended` has all other limits.

    `requested` says whether the user asks for the end now.
    """

    def __init__(
        self,
        options: TrainingConfig,
        schedule: Schedule,
        forecast: Forecast,
        requested: Callable[[], bool] = bool,
    ) -> None:
        self._options, self._forecast, self._requested = options, forecast, requested
        self._share = options.schedule.decay_share if schedule.decays else 0.0

    def decided(self, progress: Progress) -> End | None:
        """Returns the end if it is decided, or corrected, at the current update; else None."""
        if not self._share:
            return None if progress.decays else self._end_now(progress)
        ends = self._forecast.ends(progress)
        ends.update(self._early_end(progress))
        limit = min(ends, key=lambda name: ends[name])
        last = math.floor(ends[limit])
        if not progress.decays:
            due = progress.update >= last - max(1, round(self._share * last))
            return End(self._not_too_soon(last, progress.update), limit) if due else None
        return self._corrected(limit, last, progress)

    def _end_now(self, progress: Progress) -> End | None:
        """Returns the end of a training whose learning rate does not fall, if it is at the current update."""
        if self._requested():
            return End(progress.update, "finish")
        if self._options.budget is None:
            return None
        over = self._forecast.ends(progress).get("budget", math.inf) <= progress.update
        return End(progress.update, "budget") if over else None

    def _early_end(self, progress: Progress) -> dict[str, float]:
        """Returns the last update if early stopping or a request begins or began the fall; else nothing."""
        if progress.decays:
            first = progress.decays[0]
            return {first.limit: float(first.end)} if first.limit in ("patience", "finish") else {}
        worse, limit = progress.worse_validations, "finish" if self._requested() else "patience"
        if limit == "patience" and not (self._options.patience and worse >= self._options.patience):
            return {}
        return {limit: float(math.ceil(progress.update / (1 - min(self._share, 0.9))))}

    def _corrected(self, limit: str, last: int, progress: Progress) -> End | None:
        first, now = progress.decays[0], progress.decays[-1]
        last = self._not_too_soon(last, first.begin, progress.update)
        is_time = limit in TIMES and now.limit in TIMES
        enough = progress.update - now.begin >= (now.end - first.begin) / _CORRECTIONS
        if (not is_time and last >= now.end) or abs(last - now.end) <= _OFF * last or not enough:
            return None
        return End(last, limit)

    def _not_too_soon(self, last: int, begin: int, update: int = 0) -> int:
        """Returns `last`, or a later update if the fall that began at `begin` would be too steep."""
        return max(last, begin + math.ceil(_SHORTEST * begin), update + 1)
