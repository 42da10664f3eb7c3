"""The decoder of batches: searches, scores and aligns sentences that are ids already, on the device."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from nmt.config import DecodingConfig, Precision
from nmt.copying.translation import Placeholders
from nmt.data.batches.batching import Batch
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID, FORBIDDEN_IDS
from nmt.decoding.alignment.aligner import Aligner
from nmt.decoding.batches.jobs import ForcedJob, SearchJob, Sentences, Wanted, batches_by_length
from nmt.decoding.batches.limits import BatchLimits, batch_limits
from nmt.decoding.batches.workers import WorkerPool, num_workers, possible_workers, shared_size
from nmt.decoding.constraints.automaton import Automaton
from nmt.decoding.constraints.phrases import PhraseIds
from nmt.decoding.constraints.word_boundaries import continuing_ids
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.processors import NoRepeatNgram, Prefix, PrefixOptions, SearchProcessor
from nmt.decoding.sampling import Sampling, sample
from nmt.decoding.scorers import LengthPenalty
from nmt.decoding.scoring import forced_score
from nmt.decoding.search import Hypothesis, beam_search
from nmt.decoding.selection.coverage import ranked_by_coverage
from nmt.errors import UserError
from nmt.model import Seq2Seq
from nmt.runtime import kept_freed_memory, log, memory_errors
from nmt.runtime.fp32_products import fast_fp32_products
from nmt.runtime.lazy import cached_property

_DTYPES = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}
_PLACING_BEAM = 4  # hypotheses of a search that places tags, at least
_LONG = 32  # sentences of a call from which on it gains time to retain freed memory
_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


class BatchDecoder:
    """Decodes batches with one model or an ensemble, in worker processes if that is faster.

    Args:
        models: one or more; they are moved to `device`.
        aligner: of the same models.
        tokenizer: of the models.
        config: options of the search.
        device: the device to compute on.
        precision: precision of the matrix products.
        processors: applied in every search.
        placeholders: of the tokenizer.

    Attributes:
        ensemble: the models.
        max_target_tokens: the maximum length of a translation that a model requires; None: none does.
    """

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        aligner: Aligner,
        tokenizer: Tokenizer,
        config: DecodingConfig,
        *,
        device: torch.device,
        precision: Precision,
        processors: Sequence[SearchProcessor],
        placeholders: Placeholders,
    ) -> None:
        self.ensemble = Ensemble([model.to(device) for model in models])
        self.config, self.device, self.dtype = config, device, _DTYPES.get(precision)
        self.max_target_tokens = min(
            (model.max_target_len for model in models if model.max_target_len is not None), default=None
        )
        self._aligner, self._tokenizer = aligner, tokenizer
        self._processors, self._placeholders = processors, placeholders

    @cached_property
    def continuing(self) -> frozenset[int]:
        """The ids of the target pieces that continue a word."""
        return continuing_ids(self._tokenizer.target_vocabulary())

    def batches(self, lengths: Sequence[int]) -> list[list[int]]:
        """Groups sentences into batches; see `batches_by_length`.

        Args:
            lengths: number of tokens of each sentence.
        """
        config, limits = self.config, self.limits
        size = limits.sentences
        if config.max_sentences == "auto":
            size = shared_size(size, len(lengths), possible_workers(config.workers, self.device))
        return batches_by_length(lengths, limits.tokens, size)

    @cached_property
    def limits(self) -> BatchLimits:
        """The largest batches."""
        return batch_limits(self.config, self.ensemble.models, self.device)

    def run(
        self, work: Callable[[_Job], _Result], jobs: Sequence[_Job], batches: Sequence[Sequence[int]]
    ) -> Generator[tuple[int, _Result], None, None]:
        """Yields the index and the result of each job, in worker processes if that is faster."""
        count = num_workers(self.config.workers, self.device, batches)
        on_cpu = self.device.type == "cpu"
        fast, is_long = on_cpu and self.dtype is None, sum(map(len, batches)) >= _LONG
        with (
            evaluation_mode(self.ensemble.models),
            fast_fp32_products() if fast else contextlib.nullcontext(),
            kept_freed_memory() if on_cpu and is_long else contextlib.nullcontext(),
        ):
            if count == 1:
                yield from enumerate(map(work, jobs))
                return
            with WorkerPool(work, count) as pool:
                yield from pool.run(jobs)

    def search(self, job: SearchJob) -> list[list[Hypothesis]]:
        """Searches a batch; the attention of the hypotheses is what `job.wanted` says.

        A batch that does not fit into memory is searched in halves.
        """
        try:
            return self._search(job)
        except _BatchTooLarge as error:
            if len(job.sentences.sources) == 1:
                raise UserError(
                    f"decoding.beam_size={self.config.beam_size}: a line of {len(job.sentences.sources[0])} "
                    f"tokens does not fit into the memory of {self.device}. Lower it, or "
                    f"decoding.max_source_tokens={self.config.max_source_tokens}."
                ) from error
        # The error is gone here, and with it the memory of the search.
        if self.device.type == "cuda":
            torch.cuda.empty_cache()
        count = len(job.sentences.sources)
        log.info("a batch of %d sentences does not fit into memory, so it is translated in halves", count)
        halves = (range(count // 2), range(count // 2, count))
        return [
            found
            for half in halves
            for found in self.search(replace(job, sentences=job.sentences.take(half)))
        ]

    def _search(self, job: SearchJob) -> list[list[Hypothesis]]:
        config, wanted, sources = self.config, job.wanted, job.sentences.sources
        if job.sentences.fixed is not None:
            beam_size = max(config.beam_size, _PLACING_BEAM)
            placing = replace(config, beam_size=beam_size, nbest=1, samples=0, length_penalty=0.0)
            return self._search_batch(job.sentences, wanted, placing)
        if not config.coverage_penalty:
            return self._search_batch(job.sentences, wanted, config)
        # The alignment of words must not change the translations, so coverage has its own attention.
        covered = self._search_batch(
            job.sentences, Wanted(True, stricter=wanted.stricter), replace(config, nbest=config.beam_size)
        )
        found = [
            ranked_by_coverage(hypotheses, len(source), config.coverage_penalty, config.nbest)
            for source, hypotheses in zip(sources, covered, strict=True)
        ]
        if wanted.alignments:
            return self._aligned(sources, found)
        if wanted.attention:
            return found
        return [[replace(one, attention=None) for one in hypotheses] for hypotheses in found]

    def _aligned(
        self, sources: Sequence[Sequence[int]], found: Sequence[Sequence[Hypothesis]]
    ) -> list[list[Hypothesis]]:
        """Returns the hypotheses of each sentence with the attention of the heads that align words."""
        repeated = [source for source, those in zip(sources, found, strict=True) for _ in those]
        targets = [one.ids for those in found for one in those]
        with self.inference():
            attention = iter(self._aligner.forced(repeated, targets, self.device))
        return [[replace(one, attention=next(attention)) for one in those] for those in found]

    def _search_batch(
        self, sentences: Sentences, wanted: Wanted, config: DecodingConfig
    ) -> list[list[Hypothesis]]:
        sources = sentences.sources
        processors, limits = self._rules(sentences, wanted)
        ensemble = self._aligner.ensemble if wanted.alignments else self.ensemble
        with self.inference():
            batch = Batch.of(sources, [()] * len(sources)).to(self.device)
            if config.samples:
                sampling = Sampling(
                    config.samples, config.temperature, config.top_k, config.top_p, config.seed
                )
                search = partial(sample, options=sampling, scorer=LengthPenalty(config.length_penalty))
            else:
                constraints = [*map(self.automaton, sentences.phrases)]
                search = partial(
                    beam_search, num_sentences=len(sources), config=config, constraints=constraints
                )
            return search(
                ensemble.step,
                ensemble.start(batch),
                max_lengths=limits,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                forbidden=FORBIDDEN_IDS,
                processors=processors,
                sources=sources,
                attention=wanted.attention or wanted.alignments,
                device=self.device,
            )

    def _rules(self, sentences: Sentences, wanted: Wanted) -> tuple[tuple[SearchProcessor, ...], list[int]]:
        """Returns the processors of a search, and the maximum number of tokens of each translation."""
        sources, prefixes = sentences.sources, sentences.prefixes
        if sentences.fixed is not None:
            # A space may precede each placeholder.
            counts = map(self._placeholders.count, sources)
            limits = [len(ids) + 2 * count + 1 for ids, count in zip(sentences.fixed, counts, strict=True)]
            return (self._placeholders.placing(sentences.fixed, sentences.pairs, self.continuing),), limits
        processors = (*self._processors, *self._placeholders.processors(sources))
        if wanted.stricter:
            processors = (NoRepeatNgram(), *processors)
        if prefixes is not None:
            processors = (Prefix(PrefixOptions(tuple(map(tuple, prefixes))), processors),)
        return processors, self._max_lengths(sources, prefixes, sentences.phrases)

    def forced_score(self, job: ForcedJob) -> list[tuple[float, ...]]:
        """Returns the log-probability of each target token of each pair, EOS included."""
        with self.inference():
            batch = Batch.of(job.sources, [()] * len(job.sources)).to(self.device)
            return forced_score(
                self.ensemble.step,
                self.ensemble.start(batch),
                job.targets,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                device=self.device,
            )

    def forced_attention(self, job: ForcedJob) -> list[Tensor]:
        """Returns the attention of the heads that align words, (|Y|, S) for each pair."""
        with self.inference():
            return self._aligner.forced(job.sources, job.targets, self.device)

    @contextlib.contextmanager
    def inference(self) -> Iterator[None]:
        """Disables gradients, sets the precision, turns NaN and exhausted memory into `UserError`s."""
        autocast = torch.autocast(self.device.type, self.dtype, enabled=self.dtype is not None)
        try:
            with memory_errors(self._memory_error), torch.inference_mode(), autocast:
                yield
        except FloatingPointError as error:
            raise UserError(
                "the probabilities of the model are NaN: its weights are damaged, or its values are too "
                "large for fp16. Try precision=fp32."
            ) from error

    def _memory_error(self) -> UserError:
        limits = self.limits
        return _BatchTooLarge(
            f"decoding.max_tokens={limits.tokens}: a batch does not fit into the memory of {self.device}. "
            f"Lower it, or decoding.max_sentences={limits.sentences}."
        )

    def automaton(self, phrases: PhraseIds) -> Automaton | None:
        """Returns the automaton of the phrases of a sentence; None if it has none."""
        return Automaton(phrases, self.continuing) if phrases else None

    def _max_lengths(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]] | None,
        phrases: Sequence[PhraseIds],
    ) -> list[int]:
        """Returns for each source the maximum number of tokens of its translation, EOS included."""
        lengths = [self.config.max_target_tokens(len(source) + 1) for source in sources]
        begins = prefixes or [()] * len(lengths)
        needed = [
            sum(map(len, (begin, *found))) + (self._placeholders.count(source) if found else 0) + 1
            for begin, found, source in zip(begins, phrases, sources, strict=True)
        ]
        lengths = [*map(max, lengths, needed)]
        most = self.max_target_tokens
        return lengths if most is None else [min(length, most) for length in lengths]


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
