"""The translator of text: tokenises lines, batches them by length, translates or scores them.

The results are in the order of the lines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import TypeVar

import torch
from torch import Tensor

from nmt.config import DecodingConfig, Precision
from nmt.data.batches.batching import Batch
from nmt.data.subwords.placeholders import Masked, MaskedPair
from nmt.data.subwords.tokenizer import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Tokenizer
from nmt.decoding.alignment.aligner import Aligner, attention_of_heads
from nmt.decoding.alignment.head_choice import HeadChoice, choose_heads
from nmt.decoding.alignment.lexical import Pair
from nmt.decoding.alignment.links import Alignment, AlignmentHeads
from nmt.decoding.alignment.raw_words import RawWords, identity_links, raw_links
from nmt.decoding.constraints.automaton import Automaton
from nmt.decoding.constraints.phrases import PhraseIds, Phrases
from nmt.decoding.constraints.word_boundaries import continuing_ids
from nmt.decoding.coverage import ranked_by_coverage
from nmt.decoding.ensemble import Ensemble
from nmt.decoding.jobs import ForcedJob, Found, SearchJob, Sentences, Wanted, batches_by_length
from nmt.decoding.loops import has_loop
from nmt.decoding.mbr import Utility, best_candidates, expected_utilities
from nmt.decoding.placeholders import Placeholders, needs_no_model
from nmt.decoding.processors import (
    NoRepeatNgram,
    Prefix,
    PrefixOptions,
    SearchProcessor,
    configured_processors,
)
from nmt.decoding.sampling import Sampling, sample
from nmt.decoding.scorers import LengthPenalty
from nmt.decoding.scoring import ScoredTarget, forced_score
from nmt.decoding.search import Hypothesis, beam_search
from nmt.decoding.translation import BLANK, ScoredText, Translation
from nmt.decoding.workers import WorkerPool, num_workers
from nmt.errors import UserError
from nmt.model import Seq2Seq
from nmt.runtime import memory_errors
from nmt.runtime.fp32_products import fast_fp32_products

_DTYPES = {Precision.bf16: torch.bfloat16, Precision.fp16: torch.float16}


_SENTENCES_PER_CHOICE = 16  # sentences of one job of minimum Bayes risk decoding

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
        heads: for each model the heads that align its words, or None; see `nmt.decoding.alignment.links`.
        utility: the metric of `decoding.mbr`; None if that is not set.
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
        heads: Sequence[AlignmentHeads | None] | None = None,
        utility: Utility | None = None,
    ) -> None:
        assert (config.mbr is None) == (utility is None), "decoding.mbr needs a utility"
        self._utility = utility
        self._ensemble = Ensemble([model.to(device) for model in models])
        self._heads = [None] * len(models) if heads is None else heads
        self._aligner = Aligner(models, tokenizer, config, self._heads)
        self.tokenizer = tokenizer
        self.config = config
        self.device = device
        self.dtype = _DTYPES.get(precision)
        self._precision, self._given_processors = precision, processors
        limits = [model.max_source_len for model in models], [model.max_target_len for model in models]
        sources, targets = ([limit for limit in side if limit is not None] for side in limits)
        # Longer sources are cut: `decoding.max_source_tokens`, or less if a model requires it.
        self.max_source_tokens = min([config.max_source_tokens, *sources])
        self._max_target_tokens = min(targets, default=None)
        self.processors = (*configured_processors(config), *processors)
        self._placeholders = Placeholders(tokenizer, config.placeholders)
        self._continuing: frozenset[int] | None = None

    def with_options(self, config: DecodingConfig) -> Translator:
        """Returns a translator with other options and the same models, which are not loaded again.

        Args:
            config: the options; `mbr` must be that of this translator.

        Raises:
            UserError: a processor of `config` is not registered, or has a wrong option.
        """
        other = Translator(
            self._ensemble.models,
            self.tokenizer,
            config,
            device=self.device,
            precision=self._precision,
            processors=self._given_processors,
            heads=self._heads,
            utility=self._utility,
        )
        other._continuing = self._continuing
        return other

    def translate(
        self,
        lines: Sequence[str],
        advance: Callable[[int], object] = lambda num_lines: None,
        *,
        prefixes: Sequence[str] | None = None,
        constraints: Sequence[Sequence[str]] | None = None,
        attention: bool = False,
        alignments: bool = False,
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
            constraints: for each line the phrases that its translation must contain, with their numbers of
                occurrences; a list may be empty. The maximum length is raised if they need it. `unmet` of the
                translation has the phrases that it lacks: those that a processor forbids, those that exceed
                the maximum length of a model, and all phrases of a blank line.
            attention: whether to return the attention of every hypothesis, and the pieces that it joins.
            alignments: whether to align the words of every hypothesis. It excludes `attention`.

        Returns:
            A translation for each line, in order.

        Raises:
            UserError: a constraint is blank, samples have constraints, the probabilities of the model are
                NaN, it has no attention to return, it lacks a head of `decoding.alignment_heads`, or a batch
                does not fit into the memory of the device.
        """
        assert not (attention and alignments)
        if alignments:
            self._aligner.prepare()
        assert prefixes is None or len(prefixes) == len(lines), "there must be one prefix per line"
        masked = self._placeholders.masked(lines)
        phrases = self._phrases(constraints, masked)
        copied = [
            needs_no_model(line) and not phrases.ids[row] and not (prefixes and prefixes[row].strip())
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
        sentences = Sentences(
            texts=[masked[row].text for row in rows],
            sources=[self._truncate(pieces[row]) for row in rows],
            prefixes=None if prefix_ids is None else [prefix_ids[row] for row in rows],
            phrases=[phrases.ids[row] for row in rows],
        )
        advance(len(lines) - len(rows))
        wanted = Wanted(attention, alignments)
        results = dict(self._search_all(sentences, range(len(rows)), wanted, advance))
        loops = self._loops(sentences, results) if self.config.retry_loops else []
        retried = dict(self._search_all(sentences, loops, replace(wanted, stricter=True)))
        results |= retried

        found = [results[place].hypotheses for place in range(len(rows))]
        texts = iter(self.tokenizer.decode_target([one.ids for hypotheses in found for one in hypotheses]))
        restored = [
            [
                self._placeholders.restored(next(texts), lines[row], masked[row], alignment)
                for alignment in results[place].alignments
            ]
            for place, row in enumerate(rows)
        ]
        if self._utility is not None:
            candidates = [[one.text for one in those] for those in restored]
            chosen = self._choose(candidates, [lines[row] for row in rows], self._utility)
            for place, (index, expected) in enumerate(chosen):
                found[place] = [replace(found[place][index], score=expected)]
                restored[place] = [restored[place][index]]
        translations = [
            Translation(
                (ScoredText(line, 0.0, alignment=identity_links(line) if alignments else ()),),
                skipped=masked[row].skipped,
            )
            if copied[row]
            else replace(BLANK, unmet=tuple(phrases.texts[row]))
            for row, line in enumerate(lines)
        ]
        for place, (row, hypotheses, best) in enumerate(zip(rows, found, restored, strict=True)):
            source, shown = sentences.sources[place], partial(self._placeholders.shown_pieces, masked[row])
            target_pieces = self.tokenizer.target_pieces_of
            translations[row] = Translation(
                hypotheses=tuple(
                    ScoredText(
                        text.text,
                        one.score,
                        _without_padding(one.attention, len(source) + 1),
                        text.alignment,
                        shown(target_pieces(one.ids)) if attention else (),
                    )
                    for text, one in zip(best, hypotheses, strict=True)
                ),
                truncated=self._num_truncated(pieces[row]),
                num_tokens=len(hypotheses[0].ids) + 1,
                cut_to=self.max_source_tokens,
                unmet=phrases.unmet(row, self._automaton(phrases.ids[row]), hypotheses[0].ids),
                appended=best[0].appended,
                skipped=masked[row].skipped,
                retried=place in retried,
                source_pieces=shown(self.tokenizer.source_pieces_of(source)) if attention else (),
            )
        return translations

    def _search_all(
        self,
        sentences: Sentences,
        places: Sequence[int],
        wanted: Wanted,
        advance: Callable[[int], object] = lambda num_sentences: None,
    ) -> Iterator[tuple[int, Found]]:
        """Yields the place and the result of each sentence in `places`, batch by batch."""
        lengths = [len(sentences.sources[place]) + 1 for place in places]
        batches = batches_by_length(lengths, self.config.max_tokens, self.config.max_sentences)
        batches = [[places[index] for index in batch] for batch in batches]
        jobs = [SearchJob(sentences.take(batch), wanted) for batch in batches]
        with contextlib.closing(self._run(self._search, jobs, batches)) as done:
            for number, results in done:
                yield from zip(batches[number], self._with_links(jobs[number], results), strict=True)
                advance(len(batches[number]))

    def _with_links(self, job: SearchJob, results: list[list[Hypothesis]]) -> Iterator[Found]:
        """Yields the results of a batch, with the links of words if they are wanted."""
        for text, source, hypotheses in zip(job.sentences.texts, job.sentences.sources, results, strict=True):
            if not job.wanted.alignments:
                yield Found(hypotheses, [()] * len(hypotheses))
                continue
            links = self._aligner.links_of(text, len(source), hypotheses)
            yield Found([replace(one, attention=None) for one in hypotheses], links)  # it needs memory

    def _loops(self, sentences: Sentences, results: Mapping[int, Found]) -> list[int]:
        """Returns the places of the sentences whose best hypothesis has a loop, and whose source has none."""
        return [
            place
            for place, found in results.items()
            if has_loop(found.hypotheses[0].ids) and not has_loop(sentences.sources[place])
        ]

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
        pieces, targets = self._encode_pairs(self._placeholders.masked_pairs(pairs))
        scored = [ScoredTarget.of_blank_source(target) for target in targets]
        for row, log_probs in self._run_forced(self._forced_score, pieces, targets, advance):
            scored[row] = ScoredTarget(log_probs, self._num_truncated(pieces[row]))
        return scored

    def align(
        self, pairs: Sequence[tuple[str, str]], advance: Callable[[int], object] = lambda num_pairs: None
    ) -> list[Alignment]:
        """Aligns the words of given translations.

        Args:
            pairs: source and target, of any content. A blank source or target has no links.
            advance: called with the number of pairs of each finished batch.

        Returns:
            The links of each pair, in order; see `ScoredText.alignment`.

        Raises:
            UserError: as for `translate` with `alignments`.
        """
        self._aligner.prepare()
        masked = self._placeholders.masked_pairs(pairs)
        pieces, targets = self._encode_pairs(masked)
        found: list[Alignment] = [()] * len(pairs)
        for row, attention in self._run_forced(self._forced_attention, pieces, targets, advance):
            source, target, strings = masked[row]
            num_pieces = len(self._truncate(pieces[row]))
            links = self._aligner.links_of_pair(source, num_pieces, target, attention)
            if pairs[row] != (source, target):
                raw = zip((source, target), pairs[row], strict=True)
                links = raw_links(links, *(RawWords.of(text, line, strings) for text, line in raw))
            found[row] = links
        return found

    def choose_heads(self, pairs: Sequence[Pair], more: Sequence[Pair] = ()) -> HeadChoice | None:
        """Chooses the heads that align words, for a translator with one model; see `choose_heads`.

        Raises:
            UserError: the model has no attention to the source, or memory ran out.
        """
        [model] = self._ensemble.models

        def attention(chosen: Sequence[Pair]) -> list[Tensor]:
            found: list[Tensor] = []
            for start in range(0, len(chosen), self.config.max_sentences):
                sources, targets = zip(*chosen[start : start + self.config.max_sentences], strict=True)
                found += attention_of_heads(model, sources, targets, self.device)
            return found

        most, longest = self._max_target_tokens, self.max_source_tokens
        pairs = [
            (source, target)
            for source, target in pairs
            if len(source) < longest and (most is None or len(target) < most)
        ]
        with _evaluation_mode([model]), self._inference():
            return choose_heads(attention, pairs, more)

    def encoded(self, pairs: Sequence[tuple[str, str]]) -> list[Pair]:
        """Returns the ids of pairs of texts, for `choose_heads`."""
        return list(zip(*self._encode_pairs(self._placeholders.masked_pairs(pairs)), strict=True))

    def _encode_pairs(self, pairs: Sequence[MaskedPair]) -> tuple[list[list[int]], list[list[int]]]:
        """Returns the ids of the sources, uncut, and of the targets; none for a blank line."""
        targets = self.tokenizer.encode_target([_empty_if_blank(pair.target) for pair in pairs])
        return self._encode_sources([pair.source for pair in pairs]), targets

    def _run_forced(
        self,
        work: Callable[[ForcedJob], list[_Result]],
        pieces: Sequence[list[int]],
        targets: Sequence[list[int]],
        advance: Callable[[int], object],
    ) -> Iterator[tuple[int, _Result]]:
        """Yields the number and the result of each pair whose source has pieces, batch by batch."""
        rows = [row for row, ids in enumerate(pieces) if ids]
        sources = [self._truncate(pieces[row]) for row in rows]
        advance(len(pieces) - len(rows))
        lengths = [max(len(ids), len(targets[row])) + 1 for row, ids in zip(rows, sources, strict=True)]
        batches = batches_by_length(lengths, self.config.max_tokens, self.config.max_sentences)
        jobs = [
            ForcedJob([sources[place] for place in batch], [targets[rows[place]] for place in batch])
            for batch in batches
        ]
        with contextlib.closing(self._run(work, jobs, batches)) as done:
            for number, results in done:
                yield from zip((rows[place] for place in batches[number]), results, strict=True)
                advance(len(batches[number]))

    def _choose(
        self, candidates: Sequence[Sequence[str]], sources: Sequence[str], utility: Utility
    ) -> list[tuple[int, float]]:
        """Returns for each sentence the index of the best candidate, and its expected utility."""
        size = _SENTENCES_PER_CHOICE if utility.one_by_one else len(sources)
        places = range(len(sources))
        chunks = [places[begin : begin + size] for begin in places[:: max(size, 1)]]

        def choose(chunk: range) -> list[tuple[int, float]]:
            texts = [candidates[place] for place in chunk]
            expected = expected_utilities(texts, [sources[place] for place in chunk], utility)
            return [(best, one[best]) for best, one in zip(best_candidates(expected), expected, strict=True)]

        found: dict[int, list[tuple[int, float]]] = {}
        with contextlib.closing(self._run(choose, chunks, chunks)) as done:
            found.update(done)
        return [one for number in range(len(chunks)) for one in found[number]]

    def translatable(self, line: str) -> str:
        """Returns a line with placeholders in place of the strings that its translation copies."""
        return self._placeholders.masked([line])[0].text

    def _encode_sources(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each line, uncut and without EOS; none for a blank line."""
        return self.tokenizer.encode_source([_empty_if_blank(line) for line in lines])

    def _truncate(self, ids: list[int]) -> list[int]:
        return ids[: self.max_source_tokens - 1]  # one less, for EOS

    def _num_truncated(self, ids: list[int]) -> int:
        """Returns `Translation.truncated` of a source with these ids."""
        num_tokens = len(ids) + 1
        return num_tokens if num_tokens > self.max_source_tokens else 0

    def _phrases(self, constraints: Sequence[Sequence[str]] | None, lines: Sequence[Masked]) -> Phrases:
        """Encodes the constraints of all lines, and prepares the search for them."""
        if constraints is None:
            return Phrases([()] * len(lines), self.tokenizer)
        assert len(constraints) == len(lines), "there must be one list of constraints per line"
        if self.config.samples:
            raise UserError(
                f"decoding.samples={self.config.samples}: samples can't have constraints. "
                "Set decoding.samples=0."
            )
        if self._continuing is None:
            self._continuing = continuing_ids(self.tokenizer.target_vocabulary())
        pairs = [*map(self._placeholders.masked_phrases, constraints, lines)]
        texts, masked = ([[pair[side] for pair in line] for line in pairs] for side in (0, 1))
        return Phrases(texts, self.tokenizer, masked)

    def _automaton(self, phrases: PhraseIds) -> Automaton | None:
        """Returns the automaton of the phrases of a sentence; None if it has none."""
        return Automaton(phrases, self._continuing or ()) if phrases else None

    def _max_lengths(
        self,
        sources: Sequence[Sequence[int]],
        prefixes: Sequence[Sequence[int]] | None,
        phrases: Sequence[PhraseIds],
    ) -> list[int]:
        """Returns for each source the maximum number of tokens of its translation, EOS included."""
        factor, offset = self.config.max_length_factor, self.config.max_length_offset
        lengths = [int((len(source) + 1) * factor) + offset for source in sources]
        begins = prefixes or [()] * len(lengths)
        needed = [
            sum(map(len, (begin, *found))) + (self._placeholders.count(source) if found else 0) + 1
            for begin, found, source in zip(begins, phrases, sources, strict=True)
        ]
        lengths = [*map(max, lengths, needed)]
        most = self._max_target_tokens
        return lengths if most is None else [min(length, most) for length in lengths]

    def _run(
        self, work: Callable[[_Job], _Result], jobs: Sequence[_Job], batches: Sequence[Sequence[int]]
    ) -> Generator[tuple[int, _Result], None, None]:
        """Yields the index and the result of each job, in worker processes if that is faster."""
        count = num_workers(self.config.workers, self.device, batches)
        fast = self.device.type == "cpu" and self.dtype is None
        with (
            _evaluation_mode(self._ensemble.models),
            fast_fp32_products() if fast else contextlib.nullcontext(),
        ):
            if count == 1:
                yield from enumerate(map(work, jobs))
                return
            with WorkerPool(work, count) as pool:
                yield from pool.run(jobs)

    def _search(self, job: SearchJob) -> list[list[Hypothesis]]:
        """Searches a batch; the attention of the hypotheses is what `job.wanted` says."""
        config, wanted, sources = self.config, job.wanted, job.sentences.sources
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
            return [self._aligned(source, one) for source, one in zip(sources, found, strict=True)]
        if wanted.attention:
            return found
        return [[replace(one, attention=None) for one in hypotheses] for hypotheses in found]

    def _aligned(self, source: Sequence[int], hypotheses: Sequence[Hypothesis]) -> list[Hypothesis]:
        """Returns the hypotheses of a sentence with the attention of the heads that align words."""
        with self._inference():
            attention = self._aligner.forced(
                [source] * len(hypotheses), [one.ids for one in hypotheses], self.device
            )
        return [replace(one, attention=weights) for one, weights in zip(hypotheses, attention, strict=True)]

    def _search_batch(
        self, sentences: Sentences, wanted: Wanted, config: DecodingConfig
    ) -> list[list[Hypothesis]]:
        sources, prefixes = sentences.sources, sentences.prefixes
        processors = (*self.processors, *self._placeholders.processors(sources))
        if wanted.stricter:
            processors = (NoRepeatNgram(), *processors)
        if prefixes is not None:
            processors = (Prefix(PrefixOptions(tuple(map(tuple, prefixes))), processors),)
        ensemble = self._aligner.ensemble if wanted.alignments else self._ensemble
        with self._inference():
            batch = Batch.of(sources, [()] * len(sources)).to(self.device)
            if config.samples:
                sampling = Sampling(
                    config.samples, config.temperature, config.top_k, config.top_p, config.seed
                )
                search = partial(sample, options=sampling, scorer=LengthPenalty(config.length_penalty))
            else:
                constraints = [*map(self._automaton, sentences.phrases)]
                search = partial(
                    beam_search, num_sentences=len(sources), config=config, constraints=constraints
                )
            return search(
                ensemble.step,
                ensemble.start(batch),
                max_lengths=self._max_lengths(sources, prefixes, sentences.phrases),
                bos_id=BOS_ID,
                eos_id=EOS_ID,
                forbidden=(PAD_ID, BOS_ID, UNK_ID),
                processors=processors,
                sources=sources,
                attention=wanted.attention or wanted.alignments,
                device=self.device,
            )

    def _forced_score(self, job: ForcedJob) -> list[tuple[float, ...]]:
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

    def _forced_attention(self, job: ForcedJob) -> list[Tensor]:
        with self._inference():
            return self._aligner.forced(job.sources, job.targets, self.device)

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
