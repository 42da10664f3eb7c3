"""The ways to cut words up into pieces, drawn for many words at once.

Each word has a number, and what is drawn for it is a pure function of its letters and that number: neither
the words drawn with it nor how many there are make a difference.

Shapes: W words, L letters of the longest of them, K letters of the longest piece.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import Protocol

import numpy as np

from nmt.data.arrays import Array, Side, offsets_of

_ROOM = 1 << 19  # cells of the tables worked on at a time: few steps, and still in the processor's cache
_NEVER = np.iinfo(np.int32).max  # the rank of two pieces that do not merge
_GOLDEN, _FACTOR_1, _FACTOR_2 = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_LARGE = 2.0**256


class Segmenter(Protocol):
    """All ways to cut up words, each with its probability.

    Attributes:
        letters: the number of each letter that a word may have.
    """

    letters: Mapping[str, int]

    def draw(self, words: Side, numbers: Array) -> Side:
        """A way for each word.

        Args:
            words: letters, at least one a word.
            numbers: (W,) uint64.

        Returns:
            The ids of the pieces of each word.
        """

    def may_change(self, merges: Array, numbers: Array) -> Array:
        """(W,) False where a word is sure to be drawn as it is, so that nobody need draw it.

        Args:
            merges: (W,) letters of each word less its pieces, which are the likeliest.
            numbers: (W,) uint64.
        """


def uniform(numbers: Array, step: int) -> Array:
    """What each number gives at a step: (W,) uint64 to (W,) float64 in [0, 1).

    SplitMix64 (Steele, Lea & Flood 2014), the numbers being seeds.
    """
    mixed = numbers + np.uint64((step + 1) * int(_GOLDEN) & 0xFFFFFFFFFFFFFFFF)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FACTOR_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _FACTOR_2
    fractions: Array = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
    return fractions


class UnigramSegmenter:
    """The vocabulary of a unigram model; a way's probability goes with p**alpha (Kudo 2018, section 3.2).

    Forward filtering, backward sampling: going forward, the filter sums up to each place the weights of all
    ways to get there; going back from the end, the last piece is drawn by its share of that sum, and so on.
    This draws from the exact distribution. There are no logarithms, so that nothing depends on how a machine
    rounds them: where sums become very small or large, all that are still needed are brought back together.
    """

    def __init__(self, ids: Mapping[str, int], scores: Mapping[str, float], alpha: float) -> None:
        """Takes the ids of all pieces, and the log-probabilities of those that may be drawn."""
        self.letters: Mapping[str, int] = {letter: i for i, letter in enumerate(sorted(set("".join(scores))))}
        self._longest = max(map(len, scores), default=0)
        # The pieces as a tree of letters: nodes 0 (no piece begins like that), 1 (the root) and so on.
        nodes: dict[tuple[int, int], int] = {}
        ends: dict[int, str] = {}
        for piece in scores:
            node = 1
            for letter in piece:
                node = nodes.setdefault((node, self.letters[letter]), len(nodes) + 2)
            ends[node] = piece
        self._next = _Lookup(nodes, missing=0)
        self._ids = np.zeros(len(nodes) + 2, np.int32)
        self._weights = np.zeros(len(nodes) + 2)
        for node, piece in ends.items():
            self._ids[node] = ids[piece] + 1  # 0: nothing there
            self._weights[node] = math.exp(alpha * scores[piece])

    def draw(self, words: Side, numbers: Array) -> Side:
        """See `Segmenter`; there is at least one way for each word."""
        # Equal words together: what goes forward is the same for all of them.
        order = np.lexsort((_hashes(words), words.lengths()))
        return _in_groups(self._draw, words, numbers, order, self._longest)

    def may_change(self, merges: Array, numbers: Array) -> Array:
        """See `Segmenter`."""
        return np.ones(len(numbers), np.bool_)

    def _draw(self, letters: Array, sizes: Array, numbers: Array) -> Array:
        new = np.append(True, (letters[1:] != letters[:-1]).any(1))
        word = np.cumsum(new) - 1  # of the different ones, for each row
        nodes = self._found(letters[new])
        sums = self._sums(nodes)
        pieces = np.zeros(letters.shape, np.int32)
        rows, places, step = np.arange(len(letters)), sizes.copy(), 0
        while len(rows):
            shares = sums[places - 1, :, word[rows]]
            aim = uniform(numbers[rows], step) * shares[:, -1]
            length = (shares <= aim[:, None]).sum(1)
            assert length.max() < sums.shape[1], "a word that can't be cut up"
            chosen = nodes[places - 1, length, word[rows]]
            places = places - length - 1
            pieces[rows, places] = self._ids[chosen]
            going_on = np.flatnonzero(places)
            rows, places, step = rows[going_on], places[going_on], step + 1
        return pieces

    def _found(self, letters: Array) -> Array:
        """For each place and length the node of the piece that ends there: (L, K, W), K at most L."""
        num_words, size = letters.shape
        longest = min(self._longest, size)
        found = np.zeros((size, longest, num_words), np.int32)
        flat_letters, flat = np.ascontiguousarray(letters.T).reshape(-1), found.reshape(-1)
        at = np.arange(size * num_words)  # place * W + word
        nodes = np.ones(len(at), np.int32)
        for length in range(longest):
            nodes = self._next(nodes, flat_letters[at])
            alive = np.flatnonzero(nodes)
            nodes, at = nodes[alive], at[alive]
            place, word = np.divmod(at, num_words)
            flat[(place * longest + length) * num_words + word] = nodes
            within = np.flatnonzero(at < (size - 1) * num_words)
            nodes, at = nodes[within], at[within] + num_words
        return found

    def _sums(self, nodes: Array) -> Array:
        """(L, K, W): the weights of all ways up to each place, running over the lengths of the last piece."""
        size, longest, num_words = nodes.shape
        sums = np.empty((size, longest, num_words))
        ways = np.zeros((longest + size, num_words))  # up to each place, with nothing before the first
        ways[longest - 1] = 1.0
        for place in range(size):
            before = ways[place : place + longest]
            np.multiply(before[::-1], self._weights[nodes[place]], out=sums[place])
            np.cumsum(sums[place], axis=0, out=sums[place])
            total = ways[place + longest]
            total[:] = sums[place, -1]
            for far, factor in ((total > _LARGE, 1 / _LARGE), ((total < 1 / _LARGE) & (total > 0), _LARGE)):
                if far.any():
                    ways[place + 1 : place + longest + 1, far] *= factor
        return sums


class BpeSegmenter:
    """The pieces of a BPE model, which was learnt by merging: a higher score was merged earlier.

    At each step, each merge that is possible is left out with probability alpha and the best of the rest is
    made, until none is left (BPE-dropout: Provilkov et al. 2020, algorithm 1).
    """

    def __init__(self, ids: Mapping[str, int], scores: Mapping[str, float], alpha: float) -> None:
        """Takes the ids of all pieces, and the scores of those that may come out of a merge."""
        self._alpha = alpha
        pieces = sorted(scores, key=lambda piece: (-scores[piece], ids[piece]))
        self.letters: Mapping[str, int] = {piece: ids[piece] + 1 for piece in pieces if len(piece) == 1}
        self._merged = np.array([ids[piece] + 1 for piece in pieces], np.int32)
        self._ranks = _Lookup(
            {
                (ids[piece[:cut]] + 1, ids[piece[cut:]] + 1): rank
                for rank, piece in enumerate(pieces)
                for cut in range(1, len(piece))
                if piece[:cut] in scores and piece[cut:] in scores
            },
            missing=_NEVER,
        )

    def draw(self, words: Side, numbers: Array) -> Side:
        """See `Segmenter`."""
        return _in_groups(self._draw, words, numbers, np.argsort(words.lengths(), kind="stable"), 1)

    def may_change(self, merges: Array, numbers: Array) -> Array:
        """See `Segmenter`: a word stays as it is if none of the merges that lead to it is left out."""
        changed = np.zeros(len(numbers), np.bool_)
        rows, step = np.flatnonzero(merges), 0
        while len(rows):
            left_out = uniform(numbers[rows], step) < self._alpha
            changed[rows[left_out]] = True
            rows, step = rows[~left_out], step + 1
            rows = rows[merges[rows] > step]
        return changed

    def _draw(self, letters: Array, sizes: Array, numbers: Array) -> Array:
        """Pieces stay at the place of their first letter, and know their neighbours' places."""
        num_words, width = letters.shape[0], letters.shape[1] + 2  # an empty cell at either end
        cells = np.zeros((num_words, width), np.int32)
        cells[:, 1:-1] = letters
        pieces = cells.reshape(-1)
        before = np.arange(-1, len(pieces) - 1)
        after = np.arange(1, len(pieces) + 1)
        ranks = np.full(cells.shape, _NEVER, np.int32)
        ranks[:, :-1] = self._ranks(cells[:, :-1], cells[:, 1:])
        flat_ranks = ranks.reshape(-1)
        left_out = -(self._alpha ** np.arange(1, width))
        rows, step = np.arange(num_words), 0
        while len(rows):
            possible = ranks if len(rows) == num_words else ranks[rows]
            places = possible.argmin(1)
            skipped = np.searchsorted(left_out, -uniform(numbers[rows], step))
            several = np.flatnonzero(skipped)
            if len(several):
                order = possible[several].argsort(1, kind="stable")
                places[several] = order[np.arange(len(several)), skipped[several]]
            going_on = np.flatnonzero(possible[np.arange(len(rows)), places] != _NEVER)
            rows, step = rows[going_on], step + 1
            first = rows * width + places[going_on]
            second = after[first]
            third = after[second]
            pieces[first] = self._merged[flat_ranks[first]]
            pieces[second] = 0
            after[first], before[third] = third, first
            flat_ranks[second] = _NEVER
            flat_ranks[first] = self._ranks(pieces[first], pieces[third])
            previous = before[first]
            flat_ranks[previous] = self._ranks(pieces[previous], pieces[first])
        return cells


