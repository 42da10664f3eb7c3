"""Text to ids a word at a time, for many words at once."""

from __future__ import annotations

from collections.abc import Callable
from threading import Lock

import numpy as np

from nmt.data.arrays import Array, Side, offsets_of, smallest_dtype

_BITS = 18  # of the number of places in the table, each of some 30 bytes
_LANES = 3  # words of up to three times eight bytes have a place
_MOST_IDS = 1 << 21
_SPACE = ord(" ")
# Odd numbers without pattern: the places of words are spread by the upper bits of products with them.
_FACTORS = np.array([0x9E3779B97F4A7C15, 0xC2B2AE3D27D4EB4F, 0x165667B19E3779F9], np.uint64)
_MASKS = np.array([(1 << 8 * size) - 1 for size in range(9)], np.uint64)


class Words:
    """Encodes text as the sum of its words: what stands between spaces.

    Words repeat, so what was found for one is kept where the next that looks like it is looked up: in the one
    place that its bytes lead to, which the newcomer takes over if they differ. All words of a text are looked
    up together, and those that are not there are encoded together.

    Args:
        encode: the ids of each of many words.
        vocab_size: above all ids.
    """

    _store: Array  # of ids
    _used: int  # so many of its places

    def __init__(self, encode: Callable[[list[str]], list[list[int]]], vocab_size: int) -> None:
        self._encode = encode
        self._dtype = smallest_dtype(vocab_size - 1)
        self._lock = Lock()
        self._forget()

    def encode(self, texts: Side) -> Side:
        """The ids of many texts.

        Args:
            texts: as of `Side.of_lines`; a newline within a text is a character like any other.
        """
        ends = texts.offsets[1:] - texts.offsets[0]
        codes = np.append(texts.flat(), np.zeros(8 * _LANES, np.uint8))
        codes[ends - 1] = _SPACE
        with self._lock:
            return self._ids(codes, ends)

    def _ids(self, codes: Array, ends: Array) -> Side:
        """Of texts that end before `ends`, all words of them by a space; codes go on for some zeros."""
        if self._used > _MOST_IDS:
            self._forget()
        stops = np.flatnonzero(codes == _SPACE)
        starts = np.empty_like(stops)
        starts[:1], starts[1:] = 0, stops[:-1] + 1
        sizes = stops - starts
        lanes, places = _lanes(codes, starts, sizes)
        known = (sizes <= 8 * _LANES) & (codes[: -8 * _LANES].min(initial=1) > 0)  # zeros fill lanes up
        found = known.copy()
        for lane, kept in zip(lanes, self._lanes, strict=True):
            found &= kept[places] == lane
        begins, counts = self._begins[places], self._counts[places]
        missing = np.flatnonzero(~found)
        if len(missing):
            first, which, new_begins, new_counts = self._look_up(codes, starts[missing], stops[missing])
            begins[missing], counts[missing] = new_begins[which], new_counts[which]
            self._keep(missing[first[known[missing[first]]]], lanes, places, begins, counts)
        offsets = offsets_of(counts)
        rows = np.repeat(begins - offsets[:-1], counts) + np.arange(offsets[-1])
        return Side(self._store[rows], np.concatenate([[0], offsets[np.searchsorted(stops, ends)]]))

    def _look_up(self, codes: Array, starts: Array, stops: Array) -> tuple[Array, Array, Array, Array]:
        """Encodes words; tells where each stands first, which each is, and where their ids are."""
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

    def _keep(self, words: Array, lanes: list[Array], places: Array, begins: Array, counts: Array) -> None:
        """Gives words their places; of several in one place the first has it."""
        taken, first = np.unique(places[words], return_index=True)
        words = words[first]
        for lane, kept in zip(lanes, self._lanes, strict=True):
            kept[taken] = lane[words]
        self._begins[taken], self._counts[taken] = begins[words], counts[words]

    def _forget(self) -> None:
        self._lanes = [np.zeros(1 << _BITS, np.uint64) for _ in range(_LANES)]
        # No word at all has a place of its own from the start, and no ids.
        self._begins, self._counts = np.zeros(1 << _BITS, np.int64), np.zeros(1 << _BITS, np.int64)
        self._store, self._used = np.empty(0, self._dtype), 0


def _lanes(codes: Array, starts: Array, sizes: Array) -> tuple[list[Array], Array]:
    """The bytes of words as numbers, eight in each, and the places these lead to."""
    windows = np.ndarray(len(codes) - 7, "<u8", codes, strides=(1,))  # the eight bytes from each on
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
