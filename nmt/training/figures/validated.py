"""The result of a validation: the figures of each set, their means, and the criterion that compares them."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from nmt.config import TrainConfig, TrainingConfig
from nmt.evaluation.metrics import METRICS
from nmt.evaluation.scores import mean_score
from nmt.runtime.plugins import UnknownName
from nmt.training.figures.meter import perplexity

LOSS = "loss"
"""The criterion that needs no translations."""


@dataclass(frozen=True)
class Figures:
    """The figures of a validation set, or their means over several sets.

    Attributes:
        loss: label-smoothed cross-entropy, the mean a target token.
        nll: -log p, the mean a target token.
        scores: metric key → score of the translations, as `nmt-eval` computes it.
    """

    loss: float
    nll: float
    scores: Mapping[str, float | None]

    def figure(self, key: str) -> float | None:
        """Returns the value of a criterion: the loss, or the score of a metric."""
        return self.loss if key == LOSS else self.scores[key]

    def as_dict(self) -> dict[str, float | None]:
        """Returns the figures in the form of `metrics.jsonl`."""
        return {"loss": self.loss, "ppl": perplexity(self.nll), **self.scores}

    def in_words(self) -> str:
        """Formats the figures for the log: `loss 2.031, perplexity 4.21, BLEU 27.30, chrF 56.12`."""
        words = f"loss {self.loss:.3f}, perplexity {perplexity(self.nll) or math.inf:.2f}"
        for key, value in self.scores.items():
            metric = METRICS[key]
            number = "-" if value is None else f"{value:.{metric.digits}f}"
            words += f", {metric.short_name or metric.name} {number}"
        return words


@dataclass(frozen=True)
class Validation:
    """The result of one validation.

    Attributes:
        sets: name of each set → its figures; the name of a single set without a name is empty.
        samples: a few sentences: `source`, `reference`, `hypothesis`, and `set` if the sets have names.
    """

    sets: Mapping[str, Figures]
    samples: list[dict[str, str]]

    @property
    def mean(self) -> Figures:
        """The means of the figures of all sets, each set with the same weight."""
        sets = list(self.sets.values())
        scores = {key: mean_score([figures.scores[key] for figures in sets]) for key in sets[0].scores}
        loss, nll = (
            math.fsum(losses) / len(sets)
            for losses in zip(*((figures.loss, figures.nll) for figures in sets), strict=True)
        )
        return Figures(loss, nll, scores)

    def as_dict(self) -> dict[str, Any]:
        """Returns the content of a record of `metrics.jsonl`: means, and `NAME/bleu` of each named set."""
        record: dict[str, Any] = self.mean.as_dict()
        for name, figures in self.sets.items():
            if name:
                record |= {f"{name}/{key}": value for key, value in figures.as_dict().items()}
        return {**record, "samples": self.samples}

    def criterion_value(self, options: TrainingConfig) -> float | None:
        """Returns the value of the criterion, on the set that the options name or as the mean of all sets."""
        figures = self.mean if options.criterion_set is None else self.sets[options.criterion_set]
        return figures.figure(options.criterion)

    def in_words(self) -> Iterator[str]:
        """Yields the figures for the log: those of the only set, or the means and a line for each set."""
        yield self.mean.in_words()
        width = max(map(len, self.sets))
        for name, figures in self.sets.items():
            if name:
                yield f"  {name:<{width}}  {figures.in_words()}"


def validation_metrics(config: TrainConfig) -> list[str]:
    """Returns the keys of the metrics of a validation: those of the options, and that of the criterion.

    Raises:
        UserError: the criterion does not exist.
    """
    criterion, keys = criterion_for(config.training.criterion), config.training.validate_metrics
    return list(dict.fromkeys([*keys, criterion.metric] if criterion.metric else keys))


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


def criterion_sets(config: TrainConfig) -> list[str]:
    """Returns the names of the validation sets that the criterion needs; that of a single one is empty."""
    name = config.training.criterion_set
    return [name] if name is not None else list(config.data.valid.sets) or [""]
