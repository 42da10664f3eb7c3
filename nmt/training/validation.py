"""Validation of the model on held-out text: loss, perplexity, metrics of real translations, samples."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch

from nmt.config import Precision, TrainConfig
from nmt.data.batches.batching import Batch
from nmt.data.batches.stream import validation_batches
from nmt.data.corpora.corpus import HeldOut
from nmt.data.preparation.prepare import Prepared
from nmt.data.store import Shard, Store
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.decoding.batch_sizes import with_fixed_limits
from nmt.decoding.torch_searcher import TorchSearcher
from nmt.decoding.translator import Translator
from nmt.evaluation.metrics import METRICS, ScoringStopped, metrics_for
from nmt.evaluation.scores import score_of, warn_of_left_out
from nmt.model import Seq2Seq
from nmt.training.criterion import LOSS, criterion_for
from nmt.training.update.objective import build_objective

_NUM_SAMPLES = 3


class ValidationStopped(Exception):
    """A stop was requested before the validation was complete."""


@dataclass(frozen=True)
class Validation:
    """The figures of one validation.

    Attributes:
        loss: label-smoothed cross-entropy, the mean a target token.
        nll: -log p, the mean a target token.
        scores: metric key → score of the translations, as `nmt-eval` computes it.
        samples: a few sentences: `source`, `reference`, `hypothesis`.
    """

    loss: float
    nll: float
    scores: Mapping[str, float | None]
    samples: list[dict[str, str]]

    def figure(self, key: str) -> float | None:
        """Returns the value of a criterion: the loss, or the score of a metric."""
        return self.loss if key == LOSS else self.scores[key]

    def in_words(self) -> str:
        """Formats the scores for the log: `, BLEU 27.30, chrF 56.12`."""
        return "".join(f", {_short_name(key)} {_rounded(key, value)}" for key, value in self.scores.items())


class Validator:
    """Validates one model on one data set, as often as needed.

    Args:
        model: the model; not changed.
        tokenizer: of the model.
        batches: the data set as batches, for the loss.
        held_out: the same data set as raw text.
        metrics: keys of the metrics of a validation.
        config: the options of the run: decoding, evaluation and the label smoothing of the loss.
        device: of the model.
        precision: of the matrix products, for both loss and translation.
    """

    def __init__(
        self,
        model: Seq2Seq,
        tokenizer: Tokenizer,
        batches: Sequence[Batch],
        held_out: HeldOut,
        metrics: Sequence[str],
        config: TrainConfig,
        *,
        device: torch.device,
        precision: Precision,
    ) -> None:
        self._model = model
        decoding = with_fixed_limits(config.decoding, device)
        searcher = TorchSearcher([model], tokenizer, decoding, device=device, precision=precision)
        self._translator = Translator(searcher, tokenizer)
        self._batches, self._held_out, self._inputs = batches, held_out, held_out.inputs
        self._metrics, self._config = metrics, config
        self._objective = build_objective(config.training)
        self._device, self._precision = device, precision

    def validate(self, stop: Callable[[], bool]) -> Validation:
        """Computes loss and translations; leaves the model in the mode it was in.

        Raises:
            ValidationStopped: `stop` became true.
        """
        loss, nll = self.losses(stop)
        hypotheses = self.hypotheses(lambda num_lines: _raise_if(stop))
        # By default, TER is computed only at the end of the run, as it is the slowest metric.
        scores = {key: self.score(key, hypotheses, stop) for key in self._metrics}
        return Validation(loss, nll, scores, self._samples(hypotheses))

    @torch.no_grad()
    def losses(self, stop: Callable[[], bool] = bool) -> tuple[float, float]:
        """Returns the label-smoothed cross-entropy and -log p, means a target token.

        Raises:
            ValidationStopped: `stop` became true.
        """
        sums = torch.zeros(2, dtype=torch.float64, device=self._device)
        training = self._model.training
        self._model.eval()
        try:
            for batch in self._batches:
                _raise_if(stop)
                losses = self._objective(self._model, batch.to(self._device), precision=self._precision)
                sums += torch.stack([losses.loss, losses.nll])
        finally:
            self._model.train(training)
        loss, nll = (sums / sum(batch.num_target_tokens for batch in self._batches)).tolist()
        return loss, nll

    @property
    def num_sentences(self) -> int:
        """The number of sentences of the data set."""
        return len(self._inputs)

    def hypotheses(self, advance: Callable[[int], object]) -> list[str]:
        """Returns the best translation of each source, in order; `advance` gets each batch's line count."""
        found = self._translator.translate(self._inputs, advance)
        return [translation.hypotheses[0].text for translation in found]

    def score(self, key: str, hypotheses: Sequence[str], stop: Callable[[], bool] = bool) -> float | None:
        """Scores translations of the sources in one metric, as `nmt-eval` does.

        Args:
            key: of the metric.
            hypotheses: the translations.
            stop: polled by slow metrics.

        Returns:
            The score; None if the metric has none.

        Raises:
            UserError: the metric can't be set up, or fails.
            ValidationStopped: `stop` became true.
        """
        metrics = metrics_for(self._config.data.target_lang, self._config.evaluation, [key])
        metrics[key].interrupted = stop
        texts = [self._held_out.references]
        warn_of_left_out(metrics, [hypotheses, *texts])
        try:
            return score_of(metrics[key], hypotheses, texts, self._held_out.sources)
        except ScoringStopped as stopped:
            raise ValidationStopped from stopped

    def _samples(self, hypotheses: Sequence[str]) -> list[dict[str, Any]]:
        count = len(hypotheses)
        rows = sorted({count * part // _NUM_SAMPLES for part in range(_NUM_SAMPLES)})
        texts = {"source": self._inputs, "reference": self._held_out.references, "hypothesis": hypotheses}
        return [{name: lines[row] for name, lines in texts.items()} for row in rows]


def validator_for(
    model: Seq2Seq, config: TrainConfig, prepared: Prepared, device: torch.device, *, final: bool = False
) -> Validator:
    """Returns a validator on the validation set of a run.

    Args:
        model: the model to validate.
        config: the options of the run.
        prepared: the data of the run.
        device: of the model.
        final: whether to validate as for the final scores: on the whole set, in fp32. Otherwise the first
            `training.validate_sentences` sentences are used, in the precision of the training.
    """
    held_out, store, options = prepared.valid, prepared.valid_store, config.training
    count = (0 if final else options.validate_sentences) or len(held_out.sources)
    if count < store.num_pairs:
        store = Store([Shard(*store.take(np.arange(count)))])
    references = held_out.references[:count]
    return Validator(
        model,
        prepared.tokenizer,
        validation_batches(store, int(config.data.max_tokens)),
        replace(held_out, sources=held_out.sources[:count], references=references, groups=None),
        validation_metrics(config),
        config,
        device=device,
        precision=Precision.fp32 if final else options.precision,
    )


def validation_metrics(config: TrainConfig) -> list[str]:
    """Returns the keys of the metrics of a validation: those of the options, and that of the criterion.

    Raises:
        UserError: the criterion does not exist.
    """
    criterion, keys = criterion_for(config.training.criterion), config.training.validate_metrics
    return list(dict.fromkeys([*keys, criterion.metric] if criterion.metric else keys))


def _short_name(key: str) -> str:
    return METRICS[key].short_name or METRICS[key].name


def _rounded(key: str, value: float | None) -> str:
    return "-" if value is None else f"{value:.{METRICS[key].digits}f}"


def _raise_if(stop: Callable[[], bool]) -> None:
    if stop():
        raise ValidationStopped