class _Lookup:
    """A number for some pairs of numbers below 2**31: a hash table with open addressing."""

    def __init__(self, values: Mapping[tuple[int, int], int], missing: int) -> None:
        bits = max(4, (4 * len(values)).bit_length())
        self._shift, self._last = np.uint64(64 - bits), np.int64((1 << bits) - 1)
        self._keys = np.full(1 << bits, -1, np.int64)
        self._values = np.full(1 << bits, missing, np.int32)
        pairs = np.array(list(values), np.int64).reshape(-1, 2)
        keys, numbers = (pairs[:, 0] << 32) | pairs[:, 1], np.array(list(values.values()), np.int32)
        at = self._at(keys)
        while len(keys):
            free = np.flatnonzero(self._keys[at] < 0)
            _, first = np.unique(at[free], return_index=True)
            placed = free[first]
            self._keys[at[placed]], self._values[at[placed]] = keys[placed], numbers[placed]
            left = np.flatnonzero(self._keys[at] != keys)
            keys, numbers, at = keys[left], numbers[left], (at[left] + 1) & self._last

    def __call__(self, first: Array, second: Array) -> Array:
        """The values of pairs, in any shape, or `missing`."""
        keys = (first.astype(np.int64) << 32) | second
        at = self._at(keys)
        found, values = self._keys[at], self._values[at]
        other = np.nonzero((found != keys) & (found >= 0))
        while len(other[0]):
            at[other] = (at[other] + 1) & self._last
            found = self._keys[at[other]]
            values[other] = self._values[at[other]]
            going_on = np.flatnonzero((found != keys[other]) & (found >= 0))
            other = tuple(index[going_on] for index in other)
        return values

    def _at(self, keys: Array) -> Array:
        mixed = keys.view(np.uint64) * _FACTOR_1
        return ((mixed ^ (mixed >> np.uint64(32))) * _GOLDEN >> self._shift).view(np.int64)


