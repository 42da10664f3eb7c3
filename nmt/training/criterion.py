"""The criterion by which the best checkpoint, early stopping and the final model are chosen."""

from __future__ import annotations

import math
from dataclasses import dataclass

from nmt.evaluation.metrics import METRICS
from nmt.runtime import UnknownName

LOSS = "loss"
"""The criterion that needs no translations."""


@dataclass(frozen=True)
class Criterion:
    """The validation loss, or a metric of the validation set's translations.

    Attributes:
        key: value of `training.criterion`.
        name: name in the log.
        digits: decimal places in the log.
        higher_is_better: whether a higher value is better.
    """

    key: str
    name: str
    digits: int
    higher_is_better: bool

    @property
    def metric(self) -> str | None:
        """The key of the metric; None for the loss."""
        return None if self.key == LOSS else self.key

    def quality(self, value: float | None) -> float:
        """Returns a value as a quality: higher is better; a missing or non-finite value is the worst."""
        if value is None or not math.isfinite(value):
            return -math.inf
        return value if self.higher_is_better else -value

    def value(self, quality: float) -> float:
        """Returns the value of a quality; the inverse of `quality`."""
        return quality if self.higher_is_better else -quality

    def figure(self, value: float | None) -> str:
        """Formats a value with its name, such as `BLEU  27.30`."""
        width = self.digits + 4
        return f"{self.name} {'-' if value is None else format(value, f'.{self.digits}f'):>{width}}"


def criterion_for(key: str) -> Criterion:
    """Returns the criterion that `training.criterion` names.

    Raises:
        UserError: the key is neither the loss nor a metric.
    """
    if key == LOSS:
        return Criterion(LOSS, "loss", 4, higher_is_better=False)
    if key not in METRICS:
        raise UnknownName(
            f"training.criterion={key}: there is no such criterion. Choose from {LOSS}, {', '.join(METRICS)}."
        )
    metric = METRICS[key]
    return Criterion(key, metric.name, metric.digits, metric.higher_is_better)
