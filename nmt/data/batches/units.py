"""Units: the words of encoded sentences without the punctuation around them, compared by their letters.

Shapes: n sentences, N pieces of all of them, U units, V pieces of the vocabulary.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Collection
from dataclasses import dataclass

import numpy as np

from nmt.data.arrays import Array, Side
from nmt.data.subwords.sampling import WORD_START
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID, PAD_ID, UNK_ID, Vocabulary

_CLOSING = frozenset(".,;:!?…)]}\"'»”’。，、；：！？）")
_BASE = np.uint64(0x9E3779B97F4A7C15)  # of the polynomial hash of a unit; odd
_ROW = np.uint64(0xC2B2AE3D27D4EB4F)
_BYTE = 0x110000  # the first number that is not a character: bytes are hashed from here


class Pieces:
    """Facts about the pieces of a vocabulary, each an array of length V.

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

    def __init__(self, vocabulary: Vocabulary, symbols: Collection[int]) -> None:
        """Reads a vocabulary; `symbols` are the ids of the pieces that are not text, such as placeholders."""
        pieces = vocabulary.names
        letters = [piece.removeprefix(WORD_START) for piece in pieces]
        self.starts = np.array([piece.startswith(WORD_START) for piece in pieces])
        self.text = np.array([any(map(_is_letter, part)) for part in letters])
        self.names = np.array([any(one.isdigit() or one.isupper() for one in part) for part in letters])
        is_byte = np.array([vocabulary.is_byte(number) for number in range(len(pieces))])
        self.names[is_byte] = False
        self.closing = np.array([bool(piece) and _CLOSING.issuperset(piece) for piece in pieces])
        codes = [
            [_BYTE + int(piece[3:5], 16)] if is_byte[number] else [*map(ord, letters[number])]
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
        self.text[[PAD_ID, BOS_ID, EOS_ID, UNK_ID, *symbols]] = False


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


def equal_units(one: Units, letters: Array, other: Units) -> tuple[Array, Array]:
    """Finds the units that occur once in a sentence of both sides with the same letters.

    Args:
        one: units of n sentences.
        letters: (U,) their letters, or those of their translations.
        other: units of the other side.

    Returns:
        (A,) their indices in `one`, ascending, and (A,) those in `other`.
    """
    sole = []
    for rows, own in ((one.rows, letters), (other.rows, other.letters)):
        keys = (own ^ (rows.astype(np.uint64) * _ROW)) * _BASE
        keys, first, counts = np.unique(keys, return_index=True, return_counts=True)
        sole.append((keys[counts == 1], first[counts == 1]))
    _, left, right = np.intersect1d(sole[0][0], sole[1][0], assume_unique=True, return_indices=True)
    places, others = sole[0][1][left], sole[1][1][right]
    same = one.rows[places] == other.rows[others]  # not for two keys that are equal by chance
    order = np.argsort(places[same])
    return places[same][order], others[same][order]


def rows_of(side: Side) -> Array:
    """Returns the sentence of each of N pieces: (N,)."""
    return np.repeat(np.arange(len(side)), side.lengths())


def _powers(count: int) -> Array:
    """Returns the powers 0 to `count` - 1 of the base, modulo 2**64: (count,) uint64."""
    powers = np.full(count, _BASE, np.uint64)
    powers[:1] = 1
    return np.cumprod(powers, dtype=np.uint64)


def _is_letter(character: str) -> bool:
    return unicodedata.category(character)[0] in "LMN"
