"""Validation on all ranks of the model on held-out text: loss, perplexity, metrics of translations, samples.

Each rank computes some of the batches and some of the metrics. Losses are added in the order of the data, so
they do not depend on the number of ranks. Neither do translations, except in bf16 on a CPU, where one rank
with several threads searches smaller batches, which changes rounding.
"""

from __future__ import annotations

import math
from base64 import b64decode, b64encode
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import closing
from dataclasses import replace
from itertools import islice
from typing import Any, TypeAlias, TypeVar, cast

import torch
from torch import Tensor

from nmt.config import DecodingConfig, Precision, TrainConfig
from nmt.data.batches.stream import validation_batches
from nmt.data.corpora.held_out import HeldOut
from nmt.data.preparation.prepare import Prepared
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.decoding.alignment import AlignmentHeads
from nmt.decoding.facts import TextFacts
from nmt.decoding.search import Hypothesis
from nmt.decoding.search_batches import with_fixed_limits
from nmt.decoding.searcher import Job, Result
from nmt.decoding.torch_searcher import TorchSearcher
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.evaluation.metrics import Metric, ScoringStopped, metrics_for
from nmt.evaluation.scores import mean_score, score_of, warn_of_left_out
from nmt.model import Seq2Seq
from nmt.training.figures.validated import Criterion, Figures, Validation, validation_metrics
from nmt.training.processes.ranks import Ranks, in_turn
from nmt.training.update.objective import build_objective

K = TypeVar("K")
_Packed: TypeAlias = tuple[int, str]
"""The width of attention weights, 0 for none, and their bytes."""
_NUM_SAMPLES = 3


class ValidationStopped(Exception):
    """A stop was requested before the validation was complete."""


class SharedSearcher(TorchSearcher):
    """Searches each batch in one of the ranks; every rank gets all hypotheses.

    All ranks call it with the same sentences. `heads` align words, in each model. By default, as before the
    end of a training, all of the last layer do.

    With `fixed`, the batches do not depend on the free memory of a GPU. `stop` is polled after each batch.
    """

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        tokenizer: Tokenizer,
        config: DecodingConfig,
        ranks: Ranks,
        *,
        precision: Precision = Precision.fp32,
        heads: AlignmentHeads | None = None,
        fixed: bool = False,
        stop: Callable[[], bool] = bool,
    ) -> None:
        if fixed or ranks.world > 1:
            config = with_fixed_limits(config, ranks.device)
        if ranks.world > 1:  # by default, the batches on a CPU depend on its threads
            config = replace(config, max_sentences=config.sentences_per_batch)
        of_models = [heads or AlignmentHeads()] * len(models)
        super().__init__(models, tokenizer, config, device=ranks.device, precision=precision, heads=of_models)
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
                    [
                        (one.ids, one.score, one.log_prob, one.unmet, _packed(one.attention))
                        for one in hypotheses
                    ]
                    for hypotheses in cast(Sequence[Sequence[Hypothesis]], result)
                ]
                yield own[index], result
        shares = ranks.exchange(None if self._stop() else results)
        if None in shares:
            raise ValidationStopped
        for share in shares[: ranks.rank] + shares[ranks.rank + 1 :]:
            for number, sentences in share.items():
                yield int(number), cast(Result, [list(map(_hypothesis, some)) for some in sentences])


def _hypothesis(fields: tuple[Sequence[int], float, float, Sequence[int], _Packed]) -> Hypothesis:
    ids, score, log_prob, unmet, (width, weights) = fields
    attention = None
    if width:
        attention = torch.frombuffer(bytearray(b64decode(weights)), dtype=torch.float32).view(-1, width)
    return Hypothesis(tuple(ids), score, log_prob, attention, tuple(unmet))


def _packed(attention: Tensor | None) -> _Packed:
    """Packs weights as float32: bytes have a quarter of the length that numbers would have in JSON."""
    if attention is None:
        return 0, ""
    return attention.shape[1], b64encode(attention.float().contiguous().numpy().tobytes()).decode()