class _Draw(Protocol):
    def __call__(self, letters: Array, sizes: Array, numbers: Array) -> Array:
        """(W, L) letters, (W,) sizes and (W,) numbers to a row for each word: ids plus 1, among zeros."""


def _hashes(words: Side) -> Array:
    """(W,) uint64, equal for words that are; polynomials of the letters."""
    if not len(words):
        return np.zeros(0, np.uint64)
    sizes = words.lengths()
    powers = np.cumprod(np.full(int(sizes.max()), _FACTOR_2), dtype=np.uint64)
    places = np.arange(len(words.ids)) - np.repeat(words.offsets[:-1], sizes)
    terms = (words.ids.astype(np.uint64) + _GOLDEN) * powers[places]
    hashes: Array = np.add.reduceat(terms, words.offsets[:-1])
    return hashes


def _in_groups(draw: _Draw, words: Side, numbers: Array, order: Array, longest: int) -> Side:
    """Draws for words of like length together, as many as there is room for at `longest` a letter.

    `order` is by length.
    """
    sizes = words.lengths()
    drawn: list[Array] = []
    counts: list[Array] = [np.zeros(0, np.int64)]
    for chosen in _groups(sizes[order], longest):
        rows = order[chosen]
        group = words.take(rows)
        within = np.arange(sizes[rows[-1]]) < sizes[rows][:, None]
        letters = np.zeros(within.shape, np.int32)
        letters[within] = group.ids
        pieces = draw(letters, sizes[rows], numbers[rows])
        drawn.append(pieces[pieces > 0] - 1)
        counts.append((pieces > 0).sum(1))
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    ids = np.concatenate([np.zeros(0, np.int32), *drawn])
    return Side(ids, offsets_of(np.concatenate(counts))).take(back)


def _groups(sizes: Sequence[int] | Array, longest: int) -> Iterator[slice]:
    """Stretches of words by length, the last of each at most half as long again as the first."""
    begin = 0
    while begin < len(sizes):
        most = int(sizes[begin]) * 3 // 2
        end = int(np.searchsorted(sizes, most, "right"))
        room = max(1, _ROOM // (most * min(most, longest)))
        for at in range(begin, end, room):
            yield slice(at, min(at + room, end))
        begin = end
