"""Learning rate schedules: the base class `Schedule` and the registry `SCHEDULES`.

A new schedule is a subclass of `Schedule` or `WarmedUp` and is registered: `SCHEDULES["mine"] = Mine`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

from nmt.config import ScheduleConfig, typed_options
from nmt.errors import UserError
from nmt.runtime.plugins import Registry


def build_schedule(config: ScheduleConfig, d_model: int, max_updates: int) -> Schedule:
    """Builds the schedule that `training.schedule.name` selects.

    Raises:
        UserError: no schedule of that name is registered, or it does not take its options.
    """
    owner = f"training.schedule.name={config.name}"
    kind = SCHEDULES.find(config.name, owner)
    options = typed_options(kind.Options, config.options, "training.schedule.options", owner)
    return kind(options, config, d_model, max_updates)


@dataclass(frozen=True)
class Decay:
    """A linear fall of the learning rate to `training.schedule.final`, with which a training ends.

    Attributes:
        begin: the update after which it begins.
        end: the last update of the training.
        rate: the learning rate of update `begin`.
        limit: the option of `training` that ends the training, such as `budget`.
        value: that of the limit, in its unit; minutes for a time.
    """

    begin: int
    end: int
    rate: float
    limit: str
    value: float


def learning_rate(schedule: Schedule, update: int, decays: Sequence[Decay] = ()) -> float:
    """Returns the learning rate of update number `update`, from 1.

    `decays` are those of a schedule that `decays`, oldest first. Each one replaces those before it.

    Raises:
        UserError: the schedule returns a number that is not finite or is below 0.
    """
    assert update >= 1, "updates are counted from 1"
    begun = [decay for decay in decays if decay.begin < update] if schedule.decays else []
    if begun:
        decay, final = begun[-1], schedule.config.final
        left = max(0, decay.end - update) / (decay.end - decay.begin)
        return final + (decay.rate - final) * left
    rate = schedule.rate(update)
    if not (math.isfinite(rate) and rate >= 0.0):
        raise UserError(
            f"training.schedule.name={schedule.config.name}: the learning rate of update {update} is {rate}. "
            "Correct the schedule or its options."
        )
    return rate


class Schedule(ABC):
    """The learning rate as a function of the update number.

    It must depend on nothing else: then a resumed run has the same learning rates as an uninterrupted one.

    Args:
        options: an instance of `Options`.
        config: the `training.schedule` section.
        d_model: width of the model.
        max_updates: `training.max_updates`.

    Attributes:
        depends_on_max_updates: whether `rate` reads `max_updates`. A run with such a schedule can't be
            extended.
        decays: whether a `Decay` follows `rate` before the training ends.
    """

    depends_on_max_updates: ClassVar[bool] = False
    decays: ClassVar[bool] = False

    @dataclass(frozen=True)
    class Options:
        """The options, with types and defaults; `training.schedule.options` sets them."""

    def __init__(self, options: Any, config: ScheduleConfig, d_model: int, max_updates: int) -> None:
        self.options, self.config, self.d_model = options, config, d_model
        self._max_updates = max_updates

    @property
    def max_updates(self) -> int:
        """`training.max_updates`."""
        assert self.depends_on_max_updates, f"{type(self).__name__} must set depends_on_max_updates = True"
        return self._max_updates

    @abstractmethod
    def rate(self, update: int) -> float:
        """Returns the learning rate of update number `update`, from 1."""


class Noam(Schedule):
    """Equation 3 of Vaswani et al. 2017 times `scale`."""

    def rate(self, update: int) -> float:
        """Rises linearly over the warm-up, then falls with the square root of the update number."""
        warmup = self.config.warmup_updates
        rise = update / warmup**1.5 if warmup else math.inf
        return self.config.scale * min(1 / math.sqrt(update), rise) / math.sqrt(self.d_model)


class WarmedUp(Schedule):
    """Rises linearly to `peak` over the warm-up; a subclass defines the rates after it."""

    def rate(self, update: int) -> float:
        """Returns `peak` times the completed share of the warm-up; then `after_warmup`."""
        warmup, peak = self.config.warmup_updates, self.config.peak
        return peak * update / warmup if update < warmup else self.after_warmup(update)

    @abstractmethod
    def after_warmup(self, update: int) -> float:
        """Returns the learning rate of update number `update`, which is at least `warmup_updates`."""


class InverseSqrt(WarmedUp):
    """Falls with the square root of the update number: `noam` in other units."""

    def after_warmup(self, update: int) -> float:
        """Returns the rate, which is `peak` at the end of the warm-up."""
        return self.config.peak * math.sqrt(max(self.config.warmup_updates, 1) / update)


class Linear(WarmedUp):
    """Falls linearly to `final` at `max_updates`."""

    depends_on_max_updates = True

    def after_warmup(self, update: int) -> float:
        """Returns the rate, which is `final` at `max_updates` and later."""
        config = self.config
        left = max(0, self.max_updates - update) / max(1, self.max_updates - config.warmup_updates)
        return config.final + (config.peak - config.final) * min(1.0, left)


class Constant(WarmedUp):
    """Stays at `peak`."""

    def after_warmup(self, update: int) -> float:
        """Returns `peak`."""
        return self.config.peak


class WarmupStableDecay(Constant):
    """Stays at `peak` until the end of the training is near, then falls to `final`.

    The rates before the fall do not depend on the length of the training. See Hu et al. 2024 (MiniCPM),
    section 4, and Hägele et al. 2024, "Scaling Laws and Compute-Optimal Training Beyond Fixed Training
    Durations".
    """

    decays = True


SCHEDULES: Registry[type[Schedule]] = Registry("schedule")
"""The schedules by the name that `training.schedule.name` selects."""

SCHEDULES["noam"] = Noam
SCHEDULES["inverse_sqrt"] = InverseSqrt
SCHEDULES["linear"] = Linear
SCHEDULES["constant"] = Constant
SCHEDULES["wsd"] = WarmupStableDecay
