"""The translator: a line of text passes a row of steps, from its words to its translation.

A line is divided into parts (`nmt.decoding.parts`). Each part passes the steps mask, encode, search, place
tags, restore and choose. Then the parts are joined (`nmt.decoding.joining`). The searcher may be that of
PyTorch (`nmt.decoding.torch_searcher`) or of another engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from nmt.config import DecodingConfig, Numbers
from nmt.copying.numbers import NumberComparison
from nmt.copying.strings import tag_pairs
from nmt.copying.translation import identity_links, needs_no_model
from nmt.data.corpora.sources import without_tag
from nmt.decoding.alignment import Alignment, word_links
from nmt.decoding.candidates import Utility, chosen_candidates, is_stuck
from nmt.decoding.casing import Recaser
from nmt.decoding.facts import TextFacts
from nmt.decoding.joining import joined_lines
from nmt.decoding.line import Line, empty_if_blank, encoded_sources
from nmt.decoding.markup import StringPlacer, given_texts
from nmt.decoding.parts import Parts, Splitter, advance_of_parts, of_first_parts, phrases_of_parts
from nmt.decoding.searcher import Searcher, SearchRequest, Sentence, placeholders_of
from nmt.decoding.translation import BLANK, ScoredText, Translation
from nmt.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from nmt.data.subwords.tokenizer import Tokenizer
    from nmt.decoding.search import Hypothesis
    from nmt.decoding.terminology import Terms


class Translator:
    """Translates lines of text with a searcher, whose options apply.

    Args:
        searcher: searches the translations.
        tokenizer: that of the models of the searcher.
        utility: the metric of `decoding.mbr`; None if that is not set.
        facts: what is known about the text of the models; None: each line is translated as a whole, in its
            own letter case.
    """

    def __init__(
        self,
        searcher: Searcher,
        tokenizer: Tokenizer,
        *,
        utility: Utility | None = None,
        facts: TextFacts | None = None,
    ) -> None:
        self.searcher, self.tokenizer, self.config = searcher, tokenizer, searcher.config
        assert (self.config.mbr is None) == (utility is None), "decoding.mbr needs a utility"
        self._utility, self._facts = utility, facts
        self._placeholders = placeholders_of(tokenizer, self.config)
        self._tag_placer = StringPlacer.of_tags(facts, searcher, tokenizer)
        self._word_placer = StringPlacer.of_words(facts, searcher, tokenizer)
        self._comparison = None
        if self.config.numbers is not Numbers.ignore:
            self._comparison = facts.comparison if facts else lambda tag: NumberComparison()
        self._splitter = self._recaser = None
        if facts is not None:
            self._recaser = Recaser(facts, self.config.case, tokenizer)
            option, tags = self.config.split_sentences, tuple(tokenizer.source_symbols)
            self._splitter = Splitter(facts, option, tags, self._num_tokens, searcher.max_source_tokens)

    @property
    def languages(self) -> tuple[str | None, str | None]:
        """The codes of the source and the target language; None: unknown."""
        return (None, None) if self._facts is None else (self._facts.source_lang, self._facts.target_lang)

    def with_options(self, config: DecodingConfig) -> Translator:
        """Returns a translator with other options, but the same `mbr`, and the same models, not loaded again.

        Raises:
            UserError: an option is wrong or not available.
        """
        searcher = self.searcher.with_options(config)
        return Translator(searcher, self.tokenizer, utility=self._utility, facts=self._facts)

    def translate(
        self,
        lines: Sequence[str],
        advance: Callable[[int], object] = lambda num_lines: None,
        *,
        prefixes: Sequence[str] | None = None,
        constraints: Sequence[Sequence[str]] | None = None,
        terms: Sequence[Sequence[str]] | None = None,
        terminology: Terms | None = None,
        attention: bool = False,
        alignments: bool = False,
        scores: bool = True,
        markup: bool = False,
    ) -> list[Translation]:
        """Translates lines of any content.

        With `decoding.split_sentences`, the sentences of a line are translated one by one, in the same
        batches as all others. Each constraint is required of the sentence whose translation loses the least
        of its score by it. To find it, all sentences of the line are translated with each constraint.

        Args:
            lines: if a line has nothing to see, such as U+200D alone, or no pieces, its translation is the
                empty line; the model does not read it. A line without letters outside its placeholders is its
                own translation, with score 0.
            advance: called with the number of lines of each finished batch, for example to update a progress
                bar.
            prefixes: for each line the beginning of its translation, which may be empty. Processors can't
                forbid the pieces of a prefix. The limits `decoding.max_length_factor` and
                `decoding.max_length_offset` do not apply to a prefix, but a maximum length of the model does:
                a longer prefix is cut. The translation of a blank line is the empty line for any prefix. A
                line with a prefix or with constraints is translated even if it has no letters. A prefix of
                one sentence begins the first one; with a longer prefix, the line is translated as a whole.
            constraints: for each line the phrases that its translation must contain, with their numbers of
                occurrences; a list may be empty. The maximum length is raised if they need it. `unmet` of the
                translation has the phrases that it lacks: those that a processor forbids, those that exceed
                the maximum length of a model, and all phrases of a blank line.
            terms: for each line further constraints. A term without pieces, such as a blank, is not an error;
                it is in `unmet`.
            terminology: returns the terms for a sentence with placeholders, further constraints like `terms`.
            attention: whether to return the attention of every hypothesis, and the pieces that it joins.
            alignments: whether to align the words of every hypothesis. It excludes `attention`.
            scores: whether the scores are used. If not, a search that is faster without them may return 0.
            markup: whether tags and variables are markup, so that the translation has them at their places
                whatever the model knows.

        Returns:
            A translation for each line, in order.

        Raises:
            UserError: a phrase of `constraints` is blank, samples have constraints, the probabilities of the
                model are NaN, it has no attention to return, it lacks a head of `decoding.alignment_heads`,
                or a batch does not fit into the memory of the device.
        """
        self._require_pieces(constraints or ())

        def translated(lines: Sequence[str], attention: bool, alignments: bool) -> list[Translation]:
            divided = self.divide(lines, prefixes)
            texts = [text for parts in divided for text in parts.texts]
            beginnings = of_first_parts(prefixes, divided, "")

            def with_terms(numbers: Sequence[int], terms: Sequence[Sequence[str]]) -> list[Translation]:
                some, begun = [texts[n] for n in numbers], beginnings and [beginnings[n] for n in numbers]
                return self._translate_texts(
                    some, prefixes=begun, terms=terms, terminology=terminology, markup=markup
                )

            translations = self._translate_texts(
                texts,
                advance_of_parts(advance, divided),
                prefixes=beginnings,
                constraints=phrases_of_parts(constraints, divided, with_terms),
                terms=phrases_of_parts(terms, divided, with_terms),
                terminology=terminology,
                attention=attention,
                alignments=alignments,
                scores=scores,
                markup=markup,
            )
            return self.join(divided, translations)

        given = given_texts(lines, prefixes, constraints, terms)
        return self._tag_placer.translate(
            translated, lines, given, markup=markup, attention=attention, alignments=alignments
        )

    def divide(self, lines: Sequence[str], prefixes: Sequence[str] | None = None) -> list[Parts]:
        """Divides lines into the parts that are translated one by one; `prefixes` as for `translate`."""
        if self._splitter is None:
            return [*map(Parts.undivided, lines)]
        return self._splitter.divide(lines, prefixes)

    def join(self, divided: Sequence[Parts], translations: Sequence[Translation]) -> list[Translation]:
        """Returns the translations of lines from those of all their parts, in order."""
        lines = joined_lines(divided, translations, self.config.seed if self.config.samples else None)
        return lines if self._splitter is None else self._splitter.with_lost_sentences(divided, lines)

    def _num_tokens(self, texts: Sequence[str]) -> list[int]:
        """Returns the number of tokens of each source, EOS counted."""
        masked = [line.text for line in self._placeholders.masked(texts)]
        return [len(ids) + 1 for ids in encoded_sources(self.tokenizer, masked)]

    def translate_parts(
        self,
        texts: Sequence[str],
        *,
        terminology: Terms | None = None,
        attention: bool = False,
        markup: bool = False,
    ) -> list[Translation]:
        """Translates each text as a whole; the arguments and errors as for `translate`."""

        def translated(texts: Sequence[str], attention: bool, alignments: bool) -> list[Translation]:
            return self._translate_texts(
                texts, terminology=terminology, attention=attention, alignments=alignments, markup=markup
            )

        return self._tag_placer.translate(
            translated, texts, [()] * len(texts), markup=markup, attention=attention, alignments=False
        )

    def _translate_texts(
        self,
        texts: Sequence[str],
        advance: Callable[[int], object] = lambda num_texts: None,
        *,
        prefixes: Sequence[str] | None = None,
        constraints: Sequence[Sequence[str]] | None = None,
        terms: Sequence[Sequence[str]] | None = None,
        terminology: Terms | None = None,
        attention: bool = False,
        alignments: bool = False,
        scores: bool = True,
        markup: bool = False,
    ) -> list[Translation]:
        """Translates each text as a whole, without the words that the model does not know."""

        def translated(texts: Sequence[str], attention: bool, alignments: bool) -> list[Translation]:
            assert not (attention and alignments)
            request = SearchRequest(attention, alignments, scores)
            self.searcher.prepare(request, constraints=has_phrases)
            records = self._mask(texts, prefixes, constraints, terms, terminology)
            self._encode(records)
            searched = [line for line in records if line.num_tokens]
            advance(len(records) - len(searched))
            self._search(searched, request, advance)
            self._retry_loops(searched, request)
            self._place_tags([line for line in searched if line.bare is not None], request)
            self._restore(searched)
            self._choose(searched)
            return [self._translation(line, request) for line in records]

        has_phrases = any(phrases is not None for phrases in (constraints, terms, terminology))
        given = given_texts(texts, prefixes, constraints, terms)
        return self._word_placer.translate(
            translated, texts, given, markup=markup, attention=attention, alignments=alignments
        )

    def _mask(
        self,
        lines: Sequence[str],
        prefixes: Sequence[str] | None,
        constraints: Sequence[Sequence[str]] | None,
        terms: Sequence[Sequence[str]] | None,
        terminology: Terms | None,
    ) -> list[Line]:
        """Replaces the strings that are copied by placeholders in lines, phrases and prefixes."""
        assert prefixes is None or len(prefixes) == len(lines), "there must be one prefix per line"
        if self.config.samples and any(one is not None for one in (constraints, terms, terminology)):
            raise UserError(
                f"decoding.samples={self.config.samples}: samples can't have constraints. "
                "Set decoding.samples=0."
            )
        records = [*map(Line, lines, self._placeholders.masked(lines))]
        nothing: list[Sequence[str]] = [()] * len(lines)
        for line, phrases, further in zip(records, constraints or nothing, terms or nothing, strict=True):
            if terminology is not None:
                further = [*further, *terminology(line.masked.text)]
            if phrases or further:
                possible, line.impossible = self._with_pieces(further)
                line.phrases = self._placeholders.masked_phrases([*phrases, *possible], line.masked)
        if prefixes is not None:
            masked = self._placeholders.masked_prefixes(prefixes, [line.masked for line in records])
            for line, prefix in zip(records, masked, strict=True):
                line.prefix = prefix
        for line in records:
            if not line.phrases and not line.prefix.strip():
                line.copy = self._copy(line)
                if self.searcher.places_tags and self.config.place_tags and line.copy is None:
                    line.bare = self._placeholders.without_tags(line.masked)
            if self._recaser is not None and line.copy is None:
                line.recasing = self._recaser.recasing(line.masked.text)
        return records

    def _copy(self, line: Line) -> str | None:
        """Returns the translation of a line that has nothing to translate; None for other lines."""
        tags, masked = self.tokenizer.source_symbols, line.masked
        if line.text.strip() in tags:
            return None
        untagged = replace(masked, text=without_tag(masked.text, tags)) if tags else masked
        copied = needs_no_model(untagged, letters_only=self.config.copy_without_letters)
        return without_tag(line.text, tags) if copied else None

    def _require_pieces(self, constraints: Sequence[Sequence[str]]) -> None:
        """Raises `UserError` if a phrase has no pieces, for example because it is blank."""
        for number, phrases in enumerate(constraints, 1):
            if impossible := self._with_pieces(phrases)[1]:
                raise UserError(f"constraints of line {number}: {impossible[0]!r} has no pieces. Remove it.")

    def _with_pieces(self, terms: Sequence[str]) -> tuple[list[str], list[str]]:
        """Returns the terms that a translation can contain, and those without pieces."""
        pairs = [*zip(terms, self.tokenizer.encode_target(terms), strict=True)]
        return [term for term, ids in pairs if ids], [term for term, ids in pairs if not ids]

    def _encode(self, lines: Sequence[Line]) -> None:
        """Computes the ids of sources, prefixes and phrases."""
        encode = self.tokenizer.encode_target
        phrase_ids = iter(encode([masked for line in lines for _, masked in line.phrases]))
        phrases = [[next(phrase_ids) for _ in line.phrases] for line in lines]
        prefixes: list[list[int]] = [[] for _ in lines]
        if any(line.prefix for line in lines):
            prefixes = encode([empty_if_blank(line.prefix) for line in lines])
        texts = [line.searched_text if line.copy is None else "" for line in lines]
        sources = encoded_sources(self.tokenizer, texts)
        for line, source, prefix, ids_of_phrases in zip(lines, sources, prefixes, phrases, strict=True):
            line.num_tokens = len(source) + 1 if source else 0
            line.sentence = Sentence(self._cut(source), prefix, ids_of_phrases)

    def _cut(self, ids: Sequence[int]) -> Sequence[int]:
        return ids[: self.searcher.max_source_tokens - 1]  # one less, for EOS

    def _search(
        self,
        lines: Sequence[Line],
        request: SearchRequest,
        advance: Callable[[int], object] = lambda num_lines: None,
    ) -> None:
        """Searches the translations of lines, and aligns their words if the request says so."""
        if not lines:
            return
        sentences = [line.sentence for line in lines]
        for index, hypotheses in self.searcher.search(sentences, request, advance):
            line = lines[index]
            line.alignments = [()] * len(hypotheses)
            if request.alignments:
                line.alignments = self._links(line, hypotheses)
                # Attention needs memory.
                hypotheses = [replace(hypothesis, attention=None) for hypothesis in hypotheses]
            line.hypotheses = hypotheses

    def _links(self, line: Line, hypotheses: Sequence[Hypothesis]) -> list[Alignment]:
        """Returns the links of the words of hypotheses, from the attention of the heads that align words."""
        source_words = self.tokenizer.source_word_numbers(line.searched_text)[: len(line.sentence.source)]
        alignments = []
        for hypothesis in hypotheses:
            assert hypothesis.attention is not None
            words = self.tokenizer.decoded_word_numbers(hypothesis.ids)
            # The first step reads BOS.
            weights, threshold = hypothesis.attention[1:], self.config.alignment_threshold
            alignments.append(word_links(weights, source_words, words, threshold))
        return alignments

    def _retry_loops(self, lines: Sequence[Line], request: SearchRequest) -> None:
        """Searches lines again, without repetition, if their translation has a loop and their source none."""
        if not self.config.retry_loops or self.config.samples:
            return
        looping = [
            line for line in lines if is_stuck(line.hypotheses[0].ids) and not is_stuck(line.sentence.source)
        ]
        self._search(looping, replace(request, stricter=True))
        for line in looping:
            line.is_retried = True

    def _place_tags(self, lines: Sequence[Line], request: SearchRequest) -> None:
        """Places the tags of lines in every hypothesis, which retains its score."""
        placed: list[list[Line]] = []
        bares = [line.bare for line in lines]
        for line in lines:
            line.bare = None
        sources = encoded_sources(self.tokenizer, [line.searched_text for line in lines])
        for line, source, bare in zip(lines, sources, bares, strict=True):
            assert bare is not None
            finished = [self._placeholders.as_in_line(hypothesis.ids, bare) for hypothesis in line.hypotheses]
            line.sentence = Sentence(self._cut(source), tag_pairs=tag_pairs(line.masked))
            placed.append([replace(line, sentence=replace(line.sentence, finished=ids)) for ids in finished])
        self._search([candidate for candidates in placed for candidate in candidates], request)
        for line, candidates in zip(lines, placed, strict=True):
            line.alignments = [candidate.alignments[0] for candidate in candidates]
            line.hypotheses = [
                replace(candidate.hypotheses[0], score=hypothesis.score)
                for candidate, hypothesis in zip(candidates, line.hypotheses, strict=True)
            ]

    def _restore(self, lines: Sequence[Line]) -> None:
        """Decodes the hypotheses, restores their case, and puts the strings in place of the placeholders."""
        ids = [hypothesis.ids for line in lines for hypothesis in line.hypotheses]
        decoded = iter(self.tokenizer.decode_target(ids))
        for line in lines:
            texts = [next(decoded) for _ in line.hypotheses]
            if line.recasing is not None:
                texts = [line.recasing.target(text, line.literals) for text in texts]
            line.restored = [
                self._placeholders.restored(text, line.text, line.masked, links)
                for text, links in zip(texts, line.alignments, strict=True)
            ]

    def _choose(self, lines: Sequence[Line]) -> None:
        """With `decoding.mbr`, retains the candidate with the highest expected utility: its score."""
        if self._utility is None:
            return
        candidates = [[restored.text for restored in line.restored] for line in lines]
        sources = [line.text for line in lines]
        chosen = chosen_candidates(candidates, sources, self._utility, self.searcher.run)
        for line, (index, value) in zip(lines, chosen, strict=True):
            line.hypotheses = [replace(line.hypotheses[index], score=value)]
            line.restored = [line.restored[index]]

    def _translation(self, line: Line, request: SearchRequest) -> Translation:
        """Returns the translation of a line that has passed all steps."""
        if line.copy is not None:
            tags = len(line.text.split()) - len(line.copy.split())
            links = identity_links(line.copy, tags) if request.alignments else ()
            copy = ScoredText(line.copy, 0.0, alignment=links)
            return Translation((copy,), unmet=(*line.impossible,), skipped=line.masked.skipped)
        if not line.num_tokens:
            return replace(BLANK, unmet=(*(text for text, _ in line.phrases), *line.impossible))
        most, source, best = self.searcher.max_source_tokens, line.sentence.source, line.hypotheses[0]

        def pieces(ids: Sequence[int], of: Callable[[Sequence[int]], Sequence[str]]) -> tuple[str, ...]:
            return self._placeholders.shown_pieces(line.masked, of(ids)) if request.attention else ()

        return Translation(
            hypotheses=tuple(
                ScoredText(
                    restored.text,
                    hypothesis.score,
                    _without_padding(hypothesis.attention, len(source) + 1),
                    restored.alignment,
                    pieces(hypothesis.ids, self.tokenizer.target.pieces_of),
                )
                for restored, hypothesis in zip(line.restored, line.hypotheses, strict=True)
            ),
            truncated=line.num_tokens if line.num_tokens > most else 0,
            num_tokens=len(best.ids) + 1,
            cut_to=most,
            cut_by=self.searcher.source_limit,
            unmet=(*(line.phrases[index][0] for index in best.unmet), *line.impossible),
            appended=line.restored[0].appended,
            skipped=line.masked.skipped,
            retried=line.is_retried,
            numbers=self._missing_numbers(line),
            source_pieces=pieces(source, self.tokenizer.source.pieces_of),
        )

    def _missing_numbers(self, line: Line) -> tuple[str, ...]:
        """Returns the numbers of a line that its best translation lacks or changes."""
        if self._comparison is None:
            return ()
        text = without_tag(line.text, self.tokenizer.source_symbols)
        tag = line.text.removesuffix(text).strip()
        return self._comparison(tag).missing(text, line.restored[0].text)


def _without_padding(attention: Tensor | None, length: int) -> Tensor | None:
    return None if attention is None else attention[:, :length].clone()
