"""The progress of a run: all of its state except weights and optimizer state."""

from __future__ import annotations

import math
import sys
import types
import typing
from collections.abc import Mapping
from dataclasses import MISSING, asdict, dataclass, field, fields, is_dataclass
from typing import Any

from nmt.config import Precision, TrainingConfig
from nmt.data.batches.stream import Cursor
from nmt.training.update.schedule import SCHEDULES, Decay

_GROWTH_INTERVAL = 2000
_FIRST_SCALE = 128.0  # the loss is a sum over tokens; fairseq begins with the same scale
_LARGEST_SCALE = 65536.0


@dataclass(frozen=True)
class Saved:
    """An update with its validation: of a scheduled checkpoint, or of a validation alone.

    Attributes:
        update: the update.
        quality: the result of the validation, higher is better; None if the update was not validated.
    """

    update: int
    quality: float | None = None


@dataclass(frozen=True)
class SkippedBatches:
    """Batches that were left out of training.

    Attributes:
        update: the skipped update of these batches; for a rollback, the first update after it.
        start: place of the first batch.
        end: place after the last batch.
    """

    update: int
    start: Cursor
    end: Cursor


@dataclass
class Progress:
    """The counters of a run; a checkpoint stores them as JSON.

    Attributes:
        update: number of updates, including skipped ones.
        cursor: place of the next micro-batch in the data.
        epoch_ended: whether `update` was the last of an epoch, or extended into the next.
        settled: whether the validation and the checkpoint due after `update` are done.
        target_tokens: target tokens trained on.
        seconds: time spent in updates, over all sessions of the run.
        total_seconds: time spent training, including validation and saving.
        undone_seconds: the part of `total_seconds` after updates from which a longer training resumed.
        flat_seconds: `total_seconds` when the learning rate began to fall; None: it does not fall.
        made: updates that were applied to the current weights.
        skipped_updates: updates whose loss or gradient was not finite, including overflows of fp16.
        skipped_in_a_row: number of consecutive skipped updates up to `update`, except overflows of fp16.
        skipped: the batches of all skipped updates, except overflows of fp16, oldest first.
        went_back: the batches left out by the rollback; None before a rollback.
        loss_scale: factor on the loss in fp16, else 1.
        finite_in_a_row: updates since the last change of the loss scale.
        validated: the last scheduled validation.
        best: the best scheduled validation, by the criterion.
        worse_validations: validations since the best one.
        at_end: a validation that was due only because training ended. It is discarded if the run is resumed.
        checkpoints: the scheduled checkpoints, oldest first, including removed ones, with the results of
            scheduled validations.
        extras: checkpoints of the best validations where none was scheduled, oldest first, without removed
            ones.
        prepared_seconds: time from the start of each session to the start of its training.
        decays: the falls of the learning rate with which the training ends, oldest first. Each one replaces
            those before it. A schedule that does not decay has one, of no update, if a budget ended it.
        resumed_from: the update to which `resume_from` rewound the run; None if it was not given.
    """

    update: int = 0
    cursor: Cursor = Cursor()
    epoch_ended: bool = False
    settled: bool = True
    target_tokens: int = 0
    seconds: float = 0.0
    total_seconds: float = 0.0
    undone_seconds: float = 0.0
    flat_seconds: float | None = None
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
    prepared_seconds: float = 0.0
    decays: list[Decay] = field(default_factory=list)
    resumed_from: int | None = None

    @classmethod
    def start(cls, precision: Precision) -> Progress:
        """Returns the counters of a new run."""
        return cls(loss_scale=_FIRST_SCALE if precision is Precision.fp16 else 1.0)

    def as_dict(self) -> dict[str, Any]:
        """Returns the counters as JSON values."""
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Progress:
        """Creates the counters from JSON values; the inverse of `as_dict`.

        Raises:
            ValueError: a counter is missing, of a wrong type or out of range; the message names it.
        """
        for name in ("update", "cursor", "target_tokens", "best", "checkpoints"):
            if not isinstance(values, Mapping) or name not in values:
                raise ValueError(f"progress lacks {name}")
        progress: Progress = _checked(cls, values, "progress")
        if progress.loss_scale == 0.0:
            raise ValueError("progress.loss_scale=0.0")
        return progress

    def adapt_loss_scale(self, precision: Precision, finite: bool) -> bool:
        """Halves the loss scale of fp16 after an overflow; doubles it after 2000 finite updates.

        See Micikevicius et al. 2018. `finite` says whether the gradient of the last update was finite.

        Returns:
            Whether the scale can be the cause of a non-finite update, so that a smaller one may avoid it.
        """
        if precision is not Precision.fp16:
            return False
        if not finite:
            explained = self.loss_scale > 1.0
            self.loss_scale, self.finite_in_a_row = max(1.0, self.loss_scale / 2), 0
            return explained
        self.finite_in_a_row += 1
        if self.finite_in_a_row >= _GROWTH_INTERVAL:
            self.loss_scale, self.finite_in_a_row = min(_LARGEST_SCALE, self.loss_scale * 2), 0
        return False

    def advance(self) -> None:
        """Counts an update."""
        self.update += 1
        self.at_end = None

    def note_validation(self, quality: float, config: TrainingConfig) -> bool:
        """Counts a validation after the current update; returns whether it is the best so far."""
        validation = Saved(self.update, quality)
        is_best = self.best is None or self.best.quality is None or quality > self.best.quality
        if not self._validation_scheduled(config):
            self.at_end = validation
            return is_best
        self.validated = validation
        if is_best:
            self.best = validation
        self.worse_validations = 0 if is_best else self.worse_validations + 1
        return is_best

    def note_checkpoint(self) -> None:
        """Counts a scheduled checkpoint after the current update."""
        self.checkpoints.append(self.validated_now() or Saved(self.update))

    def note_extra(self) -> None:
        """Counts an unscheduled checkpoint, of one of the best validations, after the current update."""
        now = self.validated_now()
        assert now is not None, "only a scheduled validation leads to an extra checkpoint"
        self.extras.append(now)

    def validated_now(self) -> Saved | None:
        """Returns the scheduled validation of the current update; None if it has none."""
        last = self.validated
        return last if last is not None and last.update == self.update else None

    @property
    def best_of_all(self) -> Saved | None:
        """The best validation, including one at the end of training."""
        judged = [saved for saved in (self.best, self.at_end) if saved and saved.quality is not None]
        return max(judged, key=lambda saved: saved.quality or 0.0, default=None)

    def quality_now(self) -> float | None:
        """Returns the quality of the current weights; None if they were not validated."""
        for saved in (self.at_end, self.validated):
            if saved is not None and saved.update == self.update:
                return saved.quality
        return None

    def validation_due(self, config: TrainingConfig) -> bool:
        """Returns whether a validation is due after the current update, scheduled or at the end."""
        return self.ended(config) is not None or self._validation_scheduled(config)

    def _validation_scheduled(self, config: TrainingConfig) -> bool:
        return self.update % config.validate_every == 0 if config.validate_every else self.epoch_ended

    def checkpoint_due(self, config: TrainingConfig) -> bool:
        """Returns whether a scheduled checkpoint is due after the current update."""
        if self.decays and self.decays[0].begin == self.update:
            return True  # a longer training resumes from there
        if config.checkpoint_every:
            return self.update % config.checkpoint_every == 0
        return self._validation_scheduled(config)

    def must_undo_decay(self, config: TrainingConfig) -> bool:
        """Returns whether the training may now be longer than when its learning rate began to fall.

        If it has ended, a limit of time must grow by more than the fall took: choice and test of the final
        model need the rest as before, so a new fall would begin sooner, and lead to a worse model.
        """
        if not self.decays:
            return False
        last, value = self.decays[-1], value_of(self.decays[-1].limit, config)
        if self.update < last.end or last.limit not in TIMES or self.flat_seconds is None:
            return value > last.value
        spent = self.total_seconds + (self.prepared_seconds if last.limit == "budget" else 0.0)
        return 60 * value - max(60 * last.value, spent) > self.total_seconds - self.flat_seconds

    def ended(self, config: TrainingConfig) -> str | None:
        """Returns the reason why training is over, as text; None if it is not over."""
        if self.decays and self.update >= self.decays[-1].end and not self.must_undo_decay(config):
            limit = self.decays[-1].limit
            requested = "the end was requested"
            return requested if limit == "finish" else f"{limit_in_words(limit, config)} is reached"
        if self.update >= config.max_updates:
            return f"training.max_updates={config.max_updates} is reached"
        if config.max_epochs is not None and self.cursor.epoch >= config.max_epochs:
            return f"training.max_epochs={config.max_epochs} is reached"
        if falls(config):
            return None  # `Ending` decides
        if config.max_minutes is not None and self.total_seconds >= 60 * config.max_minutes:
            return f"training.max_minutes={config.max_minutes:g} is reached"
        if config.patience and self.worse_validations >= config.patience:
            return (
                f"training.patience={config.patience} validations in a row were not better than the best "
                "(early stopping)"
            )
        return None


