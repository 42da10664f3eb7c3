"""Tags for a model that does not know them: it translates lines without them, and word links place them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING

from nmt.copying.aligned_tags import Element, proportional_links, removed_tags, with_tags, word_numbers
from nmt.copying.strings import MARKUP, TAG, VARIABLE
from nmt.data.corpora.sources import without_tag
from nmt.decoding.facts import FEW, TextFacts
from nmt.decoding.searcher import Searcher, SearchRequest
from nmt.errors import UserError
from nmt.runtime.lazy import cached_property

if TYPE_CHECKING:
    from nmt.copying.translation import Links
    from nmt.data.subwords.tokenizer import Tokenizer
    from nmt.decoding.translation import ScoredText, Translation

_MOST_TAGS = 250
"""Tags of a line. A line with more remains as it is: the time grows with their product with the words."""


class TagPlacer:
    """Translates lines without the tags and variables that a model does not know, and places them.

    A model with placeholders knows them all. Without facts about the training text, only `markup` says that
    they are to be removed.
    """

    def __init__(self, facts: TextFacts | None, searcher: Searcher, tokenizer: Tokenizer) -> None:
        self._searcher, self._symbols = searcher, tokenizer.source_symbols
        self._has_placeholders = bool(tokenizer.placeholders) and searcher.config.placeholders
        self._unknown: re.Pattern[str] | None = None
        if facts is not None and searcher.config.place_tags and not tokenizer.placeholders:
            shares = {TAG: facts.tags, VARIABLE: facts.variables}
            unknown = [kind.pattern for kind, share in shares.items() if share is not None and share < FEW]
            self._unknown = re.compile("|".join(unknown)) if unknown else None

    def translate(
        self,
        translate: Callable[[Sequence[str], bool, bool], list[Translation]],
        lines: Sequence[str],
        given: Sequence[Sequence[str]],
        *,
        markup: bool,
        attention: bool,
        alignments: bool,
    ) -> list[Translation]:
        """Returns the translations of lines, with their tags.

        Args:
            translate: translates lines, with attention if its second argument is true, and with the
                alignments of their words if the third is.
            lines: the lines, which may have tags and variables.
            given: for each line the parts of its translation that are given. If they have tags, the line
                remains as it is.
            markup: whether tags and variables are markup, whatever the model knows.
            attention: whether to return attention, which is that of the lines without tags.
            alignments: whether to return alignments.
        """
        pattern = MARKUP if markup else self._unknown
        bare: list[_Bare] = []
        if pattern is not None and not self._has_placeholders:
            bare = [self._bare(*line, pattern) for line in zip(lines, given, strict=True)]
        if not any(one.elements for one in bare):
            return translate(lines, attention, alignments)
        texts = [one.text for one in bare]
        linked = translations = translate(texts, False, alignments or self._can_align)
        if attention:
            translations = translate(texts, True, False)

        def placed(one: _Bare, pair: tuple[ScoredText, ScoredText]) -> ScoredText:
            shown, aligned = pair
            text = one.tagged(aligned)
            return replace(shown, text=text, alignment=one.links(aligned, text) if alignments else ())

        return [
            replace(
                translation,
                hypotheses=tuple(
                    placed(one, pair) for pair in zip(translation.hypotheses, other.hypotheses, strict=True)
                ),
            )
            for translation, other, one in zip(translations, linked, bare, strict=True)
        ]

    def _bare(self, line: str, given: Sequence[str], pattern: re.Pattern[str]) -> _Bare:
        """Returns a line without its tags, which match the pattern; as it is if a given text has some."""
        rest = without_tag(line, self._symbols)
        if pattern.search(rest) is None or any(map(pattern.search, given)):
            return _Bare(line, line)
        if sum(1 for _ in islice(pattern.finditer(rest), _MOST_TAGS + 1)) > _MOST_TAGS:
            return _Bare(line, line)
        text, elements = removed_tags(rest, pattern)
        symbol = line.removesuffix(rest)
        return _Bare(line, symbol + text, len(symbol.split()), pattern, elements)

    @cached_property
    def _can_align(self) -> bool:
        """Whether translations can have alignments; without them, a tag is at the same share of its line."""
        try:
            self._searcher.prepare(SearchRequest(alignments=True), constraints=False)
        except UserError:
            return False
        return True


@dataclass(frozen=True)
class _Bare:
    """A line without its tags.

    Attributes:
        line: the line with its tags.
        text: the line without them.
        num_symbols: number of words at its beginning that the model knows as a tag: 0 or 1.
        pattern: matches its tags; None: none are removed.
        elements: its tags.
    """

    line: str
    text: str
    num_symbols: int = 0
    pattern: re.Pattern[str] | None = None
    elements: Sequence[Element] = ()

    def tagged(self, translation: ScoredText) -> str:
        """Returns a translation with the tags of the line."""
        if not self.elements:
            return translation.text
        links = translation.alignment or proportional_links(self.text, translation.text)
        links = [
            (source - self.num_symbols, target) for source, target in links if source >= self.num_symbols
        ]
        return with_tags(translation.text, self.elements, links)

    def links(self, translation: ScoredText, tagged: str) -> Links:
        """Returns the links between the words of the line and of `tagged`, the translation with the tags."""
        if self.pattern is None:
            return translation.alignment
        start = self.num_symbols
        rest = self.line.split(None, start)[-1]
        sources = [*range(start), *(start + number for number in word_numbers(rest, self.pattern))]
        targets = word_numbers(tagged, self.pattern)
        # A translation that has tags itself may have fewer words than its links.
        links = [link for link in translation.alignment if link[1] < len(targets)]
        return tuple((sources[source], targets[target]) for source, target in links)
