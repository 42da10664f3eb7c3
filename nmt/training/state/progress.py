"""How far a run has come: everything about it that is neither weights nor optimizer state."""

from __future__ import annotations

import math
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from functools import cache
from typing import Any

from nmt.config import TrainingConfig
from nmt.data.batches.stream import Cursor


@dataclass(frozen=True)
class Saved:
    """A scheduled checkpoint and what validation said of it.

    Attributes:
        update: the update after which it was written.
        quality: higher is better; None if no validation fell on that update.
    """

    update: int
    quality: float | None = None


@dataclass(frozen=True)
class SkippedBatches:
    """Batches that the weights have not learnt from.

    Attributes:
        update: the update they were meant for; after a way back, the first one made without them.
        start: place of the first of them.
        end: place after the last.
    """

    update: int
    start: Cursor
    end: Cursor


@dataclass
class Progress:
    """The run's counters; a checkpoint keeps them as JSON.

    Attributes:
        update: updates made, skipped ones counted in.
        cursor: place of the next micro-batch in the data.
        epoch_ended: whether `update` was the last of an epoch, or reached into the next.
        settled: whether the validation and the checkpoint due after `update` are done.
        target_tokens: target tokens trained on.
        seconds: time spent in updates, all sessions of the run.
        total_seconds: time spent training, validation and saving counted in.
        made: updates that have changed the weights as they are now.
        skipped_updates: updates whose loss or gradient was not finite, overflows of fp16 counted in.
        skipped_in_a_row: the last so many updates were skipped, overflows of fp16 aside.
        skipped: the batches of all skipped updates, overflows of fp16 aside, oldest first.
        went_back: what was left out by going back to a checkpoint; None as long as that has not happened.
        loss_scale: factor on the loss in fp16, else 1.
        finite_in_a_row: updates since the loss scale last changed.
        validated: the last validation that was due.
        best: the best of those, by the criterion.
        worse_validations: validations since the best one.
        at_end: a validation that only the end of training made due: should the run go on after all, it
            counts for nothing.
        checkpoints: the scheduled checkpoints, oldest first, rotated ones included; with what scheduled
            validations said of them.
        extras: checkpoints of the best validations where none was scheduled, oldest first; without those that
            have been removed.
        resumed_from: the update that `resume_from` has taken the run back to; None where it was not given.
    """

    update: int = 0
    cursor: Cursor = Cursor()
    epoch_ended: bool = False
    settled: bool = True
    target_tokens: int = 0
    seconds: float = 0.0
    total_seconds: float = 0.0
    made: int = 0
    skipped_updates: int = 0
    skipped_in_a_row: int = 0
    skipped: list[SkippedBatches] = field(default_factory=list)
    went_back: SkippedBatches | None = None
    loss_scale: float = 1.0
    finite_in_a_row: int = 0
    validated: Saved | None = None
    best: Saved | None = None
    worse_validations: int = 0
    at_end: Saved | None = None
    checkpoints: list[Saved] = field(default_factory=list)
    extras: list[Saved] = field(default_factory=list)
    resumed_from: int | None = None

    def as_dict(self) -> dict[str, Any]:
        """The counters as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Progress:
        """The reverse of `as_dict`.

        Raises:
            ValueError: a counter is missing, of another type or out of its range; the message names it.
        """
        for name in ("update", "cursor", "target_tokens", "best", "checkpoints"):
            if not isinstance(values, Mapping) or name not in values:
                raise ValueError(f"progress lacks {name}")
        progress: Progress = _checked(cls, values, "progress")
        if progress.loss_scale == 0.0:
            raise ValueError("progress.loss_scale=0.0")
        return progress

    def advance(self) -> None:
        """Counts an update."""
        self.update += 1
        self.at_end = None

    def note_validation(self, quality: float, config: TrainingConfig) -> bool:
        """Counts a validation after the present update; says whether it is the best yet."""
        found = Saved(self.update, quality)
        is_best = self.best is None or self.best.quality is None or quality > self.best.quality
        if not self._validation_scheduled(config):
            self.at_end = found
            return is_best
        self.validated = found
        if is_best:
            self.best = found
        self.worse_validations = 0 if is_best else self.worse_validations + 1
        return is_best

    def note_checkpoint(self) -> None:
        """Counts a scheduled checkpoint after the present update."""
        self.checkpoints.append(self.validated_now() or Saved(self.update))

    def note_extra(self) -> None:
        """Counts a checkpoint that the validation of the present update earned, where none was scheduled."""
        now = self.validated_now()
        assert now is not None, "only a scheduled validation earns a checkpoint"
        self.extras.append(now)

    def validated_now(self) -> Saved | None:
        """The scheduled validation of the present update; None if it has none."""
        last = self.validated
        return last if last is not None and last.update == self.update else None

    @property
    def best_of_all(self) -> Saved | None:
        """The best validation, one at the end counted in."""
        judged = [saved for saved in (self.best, self.at_end) if saved and saved.quality is not None]
        return max(judged, key=lambda saved: saved.quality or 0.0, default=None)

    def quality_now(self) -> float | None:
        """What validation said of the weights as they are; None if it has not seen them."""
        for saved in (self.at_end, self.validated):
            if saved is not None and saved.update == self.update:
                return saved.quality
        return None

    def validation_due(self, config: TrainingConfig) -> bool:
        """Whether a validation belongs after the present update: the last one's weights may be the best."""
        return self.ended(config) is not None or self._validation_scheduled(config)

    def _validation_scheduled(self, config: TrainingConfig) -> bool:
        return self.update % config.validate_every == 0 if config.validate_every else self.epoch_ended

    def checkpoint_due(self, config: TrainingConfig) -> bool:
        """Whether a scheduled checkpoint belongs after the present update."""
        if config.checkpoint_every:
            return self.update % config.checkpoint_every == 0
        return self._validation_scheduled(config)

    def ended(self, config: TrainingConfig) -> str | None:
        """Why the training is over, in words; None if it is not."""
        if self.update >= config.max_updates:
            return f"training.max_updates={config.max_updates} is reached"
        if config.max_epochs is not None and self.cursor.epoch >= config.max_epochs:
            return f"training.max_epochs={config.max_epochs} is reached"
        if config.max_minutes is not None and self.total_seconds >= 60 * config.max_minutes:
            return f"training.max_minutes={config.max_minutes:g} are over"
        if config.patience and self.worse_validations >= config.patience:
            return (
                f"training.patience={config.patience} validations went by without a better one "
                "(early stopping)"
            )
        return None


