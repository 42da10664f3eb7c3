"""Subword regularisation: samples the segmentation of words into pieces, many words at once.

The sampling of SentencePiece can't be repeated, because it seeds its generator differently in each process.
Here, each word has a number as its seed. Its segmentation is a pure function of its letters and this number.
The other words of the call have no influence. A piece never crosses the beginning of a word, so each word is
sampled alone. The letters of a word are those of its pieces, so the text is not needed.

Shapes: W words, L letters of the longest word, K letters of the longest piece.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from nmt.config import Segmentation
from nmt.copying.strings import WORD_START
from nmt.data.subwords.vocabulary import Vocabulary
from nmt.runtime.arrays import Array, Side, offsets_of

_MAX_CELLS = 1 << 19  # cells of a table: large enough for few steps, and it fits into the processor's cache
_NEVER = np.iinfo(np.int32).max  # the rank of two pieces that can't be merged
_GOLDEN, _FACTOR_1, _FACTOR_2 = map(np.uint64, (0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB))
_LARGE = 2.0**256


def uniform(numbers: Array, step: int) -> Array:
    """Returns the random number of each seed at a step: (W,) uint64 to (W,) float64 in [0, 1).

    The generator is SplitMix64 (Steele, Lea & Flood 2014).
    """
    mixed = numbers + np.uint64((step + 1) * int(_GOLDEN) & 0xFFFFFFFFFFFFFFFF)
    mixed = (mixed ^ (mixed >> np.uint64(30))) * _FACTOR_1
    mixed = (mixed ^ (mixed >> np.uint64(27))) * _FACTOR_2
    fractions: Array = ((mixed ^ (mixed >> np.uint64(31))) >> np.uint64(11)) * 2.0**-53
    return fractions


class UnigramSegmenter:
    """Samples with a unigram model: the probability of a segmentation is proportional to p**alpha.

    The method is that of Kudo 2018, section 3.2, by forward filtering and backward sampling. The forward pass
    computes, for each position, the sum of the weights of all segmentations up to there. The backward pass
    samples the last piece in proportion to its share of that sum, then the piece before it, and so on. The
    samples follow the exact distribution. No logarithms are used, because their rounding depends on the
    machine. If a sum becomes very small or large, all sums that are still needed are rescaled together.

    Attributes:
        letters: the number of each letter that a word may contain.
    """

    def __init__(self, ids: Mapping[str, int], scores: Mapping[str, float], alpha: float) -> None:
        """Takes the ids of all pieces, and the log-probabilities of those that can be sampled."""
        self.letters: Mapping[str, int] = {letter: i for i, letter in enumerate(sorted(set("".join(scores))))}
        self._longest = max(map(len, scores), default=0)
        # The pieces as a trie of letters. Node 0: no piece has this prefix. Node 1: the root.
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
            self._ids[node] = ids[piece] + 1  # 0: no piece ends at this node
            self._weights[node] = math.exp(alpha * scores[piece])

    def draw(self, words: Side, numbers: Array) -> Side:
        """Samples a segmentation of each word, which must have at least one.

        Args:
            words: the letters of W words, at least one per word.
            numbers: (W,) uint64 seeds.

        Returns:
            The ids of the pieces of each word.
        """
        # Equal words are adjacent, because they share the forward pass.
        order = np.lexsort((_hashes(words), words.lengths()))
        return _in_groups(self._draw, words, numbers, order, self._longest)

    def may_change(self, merges: Array, numbers: Array) -> Array:
        """Returns False for each word whose sample is certain to be its present pieces: (W,) bool.

        Such a word need not be sampled.

        Args:
            merges: (W,) number of letters minus number of pieces of each word, in its most likely
                segmentation.
            numbers: (W,) uint64 seeds.
        """
        return np.ones(len(numbers), np.bool_)

    def _draw(self, letters: Array, sizes: Array, numbers: Array) -> Array:
        new = np.append(True, (letters[1:] != letters[:-1]).any(1))
        word = np.cumsum(new) - 1  # index of each row among the distinct words
        nodes = self._find_pieces(letters[new])
        sums = self._sums(nodes)
        pieces = np.zeros(letters.shape, np.int32)
        rows, places, step = np.arange(len(letters)), sizes.copy(), 0
        while len(rows):
            shares = sums[places - 1, :, word[rows]]
            target = uniform(numbers[rows], step) * shares[:, -1]
            length = (shares <= target[:, None]).sum(1)
            assert length.max() < sums.shape[1], "a word without a segmentation"
            chosen = nodes[places - 1, length, word[rows]]
            places = places - length - 1
            pieces[rows, places] = self._ids[chosen]
            unfinished = np.flatnonzero(places)
            rows, places, step = rows[unfinished], places[unfinished], step + 1
        return pieces

    def _find_pieces(self, letters: Array) -> Array:
        """Finds the node of the piece of each length that ends at each position: (L, K, W), K at most L."""
        num_words, size = letters.shape
        longest = min(self._longest, size)
        ends = np.zeros((size, longest, num_words), np.int32)
        flat_letters, flat = np.ascontiguousarray(letters.T).reshape(-1), ends.reshape(-1)
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
        return ends

    def _sums(self, nodes: Array) -> Array:
        """Sums the weights of all segmentations up to each position: (L, K, W) float64.

        The sums are cumulative over the length of the last piece.
        """
        size, longest, num_words = nodes.shape
        sums = np.empty((size, longest, num_words))
        totals = np.zeros((longest + size, num_words))  # up to each position; zero before the first
        totals[longest - 1] = 1.0
        for place in range(size):
            before = totals[place : place + longest]
            np.multiply(before[::-1], self._weights[nodes[place]], out=sums[place])
            np.cumsum(sums[place], axis=0, out=sums[place])
            total = totals[place + longest]
            total[:] = sums[place, -1]
            for far, factor in ((total > _LARGE, 1 / _LARGE), ((total < 1 / _LARGE) & (total > 0), _LARGE)):
                if far.any():
                    totals[place + 1 : place + longest + 1, far] *= factor
        return sums


class BpeSegmenter:
    """Samples with a BPE model by BPE-dropout (Provilkov et al. 2020, algorithm 1).

    At each step, every possible merge is dropped with probability alpha. The best of the others is applied,
    until none is left. A higher score means that the piece was merged earlier in training. The attributes and
    methods are those of `UnigramSegmenter`.
    """

    def __init__(self, ids: Mapping[str, int], scores: Mapping[str, float], alpha: float) -> None:
        """Takes the ids of all pieces, and the scores of those that a merge can produce."""
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
        """See `UnigramSegmenter.draw`."""
        return _in_groups(self._draw, words, numbers, np.argsort(words.lengths(), kind="stable"), 1)

    def may_change(self, merges: Array, numbers: Array) -> Array:
        """Returns the same; a word does not change if none of the merges that produce it is dropped."""
        changed = np.zeros(len(numbers), np.bool_)
        rows, step = np.flatnonzero(merges), 0
        while len(rows):
            dropped = uniform(numbers[rows], step) < self._alpha
            changed[rows[dropped]] = True
            rows, step = rows[~dropped], step + 1
            rows = rows[merges[rows] > step]
        return changed

    def _draw(self, letters: Array, sizes: Array, numbers: Array) -> Array:
        """Stores each piece at the position of its first letter, with the positions of its neighbours."""
        num_words, width = letters.shape[0], letters.shape[1] + 2  # with an empty cell at both ends
        cells = np.zeros((num_words, width), np.int32)
        cells[:, 1:-1] = letters
        pieces = cells.reshape(-1)
        before = np.arange(-1, len(pieces) - 1)
        after = np.arange(1, len(pieces) + 1)
        ranks = np.full(cells.shape, _NEVER, np.int32)
        ranks[:, :-1] = self._ranks(cells[:, :-1], cells[:, 1:])
        flat_ranks = ranks.reshape(-1)
        # At least the n best merges are dropped with probability alpha**n.
        thresholds = -(self._alpha ** np.arange(1, width))
        rows, step = np.arange(num_words), 0
        while len(rows):
            possible = ranks if len(rows) == num_words else ranks[rows]
            places = possible.argmin(1)
            skipped = np.searchsorted(thresholds, -uniform(numbers[rows], step))
            several = np.flatnonzero(skipped)
            if len(several):
                order = possible[several].argsort(1, kind="stable")
                places[several] = order[np.arange(len(several)), skipped[several]]
            unfinished = np.flatnonzero(possible[np.arange(len(rows)), places] != _NEVER)
            rows, step = rows[unfinished], step + 1
            first = rows * width + places[unfinished]
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
    """Maps pairs of numbers below 2**31 to numbers: a hash table with open addressing."""

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
        """Returns the values of pairs, or `missing`, in the shape of `first` and `second`."""
        keys = (first.astype(np.int64) << 32) | second
        at = self._at(keys)
        stored, values = self._keys[at], self._values[at]
        colliding = np.nonzero((stored != keys) & (stored >= 0))
        while len(colliding[0]):
            at[colliding] = (at[colliding] + 1) & self._last
            stored = self._keys[at[colliding]]
            values[colliding] = self._values[at[colliding]]
            unfinished = np.flatnonzero((stored != keys[colliding]) & (stored >= 0))
            colliding = tuple(index[unfinished] for index in colliding)
        return values

    def _at(self, keys: Array) -> Array:
        mixed = keys.view(np.uint64) * _FACTOR_1
        return ((mixed ^ (mixed >> np.uint64(32))) * _GOLDEN >> self._shift).view(np.int64)


Segmenter = UnigramSegmenter | BpeSegmenter

_Draw = Callable[[Array, Array, Array], Array]
"""(W, L) letters, (W,) sizes and (W,) numbers to one row per word: ids plus 1, separated by zeros."""


def _hashes(words: Side) -> Array:
    """Returns a hash of each word, a polynomial of its letters: (W,) uint64."""
    if not len(words):
        return np.zeros(0, np.uint64)
    sizes = words.lengths()
    powers = np.cumprod(np.full(int(sizes.max()), _FACTOR_2), dtype=np.uint64)
    places = np.arange(len(words.ids)) - np.repeat(words.offsets[:-1], sizes)
    terms = (words.ids.astype(np.uint64) + _GOLDEN) * powers[places]
    hashes: Array = np.add.reduceat(terms, words.offsets[:-1])
    return hashes


def _in_groups(draw: _Draw, words: Side, numbers: Array, order: Array, longest: int) -> Side:
    """Calls `draw` for groups of words of similar length; returns the ids of the pieces of each word.

    Args:
        draw: samples one group.
        words: the letters of W words.
        numbers: (W,) uint64 seeds.
        order: (W,) the words sorted by length.
        longest: cells of the tables per letter, at most; limits the size of the groups.
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
    """Yields groups of words sorted by length; the last word is at most 1.5 times as long as the first."""
    begin = 0
    while begin < len(sizes):
        most = int(sizes[begin]) * 3 // 2
        end = int(np.searchsorted(sizes, most, "right"))
        most_words = max(1, _MAX_CELLS // (most * min(most, longest)))
        for at in range(begin, end, most_words):
            yield slice(at, min(at + most_words, end))
        begin = end


class Sampler:
    """Samples new segmentations of the words of encoded sentences.

    The training method of the pieces selects `UnigramSegmenter` or `BpeSegmenter`; `alpha` is their exponent
    or dropout probability.
    """

    def __init__(self, vocabulary: Vocabulary, segmentation: Segmentation, alpha: float) -> None:
        pieces = vocabulary.names
        ids = {piece: i for i, piece in enumerate(pieces)}
        scores = {piece: score for piece, score in vocabulary.scores.items() if piece in ids}
        method = UnigramSegmenter if segmentation is Segmentation.unigram else BpeSegmenter
        self._segmenter: Segmenter = method(ids, scores, alpha)
        letters = self._segmenter.letters
        # Bytes, user symbols and all other pieces that can't be segmented otherwise have no letters here.
        drawn = [piece if piece in scores and letters.keys() >= set(piece) else "" for piece in pieces]
        self._letters = Side.of([[letters[letter] for letter in piece] for piece in drawn], np.int32)
        self._starts_word = np.array([piece.startswith(WORD_START) for piece in pieces])

    def resegment(self, side: Side, seed: int) -> Side:
        """Returns the same sentences in other pieces: a pure function of the sentences and the seed.

        Bytes, user symbols and unknown pieces do not change. The words between them are segmented again.
        """
        flat = side.flat()
        if not len(flat):
            return side
        offsets = side.offsets.astype(np.int64) - int(side.offsets[0])
        starts = np.append(self._word_starts(flat, offsets), len(flat))  # of the words, and the end
        letters = self._letters.take(flat)
        words = Side(letters.ids, letters.offsets[starts])
        numbers = np.random.Generator(np.random.SFC64(seed)).integers(0, 1 << 64, len(words), np.uint64)
        before = Side(flat, starts)
        drawn = words.lengths() > 1
        drawn[drawn] = self._segmenter.may_change((words.lengths() - before.lengths())[drawn], numbers[drawn])
        after = self._segmenter.draw(words.take(np.flatnonzero(drawn)), numbers[drawn])
        rows = len(after) + np.arange(len(words))
        rows[drawn] = np.arange(len(after))
        both = Side.concatenated([Side(after.ids.astype(flat.dtype), after.offsets), before])
        new = both.take(rows)
        return Side(new.ids, new.offsets[np.searchsorted(starts, offsets)])

    def _word_starts(self, flat: Array, offsets: Array) -> Array:
        """Returns the positions where words begin. Each piece without letters counts as a word."""
        fixed = self._letters.lengths()[flat] == 0
        begins = self._starts_word[flat] | fixed
        begins[1:] |= fixed[:-1]  # letters after it are another word
        begins[offsets[:-1][np.diff(offsets) > 0]] = True
        return np.flatnonzero(begins)
