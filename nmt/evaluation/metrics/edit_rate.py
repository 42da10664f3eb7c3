"""The edits of translation edit rate (Snover et al. 2006), equal to those of sacreBLEU, for long lines."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator, Sequence
from itertools import accumulate
from math import ceil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nmt.runtime.arrays import Array

Shift = tuple[int, int, int]
"""The first word that moves, the number of words, and the place before which they are inserted."""

MAX_SHIFT_WORDS = 10
MAX_SHIFT_DISTANCE = 50
BEAM_WIDTH = 25
MAX_SHIFTS = 1000
"""The limits of sacreBLEU: words that move together, how far; cells on a side of the diagonal; shifts."""

_UNREACHABLE = 1 << 29
_GROUP = 64
"""Shifts that are tried at once: they begin at near words, so few rows differ from those without a shift."""


def edits(hypothesis: Sequence[str], reference: Sequence[str]) -> int:
    """Returns the number of edits and shifts from the words of a hypothesis to those of a reference.

    It is the number of `translation_edit_rate` of sacreBLEU 2.6, which computes one cell at a time, and all
    rows of each shift.
    """
    if not hypothesis or not reference:
        return len(hypothesis) + len(reference)
    import numpy as np  # not needed by scores without TER

    ids = {word: number for number, word in enumerate(dict.fromkeys([*hypothesis, *reference]))}
    words = np.array([ids[word] for word in hypothesis], np.int32)
    table = _Distances(np.array([ids[word] for word in reference], np.int32), len(words))
    num_shifts = num_tried = 0
    while True:
        table.fill(words)
        shifts = list(_shifts(words.tolist(), table, MAX_SHIFTS - num_tried))
        num_tried += len(shifts)
        # The last shifts are not tried: no result of theirs is used.
        best = table.best_shift(shifts) if shifts and num_tried < MAX_SHIFTS else None
        if best is None:
            return num_shifts + table.distance
        words = _shifted(words, best)
        num_shifts += 1


class _Distances:
    """Edit distances between parts of a hypothesis (H words) and a reference (R words), near the diagonal.

    Cell (i, j) of `before` has the edits from the first i words of the hypothesis to the first j of the
    reference, minus j; `after` those of the remaining words, plus j. Both have a column of unreachable cells
    at each end, so j is column j + 1. With these terms, an insertion costs nothing in a row.
    """

    def __init__(self, reference: Array, length: int) -> None:
        import numpy as np

        self.np, self.reference = np, reference
        ratio = len(reference) / length
        # Otherwise rows of a hypothesis that is much shorter than the reference would not overlap.
        beam = ceil(ratio / 2 + BEAM_WIDTH) if ratio / 2 > BEAM_WIDTH else BEAM_WIDTH
        diagonal = [int(row * ratio) for row in range(length + 1)]
        ends = [min(len(reference) + 1, at + beam) for at in diagonal]
        self.bounds = [(max(0, at - beam), end) for at, end in zip(diagonal, ends, strict=True)]
        self.bounds[0], self.bounds[-1] = (0, len(reference) + 1), (self.bounds[-1][0], len(reference) + 1)
        self.before = np.full((length + 1, len(reference) + 3), _UNREACHABLE, np.int32)
        self.after = self.before.copy()
        self.before[0, 1:-1] = 0
        self.after[-1, self.bounds[-1][0] + 1 : -1] = len(reference)

    @property
    def distance(self) -> int:
        """The edit distance of the whole lines."""
        return int(self.before[-1, -2]) + len(self.reference)

    def fill(self, words: Array) -> None:
        """Computes both tables for the ids (H,) of a hypothesis."""
        minimum, reference, self.words = self.np.minimum, self.reference, words
        for row in range(1, len(words) + 1):
            begin, end = self.bounds[row]
            self.before[row, begin + 1 : end + 1] = self.next_row(self.before[row - 1], words[row - 1], row)
        for row in range(len(words) - 1, 0, -1):
            begin, end = self.bounds[row]
            below = self.after[row + 1]
            diagonal = below[begin + 2 : end + 2].copy()
            diagonal[: len(reference) - begin] -= reference[begin:end] == words[row]
            cells = minimum(diagonal, below[begin + 1 : end + 1] + 1)
            self.after[row, begin + 1 : end + 1] = minimum.accumulate(cells[::-1])[::-1]

    def next_row(self, above: Array, word: Array, row: int) -> Array:
        """Returns the reachable cells (..., end - begin) of a row below `above` (..., R + 3).

        `word` has the id of the row's word, of shape () or (..., 1).
        """
        np, (begin, end) = self.np, self.bounds[row]
        diagonal = above[..., begin:end].copy()
        first = 1 if begin == 0 else 0  # the first column has no word of the reference
        diagonal[..., first:] -= self.reference[begin + first - 1 : end - 1] == word
        cells = np.minimum(diagonal, above[..., begin + 1 : end + 1] + 1)
        smallest: Array = np.minimum.accumulate(cells, axis=-1)
        return smallest

    def alignment(self) -> tuple[list[int], list[int], list[int]]:
        """Returns what the best edits align.

        Returns:
            For each word of the reference, the last word of the hypothesis aligned to it or before it, or -1.
            For each word of the reference, and of the hypothesis, 1 if it is edited and 0 if it is equal.
        """
        row, column = len(self.words), len(self.reference)
        aligned, reference_edits, hypothesis_edits = [-1] * column, [0] * column, [0] * row
        while row or column:
            cell = self.before[row, column + 1]
            equal = row and column and bool(self.words[row - 1] == self.reference[column - 1])
            if row and column and cell == self.before[row - 1, column] - equal:
                row, column = row - 1, column - 1
                aligned[column] = row
                hypothesis_edits[row] = reference_edits[column] = int(not equal)
            elif row and cell == self.before[row - 1, column + 1] + 1:
                row -= 1
                hypothesis_edits[row] = 1
            else:
                column -= 1
                aligned[column], reference_edits[column] = row - 1, 1
        return aligned, reference_edits, hypothesis_edits

    def best_shift(self, shifts: Sequence[Shift]) -> Shift | None:
        """Returns the shift after which the distance is lowest; None if none lowers it.

        Of equally good ones it is that of most words, then the first in the hypothesis, then the first place.
        """
        distances = [
            distance
            for at in range(0, len(shifts), _GROUP)
            for distance in self._distances(shifts[at : at + _GROUP])
        ]
        ranked = (
            (distance, -n, first, to) for distance, (first, n, to) in zip(distances, shifts, strict=True)
        )
        distance, num_words, first, to = min(ranked)
        return (first, -num_words, to) if distance < self.distance else None

    def _distances(self, shifts: Sequence[Shift]) -> list[int]:
        """Returns the distance after each shift: only the rows of words that move are computed again."""
        np = self.np
        parts = [_parts(*shift, len(self.words)) for shift in shifts]
        begin, end = min(begin for begin, _, _ in parts), max(end for _, _, end in parts)
        shifted = np.stack([_shifted(self.words, shift) for shift in shifts])  # (shifts, H)
        above = np.repeat(self.before[begin][None], len(shifts), axis=0)
        for row in range(begin + 1, end + 1):
            cells = self.next_row(above, shifted[:, row - 1, None], row)
            low, high = self.bounds[row]
            above[:, : low + 1], above[:, high + 1 :] = _UNREACHABLE, _UNREACHABLE
            above[:, low + 1 : high + 1] = cells
        return (above + self.after[end]).min(1).tolist() if end > begin else [self.distance] * len(shifts)


def _shifts(words: Sequence[int], table: _Distances, limit: int) -> Iterator[Shift]:
    """Yields the shifts to be tried, in the order of sacreBLEU, which ends after at least `limit`."""
    reference = table.reference.tolist()
    places: dict[int, list[int]] = {}
    for place, word in enumerate(reference):
        places.setdefault(word, []).append(place)
    aligned, reference_edits, hypothesis_edits = table.alignment()
    edited = [[0, *accumulate(edits)] for edits in (hypothesis_edits, reference_edits)]
    num = 0
    for first, word in enumerate(words):
        if edited[0][min(first + MAX_SHIFT_WORDS, len(words))] == edited[0][first]:
            continue
        found = places.get(word, [])
        near = slice(
            bisect_left(found, first - MAX_SHIFT_DISTANCE), bisect_left(found, first + MAX_SHIFT_DISTANCE + 1)
        )
        for place in found[near]:
            for n in range(1, min(MAX_SHIFT_WORDS, len(words) - first, len(reference) - place) + 1):
                if words[first + n - 1] != reference[place + n - 1]:
                    break
                if edited[0][first + n] == edited[0][first] or edited[1][place + n] == edited[1][place]:
                    continue
                if first <= aligned[place] < first + n:
                    continue
                previous = -1
                for at in range(place - 1, place + n):
                    to = 0 if at == -1 else aligned[at] + 1
                    if to != previous:
                        previous = to
                        num += 1
                        yield first, n, to
                if num >= limit:
                    return


def _shifted(words: Array, shift: Shift) -> Array:
    """Returns the words (H,) after a shift."""
    begin, middle, end = _parts(*shift, len(words))
    words = words.copy()
    words[begin:end] = [*words[middle:end], *words[begin:middle]]
    return words


def _parts(first: int, num_words: int, to: int, length: int) -> tuple[int, int, int]:
    """Returns the neighbouring parts that a shift exchanges: begin and end of one, and end of the other.

    As in sacreBLEU, a place within the words that move counts from their end.
    """
    last = first + num_words
    if to < first:
        return to, first, last
    return first, last, to if to > last else min(to + num_words, length)
