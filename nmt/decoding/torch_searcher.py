"""The searcher of PyTorch: searches, scores and aligns sentences of ids with one model or an ensemble.

Shapes: Y tokens of a target, EOS included; S source tokens; L decoder layers, H heads.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch
from torch import Tensor

from nmt.config import DecodingConfig, Precision
from nmt.data.batches.batching import Batch
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID, FORBIDDEN_IDS
from nmt.decoding.alignment import AlignmentHeads, heads_of
from nmt.decoding.constraints import Automaton
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.head_choice import HeadChoice, Pair, choose_heads
from nmt.decoding.processors import NoRepeatNgram, Prefix, PrefixOptions, configured_processors
from nmt.decoding.sampling import Sampling, sample
from nmt.decoding.scorers import LengthPenalty
from nmt.decoding.scoring import forced_attention, forced_score
from nmt.decoding.search import Hypothesis, StepOutput, beam_search, ranked_by_coverage
from nmt.decoding.search_batches import (
    BatchLimits,
    batch_limits,
    batches_by_length,
    num_workers,
    possible_workers,
    search_pool,
    shared_size,
)
from nmt.decoding.searcher import Job, Result, Searcher, SearchRequest, Sentence, placeholders_of
from nmt.decoding.terminology import continuing_ids
from nmt.decoding.utf8 import Characters
from nmt.errors import UserError
from nmt.model import DecoderState, Seq2Seq, put_on
from nmt.runtime.forks import undivided
from nmt.runtime.fp32_products import fast_fp32_products
from nmt.runtime.lazy import cached_property
from nmt.runtime.machine import kept_freed_memory, memory_errors
from nmt.runtime.streams import log
from nmt.search_processor import SearchInput, SearchProcessor

_DTYPES = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}
_PLACING_BEAM = 4  # hypotheses of a search that places tags, at least
_LONG = 32  # sentences of a call from which on it gains time to retain freed memory
_PAIRS_PER_CHOICE = 64  # pairs whose attention in all heads is computed at once


@dataclass(frozen=True)
class _SearchJob:
    """A batch to search."""

    sentences: Sequence[Sentence]
    request: SearchRequest


class TorchSearcher(Searcher):
    """Searches with one model or an ensemble, in worker processes if that is faster.

    Args:
        models: one model, or several that translate together; they are moved to `device`.
        tokenizer: the tokenizer of the models. Its target vocabulary and placeholders are used.
        config: the options of the search.
        device: the device to compute on.
        precision: precision of the matrix products; in fp32 the translation of a sentence does not depend on
            the other sentences of its batch.
        processors: applied in every search, after the processors of `config`.
        heads: for each model the heads that align its words, or None; see `nmt.decoding.alignment`.

    Attributes:
        ensemble: the models.
        max_target_tokens: the maximum length of a translation that a model requires; None: none does.

    Raises:
        UserError: a processor of `config` is not registered, or has a wrong option.
    """

    has_attention = True

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        tokenizer: Tokenizer,
        config: DecodingConfig,
        *,
        device: torch.device,
        precision: Precision = Precision.fp32,
        processors: Sequence[SearchProcessor] = (),
        heads: Sequence[AlignmentHeads | None] | None = None,
    ) -> None:
        # A model may require shorter sources than the options.
        limits = [model.max_source_len for model in models if model.max_source_len is not None]
        self.max_source_tokens = min([config.max_source_tokens, *limits])
        self.max_target_tokens = min(
            (model.max_target_len for model in models if model.max_target_len is not None), default=None
        )
        self.places_tags = self.max_target_tokens is None  # else tags might not fit
        self.ensemble = Ensemble([put_on(model, device) for model in models])
        self.config, self.device, self.precision = config, device, precision
        self._tokenizer, self._extra_processors = tokenizer, processors
        self.processors = (*configured_processors(config), *processors)
        self._placeholders = placeholders_of(tokenizer, config)
        self._stored_heads = [None] * len(models) if heads is None else heads

    def with_options(self, config: DecodingConfig) -> TorchSearcher:
        """See `Searcher.with_options`."""
        return TorchSearcher(
            self.ensemble.models,
            self._tokenizer,
            config,
            device=self.device,
            precision=self.precision,
            processors=self._extra_processors,
            heads=self._stored_heads,
        )

    @property
    def sentences_per_batch(self) -> int:
        """See `Searcher.sentences_per_batch`."""
        return self._limits.sentences

    @property
    def num_processes(self) -> int:
        """See `Searcher.num_processes`."""
        return possible_workers(self.config.workers, self.device)

    @cached_property
    def _limits(self) -> BatchLimits:
        return batch_limits(self.config, self.ensemble.models, self.device)

    @cached_property
    def _continuing(self) -> frozenset[int]:
        """The ids of the target pieces that continue a word."""
        return continuing_ids(self._tokenizer.target.names)

    @cached_property
    def _characters(self) -> Characters | None:
        """The rules for byte pieces; None if the target vocabulary has none."""
        return Characters.of(self._tokenizer.target.names, self.device)

    @cached_property
    def _aligning(self) -> Ensemble:
        """The models; the attention of a step belongs to the token that the step reads.

        Raises:
            UserError: a model has no attention to the source, or no such head.
        """
        models = self.ensemble.models
        return Ensemble(models, heads_of(models, self._stored_heads, self.config))

    def prepare(self, request: SearchRequest, *, constraints: bool) -> None:
        """See `Searcher.prepare`. What is computed here is not computed again in each worker process."""
        if request.alignments:
            _ = self._aligning
        if constraints:
            _ = self._continuing

    def search(
        self,
        sentences: Sequence[Sentence],
        request: SearchRequest,
        advance: Callable[[int], object] = lambda num_sentences: None,
    ) -> Iterator[tuple[int, list[Hypothesis]]]:
        """See `Searcher.search`. A batch that does not fit into memory is searched in halves."""
        _ = self._characters  # computed once, before worker processes are forked, as the facts below
        if any(sentence.finished is not None for sentence in sentences):
            _ = self._continuing, self._placeholders.target_facts
        batches = self._batches([len(sentence.source) + 1 for sentence in sentences])
        jobs = [_SearchJob([sentences[index] for index in batch], request) for batch in batches]
        yield from self._results(self._search_or_halve, jobs, batches, advance)

    def score(
        self, pairs: Sequence[Pair], advance: Callable[[int], object]
    ) -> Iterator[tuple[int, tuple[float, ...]]]:
        """Yields the index of each pair and the log-probability of each target token, EOS included.

        Args:
            pairs: source ids, at most `max_source_tokens` with EOS, and target ids.
            advance: called with the number of pairs of each finished batch.

        Raises:
            UserError: a probability is NaN, or a batch does not fit into memory.
        """
        return self._read(partial(self._forced, forced_score, self.ensemble), pairs, advance)

    def attention(
        self, pairs: Sequence[Pair], advance: Callable[[int], object]
    ) -> Iterator[tuple[int, Tensor]]:
        """Yields the index of each pair and (Y, S), the attention of the heads that align words; see `score`.

        Raises:
            UserError: as for `score`; or a model has no attention to the source, or no such head.
        """
        return self._read(partial(self._forced, forced_attention, self._aligning), pairs, advance)

    def choose_heads(self, pairs: Sequence[Pair], more: Sequence[Pair] = ()) -> HeadChoice | None:
        """Chooses the heads that align words, for a searcher with one model; see `choose_heads`.

        Raises:
            UserError: the model has no attention to the source, or memory ran out.
        """
        [model] = self.ensemble.models

        def attention(decoded: Sequence[Pair]) -> list[Tensor]:
            weights: list[Tensor] = []
            for start in range(0, len(decoded), _PAIRS_PER_CHOICE):
                weights += attention_of_heads(model, decoded[start : start + _PAIRS_PER_CHOICE], self.device)
            return weights

        most, longest = self.max_target_tokens, self.max_source_tokens
        pairs = [
            (source, target)
            for source, target in pairs
            if len(source) < longest and (most is None or len(target) < most)
        ]
        with evaluation_mode([model]), self.inference():
            return choose_heads(attention, pairs, more)

    def run(
        self, work: Callable[[Job], Result], jobs: Sequence[Job], batches: Sequence[Sequence[int]]
    ) -> Generator[tuple[int, Result], None, None]:
        """See `Searcher.run`. The jobs run in worker processes if that is faster."""
        count = num_workers(self.config.workers, self.device, batches)
        on_cpu = self.device.type == "cpu"
        is_fp32, is_long = self.precision not in _DTYPES, sum(map(len, batches)) >= _LONG
        with (
            evaluation_mode(self.ensemble.models),
            fast_fp32_products() if on_cpu and is_fp32 else contextlib.nullcontext(),
            kept_freed_memory() if on_cpu and is_long else contextlib.nullcontext(),
        ):
            if count == 1:
                yield from enumerate(map(work, jobs))
                return
            with search_pool(work, count) as pool:
                yield from pool.run(jobs)

    def _results(
        self,
        work: Callable[[Job], list[Result]],
        jobs: Sequence[Job],
        batches: Sequence[Sequence[int]],
        advance: Callable[[int], object],
    ) -> Iterator[tuple[int, Result]]:
        """Yields the index and the result of each sentence, batch by batch."""
        with contextlib.closing(self.run(work, jobs, batches)) as finished:
            for number, results in finished:
                yield from zip(batches[number], results, strict=True)
                advance(len(batches[number]))

    def _batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """Groups sentences with these numbers of tokens into batches; see `batches_by_length`."""
        config, size = self.config, self._limits.sentences
        if config.max_sentences == "auto":
            size = shared_size(size, len(lengths), possible_workers(config.workers, self.device))
        return batches_by_length(lengths, self._limits.tokens, size)

    def _search_or_halve(self, job: _SearchJob) -> list[list[Hypothesis]]:
        """Searches a batch, in halves if it does not fit into memory."""
        count = len(job.sentences)
        try:
            return self._search(job.sentences, job.request)
        except _BatchTooLarge as error:
            if count == 1:
                raise UserError(
                    f"decoding.beam_size={self.config.beam_size}: a line of {len(job.sentences[0].source)} "
                    f"tokens does not fit into the memory of {self.device}. Lower it, or "
                    f"decoding.max_source_tokens={self.config.max_source_tokens}."
                ) from error
        # The error is gone here, and with it the memory of the search.
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        log.info("a batch of %d sentences does not fit into memory, so it is translated in halves", count)
        halves = job.sentences[: count // 2], job.sentences[count // 2 :]
        first, second = (self._search_or_halve(_SearchJob(half, job.request)) for half in halves)
        return [*first, *second]

    def _search(self, sentences: Sequence[Sentence], request: SearchRequest) -> list[list[Hypothesis]]:
        config = self.config
        if sentences[0].finished is not None:
            beam_size = max(config.beam_size, _PLACING_BEAM)
            placing = replace(config, beam_size=beam_size, nbest=1, samples=0, mbr=None, length_penalty=0.0)
            return self._search_batch(sentences, request, placing)
        if not config.coverage_penalty:
            return self._search_batch(sentences, request, config)
        # The alignment of words must not change the translations, so coverage has its own attention.
        with_attention = replace(request, attention=True, alignments=False)
        candidates = self._search_batch(sentences, with_attention, replace(config, nbest=config.beam_size))
        ranked = [
            ranked_by_coverage(hypotheses, len(sentence.source), config.coverage_penalty, config.nbest)
            for sentence, hypotheses in zip(sentences, candidates, strict=True)
        ]
        if request.attention:
            return ranked
        attention: Iterator[Tensor | None] = iter([None] * sum(map(len, ranked)))
        if request.alignments:
            pairs = [
                (sentence.source, hypothesis.ids)
                for sentence, hypotheses in zip(sentences, ranked, strict=True)
                for hypothesis in hypotheses
            ]
            weights = self._forced(forced_attention, self._aligning, pairs)
            attention = iter(weights)
        return [
            [replace(hypothesis, attention=next(attention)) for hypothesis in hypotheses]
            for hypotheses in ranked
        ]

    def _search_batch(
        self, sentences: Sequence[Sentence], request: SearchRequest, config: DecodingConfig
    ) -> list[list[Hypothesis]]:
        sources = [sentence.source for sentence in sentences]
        processors, limits = self._rules(sentences, request)
        ensemble = self._aligning if request.alignments else self.ensemble
        automata = [
            Automaton(sentence.phrases, self._continuing) if sentence.phrases else None
            for sentence in sentences
        ]
        if config.samples:
            sampling = Sampling(config.samples, config.temperature, config.top_k, config.top_p, config.seed)
            search = partial(sample, options=sampling, scorer=LengthPenalty(config.length_penalty))
        else:
            search = partial(beam_search, config=config, constraints=automata)
        with self.inference():
            return search(
                ensemble.step,
                ensemble.start(Batch.of(sources, [()] * len(sources)).to(self.device)),
                SearchInput(len(sources), sources, limits, BOS_ID, EOS_ID, self.device),
                forbidden=FORBIDDEN_IDS,
                processors=processors,
                characters=self._started(sentences, limits),
                attention=request.attention or request.alignments,
            )

    def _rules(
        self, sentences: Sequence[Sentence], request: SearchRequest
    ) -> tuple[tuple[SearchProcessor, ...], list[int]]:
        """Returns the processors of a search, and the maximum number of tokens of each translation."""
        sources = [sentence.source for sentence in sentences]
        finished = [sentence.finished for sentence in sentences if sentence.finished is not None]
        if finished:
            # A space may precede each placeholder.
            counts = map(self._placeholders.count, sources)
            limits = [len(ids) + 2 * count + 1 for ids, count in zip(finished, counts, strict=True)]
            pairs = [sentence.tag_pairs for sentence in sentences]
            return (self._placeholders.placing(finished, pairs, self._continuing),), limits
        processors = (*self.processors, *self._placeholders.processors(sources))
        if request.stricter:
            processors = (NoRepeatNgram(), *processors)
        limits = [*map(self._max_length, sentences)]
        if any(sentence.prefix for sentence in sentences):
            prefixes = PrefixOptions(tuple(map(self._prefix, sentences, limits)))
            processors = (Prefix(prefixes, processors),)
        return processors, limits

    def _prefix(self, sentence: Sentence, limit: int) -> tuple[int, ...]:
        """Returns the prefix of a sentence, which is cut between two characters."""
        prefix = tuple(sentence.prefix)
        if self._characters and len(prefix) >= limit:
            return tuple(self._characters.rules.whole(prefix[: limit - 1]))
        return prefix

    def _started(self, sentences: Sequence[Sentence], limits: Sequence[int]) -> Characters | None:
        """Returns the rules for the byte pieces of a search; placeholders may need the end of a sentence."""
        reserved = [self._placeholders.count(one.source) * (one.finished is None) for one in sentences]
        ends = [limit - count for limit, count in zip(limits, reserved, strict=True)]
        return self._characters and self._characters.start(ends, [len(one.prefix) for one in sentences])

    def _max_length(self, sentence: Sentence) -> int:
        """Returns the maximum number of tokens of a translation, EOS included."""
        length = self.config.max_target_tokens(len(sentence.source) + 1)
        copied = self._placeholders.count(sentence.source) if sentence.phrases else 0
        missing = self._characters.rules.num_missing(sentence.prefix) if self._characters else 0
        length = max(length, sum(map(len, (sentence.prefix, *sentence.phrases))) + missing + copied + 1)
        return length if self.max_target_tokens is None else min(length, self.max_target_tokens)

    def _read(
        self,
        work: Callable[[Sequence[Pair]], list[Result]],
        pairs: Sequence[Pair],
        advance: Callable[[int], object],
    ) -> Iterator[tuple[int, Result]]:
        """Yields the index and the result of each pair, batch by batch."""
        batches = self._batches([max(len(source), len(target)) + 1 for source, target in pairs])
        jobs = [[pairs[index] for index in batch] for batch in batches]
        return self._results(work, jobs, batches, advance)

    def _forced(
        self, function: Callable[..., list[Result]], ensemble: Ensemble, pairs: Sequence[Pair]
    ) -> list[Result]:
        """Calls `forced_score` or `forced_attention` with the targets of pairs."""
        sources, targets = zip(*pairs, strict=True)
        with self.inference():
            state = ensemble.start(Batch.of(sources, [()] * len(sources)).to(self.device))
            return function(ensemble.step, state, targets, bos_id=BOS_ID, eos_id=EOS_ID, device=self.device)

    @contextlib.contextmanager
    def inference(self) -> Iterator[None]:
        """Disables gradients, sets the precision, turns NaN and exhausted memory into `UserError`s."""
        dtype = _DTYPES.get(self.precision)
        autocast = torch.autocast(self.device.type, dtype, enabled=dtype is not None)
        try:
            with undivided(), memory_errors(self._memory_error), torch.inference_mode(), autocast:
                yield
        except FloatingPointError as error:
            raise UserError(
                "the probabilities of the model are NaN: its weights are damaged, or its values are too "
                "large for fp16. Try precision=fp32."
            ) from error

    def _memory_error(self) -> UserError:
        limits = self._limits
        return _BatchTooLarge(
            f"decoding.max_tokens={limits.tokens}: a batch does not fit into the memory of {self.device}. "
            f"Lower it, or decoding.max_sentences={limits.sentences}."
        )


class _BatchTooLarge(UserError):
    """A batch does not fit into memory."""


@contextlib.contextmanager
def evaluation_mode(models: Sequence[Seq2Seq]) -> Iterator[None]:
    """Sets the models to evaluation mode; restores the mode of each at the end."""
    were_training = [model.training for model in models]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for model, was_training in zip(models, were_training, strict=True):
            model.train(was_training)


def attention_of_heads(model: Seq2Seq, pairs: Sequence[Pair], device: torch.device) -> list[Tensor]:
    """Returns (Y, L, H, S) for each pair of ids: the attention of all heads for each token."""

    def step(ids: Tensor, state: DecoderState, /, *, attention: bool = False) -> StepOutput[DecoderState]:
        return StepOutput(*model.step_with_heads(ids, state))

    sources, targets = zip(*pairs, strict=True)
    state = model.start(Batch.of(sources, [()] * len(sources)).to(device))
    return forced_attention(step, state, targets, bos_id=BOS_ID, eos_id=EOS_ID, device=device)
