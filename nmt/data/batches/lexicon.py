"""A lexicon of words that translate each other, counted in the training pairs.

Two words belong together if they occur in the same pairs: each is the word with the highest Dice coefficient
for the other (Smadja, McKeown & Hatzivassiloglou 1996). Ambiguous words have no entry.

Shapes: U units of one side, L entries of the lexicon.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from nmt.data.arrays import Array, Side
from nmt.data.batches.units import Pieces, Units
from nmt.data.shuffle import Shuffle
from nmt.data.store import Store

_MOST_PAIRS = 50_000  # pairs of the store that are counted
_MOST_COUNTS = 5_000_000  # combinations of a source word and a target word that are counted
_FEWEST = 4  # pairs in which both words of an entry occur
_LOWEST = 0.3  # Dice coefficient of an entry
_FREQUENT = 0.2  # words in more than this fraction of the pairs are left out
_SEED = 1  # of the sample


class Lexicon:
    """Words of the source with their translations.

    Attributes:
        sources: (L,) uint64, the letters of a source word, as in `Units.letters`, ascending.
        targets: (L,) uint64, the letters of its translation.
    """

    def __init__(self, sources: Array, targets: Array) -> None:
        self.sources, self.targets = sources, targets

    @classmethod
    def counted(cls, store: Store, pieces: Sequence[Pieces]) -> Lexicon:
        """Counts a sample of the pairs of a store. The same store and vocabularies give the same lexicon."""
        count = min(store.num_pairs, _MOST_PAIRS)
        rows = np.sort(Shuffle(store.num_pairs, _SEED).rows(0, count))
        words = [_words(side, kind) for side, kind in zip(store.take(rows), pieces, strict=True)]
        kinds, numbers, frequencies = zip(*(_numbered(part, count) for part in words), strict=True)
        both = _together(words[0][0], numbers[0], words[1][0], numbers[1], count)
        codes, found = np.unique(both[0] * np.int64(len(kinds[1])) + both[1], return_counts=True)
        source, target = np.divmod(codes, max(len(kinds[1]), 1))
        dice = 2 * found / (frequencies[0][source] + frequencies[1][target])
        entries = (found >= _FEWEST) & (dice >= _LOWEST) & _best(source, dice) & _best(target, dice)
        return cls(kinds[0][source[entries]], kinds[1][target[entries]])

    def translated(self, letters: Array) -> Array:
        """Returns the letters of the translations of words, and those of the words without an entry: (U,)."""
        if not len(self.sources):
            return letters
        places = np.searchsorted(self.sources, letters).clip(max=len(self.sources) - 1)
        return np.where(self.sources[places] == letters, self.targets[places], letters)


def _words(side: Side, pieces: Pieces) -> tuple[Array, Array]:
    """Returns the sentence and the letters of each distinct word of each sentence, in order of sentences."""
    if not len(side.flat()):
        return np.zeros(0, np.int64), np.zeros(0, np.uint64)
    units = Units.of(side, pieces)
    order = np.lexsort((units.letters, units.rows))
    rows, letters = units.rows[order], units.letters[order]
    new = np.ones(len(rows), np.bool_)
    new[1:] = (np.diff(rows) != 0) | (letters[1:] != letters[:-1])
    return rows[new], letters[new]


def _numbered(words: tuple[Array, Array], count: int) -> tuple[Array, Array, Array]:
    """Numbers words by their letters.

    Returns:
        The letters of each number, ascending; (U,) the number of each word, -1 for a frequent word; and the
        number of sentences with each number.
    """
    kinds, numbers, frequencies = np.unique(words[1], return_inverse=True, return_counts=True)
    numbers = np.where((frequencies > _FREQUENT * count)[numbers], -1, numbers)
    return kinds, numbers, frequencies


def _together(rows: Array, numbers: Array, others: Array, other_numbers: Array, count: int) -> Array:
    """Returns the numbers of all combinations of a source and a target word of a pair: (2, combinations)."""
    rows, numbers = rows[numbers >= 0], numbers[numbers >= 0]
    others, other_numbers = others[other_numbers >= 0], other_numbers[other_numbers >= 0]
    begins = np.searchsorted(others, np.arange(count + 1))
    sizes = np.diff(begins)[rows]
    within = int(np.searchsorted(np.cumsum(sizes), _MOST_COUNTS))
    rows, numbers, sizes = rows[:within], numbers[:within], sizes[:within]
    ends = np.cumsum(sizes)
    places = np.arange(int(sizes.sum())) + np.repeat(begins[rows] - (ends - sizes), sizes)
    return np.stack([np.repeat(numbers, sizes), other_numbers[places]])


def _best(words: Array, dice: Array) -> Array:
    """Returns whether a combination has the highest coefficient of all with its word: (combinations,)."""
    highest = np.zeros(int(words.max(initial=-1)) + 1)
    np.maximum.at(highest, words, dice)
    is_best = dice == highest[words]
    # A word with two equally good partners is ambiguous.
    counts = np.bincount(words[is_best], minlength=len(highest))
    is_only: Array = is_best & (counts[words] == 1)
    return is_only
