"""Search processors for placeholders: one copies those of a source, one puts tags into a finished text.

A line is translated without its tags, so they can't change its translation. Then the model reads the line
with its tags as placeholders, in a search in which only their places are open. Each hypothesis is the
finished translation with some of them in it, and the most probable one is chosen. Pairs of tags enclose each
other as in the source, and enclose words if they do there.

Shapes: B unfinished sentences, K hypotheses per sentence, V ids, N placeholders, t ids of every hypothesis, L
ids of the longest finished translation and EOS.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields

import numpy as np
import torch
from torch import Tensor

from nmt.copying.strings import TagPair
from nmt.search_processor import SearchInput, SearchProcessor


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


@dataclass(frozen=True)
class PlacingOptions:
    """Options of `PlacePlaceholders`."""

    fixed: Sequence[Sequence[int]]
    """The ids of each finished translation, without EOS."""
    pairs: Sequence[Sequence[TagPair]]
    """The pairs of tags of each source."""
    placeholders: range
    """The ids of all placeholders."""
    space: int | None
    """The id of a space alone, which precedes most placeholders; None: the vocabulary has none."""
    continuing: frozenset[int]
    """The ids that continue a word: no placeholder is placed before them."""
    words: frozenset[int]
    """The ids that have a letter or a digit."""


@dataclass(frozen=True)
class _State:
    """The tensors of a search.

    Attributes:
        text: (B, L) int64, the finished translations, followed by EOS.
        sizes: (B, 1) int64, their numbers of ids, without EOS.
        breaks: (B, L) bool, whether a placeholder may precede an id of `text`.
        words: (B, L + 1) int64, the number of ids of words before each id of `text`.
        last: (B, 1) int64, the index in `text` at which the last word begins; -1: there is none.
        wanted: (B, N) bool, the placeholders to place.
        earlier: (B, N, N) bool, whether the second placeholder must be placed before the first.
        closing: (B, N) int64, the closing tag of each opening tag; N: it is not an opening tag.
        opening: (B, N) int64, the opening tag of each closing tag whose pair has words; N: it is none.
        apart: (B, N, N) bool, whether the second placeholder must wait until the pair of the first is closed.
        begins: (B, N) bool, whether it is the opening tag of a pair that has words.
    """

    text: Tensor
    sizes: Tensor
    breaks: Tensor
    words: Tensor
    last: Tensor
    wanted: Tensor
    earlier: Tensor
    closing: Tensor
    opening: Tensor
    apart: Tensor
    begins: Tensor

    @classmethod
    def of(cls, options: PlacingOptions, search: SearchInput) -> _State:
        """Returns the state of a search for the placeholders of each source that its translation lacks."""
        first, count = options.placeholders.start, len(options.placeholders)
        size, longest = len(options.fixed), max(map(len, options.fixed), default=0) + 1
        text = np.full((size, longest), search.eos_id)
        wanted = np.zeros((size, count), np.bool_)
        earlier, apart = (np.zeros((size, count, count), np.bool_) for _ in range(2))
        closing, opening = (np.full((size, count), count) for _ in range(2))
        begins = np.zeros((size, count), np.bool_)
        for row, (ids, source) in enumerate(zip(options.fixed, search.sources, strict=True)):
            text[row, : len(ids)] = ids
            missing = {i for i in source if i in options.placeholders}.difference(ids)
            wanted[row, [i - first for i in missing]] = True
            for pair in options.pairs[row]:
                if not wanted[row, [pair.opening, pair.closing]].all():
                    continue  # one of them is not in a source that was cut
                inside = range(pair.opening + 1, pair.closing)
                earlier[row, pair.opening + 1 : pair.closing + 1, pair.opening] = True
                earlier[row, pair.closing, inside] = True
                apart[row, pair.opening] = True
                apart[row, pair.opening, pair.opening + 1 : pair.closing + 1] = False
                closing[row, pair.opening] = pair.closing
                if pair.has_words:
                    opening[row, pair.closing] = pair.opening
                    begins[row, pair.opening] = True
        earlier &= wanted[:, None]
        sizes = np.array([[len(ids)] for ids in options.fixed], np.int64).reshape(size, 1)
        is_word = np.isin(text, list(options.words)) & (np.arange(longest) < sizes)
        breaks = ~np.isin(text, list(options.continuing))
        breaks[:, 0] = True
        words = np.concatenate([np.zeros((size, 1), np.int64), is_word.cumsum(1)], 1)
        last = np.where(is_word & breaks, np.arange(longest), -1).max(1, initial=-1)[:, None]
        arrays = (text, sizes, breaks, words, last, wanted, earlier, closing, opening, apart, begins)
        return cls(*(torch.from_numpy(array).to(search.device) for array in arrays))

    def take(self, rows: Tensor) -> _State:
        """Returns the state of the sentences `rows`, (B',) int64."""
        return _State(*(getattr(self, field.name)[rows] for field in fields(self)))


class PlacePlaceholders(SearchProcessor):
    """Allows the next id of the finished translation, missing placeholders, and a space before one.

    The tensors of `state` are None before `start`; `width` is K.
    """

    Options = PlacingOptions
    options: PlacingOptions

    def __init__(self, options: PlacingOptions, state: _State | None = None, width: int = 1) -> None:
        super().__init__(options)
        self._state, self._width = state, width

    def start(self, search: SearchInput) -> PlacePlaceholders:
        """Returns the processor of one search."""
        assert len(self.options.fixed) == len(search.sources) == search.num_sentences
        return PlacePlaceholders(self.options, _State.of(self.options, search))

    def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        """Forbids everything else; see the class."""
        state, first = self._state, self.options.placeholders.start
        assert state is not None, "call the processor that start returns"
        count, space = len(self.options.placeholders), self.options.space
        tokens = ids[:, :, 1:]  # without BOS
        numbers = torch.where((tokens >= first) & (tokens < first + count), tokens - first, count)
        wanted = torch.cat((state.wanted, state.wanted.new_zeros(len(ids), 1)), 1)[:, None]
        is_placed = wanted.expand(-1, ids.shape[1], -1).gather(2, numbers)  # (B, K, t - 1)
        is_space = tokens == (-1 if space is None else space)
        # A space directly before a placed one belongs to it; that at the end may belong to the next one.
        is_own_space = is_space & torch.cat((is_placed[:, :, 1:], torch.zeros_like(is_placed[:, :, :1])), 2)
        is_text = ~(is_placed | is_own_space)
        consumed, longest = is_text.sum(2), state.text.shape[1]  # (B, K)
        is_open = is_space[:, :, -1:].any(2)  # the last id is a space
        before = state.text.gather(1, (consumed - 1).clamp(0, longest - 1))
        # The space at the end belongs to the text if that has one there.
        is_part = is_open & (before == (-1 if space is None else space)) & (consumed > 0)
        # The number of ids of the text so far; a hypothesis that is complete already may have more.
        place = torch.where(is_open & ~is_part, consumed - 1, consumed).clamp(max=longest - 1)
        following, is_end = state.text.gather(1, place), place >= state.sizes

        used = torch.zeros(*ids.shape[:2], count + 1, dtype=torch.bool, device=ids.device)
        used = used.scatter_(2, numbers, True)[:, :, :count]  # (B, K, N)
        missing = state.wanted[:, None] & ~used
        allowed_tags = missing & self._fits(state, used, numbers, is_text, place)
        may_place = is_open | state.breaks.gather(1, place)
        allowed = torch.zeros_like(log_probs, dtype=torch.bool)
        allowed[:, :, first : first + count] = allowed_tags & may_place[:, :, None]
        if space is not None:
            allowed[:, :, space] = allowed_tags.any(2) & may_place & ~is_open
        # The last word can't be passed while a tag that is to enclose words can still be placed.
        is_late = (place == state.last) & (allowed_tags & state.begins[:, None]).any(2)
        goes_on = torch.where(is_end, ~missing.any(2), ~is_late) & (~is_open | is_part)
        continuation = following[:, :, None]
        allowed.scatter_(2, continuation, allowed.gather(2, continuation) | goes_on[:, :, None])
        return log_probs.masked_fill_(~allowed, -torch.inf)

    def _fits(self, state: _State, used: Tensor, numbers: Tensor, is_text: Tensor, place: Tensor) -> Tensor:
        """Returns which placeholders may be placed next, as far as pairs of tags are concerned: (B, K, N).

        Args:
            state: the tensors.
            used: (B, K, N) bool, the placeholders of each hypothesis.
            numbers: (B, K, t - 1), the number of each id's placeholder; N: it is none.
            is_text: (B, K, t - 1) bool, whether an id belongs to the finished translation.
            place: (B, K), the number of its ids so far.
        """
        waits = (~used).float() @ state.earlier.float().transpose(1, 2) > 0
        padded = torch.cat((used, torch.zeros_like(used[:, :, :1])), 2)
        closed = padded.gather(2, state.closing[:, None].expand_as(used))
        is_pair = (state.closing < used.shape[2])[:, None]
        crosses = (used & is_pair & ~closed).float() @ state.apart.float() > 0
        # The words between an opening tag and here.
        at = torch.zeros(*used.shape[:2], used.shape[2] + 1, dtype=torch.int64, device=used.device)
        words = state.words[:, None].expand(-1, used.shape[1], -1)
        # A hypothesis that is complete already may have more ids.
        at = at.scatter_(2, numbers, is_text.cumsum(2).clamp(max=words.shape[2] - 1))
        so_far, total = words.gather(2, place[:, :, None]), words[:, :, -1:]
        enclosed = so_far - words.gather(2, at.gather(2, state.opening[:, None].expand_as(used)))
        has_opening = (state.opening < used.shape[2])[:, None]
        is_empty = has_opening & (enclosed == 0) & (so_far < total)
        return ~(waits | crosses | is_empty)

    def select(self, rows: Tensor) -> PlacePlaceholders:
        """Reorders the hypotheses; see `SearchProcessor.select`."""
        assert self._state is not None
        return PlacePlaceholders(self.options, self._state.take(rows[:, 0] // self._width), rows.shape[1])
