"""Words that correspond to each other in encoded pairs: units, and a lexicon that is counted in the pairs.

A unit is a word without the punctuation around it. Units are compared by their letters. Two words of the
lexicon occur in the same pairs: each is the word with the highest Dice coefficient for the other (Smadja,
McKeown & Hatzivassiloglou 1996). Ambiguous words have no entry.

Shapes: n sentences, N pieces of all of them, U units of one side, V pieces of the vocabulary, L entries of
the lexicon.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass

import numpy as np

from nmt.copying.strings import WORD_START, is_letter
from nmt.runtime.arrays import Array, Side

SAMPLE_PAIRS = 50_000
"""The largest number of pairs in which a lexicon is counted."""

_CLOSING = frozenset(".,;:!?…)]}\"'»”’。，、；：！？）")
_BASE = np.uint64(0x9E3779B97F4A7C15)  # of the polynomial hash of a unit; odd
_ROW = np.uint64(0xC2B2AE3D27D4EB4F)
_BYTE = 0x110000  # the first number that is not a character: bytes are hashed from here
_MOST_COUNTS = 5_000_000  # combinations of a source word and a target word that are counted
_FEWEST = 4  # pairs in which both words of an entry occur
_LOWEST = 0.3  # Dice coefficient of an entry
_FREQUENT = 0.2  # words in more than this fraction of the pairs are left out


class Pieces:
    """Facts about the pieces of a vocabulary, each an array of length V.

    Args:
        pieces: the piece of each id.
        bytes_: the ids of the pieces that stand for one byte of UTF-8, such as `<0x0A>`.
        symbols: the ids of the pieces that are not text, such as special pieces and placeholders.

    Attributes:
        starts: (V,) bool, whether a piece begins a word.
        text: (V,) bool, whether a piece has a letter or a digit, is a byte, or is the mark of a word alone.
            Symbols are not text.
        names: (V,) bool, whether a piece has a digit or an upper-case letter.
        closing: (V,) bool, whether a piece is punctuation that may follow a word.
        hashes: (V,) uint64, the polynomial hash of the characters, without the mark of a word.
        sizes: (V,) number of these characters.
        space: the id of the mark of a word alone; None if it is not a piece.
    """

    def __init__(self, pieces: Sequence[str], bytes_: Collection[int], symbols: Collection[int]) -> None:
        letters = [piece.removeprefix(WORD_START) for piece in pieces]
        self.starts = np.array([piece.startswith(WORD_START) for piece in pieces])
        self.text = np.array([any(map(is_letter, part)) for part in letters])
        self.names = np.array([any(c.isdigit() or c.isupper() for c in part) for part in letters])
        self.names[[*bytes_]] = False
        self.closing = np.array([bool(piece) and _CLOSING.issuperset(piece) for piece in pieces])
        codes = [
            [_BYTE + int(piece[3:5], 16)] if number in bytes_ else [*map(ord, letters[number])]
            for number, piece in enumerate(pieces)
        ]
        self.sizes = np.array([*map(len, codes)], np.int64)
        powers = _powers(int(self.sizes.max()))
        self.hashes = np.array(
            [(np.array(part, np.uint64) * powers[: len(part)]).sum() for part in codes], np.uint64
        )
        self.space = pieces.index(WORD_START) if WORD_START in pieces else None
        if self.space is not None:
            self.text[self.space] = True  # the beginning of a word whose letters are other pieces
        self.text[[*symbols]] = False


@dataclass(frozen=True, eq=False)
class Units:
    """The units of n sentences.

    Attributes:
        rows: (U,) the sentence of each unit.
        begins: (U,) its first piece in the flat ids of the sentences.
        ends: (U,) the piece after its last.
        letters: (U,) uint64, a hash of its letters, which does not depend on their pieces.
        names: (U,) bool, whether it has a digit or an upper-case letter.
        whole: (U,) bool, whether it begins a word, and the next word or punctuation follows it.
    """

    rows: Array
    begins: Array
    ends: Array
    letters: Array
    names: Array
    whole: Array

    @classmethod
    def of(cls, side: Side, pieces: Pieces) -> Units:
        """Finds the units of sentences; at least one of these is not empty."""
        ids = side.flat()
        first = np.zeros(len(ids) + 1, np.bool_)  # of a sentence; the end counts too
        first[side.offsets.astype(np.int64) - int(side.offsets[0])] = True
        text, starts = pieces.text[ids], pieces.starts[ids]
        new = starts | first[:-1] | ~text
        new[1:] |= ~text[:-1]
        cuts = np.append(np.flatnonzero(new), len(ids))
        begins, sizes = cuts[:-1], np.diff(cuts)
        offsets = np.cumsum(pieces.sizes[ids]) - pieces.sizes[ids]
        offsets -= np.repeat(offsets[begins], sizes)
        hashes = pieces.hashes[ids] * _powers(int(offsets.max(initial=0)) + 1)[offsets]
        chosen = text[begins] & (np.add.reduceat(pieces.sizes[ids], begins) > 0)
        rows = rows_of(side)[begins]
        letters = np.add.reduceat(hashes, begins)
        ends = cuts[1:]
        following = np.append(ids, 0)[ends]
        is_whole = starts[begins] & (first[ends] | pieces.starts[following] | pieces.closing[following])
        names = np.logical_or.reduceat(pieces.names[ids], begins)
        return cls(*(part[chosen] for part in (rows, begins, ends, letters, names, is_whole)))


def equal_units(source: Units, letters: Array, target: Units) -> tuple[Array, Array]:
    """Finds the units that occur once in a sentence of both sides with the same letters.

    Args:
        source: units of n sentences.
        letters: (U,) their letters, or those of their translations.
        target: units of the other side.

    Returns:
        (A,) their indices in `source`, ascending, and (A,) those in `target`.
    """
    sole = []
    for rows, words in ((source.rows, letters), (target.rows, target.letters)):
        keys = (words ^ (rows.astype(np.uint64) * _ROW)) * _BASE
        keys, first, counts = np.unique(keys, return_index=True, return_counts=True)
        sole.append((keys[counts == 1], first[counts == 1]))
    _, left, right = np.intersect1d(sole[0][0], sole[1][0], assume_unique=True, return_indices=True)
    places, others = sole[0][1][left], sole[1][1][right]
    same = source.rows[places] == target.rows[others]  # not for two keys that are equal by chance
    order = np.argsort(places[same])
    return places[same][order], others[same][order]


class Lexicon:
    """Words of the source with their translations.

    Attributes:
        sources: (L,) uint64, the letters of a source word, as in `Units.letters`, ascending.
        targets: (L,) uint64, the letters of its translation.
    """

    def __init__(self, sources: Array, targets: Array) -> None:
        self.sources, self.targets = sources, targets

    @classmethod
    def counted(cls, pairs: tuple[Side, Side], pieces: tuple[Pieces, Pieces]) -> Lexicon:
        """Counts the words of encoded pairs; `pieces` are those of the source and of the target."""
        count = len(pairs[0])
        words = [_words(side, kind) for side, kind in zip(pairs, pieces, strict=True)]
        kinds, numbers, frequencies = zip(*(_numbered(part, count) for part in words), strict=True)
        both = _together(words[0][0], numbers[0], words[1][0], numbers[1], count)
        codes, counts = np.unique(both[0] * np.int64(len(kinds[1])) + both[1], return_counts=True)
        source, target = np.divmod(codes, max(len(kinds[1]), 1))
        dice = 2 * counts / (frequencies[0][source] + frequencies[1][target])
        entries = (counts >= _FEWEST) & (dice >= _LOWEST) & _best(source, dice) & _best(target, dice)
        return cls(kinds[0][source[entries]], kinds[1][target[entries]])

    def translated(self, letters: Array) -> Array:
        """Returns the letters of the translations of words, and those of the words without an entry: (U,)."""
        if not len(self.sources):
            return letters
        places = np.searchsorted(self.sources, letters).clip(max=len(self.sources) - 1)
        return np.where(self.sources[places] == letters, self.targets[places], letters)


def rows_of(side: Side) -> Array:
    """Returns the sentence of each of N pieces: (N,)."""
    return np.repeat(np.arange(len(side)), side.lengths())


def _powers(count: int) -> Array:
    """Returns the powers 0 to `count` - 1 of the base, modulo 2**64: (count,) uint64."""
    powers = np.full(count, _BASE, np.uint64)
    powers[:1] = 1
    return np.cumprod(powers, dtype=np.uint64)


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
