"""The translator of text: tokenises lines, batches them by length, translates or scores them.

The results are in the order of the lines.
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import TypeVar

import torch
from torch import Tensor

from nmt.config import DecodingConfig, Precision
from nmt.copying.raw_words import RawWords, raw_links
from nmt.copying.strings import MaskedPair
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.decoding.alignment.aligner import Aligner, attention_of_heads
from nmt.decoding.alignment.head_choice import HeadChoice, choose_heads
from nmt.decoding.alignment.lexical import Pair
from nmt.decoding.alignment.links import Alignment, AlignmentHeads
from nmt.decoding.batches.batch_decoder import BatchDecoder, evaluation_mode
from nmt.decoding.batches.jobs import ForcedJob, Found, SearchJob, Sentences, Wanted
from nmt.decoding.constraints.automaton import Automaton
from nmt.decoding.constraints.phrases import PhraseIds
from nmt.decoding.lines import LineTranslator, empty_if_blank
from nmt.decoding.processors import SearchProcessor, configured_processors
from nmt.decoding.scoring import ScoredTarget
from nmt.decoding.search import Hypothesis
from nmt.decoding.selection.mbr import Utility, best_candidates, expected_utilities
from nmt.model import Seq2Seq

_SENTENCES_PER_CHOICE = 16  # sentences of one job of minimum Bayes risk decoding
_PAIRS_PER_CHOICE = 64  # pairs whose attention in all heads is computed at once

_Result = TypeVar("_Result")


class Translator(LineTranslator):
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
        # A model may require shorter sources than the options.
        limits = [model.max_source_len for model in models if model.max_source_len is not None]
        super().__init__(tokenizer, config, min([config.max_source_tokens, *limits]))
        assert (config.mbr is None) == (utility is None), "decoding.mbr needs a utility"
        self._utility = utility
        self._heads = [None] * len(models) if heads is None else heads
        self._aligner = Aligner(models, tokenizer, config, self._heads)
        self.device = device
        self._precision, self._given_processors = precision, processors
        self.processors = (*configured_processors(config), *processors)
        self._decoder = BatchDecoder(
            models,
            self._aligner,
            tokenizer,
            config,
            device=device,
            precision=precision,
            processors=self.processors,
            placeholders=self._placeholders,
        )

    def with_options(self, config: DecodingConfig) -> Translator:
        """Returns a translator with other options and the same models, which are not loaded again.

        Args:
            config: the options; `mbr` must be that of this translator.

        Raises:
            UserError: a processor of `config` is not registered, or has a wrong option.
        """
        return Translator(
            self._decoder.ensemble.models,
            self.tokenizer,
            config,
            device=self.device,
            precision=self._precision,
            processors=self._given_processors,
            heads=self._heads,
            utility=self._utility,
        )

    @property
    def sentences_per_batch(self) -> int:
        """See `LineTranslator.sentences_per_batch`."""
        return self._decoder.limits.sentences

    @property
    def places_tags(self) -> bool:
        """See `LineTranslator.places_tags`. With a maximum length of a model, tags might not fit any more."""
        return self._decoder.max_target_tokens is None

    def _search_all(
        self,
        sentences: Sentences,
        places: Sequence[int],
        wanted: Wanted,
        advance: Callable[[int], object] = lambda num_sentences: None,
    ) -> Iterator[tuple[int, Found]]:
        """Yields the place and the result of each sentence in `places`, batch by batch."""
        if sentences.fixed is not None:
            _ = self._decoder.continuing  # computed once, before worker processes are forked
        lengths = [len(sentences.sources[place]) + 1 for place in places]
        batches = [[places[index] for index in batch] for batch in self._decoder.batches(lengths)]
        jobs = [SearchJob(sentences.take(batch), wanted) for batch in batches]
        with contextlib.closing(self._decoder.run(self._decoder.search, jobs, batches)) as done:
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
        for row, log_probs in self._run_forced(self._decoder.forced_score, pieces, targets, advance):
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
        for row, attention in self._run_forced(self._decoder.forced_attention, pieces, targets, advance):
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
        [model] = self._decoder.ensemble.models

        def attention(chosen: Sequence[Pair]) -> list[Tensor]:
            found: list[Tensor] = []
            for start in range(0, len(chosen), _PAIRS_PER_CHOICE):
                sources, targets = zip(*chosen[start : start + _PAIRS_PER_CHOICE], strict=True)
                found += attention_of_heads(model, sources, targets, self.device)
            return found

        most, longest = self._decoder.max_target_tokens, self.max_source_tokens
        pairs = [
            (source, target)
            for source, target in pairs
            if len(source) < longest and (most is None or len(target) < most)
        ]
        with evaluation_mode([model]), self._decoder.inference():
            return choose_heads(attention, pairs, more)

    def encoded(self, pairs: Sequence[tuple[str, str]]) -> list[Pair]:
        """Returns the ids of pairs of texts, for `choose_heads`."""
        return list(zip(*self._encode_pairs(self._placeholders.masked_pairs(pairs)), strict=True))

    def _encode_pairs(self, pairs: Sequence[MaskedPair]) -> tuple[list[list[int]], list[list[int]]]:
        """Returns the ids of the sources, uncut, and of the targets; none for a blank line."""
        targets = self.tokenizer.encode_target([empty_if_blank(pair.target) for pair in pairs])
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
        batches = self._decoder.batches(lengths)
        jobs = [
            ForcedJob([sources[place] for place in batch], [targets[rows[place]] for place in batch])
            for batch in batches
        ]
        with contextlib.closing(self._decoder.run(work, jobs, batches)) as done:
            for number, results in done:
                yield from zip((rows[place] for place in batches[number]), results, strict=True)
                advance(len(batches[number]))

    def _prepare(self, wanted: Wanted, constraints: Sequence[Sequence[str]] | None) -> None:
        """See `LineTranslator._prepare`."""
        if wanted.alignments:
            self._aligner.prepare()
        if constraints is not None:
            _ = self._decoder.continuing  # computed once, before worker processes are forked

    def _automaton(self, phrases: PhraseIds) -> Automaton | None:
        """See `LineTranslator._automaton`."""
        return self._decoder.automaton(phrases)

    def _chosen(
        self, found: Sequence[Sequence[str]], sources: Sequence[str]
    ) -> Sequence[tuple[int, float]] | None:
        """Returns for each sentence the candidate of `decoding.mbr`, and its expected utility."""
        return None if self._utility is None else self._choose(found, sources, self._utility)

    def _choose(
        self, candidates: Sequence[Sequence[str]], sources: Sequence[str], utility: Utility
    ) -> list[tuple[int, float]]:
        size = _SENTENCES_PER_CHOICE if utility.one_by_one else len(sources)
        places = range(len(sources))
        chunks = [places[begin : begin + size] for begin in range(0, len(sources), size or 1)]

        def choose(chunk: range) -> list[tuple[int, float]]:
            texts = [candidates[place] for place in chunk]
            expected = expected_utilities(texts, [sources[place] for place in chunk], utility)
            return [(best, one[best]) for best, one in zip(best_candidates(expected), expected, strict=True)]

        found: dict[int, list[tuple[int, float]]] = {}
        with contextlib.closing(self._decoder.run(choose, chunks, chunks)) as done:
            found.update(done)
        return [one for number in range(len(chunks)) for one in found[number]]
