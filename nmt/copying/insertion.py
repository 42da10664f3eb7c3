"""Insertion of placeholders into training pairs, resampled in each epoch, so that copying them is learnt.

Corpora have few strings such as URLs. Placeholders are therefore inserted at places that correspond to each
other on both sides: the beginning and the end of a pair, words, and phrases. Two words correspond if each
occurs once in its sentence, and they have the same letters, such as numbers and names, or translate each
other according to a lexicon. A phrase reaches from such a word to the next one, if that is the next one on
both sides; the words between them may be any. Numbers and names may also be replaced.

Shapes: n pairs, N pieces of one side of them, V pieces of the vocabulary, A places, E inserted placeholders.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from nmt.copying.correspondence import Lexicon, Pieces, Units, equal_units, rows_of
from nmt.copying.strings import NUM_PLACEHOLDERS
from nmt.runtime.arrays import Array, Side, offsets_of

SHARE = 0.4
"""Fraction of the pairs into which placeholders may be inserted."""

_NOTHING, _BEFORE, _AFTER, _AROUND, _REPLACED, _PHRASE = range(6)
# Cumulative probabilities of these six at a place of a chosen pair.
_AT_PAIR = np.cumsum([0.25, 0.25, 0.25, 0.25, 0.0, 0.0])
_AT_WORD = np.cumsum([0.0, 0.15, 0.15, 0.25, 0.2, 0.25])
_LONGEST_PHRASE = 12  # pieces on either side
_WORDS = 1.5  # mean number of words of a chosen pair at which something is done, if it has enough
_DELETED = np.iinfo(np.int64).min


class Inserter:
    """Inserts placeholders, from the id `first` on, into pairs of ids.

    The lexicon is counted in the encoded `pairs`.
    """

    def __init__(self, first: int, pieces: tuple[Pieces, Pieces], pairs: tuple[Side, Side]) -> None:
        self.first, self._pieces = first, pieces
        self._lexicon = Lexicon.counted(pairs, pieces)

    def insert(
        self, source: Side, target: Side, tagged: Array, limits: tuple[int, int], seed: int
    ) -> tuple[Side, Side]:
        """Returns the pairs with more placeholders, numbered in the order of the source.

        A pair that would exceed a limit remains unchanged.

        Args:
            source: n sources. Each placeholder of a pair occurs once on each side.
            target: n targets.
            tagged: (n,) bool, whether a source begins with a tag, which stays at the beginning.
            limits: largest number of pieces of a source and of a target.
            seed: the result is a pure function of the arguments.
        """
        random = np.random.Generator(np.random.SFC64(seed))
        is_chosen = random.random(len(source)) < SHARE
        rows = np.flatnonzero(is_chosen & (source.lengths() > tagged) & (target.lengths() > 0))
        if not len(rows):
            return source, target
        sides = [source.take(rows), target.take(rows)]
        edits = _Edits.drawn(_Places.of(sides, tagged[rows], self._pieces, self._lexicon), random)
        edited = [self._edited(side, edits, number) for number, side in enumerate(sides)]
        fits = np.bincount(rows_of(edited[0])[edited[0].ids < 0], minlength=len(rows)) <= NUM_PLACEHOLDERS
        for side, limit in zip(edited, limits, strict=True):
            fits &= side.lengths() <= limit
        order = np.arange(len(source))
        order[rows[fits]] = len(source) + np.flatnonzero(fits)
        new = _numbered(edited, self.first)
        return _merged(source, new[0]).take(order), _merged(target, new[1]).take(order)

    def _edited(self, side: Side, edits: _Edits, number: int) -> Side:
        """Applies edits to the source, number 0, or the target, number 1.

        Returns:
            The sentences, with a negative number for each placeholder, the same on both sides.
        """
        ids = side.flat().astype(np.int64)
        is_placeholder = (ids >= self.first) & (ids < self.first + NUM_PLACEHOLDERS)
        ids[is_placeholder] = self.first - ids[is_placeholder] - 1
        changes = np.zeros(len(ids) + 1, np.int64)  # of the number of words to delete at a piece
        changes[edits.begins[number]] += 1
        changes[edits.ends[number]] -= 1
        ids[np.cumsum(changes)[:-1] > 0] = _DELETED
        order = np.lexsort((edits.ranks, edits.positions[number]))
        space = self._pieces[number].space
        counts = 1 + edits.spaced[order] * (space is not None)
        values = np.full(int(counts.sum()), -1 if space is None else space, np.int64)
        values[np.cumsum(counts) - 1] = -1 - NUM_PLACEHOLDERS - order
        ids = np.insert(ids, np.repeat(edits.positions[number][order], counts), values)
        lengths = side.lengths() + np.bincount(edits.rows[order], counts, len(side)).astype(np.int64)
        remains = ids != _DELETED
        rows = np.repeat(np.arange(len(side)), lengths)[remains]
        return Side(ids[remains], offsets_of(np.bincount(rows, minlength=len(side))))


def _merged(old: Side, new: Side) -> Side:
    """Concatenates two sides; the result has the ids' type of the first."""
    return Side.concatenated([old, Side(new.ids.astype(old.ids.dtype), new.offsets)])


