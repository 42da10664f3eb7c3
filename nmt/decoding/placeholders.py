"""Placeholders in translations: URLs, tags and variables are replaced before the search, and restored.

Shapes: B unfinished sentences, K hypotheses per sentence, V ids, N placeholders, t ids of every hypothesis.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.data.subwords.placeholders import (
    Bare,
    Masked,
    MaskedPair,
    TagPair,
    has_words,
    mask,
    mask_pair,
    mask_texts,
    number_of,
    restore,
    without_tags,
)
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.decoding.alignment.links import Alignment
from nmt.decoding.alignment.raw_words import RawWords, raw_links
from nmt.decoding.constraints.word_boundaries import WORD_MARK
from nmt.decoding.placing import PlacePlaceholders, PlacingOptions
from nmt.decoding.processors import SearchInput, SearchProcessor
from nmt.runtime.lazy import cached_property


@dataclass(frozen=True)
class Restored:
    """A translation with its strings.

    Attributes:
        text: the text.
        alignment: links of its words.
        appended: number of strings at its end that the search did not place.
    """

    text: str
    alignment: Alignment = ()
    appended: int = 0


class Placeholders:
    """Replaces and restores the strings of lines. Without placeholders it leaves all text unchanged.

    Args:
        tokenizer: the tokenizer; its tags are not replaced.
        enabled: `decoding.placeholders`.
    """

    def __init__(self, tokenizer: Tokenizer, enabled: bool) -> None:
        ids = tokenizer.placeholders
        self._enabled = enabled and bool(ids)
        self._ids, self._tags = ids, tokenizer.source_symbols if self._enabled else ()
        self._tokenizer = tokenizer
        self._processor = CopyPlaceholders(CopyOptions(ids[0], len(ids))) if self._enabled else None

    def masked(self, lines: Sequence[str]) -> list[Masked]:
        """Replaces the strings of lines."""
        return [mask(line, self._tags) if self._enabled else Masked(line) for line in lines]

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

    def restored(self, text: str, line: str, masked: Masked, links: Alignment) -> Restored:
        """Puts the strings of a line back into a translation; see `restore`.

        Args:
            text: the translation with placeholders.
            line: the line.
            masked: the line with placeholders.
            links: of the words with placeholders.
        """
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
        space, _ = self._target_facts
        found: list[int] = []
        for one in ids:
            if one not in self._ids:
                found.append(one)
            elif (number := one - self._ids.start) < len(bare.numbers):
                found.append(self._ids.start + bare.numbers[number])
            elif found and found[-1] == space:
                found.pop()
        return found

    def placing(
        self, fixed: Sequence[Sequence[int]], pairs: Sequence[Sequence[TagPair]], continuing: frozenset[int]
    ) -> SearchProcessor:
        """Returns the processor that places tags in finished translations; see `PlacingOptions`."""
        space, words = self._target_facts
        return PlacePlaceholders(PlacingOptions(fixed, pairs, self._ids, space, continuing, words))

    @cached_property
    def _target_facts(self) -> tuple[int | None, frozenset[int]]:
        """The id of a space alone, and the ids with a letter or a digit, in the target vocabulary."""
        pieces = self._tokenizer.target_vocabulary()
        words = frozenset(number for number, piece in enumerate(pieces) if any(map(str.isalnum, piece)))
        return pieces.index(WORD_MARK) if WORD_MARK in pieces else None, words

    def count(self, source: Sequence[int]) -> int:
        """Returns the number of placeholders in the ids of a source."""
        return sum(one in self._ids for one in source) if self._enabled else 0

    def processors(self, sources: Sequence[Sequence[int]]) -> tuple[SearchProcessor, ...]:
        """Returns the processor that a search for these source ids needs, if any."""
        if self._processor is None or not any(i in self._ids for source in sources for i in source):
            return ()
        return (self._processor,)


def is_placeholder(text: str) -> bool:
    """Returns whether a text is one placeholder, with spaces around it at most."""
    bare = text.strip()
    return len(bare) == 1 and number_of(bare) is not None


def needs_no_model(line: Masked) -> bool:
    """Returns whether a line has strings, and nothing to translate between them."""
    return bool(line.strings) and not has_words(line.text)


@dataclass(frozen=True)
class CopyOptions:
    """Options of `CopyPlaceholders`."""

    first: int
    """The id of placeholder 0."""
    count: int
    """N, the number of placeholders."""


class CopyPlaceholders(SearchProcessor):
    """Makes every hypothesis contain the placeholders of its source once each, and no others.

    EOS is forbidden while a placeholder is missing. Where a hypothesis would end, or where the maximum length
    leaves no room for other tokens, only the missing placeholders are allowed. A sentence without
    placeholders is not affected.

    Args:
        options: the ids of the placeholders.
        wanted: (B, K, N) bool, the placeholders of the source; None before `start`.
        limits: (B, K), maximum number of ids after BOS.
        eos_id: the id of EOS.
    """

    Options = CopyOptions
    options: CopyOptions

    def __init__(
        self,
        options: CopyOptions,
        wanted: Tensor | None = None,
        limits: Tensor | None = None,
        eos_id: int = -1,
    ) -> None:
        super().__init__(options)
        self._wanted, self._limits, self._eos_id = wanted, limits, eos_id

    def start(self, search: SearchInput) -> CopyPlaceholders:
        """Returns the processor of one search, with the placeholders of each source."""
        first, count = self.options.first, self.options.count
        wanted = torch.zeros(search.num_sentences, 1, count, dtype=torch.bool)
        for row, source in enumerate(search.sources):
            wanted[row, 0, [i - first for i in source if first <= i < first + count]] = True
        limits = torch.tensor(search.max_lengths, device=search.device)[:, None]
        return CopyPlaceholders(self.options, wanted.to(search.device), limits, search.eos_id)

    def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        """Forbids used and unknown placeholders, and an end without all of them."""
        assert self._wanted is not None and self._limits is not None, "call the processor that start returns"
        first, count = self.options.first, self.options.count
        numbers = torch.where((ids >= first) & (ids < first + count), ids - first, count)
        used = torch.zeros(*ids.shape[:2], count + 1, dtype=torch.bool, device=ids.device)
        missing = self._wanted & ~used.scatter_(2, numbers, True)[:, :, :count]  # (B, K, N)
        num_missing = missing.sum(2)
        room = self._limits - ids.shape[2]  # ids that fit before EOS, the new one included
        incomplete = (num_missing > 0) & (room > 0)
        is_end = torch.arange(log_probs.shape[2], device=ids.device) == self._eos_id
        forced = incomplete & ((log_probs.argmax(2) == self._eos_id) | (num_missing >= room))
        forbidden = (incomplete[:, :, None] & is_end) | forced[:, :, None]  # (B, K, V)
        forbidden[:, :, first : first + count] = ~missing & self._wanted.any(2, keepdim=True)
        return log_probs.masked_fill_(forbidden, -torch.inf)

    def select(self, rows: Tensor) -> CopyPlaceholders:
        """Reorders the hypotheses; see `SearchProcessor.select`."""
        assert self._wanted is not None and self._limits is not None
        wanted, limits = self._wanted.flatten(0, 1)[rows], self._limits.flatten()[rows]
        return CopyPlaceholders(self.options, wanted, limits, self._eos_id)
