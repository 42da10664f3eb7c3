"""Placeholders in translations: URLs, tags and variables are replaced before the search, and restored."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from nmt.copying.placing import CopyOptions, CopyPlaceholders, PlacePlaceholders, PlacingOptions
from nmt.copying.strings import (
    WORD_START,
    Bare,
    Masked,
    MaskedPair,
    Original,
    TagPair,
    has_letters,
    has_words,
    is_visible,
    mask,
    mask_pair,
    mask_texts,
    number_of,
    restore,
    without_tags,
)
from nmt.runtime.lazy import cached_property
from nmt.search_processor import SearchProcessor


@dataclass(frozen=True)
class Restored:
    """A translation with its strings and the links of its words.

    Attributes:
        appended: number of strings at its end that the search did not place.
    """

    text: str
    alignment: Links = ()
    appended: int = 0


class Placeholders:
    """Replaces and restores the strings of lines. Without placeholders it leaves all text unchanged.

    Args:
        ids: the ids of the placeholders; empty: the vocabulary has none.
        tags: the tags of the vocabulary, which are not replaced.
        target_pieces: returns the pieces of the target side, in the order of their ids.
        enabled: `decoding.placeholders`.
        numbers: whether numbers are strings too.
    """

    def __init__(
        self,
        ids: range,
        tags: Collection[str],
        target_pieces: Callable[[], Sequence[str]],
        enabled: bool,
        numbers: bool = False,
    ) -> None:
        self._numbers = numbers
        self._enabled = enabled and bool(ids)
        self._ids, self._tags = ids, tags if self._enabled else ()
        self._target_pieces = target_pieces
        self._processor = CopyPlaceholders(CopyOptions(ids[0], len(ids))) if self._enabled else None

    @property
    def enabled(self) -> bool:
        """Whether strings are replaced."""
        return self._enabled

    def masked(self, lines: Sequence[str]) -> list[Masked]:
        """Replaces the strings of lines."""
        if not self._enabled:
            return [*map(Masked, lines)]
        return [mask(line, self._tags, numbers=self._numbers) for line in lines]

    def masked_prefixes(self, prefixes: Sequence[str], lines: Sequence[Masked]) -> list[str]:
        """Replaces the strings of lines in the beginnings of their translations."""
        if not self._enabled:
            return list(prefixes)
        return [mask_texts([prefix], line.strings)[0] for prefix, line in zip(prefixes, lines, strict=True)]

    def masked_phrases(self, phrases: Sequence[str], line: Masked) -> list[tuple[str, str]]:
        """Replaces the strings of a line in phrases that its translation must contain.

        Returns:
            Each phrase, and the phrase as the model writes it. A phrase that is a string of the line is left
            out, since every translation contains it.
        """
        masked = mask_texts(phrases, line.strings) if self._enabled else phrases
        pairs = zip(phrases, masked, strict=True)
        return [(phrase, text) for phrase, text in pairs if phrase == text or not is_placeholder(text)]

    def masked_pairs(self, pairs: Sequence[tuple[str, str]]) -> list[MaskedPair]:
        """Replaces the strings that both sides of given translations have in common."""
        return [mask_pair(*pair, self._tags) if self._enabled else MaskedPair(*pair) for pair in pairs]

    def restored(self, text: str, line: str, masked: Masked, links: Links) -> Restored:
        """Puts the strings of a line back into a translation, and links its words; see `restore`."""
        if not self._enabled:
            return Restored(text, links)
        whole, appended = restore(text, masked.strings)
        if links and (whole != text or line != masked.text):
            source = RawWords.of(masked.text, line, masked.strings)
            links = raw_links(links, source, RawWords.of(text, whole, masked.strings))
        return Restored(whole, links, appended)

    def shown_pieces(self, masked: Masked, pieces: Sequence[str]) -> tuple[str, ...]:
        """Returns pieces of a line or of its translation with the strings of the line, and EOS at the end."""
        numbers = {character: number_of(character) for character in set("".join(pieces))}
        strings: dict[str, str | int | None] = {
            character: masked.strings[number].text
            for character, number in numbers.items()
            if number is not None and number < len(masked.strings)
        }
        return (*(piece.translate(str.maketrans(strings)) for piece in pieces), "</s>")

    def without_tags(self, line: Masked) -> Bare | None:
        """Returns a masked line without its tags, to be translated first; None without tags or words."""
        bare = without_tags(line) if self._enabled else None
        return bare if bare is not None and has_words(bare.text) else None

    def as_in_line(self, ids: Sequence[int], bare: Bare) -> list[int]:
        """Returns the ids of a translation of `bare`, with the placeholders of the line with tags.

        Placeholders that `bare` does not have are removed, as `restore` does.
        """
        space, _ = self.target_facts
        ids_in_line: list[int] = []
        for id in ids:
            if id not in self._ids:
                ids_in_line.append(id)
            elif (number := id - self._ids.start) < len(bare.numbers):
                ids_in_line.append(self._ids.start + bare.numbers[number])
            elif ids_in_line and ids_in_line[-1] == space:
                ids_in_line.pop()
        return ids_in_line

    def placing(
        self, fixed: Sequence[Sequence[int]], pairs: Sequence[Sequence[TagPair]], continuing: frozenset[int]
    ) -> SearchProcessor:
        """Returns the processor that places tags in finished translations; see `PlacingOptions`."""
        space, words = self.target_facts
        return PlacePlaceholders(PlacingOptions(fixed, pairs, self._ids, space, continuing, words))

    @cached_property
    def target_facts(self) -> tuple[int | None, frozenset[int]]:
        """The id of a space alone, and the ids with a letter or a digit, in the target vocabulary."""
        pieces = self._target_pieces()
        words = frozenset(number for number, piece in enumerate(pieces) if any(map(str.isalnum, piece)))
        return pieces.index(WORD_START) if WORD_START in pieces else None, words

    def count(self, source: Sequence[int]) -> int:
        """Returns the number of placeholders in the ids of a source."""
        return sum(id in self._ids for id in source) if self._enabled else 0

    def processors(self, sources: Sequence[Sequence[int]]) -> tuple[SearchProcessor, ...]:
        """Returns the processor that a search for these source ids needs, if any."""
        if self._processor is None or not any(i in self._ids for source in sources for i in source):
            return ()
        return (self._processor,)


def is_placeholder(text: str) -> bool:
    """Returns whether a text is one placeholder, with spaces around it at most."""
    bare = text.strip()
    return len(bare) == 1 and number_of(bare) is not None


def needs_no_model(line: Masked, *, letters_only: bool) -> bool:
    """Returns whether a line that is not blank has nothing to translate, so that it is its own translation.

    It has strings and no words between them. With `letters_only`, it has no letters outside its strings.
    """
    if letters_only:
        return not has_letters(line.text) and is_visible(line.text)
    return bool(line.strings) and not has_words(line.text)


Links: TypeAlias = tuple[tuple[int, int], ...]
"""Links of source word and target word, from 0, in the order of the target words."""


@dataclass(frozen=True)
class RawWords:
    """The words of a raw text that belong to the parts of the same text with placeholders.

    Attributes:
        words: for each word with placeholders, the numbers of the raw words with which it shares characters.
            Empty if its placeholders were removed.
        plain: for each word with placeholders, whether it has no placeholder.
        strings: for each string of the raw text, the numbers of its words.
    """

    words: Sequence[range]
    plain: Sequence[bool]
    strings: dict[int, range]

    @classmethod
    def of(cls, masked: str, raw: str, strings: Sequence[Original]) -> RawWords:
        """Compares a text with placeholders with the raw text; `strings` has that of each placeholder.

        Both have the same characters in the same order, except white space and the placeholders. An unknown
        or repeated placeholder has no raw characters. Strings without a placeholder are at the end.
        """
        numbers = [number for number, word in enumerate(raw.split()) for _ in word]
        sizes = {number: len("".join(string.text.split())) for number, string in enumerate(strings)}
        words, plain, spans = [], [], dict[int, range]()
        place = 0
        for word in masked.split():
            begin = place
            for character in word:
                number = number_of(character)
                size = 1 if number is None else sizes.pop(number, 0)
                if number is not None and size:
                    spans[number] = _span(numbers[place : place + size])
                place += size
            words.append(_span(numbers[begin:place]))
            plain.append(all(number_of(character) is None for character in word))
        for number, size in sizes.items():
            spans[number] = _span(numbers[place : place + size])
            place += size
        return cls(words, plain, spans)


def raw_links(links: Links, source: RawWords, target: RawWords) -> Links:
    """Returns the links of raw words in the order of the target words, at most one for each.

    A string is linked to itself. A raw word that has letters and a string has the link of the letters. All
    other words have the links of the words with placeholders.
    """
    raw: dict[int, int] = {}
    _add(raw, [link for link in links if target.plain[link[1]]], source.words, target.words)
    strings = [(number, number) for number in target.strings if number in source.strings]
    _add(raw, strings, source.strings, target.strings)
    _add(raw, links, source.words, target.words)
    return tuple((raw[word], word) for word in sorted(raw))


def identity_links(copy: str, tags: int = 0) -> Links:
    """Returns the links of a line that is its own translation, except for `tags` words at its beginning."""
    return tuple((tags + number, number) for number in range(len(copy.split())))


def _add(
    raw: dict[int, int],
    links: Iterable[tuple[int, int]],
    source: Sequence[range] | dict[int, range],
    target: Sequence[range] | dict[int, range],
) -> None:
    """Links raw words one by one: the first to the first, the second to the second, and so on.

    If the source has fewer, its last word is linked to the others. Links that exist are left unchanged.
    """
    for source_word, target_word in links:
        for offset, word in enumerate(target[target_word]):
            if begins := source[source_word]:
                raw.setdefault(word, begins[min(offset, len(begins) - 1)])


def _span(numbers: Sequence[int]) -> range:
    return range(numbers[0], numbers[-1] + 1) if numbers else range(0)