@dataclass(frozen=True, eq=False)
class _Places:
    """Places that correspond to each other on both sides.

    Attributes:
        rows: (A,) the pair of each place.
        begins: (2, A) its first piece in the flat ids of the source and of the target.
        ends: (2, A) the piece after its last.
        is_word: (A,) bool; False: the place is a whole pair.
        is_name: (A,) bool, whether a word has a digit or an upper-case letter, and is the same on both sides.
        is_closed: (A,) bool, whether both sides of a whole pair end with punctuation.
    """

    rows: Array
    begins: Array
    ends: Array
    is_word: Array
    is_name: Array
    is_closed: Array

    @classmethod
    def of(cls, sides: Sequence[Side], tagged: Array, pieces: Sequence[Pieces], lexicon: Lexicon) -> _Places:
        """Finds the places: first all pairs, then their words."""
        units = [Units.of(*both) for both in zip(sides, pieces, strict=True)]
        places = equal_units(units[0], lexicon.translated(units[0].letters), units[1])
        is_whole = units[0].whole[places[0]] & units[1].whole[places[1]]
        words = [places[0][is_whole], places[1][is_whole]]
        offsets = np.array([side.offsets - side.offsets[0] for side in sides], np.int64)
        begins, ends = offsets[:, :-1].copy(), offsets[:, 1:]
        begins[0] += tagged
        closed = [
            kind.closing[side.flat()[end - 1]] for kind, side, end in zip(pieces, sides, ends, strict=True)
        ]
        both = list(zip(units, words, strict=True))
        is_same = units[0].letters[words[0]] == units[1].letters[words[1]]
        no_pair, no_word = np.zeros(len(tagged), np.bool_), np.zeros(len(words[0]), np.bool_)
        return cls(
            rows=np.concatenate([np.arange(len(tagged)), units[0].rows[words[0]]]),
            begins=np.concatenate([begins, np.array([unit.begins[chosen] for unit, chosen in both])], 1),
            ends=np.concatenate([ends, np.array([unit.ends[chosen] for unit, chosen in both])], 1),
            is_word=np.concatenate([no_pair, ~no_word]),
            is_name=np.concatenate([no_pair, units[0].names[words[0]] & is_same]),
            is_closed=np.concatenate([closed[0] & closed[1], no_word]),
        )

    def begins_phrase(self) -> Array:
        """Returns whether a word and the next place are the ends of a phrase: (A,) bool."""
        is_begin = np.zeros(len(self.rows), np.bool_)
        words = np.flatnonzero(self.is_word)  # in the order of the source
        rank = np.empty(len(words), np.int64)
        rank[np.argsort(self.begins[1][words])] = np.arange(len(words))
        sizes = self.ends[:, words[1:]] - self.begins[:, words[:-1]]
        is_next = (np.diff(self.rows[words]) == 0) & (np.diff(rank) == 1)
        is_begin[words[:-1]] = is_next & (sizes <= _LONGEST_PHRASE).all(0)
        return is_begin


