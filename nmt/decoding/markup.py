"""Strings that a model does not know: it translates lines without them, and word links place them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import TYPE_CHECKING, Any

from nmt.copying.aligned_strings import removed_strings, with_strings
from nmt.copying.aligned_tags import removed_tags, with_tags
from nmt.copying.removal import Placed, Removed, proportional_links, word_number, word_numbers
from nmt.copying.strings import ADDRESS, TAG, VARIABLE
from nmt.data.corpora.sources import without_tag
from nmt.decoding.facts import FEW, TextFacts
from nmt.decoding.searcher import Searcher, SearchRequest
from nmt.errors import UserError
from nmt.runtime.lazy import cached_property

if TYPE_CHECKING:
    from nmt.copying.translation import Links
    from nmt.data.subwords.tokenizer import Tokenizer
    from nmt.decoding.translation import ScoredText, Translation

_MOST_STRINGS = 250
"""Strings of a line. A line with more remains as it is: the time grows with their product with the words."""


@dataclass(frozen=True)
class _Kind:
    """A kind of strings.

    Attributes:
        remove: returns a line without the strings that match a pattern.
        place: returns a translation with them.
        unknown: matches those that the model does not know; None: it knows them, or may have to.
        markup: matches those that are removed if tags and variables are markup; None: none.
    """

    remove: Callable[[str, re.Pattern[str]], Removed[Any]]
    place: Callable[[str, Sequence[Any], Sequence[tuple[int, int]]], Placed]
    unknown: re.Pattern[str] | None
    markup: re.Pattern[str] | None


class StringPlacer:
    """Translates lines without the strings of a kind that a model does not know, and places them.

    A model with placeholders knows them all. Without facts about the training text, only `markup` says that
    they are to be removed.
    """

    def __init__(self, kind: _Kind, searcher: Searcher, tokenizer: Tokenizer) -> None:
        self._kind, self._searcher, self._symbols = kind, searcher, tokenizer.source_symbols
        self._has_placeholders = bool(tokenizer.placeholders) and searcher.config.placeholders
        self._unknown = kind.unknown if searcher.config.place_tags and not tokenizer.placeholders else None

    @classmethod
    def of_tags(cls, facts: TextFacts | None, searcher: Searcher, tokenizer: Tokenizer) -> StringPlacer:
        """Returns the placer of XML and HTML tags. A pair of them may enclose several sentences."""
        unknown = _any([(TAG, facts.tags)] if facts else [])
        return cls(_Kind(removed_tags, with_tags, unknown, TAG), searcher, tokenizer)

    @classmethod
    def of_words(cls, facts: TextFacts | None, searcher: Searcher, tokenizer: Tokenizer) -> StringPlacer:
        """Returns the placer of URLs, e-mail addresses and variables, for one sentence."""
        addresses = [(ADDRESS, facts.addresses)] if facts else []
        unknown = _any([*addresses, (VARIABLE, facts.variables)] if facts else [])
        kind = _Kind(removed_strings, with_strings, unknown, _any([*addresses, (VARIABLE, 0.0)]))
        return cls(kind, searcher, tokenizer)

    def translate(
        self,
        translate: Callable[[Sequence[str], bool, bool], list[Translation]],
        lines: Sequence[str],
        given: Iterable[Sequence[str]],
        *,
        markup: bool,
        attention: bool,
        alignments: bool,
    ) -> list[Translation]:
        """Returns the translations of lines, with their strings.

        Args:
            translate: translates lines, with attention if its second argument is true, and with the
                alignments of their words if the third is.
            lines: the lines, which may have strings.
            given: for each line the parts of its translation that are given. If they have strings, the line
                remains as it is.
            markup: whether tags and variables are markup, whatever the model knows.
            attention: whether to return attention, which is that of the lines without strings.
            alignments: whether to return alignments.
        """
        pattern = self._kind.markup if markup else self._unknown
        bare: list[_Bare] = []
        if pattern is not None and not self._has_placeholders:
            bare = [self._bare(*line, pattern) for line in zip(lines, given, strict=True)]
        if not any(one.removed.strings for one in bare):
            return translate(lines, attention, alignments)
        texts = [one.text for one in bare]
        linked = translations = translate(texts, False, alignments or self._can_align)
        if attention:
            translations = translate(texts, True, False)

        def placed(one: _Bare, pair: tuple[ScoredText, ScoredText]) -> ScoredText:
            shown, aligned = pair
            found = one.placed(aligned, self._kind)
            links = one.links(aligned, found) if alignments else ()
            return replace(shown, text=found.text, alignment=links)

        return [
            replace(
                translation,
                hypotheses=tuple(
                    placed(one, pair) for pair in zip(translation.hypotheses, other.hypotheses, strict=True)
                ),
            )
            for translation, other, one in zip(translations, linked, bare, strict=True)
        ]

    def finds(self, line: str) -> bool:
        """Returns whether a line, or a sentence of it, can have strings that are removed without `markup`."""
        return self._unknown is not None and bool(self._unknown.search(without_tag(line, self._symbols)))

    def _bare(self, line: str, given: Sequence[str], pattern: re.Pattern[str]) -> _Bare:
        """Returns a line without its strings, which match the pattern; as it is if a given text has some."""
        rest = without_tag(line, self._symbols)
        if pattern.search(rest) is None or any(map(pattern.search, given)):
            return _Bare(line, Removed(line, (), ()))
        if sum(1 for _ in islice(pattern.finditer(rest), _MOST_STRINGS + 1)) > _MOST_STRINGS:
            return _Bare(line, Removed(line, (), ()))
        return _Bare(rest, self._kind.remove(rest, pattern), line.removesuffix(rest))

    @cached_property
    def _can_align(self) -> bool:
        """Whether translations can have alignments; without them, strings are at the same shares of lines."""
        try:
            self._searcher.prepare(SearchRequest(alignments=True), constraints=False)
        except UserError:
            return False
        return True


def given_texts(
    lines: Sequence[str],
    prefixes: Sequence[str] | None,
    constraints: Sequence[Sequence[str]] | None,
    terms: Sequence[Sequence[str]] | None,
) -> Iterator[list[str]]:
    """Yields the parts of the translation of each line that are given."""
    nothing: list[Sequence[str]] = [()] * len(lines)
    columns = prefixes or [""] * len(lines), constraints or nothing, terms or nothing
    for prefix, some, more in zip(*columns, strict=True):
        yield [prefix, *some, *more]


def _any(kinds: Sequence[tuple[re.Pattern[str], float | None]]) -> re.Pattern[str] | None:
    """Returns a pattern for the kinds that few lines of the training had; None if there is none."""
    unknown = [kind.pattern for kind, share in kinds if share is not None and share < FEW]
    return re.compile("|".join(unknown)) if unknown else None


@dataclass(frozen=True)
class _Bare:
    """A line without its strings.

    Attributes:
        line: the line with its strings, without a symbol.
        removed: the line without them.
        symbol: the tag at its beginning that the model knows, and the white space behind it.
    """

    line: str
    removed: Removed[Any]
    symbol: str = ""

    @property
    def text(self) -> str:
        """What is translated."""
        return self.symbol + self.removed.text

    def placed(self, translation: ScoredText, kind: _Kind) -> Placed:
        """Returns a translation with the strings of the line."""
        if not self.removed.strings:
            return Placed(translation.text, (), ())
        start = len(self.symbol.split())
        links = translation.alignment or proportional_links(self.text, translation.text)
        links = [(source - start, target) for source, target in links if source >= start]
        return kind.place(translation.text, self.removed.strings, links)

    def links(self, translation: ScoredText, placed: Placed) -> Links:
        """Returns the links of the words of the line and of its translation with the strings.

        A string that is a word is linked to itself.
        """
        if not self.removed.strings:
            return translation.alignment
        start = len(self.symbol.split())
        sources = [*range(start)]
        sources += (
            start + number for number in word_numbers(self.removed.text, self.line, self.removed.parts)
        )
        targets = word_numbers(translation.text, placed.text, placed.parts)
        alignment = [link for link in translation.alignment if link[1] < len(targets)]
        links = [(sources[source], targets[target]) for source, target in alignment]
        if self.removed.places:
            columns = self.removed.strings, self.removed.places, placed.places
            own = dict[int, int]()
            for string, place, target_place in zip(*columns, strict=True):
                source, target = word_number(self.line, place), word_number(placed.text, target_place)
                own |= {target + word: start + source + word for word in range(len(string.text.split()))}
            linked = {target for _, target in links}
            links += ((source, target) for target, source in own.items() if target not in linked)
        return tuple(sorted(links, key=lambda link: link[1]))