LIMITS = ("max_updates", "max_epochs", "max_minutes", "budget", "patience", "finish")
"""What ends a training: its options, and the request to finish (`RunFolder.finish`)."""

TIMES = ("max_minutes", "budget")
"""Those of `LIMITS` that are times."""


def limit_in_words(limit: str, config: TrainingConfig) -> str:
    """Returns one of `LIMITS` with its value."""
    return "finish" if limit == "finish" else f"training.{limit}={getattr(config, limit)}"


def value_of(limit: str, config: TrainingConfig) -> float:
    """Returns the value of one of `LIMITS`; infinite if it is not set.

    That of a request grows with each of the others, so that a training with a larger limit continues.
    """
    if limit == "finish":
        return sum(filter(math.isfinite, (value_of(each, config) for each in LIMITS if each != limit)))
    value = config.budget_minutes if limit == "budget" else getattr(config, limit)
    return float(value or math.inf)


def falls(config: TrainingConfig) -> bool:
    """Whether the learning rate falls before the end, wherever this is."""
    schedule = SCHEDULES.get(config.schedule.name)
    return schedule is not None and schedule.decays


_MAX = 2**53  # the maximum of any counter
_MAX_TEXT = 200


def _checked(kind: Any, value: Any, name: str) -> Any:
    """Converts a value from a file to the type of its field; only a quality may be a negative number."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if origin is types.UnionType:
        return None if value is None else _checked(parts[0], value, name)
    if origin is list and isinstance(value, list):
        return [_checked(parts[0], item, f"{name}[{number}]") for number, item in enumerate(value)]
    if isinstance(kind, type) and is_dataclass(kind) and isinstance(value, Mapping):
        hints = typing.get_type_hints(kind)
        if unknown := sorted(value.keys() - hints.keys()):
            raise ValueError(f"{name}.{unknown[0]} is unknown to this version")
        counters = {key: _checked(hints[key], item, f"{name}.{key}") for key, item in value.items()}
        required = {  # all of a `Cursor`, otherwise the fields without a default
            field.name
            for field in fields(kind)
            if kind is Cursor or (field.default is MISSING and field.default_factory is MISSING)
        }
        if missing := sorted(required - counters.keys()):
            raise ValueError(f"{name} lacks {missing[0]}")
        return kind(**counters)
    if kind is bool and isinstance(value, bool):
        return value
    if kind is str and isinstance(value, str) and len(value) <= _MAX_TEXT:
        return value
    if kind is int and type(value) is int and 0 <= value <= _MAX:
        return value
    if kind is float and type(value) in (int, float):
        if 0 <= value <= _MAX or (name.endswith(".quality") and -math.inf <= value <= sys.float_info.max):
            return float(value)
    raise ValueError(f"{name}={value!r:.40}")