@dataclass(frozen=True, eq=False)
class _Edits:
    """Placeholders to insert, and text to delete.

    Attributes:
        rows: (E,) the pair of each placeholder.
        positions: (2, E) the piece before which it is inserted, in the source and in the target.
        ranks: (E,) the order of placeholders at the same position.
        spaced: (E,) 1 if a space precedes the placeholder, else 0.
        begins: (2, D) the first piece of each deleted word in the source and in the target.
        ends: (2, D) the piece after its last.
    """

    rows: Array
    positions: Array
    ranks: Array
    spaced: Array
    begins: Array
    ends: Array

    @classmethod
    def drawn(cls, places: _Places, random: np.random.Generator) -> _Edits:
        """Draws what is done at each place."""
        numbers = random.random(len(places.rows))
        actions = np.searchsorted(_AT_PAIR, numbers, "right")
        at_words = np.searchsorted(_AT_WORD, numbers, "right")
        at_words[(at_words == _REPLACED) & ~places.is_name] = _AROUND
        counts = np.bincount(places.rows, places.is_word)[places.rows]
        begins_phrase = places.begins_phrase()
        at_words[(at_words == _PHRASE) & ~begins_phrase] = _AROUND
        at_words[random.random(len(places.rows)) * counts >= _WORDS] = _NOTHING
        actions = np.where(places.is_word, at_words, actions)
        # Phrases do not overlap, and nothing else is done at their last word.
        after = np.append(False, (actions == _PHRASE)[:-1])
        actions[after] = _NOTHING
        opening = np.flatnonzero(np.isin(actions, (_BEFORE, _AROUND, _REPLACED, _PHRASE)))
        ending = np.flatnonzero(np.isin(actions, (_AFTER, _AROUND, _PHRASE)))
        last = ending + (actions[ending] == _PHRASE)  # the place whose end this is
        replaced = np.flatnonzero(actions == _REPLACED)
        chosen = np.concatenate([opening, ending])
        # Half of the placeholders after the punctuation at the end of a pair follow it without a space.
        is_attached = places.is_closed & (random.random(len(places.rows)) < 0.5)
        is_attached[opening] = False
        # At the same position: after a word, after a pair, before a pair, before a word.
        is_word = places.is_word
        return cls(
            rows=places.rows[chosen],
            positions=np.concatenate([places.begins[:, opening], places.ends[:, last]], 1),
            ranks=np.concatenate([2 + is_word[opening], 1 - is_word[ending]]),
            spaced=np.concatenate([np.ones(len(opening), np.int64), 1 - is_attached[ending]]),
            begins=places.begins[:, replaced],
            ends=places.ends[:, replaced],
        )


def _numbered(sides: Sequence[Side], first: int) -> list[Side]:
    """Numbers placeholders in the order of the source, from the id `first`.

    Before, a placeholder is a negative number, the same on both sides of its pair.
    """
    codes, places, rows = [], [], []
    for side in sides:
        at = np.flatnonzero(side.ids < 0)
        row = rows_of(side)[at]
        order = np.lexsort((side.ids[at], row))
        codes.append(side.ids[at][order])
        places.append(at[order])
        rows.append(row[order])
    assert np.array_equal(codes[0], codes[1]) and np.array_equal(rows[0], rows[1]), "sides do not correspond"
    order = np.argsort(places[0])  # the order of the source
    begins = np.searchsorted(rows[0][order], np.arange(len(sides[0])))
    numbers = np.empty(len(order), np.int64)
    numbers[order] = np.arange(len(order)) - begins[rows[0][order]]
    numbered = []
    for side, place in zip(sides, places, strict=True):
        ids = side.ids.copy()
        ids[place] = first + numbers
        numbered.append(Side(ids, side.offsets))
    return numbered


def count_placeholders(side: Side, first: int) -> Array:
    """Returns the number of placeholders in each of n sentences: (n,); `first` is the id of placeholder 0."""
    is_placeholder = (side.flat() >= first) & (side.flat() < first + NUM_PLACEHOLDERS)
    return np.bincount(rows_of(side)[is_placeholder], minlength=len(side))


def renumbered(side: Side, first: int, steps: Array) -> Side:
    """Increases the numbers of the placeholders of n sentences by `steps` (n,), modulo their count."""
    ids = side.flat().copy()
    at = np.flatnonzero((ids >= first) & (ids < first + NUM_PLACEHOLDERS))
    numbers = (ids[at].astype(np.int64) - first + steps[rows_of(side)[at]]) % NUM_PLACEHOLDERS
    ids[at] = first + numbers
    return Side(ids, side.offsets - side.offsets[0])


def drawn_steps(count: int, seed: int) -> Array:
    """Draws steps for `renumbered`: (count,). Small steps are more frequent: a quarter is 0, half below 8."""
    numbers = np.random.Generator(np.random.SFC64(seed)).random(count)
    return (NUM_PLACEHOLDERS * numbers**3).astype(np.int64)
