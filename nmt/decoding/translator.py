"""The translator of text: tokenises lines, batches them by length, translates or scores them.

The results are in the order of the lines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from nmt.config import DecodingConfig, Precision
from nmt.data.batches.batching import Batch
from nmt.data.subwords.placeholders import NUM_PLACEHOLDERS
from nmt.data.subwords.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.placeholders import Placeholders, needs_no_model
from nmt.decoding.processors import Prefix, PrefixOptions, SearchProcessor, configured_processors
from nmt.decoding.sampling import Sampling, sample
from nmt.decoding.scorers import LengthPenalty
from nmt.decoding.scoring import ScoredTarget, forced_score
from nmt.decoding.search import Hypothesis, beam_search
from nmt.decoding.windows import full_windows, ready_windows
from nmt.decoding.workers import WorkerPool, num_workers
from nmt.errors import UserError
from nmt.model import Seq2Seq
from nmt.runtime import memory_errors

_DTYPES = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}


@dataclass(frozen=True)
class ScoredText:
    """A translation and its score.

    Attributes:
        text: one line, without the line break.
        score: log-probability divided by the length penalty.
        attention: (target tokens, source tokens) on the CPU, EOS counted on both sides: the attention weights
            of the source tokens for each target token. None if it was not requested, and for a blank line.
    """

    text: str
    score: float
    attention: Tensor | None = field(default=None, compare=False, repr=False)


@dataclass(frozen=True)
class Translation:
    """The result for one line.

    Attributes:
        hypotheses: best first; one or more, at most `decoding.nbest`, or all samples.
        truncated: number of source tokens if the source was cut, otherwise 0.
        num_tokens: target tokens of the best hypothesis, EOS counted; 0 for a blank line.
        cut_to: maximum number of source tokens: `decoding.max_source_tokens`, or less if a model requires it.
        appended: number of URLs, tags and variables that are at the end of the best hypothesis because the
            search did not place them.
        skipped: number of characters that are not translated because the line has too many such strings.
    """

    hypotheses: tuple[ScoredText, ...]
    truncated: int = 0
    num_tokens: int = 0
    cut_to: int = 0
    appended: int = 0
    skipped: int = 0

    def placeholder_warnings(self) -> list[str]:
        """Returns a warning for `appended` and for `skipped`, without the name of the line."""
        found = []
        if self.appended:
            found.append(f"{self.appended:,} URLs, tags or variables appended at the end of the translation")
        if self.skipped:
            found.append(
                f"more than {NUM_PLACEHOLDERS} URLs, tags or variables; {self.skipped:,} characters between "
                "them not translated"
            )
        return found


BLANK = Translation((ScoredText("", 0.0),))
"""The result for a blank line: the empty line with the probability 1."""


@dataclass(frozen=True)
class _SearchJob:
    """A batch to search: source ids, the first target ids of each, and whether to return attention."""

    sources: Sequence[Sequence[int]]
    prefixes: Sequence[Sequence[int]] | None
    attention: bool


@dataclass(frozen=True)
class _ScoreJob:
    """A batch to score: source ids and target ids."""

    sources: Sequence[Sequence[int]]
    targets: Sequence[Sequence[int]]


_Job = TypeVar("_Job")
_Result = TypeVar("_Result")


class Translator:
    """Translates and scores text with one model or an ensemble.

    Args:
        models: one model, or several that translate together; they are moved to `device`.
        tokenizer: the tokenizer that the models were trained with.
        config: options of beam search and batching.
        device: the device to compute on.
        precision: precision of the matrix products; in fp32 the translation of a line does not depend on the
            other lines of its batch.
        processors: applied in every search, after the processors of `config`.
    """

    def __init__(
        self,
        models: Sequence[Seq2Seq],
        tokenizer: Tokenizer,
        config: DecodingConfig,
        *,
        device: torch.device,
        precision: Precision = Precision.fp32,
        processors: Sequence[SearchProcessor] = (),
    ) -> None:
        self._ensemble = Ensemble([model.to(device) for model in models])
        self.tokenizer = tokenizer
        self.config = config
        self.device = device
        self.dtype = _DTYPES.get(precision)
        limits = [model.max_source_len for model in models], [model.max_target_len for model in models]
        sources, targets = ([limit for limit in side if limit is not None] for side in limits)
        # Longer sources are cut: `decoding.max_source_tokens`, or less if a model requires it.
        self.max_source_tokens = min([config.max_source_tokens, *sources])
        self._max_target_tokens = min(targets, default=None)
        self.processors = (*configured_processors(config), *processors)
        self._placeholders = Placeholders(tokenizer, config.placeholders)

    def translate(
        self,
        lines: Sequence[str],
        advance: Callable[[int], object] = lambda num_lines: None,
        *,
        prefixes: Sequence[str] | None = None,
        attention: bool = False,
    ) -> list[Translation]:
        """Translates lines of any content.

        Args:
            lines: if a line is blank or has no pieces, its translation is the empty line; the model does not
                read it. With placeholders, a line of URLs, tags and variables alone is its own translation.
            advance: called with the number of lines of each finished batch, for example to update a progress
                bar.
            prefixes: for each line the beginning of its translation, which may be empty. Processors can't
                forbid the pieces of a prefix. The limits `decoding.max_length_factor` and
                `decoding.max_length_offset` do not apply to a prefix, but a maximum length of the model does:
                a longer prefix is cut. The translation of a blank line is the empty line for any prefix.
            attention: whether to return the attention of every hypothesis.

        Returns:
            A translation for each line, in order.

        Raises:
            UserError: the probabilities of the model are NaN, it has no attention to return, or a batch does
                not fit into the memory of the device.
        """
        assert prefixes is None or len(prefixes) == len(lines), "there must be one prefix per line"
        masked = self._placeholders.masked(lines)
        copied = [
            needs_no_model(line) and not (prefixes and prefixes[row].strip())
            for row, line in enumerate(masked)
        ]
        pieces = self._encode_sources(
            ["" if copies else line.text for copies, line in zip(copied, masked, strict=True)]
        )
        prefix_ids = None
        if prefixes is not None:
            starts = self._placeholders.masked_prefixes(prefixes, masked)
            prefix_ids = self.tokenizer.encode_target([*map(_empty_if_blank, starts)])
        rows = [row for row, ids in enumerate(pieces) if ids]
        sources = [self._truncate(pieces[row]) for row in rows]
        advance(len(lines) - len(rows))
        found: list[list[Hypothesis]] = [[] for _ in sources]
        lengths = [len(source) + 1 for source in sources]
        batches = batches_by_length(lengths, self.config.max_tokens, self.config.max_sentences)
        jobs = [
            _SearchJob(
                [sources[place] for place in batch],
                None if prefix_ids is None else [prefix_ids[rows[place]] for place in batch],
                attention,
            )
            for batch in batches
        ]
        with contextlib.closing(self._run(self._search, jobs, batches)) as done:
            for number, results in done:
                for place, hypotheses in zip(batches[number], results, strict=True):
                    found[place] = hypotheses
                advance(len(batches[number]))

        texts = iter(self.tokenizer.decode_target([one.ids for hypotheses in found for one in hypotheses]))
        translations = [
            Translation((ScoredText(line, 0.0),), skipped=masked[row].skipped) if copied[row] else BLANK
            for row, line in enumerate(lines)
        ]
        for row, length, hypotheses in zip(rows, lengths, found, strict=True):
            restored = [self._placeholders.restored(next(texts), masked[row]) for _ in hypotheses]
            translations[row] = Translation(
                hypotheses=tuple(
                    ScoredText(text, one.score, _without_padding(one.attention, length))
                    for (text, _), one in zip(restored, hypotheses, strict=True)
                ),
                truncated=self._num_truncated(pieces[row]),
                num_tokens=len(hypotheses[0].ids) + 1,
                cut_to=self.max_source_tokens,
                appended=restored[0][1],
                skipped=masked[row].skipped,
            )
        return translations

    def stream(self, lines: Iterable[str], window: int, *, wait: bool = True) -> Iterator[Translation]:
        """Translates a stream of lines, window by window.

        Args:
            lines: any number of lines.
            window: maximum number of lines that are read before the first of them is yielded. A larger window
                gives better batches.
            wait: whether to wait for a full window. False: translates the lines that are available, so that a
                slow writer gets each translation before its next line.

        Yields:
            A translation for each line, in order.
        """
        for part in full_windows(lines, window) if wait else ready_windows(lines, window):
            yield from self.translate(part)

    def score(
        self, pairs: Sequence[tuple[str, str]], advance: Callable[[int], object] = lambda num_pairs: None
    ) -> list[ScoredTarget]:
        """Scores given translations by the log-probabilities of their tokens.

        The tokenizer splits a target into tokens. A search may find other tokens for the same text, with
        another probability. Processors and forbidden ids have no effect here.

        Args:
            pairs: source and target, of any content. The model does not read a source that is blank or has no
                pieces. `translate` returns the empty line for it, so an empty target has the probability 1,
                any other target 0. A target that is blank or has no pieces is EOS alone.
                With placeholders, the URLs, tags and variables that both sides have in common are replaced,
                as in training.
            advance: called with the number of pairs of each finished batch.

        Returns:
            A score for each pair, in order.

        Raises:
            UserError: the probabilities of the model are NaN, or a batch does not fit into the memory of the
                device.
        """
        pairs = self._placeholders.masked_pairs(pairs)
        pieces = self._encode_sources([source for source, _ in pairs])
        targets = self.tokenizer.encode_target([_empty_if_blank(target) for _, target in pairs])
        rows = [row for row, ids in enumerate(pieces) if ids]
        sources = [self._truncate(pieces[row]) for row in rows]
        advance(len(pairs) - len(rows))
        scored = [ScoredTarget.of_blank_source(target) for target in targets]
        lengths = [max(len(ids), len(targets[row])) + 1 for row, ids in zip(rows, sources, strict=True)]
        batches = batches_by_length(lengths, self.config.max_tokens, self.config.max_sentences)
        jobs = [
            _ScoreJob([sources[place] for place in batch], [targets[rows[place]] for place in batch])
            for batch in batches
        ]
        with contextlib.closing(self._run(self._forced_score, jobs, batches)) as done:
            for number, results in done:
                for place, log_probs in zip(batches[number], results, strict=True):
                    row = rows[place]
                    scored[row] = ScoredTarget(log_probs, self._num_truncated(pieces[row]))
                advance(len(batches[number]))
        return scored

    def _encode_sources(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each line, uncut and without EOS; none for a blank line."""
        return self.tokenizer.encode_source([_empty_if_blank(line) for line in lines])

    def _truncate(self, ids: list[int]) -> list[int]:
        return ids[: self.max_source_tokens - 1]  # one less, for EOS

    def _num_truncated(self, ids: list[int]) -> int:
        """Returns `Translation.truncated` of a source with these ids."""
        num_tokens = len(ids) + 1
        return num_tokens if num_tokens > self.max_source_tokens else 0

    def _max_lengths(self, batch: Batch, prefixes: Sequence[Sequence[int]] | None) -> list[int]:
        """Returns for each source the maximum number of tokens of its translation, EOS included."""
        factor, offset = self.config.max_length_factor, self.config.max_length_offset
        lengths = [int(length * factor) + offset for length in batch.source.lengths]
        if prefixes is not None:
            lengths = [max(length, len(ids) + 1) for length, ids in zip(lengths, prefixes, strict=True)]
        most = self._max_target_tokens
        return lengths if most is None else [min(length, most) for length in lengths]

    def _run(
        self, work: Callable[[_Job], _Result], jobs: Sequence[_Job], batches: Sequence[Sequence[int]]
    ) -> Generator[tuple[int, _Result], None, None]:
        """Yields the index and the result of each job, in worker processes if that is faster."""
        count = num_workers(self.config.workers, self.device, batches)
        with _evaluation_mode(self._ensemble.models):
            if count == 1:
                yield from enumerate(map(work, jobs))
                return
            with WorkerPool(work, count) as pool:
                yield from pool.run(jobs)

    def _search(self, job: _SearchJob) -> list[list[Hypothesis]]:
        config, sources, prefixes = self.config, job.sources, job.prefixes
        processors = (*self.processors, *self._placeholders.processors(sources))
        if prefixes is not None:
            processors = (Prefix(PrefixOptions(tuple(map(tuple, prefixes))), processors),)
        with self._inference():
            batch = Batch.of(sources, [()] * len(sources)).to(self.device)
            if config.samples:
                sampling = Sampling(
                    config.samples, config.temperature, config.top_k, config.top_p, config.seed
                )
                search = partial(sample, options=sampling, scorer=LengthPenalty(config.length_penalty))
            else:
                search = partial(beam_search, num_sentences=len(sources), config=config)
            return search(
                self._ensemble.step,
                self._ensemble.start(batch),
                max_lengths=self._max_lengths(batch, prefixes),
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                forbidden=(PAD_ID, BOS_ID, UNK_ID),
                processors=processors,
                sources=sources,
                attention=job.attention,
                device=self.device,
            )

    def _forced_score(self, job: _ScoreJob) -> list[tuple[float, ...]]:
        with self._inference():
            batch = Batch.of(job.sources, [()] * len(job.sources)).to(self.device)
            return forced_score(
                self._ensemble.step,
                self._ensemble.start(batch),
                job.targets,
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                device=self.device,
            )

    @contextlib.contextmanager
    def _inference(self) -> Iterator[None]:
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
        return UserError(
            f"decoding.max_tokens={self.config.max_tokens}: a batch does not fit into the memory of "
            f"{self.device}. Lower it, or decoding.max_sentences={self.config.max_sentences}."
        )


