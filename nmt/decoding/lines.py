"""Text → text around any search: encodes lines, cuts them, restores their strings, collects the results.

The search may be that of nmt (`nmt.decoding.translator`) or of another engine (`nmt.interop`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import groupby
from typing import TYPE_CHECKING, Self

from nmt.config import DecodingConfig
from nmt.copying.raw_words import identity_links
from nmt.copying.strings import tag_pairs
from nmt.copying.translation import Placeholders, needs_no_model
from nmt.decoding.batches.jobs import Found, Sentences, Wanted
from nmt.decoding.constraints.phrases import PhraseIds, Phrases
from nmt.decoding.selection.loops import has_loop
from nmt.decoding.translation import BLANK, ScoredText, Translation
from nmt.errors import UserError

if TYPE_CHECKING:
    from torch import Tensor

    from nmt.copying.strings import Bare, Masked
    from nmt.data.subwords.tokenizer import Tokenizer
    from nmt.decoding.constraints.automaton import Automaton


class LineTranslator(ABC):
    """Translates lines of text. A subclass searches.

    Args:
        tokenizer: the tokenizer of the model.
        config: the options of decoding.
        max_source_tokens: the maximum number of tokens of a source, EOS counted. Longer sources are cut.
    """

    def __init__(self, tokenizer: Tokenizer, config: DecodingConfig, max_source_tokens: int) -> None:
        self.tokenizer = tokenizer
        self.config = config
        self.max_source_tokens = max_source_tokens
        self._placeholders = Placeholders(
            tokenizer.placeholders, tokenizer.source_symbols, tokenizer.target_vocabulary, config.placeholders
        )

    @abstractmethod
    def with_options(self, config: DecodingConfig) -> Self:
        """Returns a translator with other options and the same model, which is not loaded again.

        Args:
            config: the options.

        Raises:
            UserError: an option is wrong or not available.
        """

    @abstractmethod
    def _search_all(
        self,
        sentences: Sentences,
        places: Sequence[int],
        wanted: Wanted,
        advance: Callable[[int], object] = lambda num_sentences: None,
    ) -> Iterator[tuple[int, Found]]:
        """Yields the place and the result of each sentence in `places`, batch by batch.

        A result has one hypothesis or more, at most `decoding.num_results` of them.
        """

    @property
    def sentences_per_batch(self) -> int:
        """The largest number of sentences per batch."""
        return self.config.sentences_per_batch

    @property
    def places_tags(self) -> bool:
        """Whether the search can place placeholders in finished translations (`Sentences.fixed`)."""
        return False

    @abstractmethod
    def _prepare(self, wanted: Wanted, constraints: Sequence[Sequence[str]] | None) -> None:
        """Prepares the search of a call.

        Raises:
            UserError: the search can't return attention or alignments, or can't have constraints.
        """

    def _automaton(self, phrases: PhraseIds) -> Automaton | None:
        """Returns the automaton of the constraints of a sentence; None if it has none."""
        return None

    def _chosen(
        self, found: Sequence[Sequence[str]], sources: Sequence[str]
    ) -> Sequence[tuple[int, float]] | None:
        """Returns the index of the chosen candidate of each sentence and its value; None: all remain."""
        return None

    def translate(
        self,
        lines: Sequence[str],
        advance: Callable[[int], object] = lambda num_lines: None,
        *,
        prefixes: Sequence[str] | None = None,
        constraints: Sequence[Sequence[str]] | None = None,
        attention: bool = False,
        alignments: bool = False,
        scores: bool = True,
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
            scores: whether the scores are used. If not, a search that is faster without them may return 0.

        Returns:
            A translation for each line, in order.

        Raises:
            UserError: a constraint is blank, samples have constraints, the probabilities of the model are
                NaN, it has no attention to return, it lacks a head of `decoding.alignment_heads`, or a batch
                does not fit into the memory of the device.
        """
        assert not (attention and alignments)
        wanted = Wanted(attention, alignments, scores)
        self._prepare(wanted, constraints)
        assert prefixes is None or len(prefixes) == len(lines), "there must be one prefix per line"
        masked = self._placeholders.masked(lines)
        phrases = self._phrases(constraints, masked)
        copied = [
            needs_no_model(line) and not phrases.ids[row] and not (prefixes and prefixes[row].strip())
            for row, line in enumerate(masked)
        ]
        # Without tags; then the search places them.
        bare = {
            row: one
            for row, line in enumerate(masked)
            if self.places_tags and self.config.place_tags and not copied[row] and not phrases.ids[row]
            if not (prefixes and prefixes[row].strip())
            if (one := self._placeholders.without_tags(line)) is not None
        }
        pieces = self._encode_sources(
            ["" if copied[row] else (bare.get(row) or line).text for row, line in enumerate(masked)]
        )
        prefix_ids = None
        if prefixes is not None:
            starts = self._placeholders.masked_prefixes(prefixes, masked)
            prefix_ids = self.tokenizer.encode_target([*map(empty_if_blank, starts)])
        rows = [row for row, ids in enumerate(pieces) if ids]
        sentences = Sentences(
            texts=[(bare.get(row) or masked[row]).text for row in rows],
            sources=[self._truncate(pieces[row]) for row in rows],
            prefixes=None if prefix_ids is None else [prefix_ids[row] for row in rows],
            phrases=[phrases.ids[row] for row in rows],
        )
        advance(len(lines) - len(rows))
        results = dict(self._search_all(sentences, range(len(rows)), wanted, advance))
        loops = self._loops(sentences, results) if self.config.retry_loops else []
        retried = dict(self._search_all(sentences, loops, replace(wanted, stricter=True))) if loops else {}
        results |= retried
        if bare:
            sentences = self._with_tags(sentences, rows, masked, bare, results, wanted)

        found = [results[place].hypotheses for place in range(len(rows))]
        texts = iter(self.tokenizer.decode_target([one.ids for hypotheses in found for one in hypotheses]))
        restored = [
            [
                self._placeholders.restored(next(texts), lines[row], masked[row], alignment)
                for alignment in results[place].alignments
            ]
            for place, row in enumerate(rows)
        ]
        candidates = [[one.text for one in those] for those in restored]
        for place, (index, value) in enumerate(self._chosen(candidates, [lines[row] for row in rows]) or ()):
            found[place] = [replace(found[place][index], score=value)]
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

    def _with_tags(
        self,
        sentences: Sentences,
        rows: Sequence[int],
        lines: Sequence[Masked],
        bare: Mapping[int, Bare],
        results: dict[int, Found],
        wanted: Wanted,
    ) -> Sentences:
        """Places the tags of lines in their translations.

        Args:
            sentences: as they were translated.
            rows: the line of each.
            lines: all lines, with placeholders for their tags, too.
            bare: the lines with tags, without them, by row.
            results: the translations; those of lines with tags are replaced.
            wanted: what the results have besides the ids.

        Returns:
            The sentences with tags.
        """
        places = [place for place, row in enumerate(rows) if row in bare]
        encoded = self._encode_sources([lines[rows[place]].text for place in places])
        texts, sources = list(sentences.texts), list(sentences.sources)
        for place, ids in zip(places, encoded, strict=True):
            texts[place], sources[place] = lines[rows[place]].text, self._truncate(ids)
        candidates = [(place, one) for place in places for one in results[place].hypotheses]
        owners = [place for place, _ in candidates]
        placing = Sentences(
            [texts[place] for place in owners],
            [sources[place] for place in owners],
            None,
            [()] * len(owners),
            [self._placeholders.as_in_line(one.ids, bare[rows[place]]) for place, one in candidates],
            [tag_pairs(lines[rows[place]]) for place in owners],
        )
        placed = dict(self._search_all(placing, range(len(owners)), replace(wanted, stricter=False)))
        for place, numbers in groupby(range(len(owners)), owners.__getitem__):
            found = [(placed[number], candidates[number][1].score) for number in numbers]
            hypotheses = [replace(one.hypotheses[0], score=score) for one, score in found]
            results[place] = Found(hypotheses, [one.alignments[0] for one, _ in found])
        return replace(sentences, texts=texts, sources=sources)

    def _loops(self, sentences: Sentences, results: Mapping[int, Found]) -> list[int]:
        """Returns the places of the sentences whose best hypothesis has a loop, and whose source has none."""
        return [
            place
            for place, found in results.items()
            if has_loop(found.hypotheses[0].ids) and not has_loop(sentences.sources[place])
        ]

    def translatable(self, line: str) -> str:
        """Returns a line with placeholders in place of the strings that its translation copies."""
        return self._placeholders.masked([line])[0].text

    def _encode_sources(self, lines: Sequence[str]) -> list[list[int]]:
        """Returns the ids of each line, uncut and without EOS; none for a blank line."""
        return self.tokenizer.encode_source([empty_if_blank(line) for line in lines])

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
        pairs = [*map(self._placeholders.masked_phrases, constraints, lines)]
        texts, masked = ([[pair[side] for pair in line] for line in pairs] for side in (0, 1))
        return Phrases(texts, self.tokenizer, masked)


def _without_padding(attention: Tensor | None, length: int) -> Tensor | None:
    """Attention (|Y|, S) → (|Y|, length) without padding; `length` is the number of source tokens."""
    return None if attention is None else attention[:, :length].clone()


def empty_if_blank(line: str) -> str:
    """Returns the line; the empty text if it has only white space."""
    return line if line.strip() else ""