class Validator:
    """Validates one model on the validation sets of a run, as often as needed; all ranks call it together.

    It computes the `final` figures in fp32, on the first `sentences` of each set (0: all); otherwise those of
    the first `training.validate_sentences`, in the precision of the training. `names` are those of the sets;
    by default all.
    """

    def __init__(
        self,
        model: Seq2Seq,
        config: TrainConfig,
        prepared: Prepared,
        ranks: Ranks,
        *,
        final: bool = False,
        sentences: int = 0,
        names: Sequence[str] = (),
    ) -> None:
        self._model, self._config, self._tokenizer, self._ranks = model, config, prepared.tokenizer, ranks
        self._precision = Precision.fp32 if final else config.training.precision
        self._objective = build_objective(config.training)
        count = sentences if final else config.training.validate_sentences
        names = names or list(prepared.valid)
        self._sets = {name: _first(prepared.valid[name], count) for name in names}
        max_tokens = int(config.data.max_tokens)
        self._batches = [
            (name, batch)
            for name in names
            for batch in validation_batches(
                prepared.valid_stores[name].first(count), max_tokens, model.longest
            )
        ]
        self._facts = TextFacts.of(config.data, {"data": prepared.report})

    def validate(self, stop: Callable[[], bool]) -> Validation:
        """Computes loss and translations; leaves the model in the mode it was in.

        Raises:
            UserError: a metric can't be set up, or fails.
            ValidationStopped: `stop` became true in this rank or in another one.
        """
        losses, hypotheses = self.losses(stop), self.hypotheses(stop=stop)
        # By default, TER is computed only at the end of the run, as it is the slowest metric.
        keys = validation_metrics(self._config)
        scores = self._scores(keys, hypotheses, stop)
        figures = {name: Figures(*losses[name], scores[name]) for name in self._sets}
        return Validation(figures, self._samples(hypotheses))

    @torch.no_grad()
    def losses(self, stop: Callable[[], bool] = bool) -> dict[str, tuple[float, float]]:
        """Returns the label-smoothed cross-entropy and -log p of each set, means a target token.

        Raises:
            ValidationStopped: `stop` became true in this rank or in another one.
        """
        ranks, sums = self._ranks, list[Tensor]()
        training = self._model.training
        self._model.eval()
        try:
            for _, batch in self._batches[ranks.rank :: ranks.world]:
                if stop():
                    break
                losses = self._objective(self._model, batch.to(ranks.device), precision=self._precision)
                sums.append(torch.stack([losses.loss, losses.nll]).double())
        finally:
            self._model.train(training)
        shares = ranks.exchange(None if stop() else torch.stack(sums).tolist() if sums else [])
        if None in shares:
            raise ValidationStopped
        totals = {name: torch.zeros(2, dtype=torch.float64) for name in self._sets}
        tokens = dict.fromkeys(self._sets, 0)
        for (name, batch), part in zip(self._batches, in_turn(shares), strict=True):
            totals[name] += torch.tensor(part, dtype=torch.float64)
            tokens[name] += batch.num_target_tokens
        means = {name: (total / tokens[name]).tolist() for name, total in totals.items()}
        return {name: (loss, nll) for name, (loss, nll) in means.items()}

    def judge(
        self, criterion: Criterion, advance: Callable[[int], object]
    ) -> tuple[float, float | None, dict[str, list[str]] | None]:
        """Returns the loss, and with a metric its score and the translations; the same in all ranks.

        Loss and score are means over the sets. `advance` is called in rank 0 with the number of lines of each
        finished batch.
        """
        loss = self.mean_loss()
        if criterion.metric is None:
            if self._ranks.is_main:
                advance(self.num_sentences)
            return loss, None, None
        return loss, *self.scored(criterion.metric, advance)

    def mean_loss(self) -> float:
        """Returns the mean of the losses of the sets."""
        losses = [loss for loss, _ in self.losses().values()]
        return math.fsum(losses) / len(losses)

    def scored(
        self, metric: str, advance: Callable[[int], object]
    ) -> tuple[float | None, dict[str, list[str]]]:
        """Returns the score of a metric, and the translations; the same in all ranks. See `judge`."""
        hypotheses = self.hypotheses(advance if self._ranks.is_main else lambda num_lines: None)
        return self.scores([metric], hypotheses)[metric], hypotheses

    def scores(self, keys: Sequence[str], hypotheses: Mapping[str, Sequence[str]]) -> dict[str, float | None]:
        """Returns the scores of translations of all sets in these metrics, means over the sets."""
        scores = self._scores(keys, hypotheses)
        return {key: mean_score([of_set[key] for of_set in scores.values()]) for key in keys}

    @property
    def num_sentences(self) -> int:
        """The number of sentences of all sets."""
        return sum(len(text.sources) for text in self._sets.values())

    def hypotheses(
        self,
        advance: Callable[[int], object] = lambda num_lines: None,
        *,
        stop: Callable[[], bool] = bool,
    ) -> dict[str, list[str]]:
        """Returns the best translation of each source of each set, in order.

        `advance` is called with the number of lines of each finished batch, and `stop` polled after it.

        Raises:
            ValidationStopped: `stop` became true in this rank or in another one.
        """
        config, precision = self._config.decoding.for_segments(), self._precision
        searcher = SharedSearcher(
            *([self._model], self._tokenizer, config, self._ranks), precision=precision, fixed=True, stop=stop
        )
        translator = Translator(searcher, self._tokenizer, facts=self._facts)
        return translated_sets(translator, self._sets, advance)

    def _scores(
        self, keys: Sequence[str], hypotheses: Mapping[str, Sequence[str]], stop: Callable[[], bool] = bool
    ) -> dict[str, dict[str, float | None]]:
        """Returns the scores of each set in these metrics; see `shared_scores`."""
        jobs = [(name, key) for name in self._sets for key in keys]
        scores = shared_scores(jobs, lambda job: self._score(*job, hypotheses[job[0]], stop), self._ranks)
        for name, key in jobs if self._ranks.is_main else ():
            if (name, key) not in jobs[:: self._ranks.world]:  # computed by another rank, which logs nothing
                warn_of_left_out(self._metric(name, key), [hypotheses[name], self._sets[name].references])
        return {name: {key: scores[name, key] for key in keys} for name in self._sets}

    def _score(
        self, name: str, key: str, hypotheses: Sequence[str], stop: Callable[[], bool]
    ) -> float | None:
        """Scores translations of a set in one metric, as `nmt-eval` does.

        `stop` is polled by slow metrics.

        Returns:
            The score; None if the metric has none.

        Raises:
            UserError: the metric can't be set up, or fails.
            ValidationStopped: `stop` became true.
        """
        metrics, text = self._metric(name, key), self._sets[name]
        metrics[key].interrupted = stop
        warn_of_left_out(metrics, [hypotheses, text.references])
        try:
            return score_of(metrics[key], hypotheses, [text.references], text.sources)
        except ScoringStopped as stopped:
            raise ValidationStopped from stopped

    def _metric(self, name: str, key: str) -> dict[str, Metric]:
        return metrics_for(self._sets[name].target_lang, self._config.evaluation, [key])

    def _samples(self, hypotheses: Mapping[str, Sequence[str]]) -> list[dict[str, str]]:
        """Returns a few sentences: several of a single set, or the first of each set."""
        samples = []
        for name, text in self._sets.items():
            count, number = len(text.sources), _NUM_SAMPLES if len(self._sets) == 1 else 1
            sides = {"source": text.inputs, "reference": text.references, "hypothesis": hypotheses[name]}
            for row in sorted({count * part // number for part in range(number)}):
                label = {"set": name} if name else {}
                samples.append(label | {side: lines[row] for side, lines in sides.items()})
        return samples


def _first(text: HeldOut, count: int) -> HeldOut:
    """Returns the first sentences of a set, without its groups; 0: all."""
    end = count or None
    return replace(text, sources=text.sources[:end], references=text.references[:end], groups=None)


def translated_sets(
    translator: Translator, sets: Mapping[str, HeldOut], advance: Callable[[int], object]
) -> dict[str, list[str]]:
    """Returns the best translation of each source of each set, in order; the sets share batches."""
    inputs = [line for text in sets.values() for line in text.inputs]
    best = iter([translation.hypotheses[0].text for translation in translator.translate(inputs, advance)])
    return {name: list(islice(best, len(text.sources))) for name, text in sets.items()}


def shared_scores(
    keys: Sequence[K], score: Callable[[K], float | None], ranks: Ranks
) -> dict[K, float | None]:
    """Computes each score in one of the ranks; returns all scores in the order of `keys`.

    Raises:
        UserError: a metric failed, in this rank or in another one.
        ValidationStopped: `score` raised it, in this rank or in another one.
    """
    share: list[float | None] | str | None = None
    try:
        share = [score(key) for key in keys[ranks.rank :: ranks.world]]
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
    return dict(zip(keys, in_turn(shares), strict=True))