def batches_by_length(lengths: Sequence[int], max_tokens: int, max_sentences: int) -> list[list[int]]:
    """Groups sentences of similar length into batches.

    The longest sentences come first, so that a batch that does not fit into memory fails at once.

    Args:
        lengths: number of tokens of each sentence.
        max_tokens: maximum number of tokens of a batch, padding counted. A longer sentence is a batch alone.
        max_sentences: maximum number of sentences of a batch.

    Returns:
        The sentence indices of each batch; every index is in exactly one batch.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        room = min(max_sentences, max_tokens // lengths[batches[-1][0]]) if batches else 0
        if batches and len(batches[-1]) < room:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def _without_padding(attention: Tensor | None, length: int) -> Tensor | None:
    """Attention (|Y|, S) → (|Y|, length) without padding; `length` is the number of source tokens."""
    return None if attention is None else attention[:, :length].clone()


def _empty_if_blank(line: str) -> str:
    return line if line.strip() else ""


@contextlib.contextmanager
def _evaluation_mode(models: Sequence[Seq2Seq]) -> Iterator[None]:
    """Sets the models to evaluation mode; restores the mode of each at the end."""
    were_training = [model.training for model in models]
    for model in models:
        model.eval()
    try:
        yield
    finally:
        for model, was_training in zip(models, were_training, strict=True):
            model.train(was_training)
