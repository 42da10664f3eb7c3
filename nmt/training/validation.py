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
from nmt.model.transformer import Transformer
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
        model: Transformer,
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
        training = self._model.training
        self._model.eval()
        try:
            loss, nll = self._losses(stop)
            hypotheses = translated(self._translator, self._sources, stop)
        finally:
            self._model.train(training)
        metrics = metrics_for(self._target_lang)  # TER, which takes longest of all, is left to the end
        bleu, chrf = (
            float(metrics[name].corpus_score(hypotheses, [self._references]).score)
            for name in ("bleu", "chrf")
        )
        return Validation(loss, nll, bleu, chrf, self._samples(hypotheses))

    @torch.no_grad()
    def _losses(self, stop: Callable[[], bool]) -> tuple[float, float]:
        sums = torch.zeros(2, dtype=torch.float64, device=self._device)
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
        loss, nll = (sums / sum(batch.num_target_tokens for batch in self._batches)).tolist()
        return loss, nll

    def _samples(self, hypotheses: Sequence[str]) -> list[dict[str, Any]]:
        count = len(hypotheses)
        rows = sorted({count * part // _NUM_SAMPLES for part in range(_NUM_SAMPLES)})
        texts = {"source": self._sources, "reference": self._references, "hypothesis": hypotheses}
        return [{name: lines[row] for name, lines in texts.items()} for row in rows]


def validator_for(
    model: Transformer, config: TrainConfig, prepared: Prepared, device: torch.device
) -> Validator:
    """The validator of a run, on all of its validation set or the first part of it.

    Translations during training are made in the training's precision: they choose, and are not reported.
    """
    held_out, store = prepared.valid, prepared.valid_store
    count = config.training.validate_sentences or len(held_out.sources)
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
        smoothing=config.training.label_smoothing,
        device=device,
        precision=config.training.precision,
    )


def translated(translator: Translator, sources: Sequence[str], stop: Callable[[], bool] = bool) -> list[str]:
    """The best translation of every source, in order.

    Raises:
        ValidationStopped: `stop` became true.
    """
    found = translator.translate(sources, advance=lambda num_lines: _raise_if(stop))
    return [translation.hypotheses[0].text for translation in found]


def _raise_if(stop: Callable[[], bool]) -> None:
    if stop():
        raise ValidationStopped
