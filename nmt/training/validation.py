"""How good the model is on held-out text: loss, perplexity, BLEU and chrF of real translations, samples."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from nmt.config import Criterion, DecodingConfig, Precision, TrainConfig
from nmt.data.batching import Batch
from nmt.data.preparation import Prepared
from nmt.data.store import Shard, Store
from nmt.data.stream import validation_batches
from nmt.data.tokenizer import Tokenizer
from nmt.decoding.translator import Translator
from nmt.evaluation.scores import metrics_for
from nmt.model import Seq2Seq
from nmt.training.objective import training_loss
from nmt.training.precision import autocast, product_dtype

_NUM_SAMPLES = 3


class ValidationStopped(Exception):
    """The run was asked to stop before the validation was through."""


@dataclass(frozen=True)
class Validation:
    """What one validation found.

    Attributes:
        loss: label-smoothed cross-entropy, the mean a target token.
        nll: -log p, the mean a target token.
        bleu: of the translations, as `nmt-eval` computes it.
        chrf: the same.
        samples: a few sentences: `source`, `reference`, `hypothesis`.
    """

    loss: float
    nll: float
    bleu: float
    chrf: float
    samples: list[dict[str, str]]

    def quality(self, criterion: Criterion) -> float:
        """What `best` goes by; higher is better, and not a number is worst."""
        value = self.bleu if criterion is Criterion.bleu else -self.loss
        return -math.inf if math.isnan(value) else value


class Validator:
    """Validates one model on one set, again and again.

    Args:
        model: read, not changed.
        tokenizer: of the model.
        batches: the set for the loss.
        sources: the same set as raw text, tags before it if there are any.
        references: its translations.
        target_lang: their language.
        decoding: how to translate.
        smoothing: of the loss.
        device: where the model is.
        precision: of the matrix products, in loss and translation alike.
    """

    def __init__(
        self,
        model: Seq2Seq,
        tokenizer: Tokenizer,
        batches: Sequence[Batch],
        sources: Sequence[str],
        references: Sequence[str],
        *,
        target_lang: str,
        decoding: DecodingConfig,
        smoothing: float,
        device: torch.device,
        precision: Precision,
    ) -> None:
        self._model = model
        self._translator = Translator([model], tokenizer, decoding, device=device, precision=precision)
        self._batches, self._sources, self._references = batches, sources, references
        self._target_lang, self._smoothing = target_lang, smoothing
        self._device, self._precision = device, precision

    def validate(self, stop: Callable[[], bool]) -> Validation:
        """Computes loss and translations; leaves the model in the mode it was in.

        Raises:
            ValidationStopped: `stop` became true.
        """
        loss, nll = self.losses(stop)
        hypotheses = self.hypotheses(lambda num_lines: _raise_if(stop))
        chrf = self._score("chrf", hypotheses)
        return Validation(loss, nll, self.bleu(hypotheses), chrf, self._samples(hypotheses))

    @torch.no_grad()
    def losses(self, stop: Callable[[], bool] = bool) -> tuple[float, float]:
        """The label-smoothed cross-entropy and -log p, means a target token.

        Raises:
            ValidationStopped: `stop` became true.
        """
        sums = torch.zeros(2, dtype=torch.float64, device=self._device)
        training = self._model.training
        self._model.eval()
        try:
            for batch in self._batches:
                _raise_if(stop)
                batch = batch.to(self._device)
                with autocast(self._device, self._precision):
                    hidden = self._model(batch)
                losses = training_loss(
                    hidden,
                    self._model.output_weight,
                    batch.target_out[: batch.num_target_tokens],
                    smoothing=self._smoothing,
                    dtype=product_dtype(self._precision),
                )
                sums += torch.stack([losses.loss, losses.nll])
        finally:
            self._model.train(training)
        loss, nll = (sums / sum(batch.num_target_tokens for batch in self._batches)).tolist()
        return loss, nll

    @property
    def num_sentences(self) -> int:
        """How many sentences the set has."""
        return len(self._sources)

    def hypotheses(self, advance: Callable[[int], object]) -> list[str]:
        """The best translation of every source, in order; `advance` gets each batch's number of lines."""
        found = self._translator.translate(self._sources, advance)
        return [translation.hypotheses[0].text for translation in found]

    def bleu(self, hypotheses: Sequence[str]) -> float:
        """BLEU of translations of the sources, as `nmt-eval` computes it."""
        return self._score("bleu", hypotheses)

    def _score(self, metric: str, hypotheses: Sequence[str]) -> float:
        # One by one: TER, which takes longest of all, is left to the end of the run.
        metrics = metrics_for(self._target_lang)
        return float(metrics[metric].corpus_score(hypotheses, [self._references]).score)

    def _samples(self, hypotheses: Sequence[str]) -> list[dict[str, Any]]:
        count = len(hypotheses)
        rows = sorted({count * part // _NUM_SAMPLES for part in range(_NUM_SAMPLES)})
        texts = {"source": self._sources, "reference": self._references, "hypothesis": hypotheses}
        return [{name: lines[row] for name, lines in texts.items()} for row in rows]


def validator_for(
    model: Seq2Seq, config: TrainConfig, prepared: Prepared, device: torch.device, *, final: bool = False
) -> Validator:
    """The validator of a run, on its validation set.

    Args:
        model: to validate.
        config: of the run.
        prepared: its data.
        device: where the model is.
        final: on the whole set and in fp32, as the final scores are; otherwise on the first part of it, as
            `training.validate_sentences` says, and in the training's precision.
    """
    held_out, store, options = prepared.valid, prepared.valid_store, config.training
    count = (0 if final else options.validate_sentences) or len(held_out.sources)
    if count < store.num_pairs:
        store = Store([Shard(*store.take(np.arange(count)))])
    return Validator(
        model,
        prepared.tokenizer,
        validation_batches(store, int(config.data.max_tokens)),
        held_out.inputs[:count],
        held_out.references[:count],
        target_lang=config.data.target_lang,
        decoding=config.decoding,
        smoothing=options.label_smoothing,
        device=device,
        precision=Precision.fp32 if final else options.precision,
    )


def _raise_if(stop: Callable[[], bool]) -> None:
    if stop():
        raise ValidationStopped
