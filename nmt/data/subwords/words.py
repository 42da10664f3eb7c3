"""A cache of encoded words, with which text is encoded word by word, many words at once."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import numpy as np

from nmt.runtime.arrays import Array, Side, offsets_of, smallest_dtype
from nmt.runtime.forks import undivided

_BITS = 18  # the table has 2**18 entries of about 30 bytes
_LANES = 3  # words of up to 3 * 8 bytes are cached
_MAX_IDS = 1 << 21
_SPACE = ord(" ")
# Odd random numbers: the upper bits of products with them distribute the words over the table.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)


class Words:
    """Encodes text as the concatenation of its words, which are separated by spaces.

    Words repeat, so their ids are cached. The table is a direct-mapped cache: the bytes of a word determine
    its entry, and a collision replaces the entry. All words of a text are looked up together. The missing
    ones are encoded together.

    Args:
        encode: returns the ids of each of many words.
        vocab_size: size of the vocabulary; all ids are below it.
        blank: the id of an empty word between two others, which runs of spaces have; None: it has no id, so
            that a run of spaces is encoded as one. Spaces at both ends of a text never have ids.
    """

    _store: Array  # the ids of the cached words
    _used: int  # number of ids in `_store`

    def __init__(
        self, encode: Callable[[list[str]], list[list[int]]], vocab_size: int, blank: int | None = None
    ) -> None:
        self._encode, self._blank = encode, blank
        self._dtype = smallest_dtype(vocab_size - 1)
        self._lock = Lock()
        self._clear()

    def encode(self, texts: Side) -> Side:
        """Encodes texts of `Side.of_lines`. A newline within a text is an ordinary character."""
        ends = texts.offsets[1:] - texts.offsets[0]
        codes = np.append(texts.flat(), np.zeros(8 * _LANES, np.uint8))
        codes[ends - 1] = _SPACE
        with undivided(), self._lock:
            return self._ids(codes, ends)

    def _ids(self, codes: Array, ends: Array) -> Side:
        """Encodes texts that end before `ends`. Each word ends with a space; `codes` is padded with zeros."""
        if self._used > _MAX_IDS:
            self._clear()
        stops = np.flatnonzero(codes == _SPACE)
        starts = np.empty_like(stops)
        starts[:1], starts[1:] = 0, stops[:-1] + 1
        sizes = stops - starts
        lanes, places = _lanes(codes, starts, sizes)
        known = (sizes <= 8 * _LANES) & (codes[: -8 * _LANES].min(initial=1) > 0)  # zeros pad lanes
        is_cached = known.copy()
        for lane, cached in zip(lanes, self._lanes, strict=True):
            is_cached &= cached[places] == lane
        begins, counts = self._begins[places], self._counts[places]
        missing = np.flatnonzero(~is_cached)
        if len(missing):
            first, which, new_begins, new_counts = self._encode_new(codes, starts[missing], stops[missing])
            begins[missing], counts[missing] = new_begins[which], new_counts[which]
            self._enter(missing[first[known[missing[first]]]], lanes, places, begins, counts)
        if self._blank is not None and not sizes.all():
            inner = _between_words(sizes > 0, np.searchsorted(stops, ends))
            begins[inner], counts[inner] = 0, 1
        offsets = offsets_of(counts)
        rows = np.repeat(begins - offsets[:-1], counts) + np.arange(offsets[-1])
        return Side(self._store[rows], np.concatenate([[0], offsets[np.searchsorted(stops, ends)]]))

    def _encode_new(self, codes: Array, starts: Array, stops: Array) -> tuple[Array, Array, Array, Array]:
        """Encodes words and stores their ids.

        Returns:
            The first occurrence of each distinct word; the number of the distinct word of each word; and for
            each distinct word the beginning and the number of its ids in `_store`.
        """
        content = codes.tobytes()
        numbers: dict[bytes, int] = {}
        pairs = zip(starts.tolist(), stops.tolist(), strict=True)
        which = [numbers.setdefault(content[start:stop], len(numbers)) for start, stop in pairs]
        first = np.unique(which, return_index=True)[1]
        side = Side.of(self._encode([word.decode() for word in numbers]), self._dtype)
        begin = self._used
        self._used = begin + len(side.ids)
        if self._used > len(self._store):
            self._store = np.concatenate([self._store[:begin], np.empty(2 * self._used, self._dtype)])
        self._store[begin : self._used] = side.ids
        return first, np.array(which), side.offsets[:-1] + begin, side.lengths()

    def _enter(self, words: Array, lanes: list[Array], places: Array, begins: Array, counts: Array) -> None:
        """Enters words into the table. Of several words with the same entry, the first is stored."""
        entries, first = np.unique(places[words], return_index=True)
        words = words[first]
        for lane, cached in zip(lanes, self._lanes, strict=True):
            cached[entries] = lane[words]
        self._begins[entries], self._counts[entries] = begins[words], counts[words]

    def _clear(self) -> None:
        self._lanes = [np.zeros(1 << _BITS, np.uint64) for _ in range(_LANES)]
        # The empty word is cached from the start: it has the lanes 0, entry 0 and no ids.
        self._begins, self._counts = np.zeros(1 << _BITS, np.int64), np.zeros(1 << _BITS, np.int64)
        # The first cell of the store is for empty words between two others.
        self._store, self._used = np.array([self._blank or 0], self._dtype), 1


def _between_words(filled: Array, ends: Array) -> Array:
    """Returns the numbers of the empty words that have other words before and after them in their text.

    Args:
        filled: (W,) bool, whether a word is not empty.
        ends: (n,) the number after the last word of each text.
    """
    counts = np.concatenate([[0], np.cumsum(filled)])
    begins = np.concatenate([[0], ends[:-1]])
    first, last = (np.repeat(counts[edge], ends - begins) for edge in (begins, ends))
    so_far = counts[1:]
    return np.flatnonzero(~filled & (so_far > first) & (so_far < last))


def _lanes(codes: Array, starts: Array, sizes: Array) -> tuple[list[Array], Array]:
    """Returns the bytes of words as numbers of eight bytes, and the entries of the words in the table."""
    windows = np.ndarray(len(codes) - 7, "<u8", codes, strides=(1,))  # eight bytes from each position
    lanes = []
    mixed = np.zeros(len(starts), np.uint64)
    for lane, factor in enumerate(_FACTORS):
        within = np.minimum(starts + 8 * lane, len(windows) - 1)
        number = windows[within] & _MASKS[(sizes - 8 * lane).clip(0, 8)]
        lanes.append(number)
        mixed ^= number * factor
        mixed ^= mixed >> np.uint64(29)
    places = (mixed * _FACTORS[0]) >> np.uint64(64 - _BITS)
    return lanes, places.astype(np.int64)
