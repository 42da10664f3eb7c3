"""Validation on all ranks of the model on held-out text: loss, perplexity, metrics of translations, samples.

Each rank computes some of the batches and some of the metrics. Losses are added in the order of the data, so
they do not depend on the number of ranks. Neither do translations, except in bf16 on a CPU, where one rank
with several threads searches smaller batches, which changes rounding.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from typing import Any, cast

import numpy as np
import torch
from torch import Tensor

from nmt.config import DecodingConfig, Precision, TrainConfig
from nmt.data.batches.stream import validation_batches
from nmt.data.preparation.prepare import Prepared
from nmt.data.store import Shard, Store
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.decoding.facts import TextFacts
from nmt.decoding.search import Hypothesis
from nmt.decoding.search_batches import with_fixed_limits
from nmt.decoding.searcher import Job, Result
from nmt.decoding.torch_searcher import TorchSearcher
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.evaluation.metrics import METRICS, Metric, ScoringStopped, metrics_for
from nmt.evaluation.scores import score_of, warn_of_left_out
from nmt.model import Seq2Seq
from nmt.runtime.plugins import UnknownName
from nmt.training.processes.ranks import Ranks
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
        words = ""
        for key, value in self.scores.items():
            metric = METRICS[key]
            number = "-" if value is None else f"{value:.{metric.digits}f}"
            words += f", {metric.short_name or metric.name} {number}"
        return words


class SharedSearcher(TorchSearcher):
    """Searches each batch in one of the ranks; every rank gets all hypotheses, without attention.

    All ranks call it with the same sentences.

    With `fixed`, the batches do not depend on the free memory of a GPU. `stop` is polled after each batch.
    """

    def __init__(
        self,
        model: Seq2Seq,
        tokenizer: Tokenizer,
        config: DecodingConfig,
        ranks: Ranks,
        *,
        precision: Precision = Precision.fp32,
        fixed: bool = False,
        stop: Callable[[], bool] = bool,
    ) -> None:
        if fixed or ranks.world > 1:
            config = with_fixed_limits(config, ranks.device)
        if ranks.world > 1:  # by default, the batches on a CPU depend on its threads
            config = replace(config, max_sentences=config.sentences_per_batch)
        super().__init__([model], tokenizer, config, device=ranks.device, precision=precision)
        self._ranks, self._stop = ranks, stop

    def run(
        self, work: Callable[[Job], Result], jobs: Sequence[Job], batches: Sequence[Sequence[int]]
    ) -> Generator[tuple[int, Result], None, None]:
        """See `Searcher.run`. The results must be hypotheses of each sentence.

        Raises:
            ValidationStopped: `stop` became true in this rank or in another one.
        """
        ranks = self._ranks
        own = range(ranks.rank, len(jobs), ranks.world)
        results: dict[int, Any] = {}
        parts = [jobs[number] for number in own], [batches[number] for number in own]
        with closing(super().run(work, *parts)) as finished:
            for index, result in finished:
                if self._stop():
                    break
                results[own[index]] = [
                    [(one.ids, one.score, one.log_prob, one.unmet) for one in hypotheses]
                    for hypotheses in cast(Sequence[Sequence[Hypothesis]], result)
                ]
                yield own[index], result
        shares = ranks.exchange(None if self._stop() else results)
        if None in shares:
            raise ValidationStopped
        for share in shares[: ranks.rank] + shares[ranks.rank + 1 :]:
            for number, sentences in share.items():
                yield int(number), cast(Result, [list(map(_hypothesis, some)) for some in sentences])


def _hypothesis(fields: tuple[Sequence[int], float, float, Sequence[int]]) -> Hypothesis:
    ids, score, log_prob, unmet = fields
    return Hypothesis(tuple(ids), score, log_prob, unmet=tuple(unmet))


class Validator:
    """Validates one model on the validation set of a run, as often as needed; all ranks call it together.

    It computes the `final` scores on the whole set, in fp32; otherwise those of the first
    `training.validate_sentences` sentences, in the precision of the training.
    """

    def __init__(
        self, model: Seq2Seq, config: TrainConfig, prepared: Prepared, ranks: Ranks, *, final: bool = False
    ) -> None:
        self._model, self._config, self._tokenizer, self._ranks = model, config, prepared.tokenizer, ranks
        self._precision = Precision.fp32 if final else config.training.precision
        self._objective = build_objective(config.training)
        held_out, store = prepared.valid, prepared.valid_store
        count = (0 if final else config.training.validate_sentences) or len(held_out.sources)
        if count < store.num_pairs:
            store = Store([Shard(*store.take(np.arange(count)))])
        self._batches = validation_batches(store, int(config.data.max_tokens))
        sources, references = held_out.sources[:count], held_out.references[:count]
        self._held_out = replace(held_out, sources=sources, references=references, groups=None)
        self._inputs = self._held_out.inputs
        self._facts = TextFacts.of(config.data, {"data": prepared.report})

    def validate(self, stop: Callable[[], bool]) -> Validation:
        """Computes loss and translations; leaves the model in the mode it was in.

        Raises:
            UserError: a metric can't be set up, or fails.
            ValidationStopped: `stop` became true in this rank or in another one.
        """
        loss, nll = self.losses(stop)
        hypotheses = self.hypotheses(stop=stop)
        # By default, TER is computed only at the end of the run, as it is the slowest metric.
        keys = validation_metrics(self._config)
        scores = shared_scores(keys, lambda key: self.score(key, hypotheses, stop), self._ranks)
        for key in keys if self._ranks.is_main else ():
            if key not in keys[:: self._ranks.world]:  # computed by another rank, which logs nothing
                warn_of_left_out(self._metric(key), [hypotheses, self._held_out.references])
        return Validation(loss, nll, scores, self._samples(hypotheses))

    @torch.no_grad()
    def losses(self, stop: Callable[[], bool] = bool) -> tuple[float, float]:
        """Returns the label-smoothed cross-entropy and -log p, means a target token.

        Raises:
            ValidationStopped: `stop` became true in this rank or in another one.
        """
        ranks, sums = self._ranks, list[Tensor]()
        training = self._model.training
        self._model.eval()
        try:
            for batch in self._batches[ranks.rank :: ranks.world]:
                if stop():
                    break
                losses = self._objective(self._model, batch.to(ranks.device), precision=self._precision)
                sums.append(torch.stack([losses.loss, losses.nll]).double())
        finally:
            self._model.train(training)
        shares = ranks.exchange(None if stop() else torch.stack(sums).tolist() if sums else [])
        if None in shares:
            raise ValidationStopped
        total = torch.zeros(2, dtype=torch.float64)
        for number in range(len(self._batches)):
            total += torch.tensor(shares[number % ranks.world][number // ranks.world], dtype=torch.float64)
        loss, nll = (total / sum(batch.num_target_tokens for batch in self._batches)).tolist()
        return loss, nll

    def judge(
        self, criterion: Criterion, advance: Callable[[int], object]
    ) -> tuple[float, float | None, list[str] | None]:
        """Returns the loss, and with a metric its score and the translations; the same in all ranks.

        `advance` is called in rank 0 with the number of lines of each finished batch.
        """
        loss = self.losses()[0]
        if criterion.metric is None:
            if self._ranks.is_main:
                advance(self.num_sentences)
            return loss, None, None
        return loss, *self.scored(criterion.metric, advance)

    def scored(self, metric: str, advance: Callable[[int], object]) -> tuple[float | None, list[str]]:
        """Returns the score of a metric, and the translations; the same in all ranks. See `judge`."""
        main = self._ranks.is_main
        hypotheses = self.hypotheses(advance if main else lambda num_lines: None)
        score: float | None = self._ranks.share(self.score(metric, hypotheses) if main else None)
        return score, hypotheses

    @property
    def num_sentences(self) -> int:
        """The number of sentences of the data set."""
        return len(self._inputs)

    def hypotheses(
        self,
        advance: Callable[[int], object] = lambda num_lines: None,
        *,
        stop: Callable[[], bool] = bool,
    ) -> list[str]:
        """Returns the best translation of each source, in order.

        `advance` is called with the number of lines of each finished batch, and `stop` polled after it.

        Raises:
            ValidationStopped: `stop` became true in this rank or in another one.
        """
        config, precision = self._config.decoding.for_segments(), self._precision
        searcher = SharedSearcher(
            *(self._model, self._tokenizer, config, self._ranks), precision=precision, fixed=True, stop=stop
        )
        translator = Translator(searcher, self._tokenizer, facts=self._facts)
        translations = translator.translate(self._inputs, advance)
        return [translation.hypotheses[0].text for translation in translations]

    def score(self, key: str, hypotheses: Sequence[str], stop: Callable[[], bool] = bool) -> float | None:
        """Scores translations of the sources in one metric, as `nmt-eval` does.

        `stop` is polled by slow metrics.

        Returns:
            The score; None if the metric has none.

        Raises:
            UserError: the metric can't be set up, or fails.
            ValidationStopped: `stop` became true.
        """
        metrics = self._metric(key)
        metrics[key].interrupted = stop
        texts = [self._held_out.references]
        warn_of_left_out(metrics, [hypotheses, *texts])
        try:
            return score_of(metrics[key], hypotheses, texts, self._held_out.sources)
        except ScoringStopped as stopped:
            raise ValidationStopped from stopped

    def _metric(self, key: str) -> dict[str, Metric]:
        target_lang = self._held_out.target_lang or self._config.data.target_lang
        return metrics_for(target_lang, self._config.evaluation, [key])

    def _samples(self, hypotheses: Sequence[str]) -> list[dict[str, Any]]:
        count = len(hypotheses)
        rows = sorted({count * part // _NUM_SAMPLES for part in range(_NUM_SAMPLES)})
        texts = {"source": self._inputs, "reference": self._held_out.references, "hypothesis": hypotheses}
        return [{name: lines[row] for name, lines in texts.items()} for row in rows]


def shared_scores(
    keys: Sequence[str], score: Callable[[str], float | None], ranks: Ranks
) -> dict[str, float | None]:
    """Computes each metric in one of the ranks; returns the scores of all in the order of `keys`.

    Raises:
        UserError: a metric failed, in this rank or in another one.
        ValidationStopped: `score` raised it, in this rank or in another one.
    """
    share: dict[str, float | None] | str | None = None
    try:
        share = {key: score(key) for key in keys[ranks.rank :: ranks.world]}
    except UserError as error:
        share = str(error)
    except ValidationStopped:
        pass
    shares = ranks.exchange(share)
    for problem in shares:
        if isinstance(problem, str):
            raise UserError(problem)
    if None in shares:
        raise ValidationStopped
    return {key: shares[number % ranks.world][key] for number, key in enumerate(keys)}


def validation_metrics(config: TrainConfig) -> list[str]:
    """Returns the keys of the metrics of a validation: those of the options, and that of the criterion.

    Raises:
        UserError: the criterion does not exist.
    """
    criterion, keys = criterion_for(config.training.criterion), config.training.validate_metrics
    return list(dict.fromkeys([*keys, criterion.metric] if criterion.metric else keys))


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