_MOST = 2**53  # of any counter


def _checked(kind: Any, value: Any, name: str) -> Any:
    """A value from a file as the type of its field; numbers are 0 or more, but for what validation found."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else _checked(parts[0], value, name)
    if origin is list and isinstance(value, list):
        return [_checked(parts[0], item, f"{name}[{number}]") for number, item in enumerate(value)]
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping):
        hints = _hints(kind)
        if unknown := sorted(value.keys() - hints.keys()):
            raise ValueError(f"{name}.{unknown[0]} is not known to this version")
        given = {key: _checked(hints[key], item, f"{name}.{key}") for key, item in value.items()}
        if missing := sorted(_required(kind) - given.keys()):
            raise ValueError(f"{name} lacks {missing[0]}")
        return kind(**given)
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and type(value) is int and 0 <= value <= _MOST:
        return value
    if kind is float and type(value) in (int, float):
        if 0 <= value <= _MOST or (name.endswith(".quality") and (-_MOST <= value < 0 or value == -math.inf)):
            return float(value)
    raise ValueError(f"{name}={value!r:.40}")


@cache
def _hints(kind: type[Any]) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _required(kind: Any) -> set[str]:
    """The fields that a file must have: all of a place, and those without a default."""
    return {
        field.name
        for field in fields(kind)
        if kind is Cursor or (field.default is MISSING and field.default_factory is MISSING)
    }
