"""The ways to cut up one word, as a tree of choices that a random number is led down.

Each node shares its stretch of the numbers [0, `NUMBERS`) out among its branches, in proportion to their
probabilities; a leaf is a way to cut up the word. Which leaf a number leads to depends on nothing else, so
what is looked up in `stretches` of a tree can never change what is drawn. A tree is as large as the ways are
many: its nodes are made where a number leads, and not kept.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import accumulate, pairwise
from typing import Protocol

BITS = 40
NUMBERS = 1 << BITS  # integers, as sums of fractions would depend on their order


class Node(Protocol):
    """A choice, or the end of all choices."""

    @property
    def bounds(self) -> Sequence[float] | None:
        """Running sums of the branches' probabilities but for the last, which ends at 1; None: a leaf."""

    @property
    def ids(self) -> Sequence[int]:
        """The ids of a leaf."""

    def branch(self, number: int) -> Node:
        """Where one of the branches leads."""


def draw(node: Node, number: int) -> Sequence[int]:
    """The ids at the leaf that a number of [0, `NUMBERS`) leads to."""
    begin, end = 0, NUMBERS
    bounds = node.bounds
    while bounds is not None:
        width, first, taken = end - begin, begin, len(bounds)
        for i, bound in enumerate(bounds):
            top = first + int(width * bound)
            if number < top:
                end, taken = top, i
                break
            begin = top
        node = node.branch(taken)
        bounds = node.bounds
    return node.ids


def stretches(node: Node, least: int) -> list[tuple[int, Sequence[int] | None]]:
    """The leaves under a node, each by where its stretch of numbers ends, in order.

    A stretch of `least` numbers or fewer is not looked into: it comes without ids.
    """
    return list(_stretches(node, 0, NUMBERS, least))


def _stretches(node: Node, begin: int, end: int, least: int) -> Iterator[tuple[int, Sequence[int] | None]]:
    bounds = node.bounds
    if bounds is None or end - begin <= least:
        yield end, node.ids if bounds is None else None
        return
    width, first = end - begin, begin
    for i, bound in enumerate(bounds):
        top = first + int(width * bound)
        if top > begin:
            yield from _stretches(node.branch(i), begin, top, least)
        begin = top
    if end > begin:
        yield from _stretches(node.branch(len(bounds)), begin, end, least)


class Leaf:
    """One way, and no choice."""

    __slots__ = ("ids",)
    bounds = None

    def __init__(self, ids: Sequence[int]) -> None:
        """Takes its ids."""
        self.ids = ids

    def branch(self, number: int) -> Node:
        """There is none."""
        raise AssertionError("a leaf has no branches")


class UnigramWays:
    """The vocabulary of a unigram model; a way's probability goes with p**alpha (Kudo 2018, section 3.2)."""

    def __init__(self, ids: Mapping[str, int], scores: Mapping[str, float], alpha: float) -> None:
        """Takes the ids of all pieces, and the log-probabilities of those that may be drawn."""
        self.pieces = {piece: (ids[piece], alpha * score) for piece, score in scores.items()}
        self.longest = max(map(len, scores), default=0)

    def word(self, text: str) -> Node | None:
        """The ways to cut up a word; None if there are none."""
        filtered = _Filtered(text, self)
        return _Suffix(filtered, len(text), ()) if filtered.possible else None


class _Filtered:
    """Forward filtering over all ways to cut up a word.

    The filter sums, up to each place, the weights of all ways to get there; going back from the end, the last
    piece is drawn by its share of that sum, and so on. This draws from the exact distribution.
    """

    def __init__(self, text: str, ways: UnigramWays) -> None:
        log_sums = [0.0]
        # For each place: the (id, begin) of the pieces that end there, and the running sum of their shares.
        self.last: list[tuple[list[tuple[int, int]], list[float]]] = [([], [])]
        for end in range(1, len(text) + 1):
            choices, logs = [], []
            for begin in range(max(0, end - ways.longest), end):
                found = ways.pieces.get(text[begin:end])
                if found is not None and log_sums[begin] > -math.inf:
                    choices.append((found[0], begin))
                    logs.append(log_sums[begin] + found[1])
            top = max(logs, default=-math.inf)
            weights = [math.exp(value - top) for value in logs]
            total = sum(weights)
            log_sums.append(top + math.log(total) if choices else -math.inf)
            self.last.append((choices, list(accumulate(weight / total for weight in weights[:-1]))))
        self.possible = log_sums[-1] > -math.inf


class _Suffix:
    """The pieces drawn so far, from the end of the word back to a place."""

    __slots__ = ("_place", "_word", "ids")

    def __init__(self, word: _Filtered, place: int, ids: tuple[int, ...]) -> None:
        self._word, self._place, self.ids = word, place, ids

    @property
    def bounds(self) -> Sequence[float] | None:
        return self._word.last[self._place][1] if self._place else None

    def branch(self, number: int) -> Node:
        piece, begin = self._word.last[self._place][0][number]
        return _Suffix(self._word, begin, (piece, *self.ids))


class BpeWays:
    """The pieces of a BPE model, which was learnt by merging: a higher score was merged earlier.

    At each step, each merge that is possible is left out with probability alpha and the best of the rest is
    made, until none is left (BPE-dropout: Provilkov et al. 2020, algorithm 1).
    """

    def __init__(self, ids: Mapping[str, int], scores: Mapping[str, float], alpha: float) -> None:
        """Takes the ids of all pieces, and the scores of those that may come out of a merge."""
        self._alpha = alpha
        self._characters = {piece: ids[piece] for piece in scores if len(piece) == 1}
        # Of two ids in a row: the rank of their merge, lowest for the first to be made, and its id.
        self._merges = {
            (ids[piece[:cut]], ids[piece[cut:]]): (-score, ids[piece])
            for piece, score in scores.items()
            for cut in range(1, len(piece))
            if piece[:cut] in scores and piece[cut:] in scores
        }
        self._bounds: list[list[float]] = []

    def word(self, text: str) -> Node | None:
        """The ways to cut up a word; None if a character is not a piece."""
        known = all(character in self._characters for character in text)
        return self.stage(tuple(self._characters[character] for character in text)) if known else None

    def stage(self, ids: tuple[int, ...]) -> _Merging:
        """A word merged so far, and the merges of neighbours that are possible: the best first."""
        found = (self._merges.get(pair) for pair in pairwise(ids))
        merges = sorted((merge[0], place, merge[1]) for place, merge in enumerate(found) if merge)
        return _Merging(self, ids, tuple(merge[1:] for merge in merges), self._bounds_of(len(merges)))

    def _bounds_of(self, merges: int) -> list[float] | None:
        """Running sums of the probabilities that the first, second, ... of so many merges is made."""
        while len(self._bounds) <= merges:
            self._bounds.append([1.0 - self._alpha ** (i + 1) for i in range(len(self._bounds))])
        return self._bounds[merges] if merges else None


class _Merging:
    """A word at some stage of merging. Its last branch: all merges that are possible are left out."""

    __slots__ = ("_merges", "_ways", "bounds", "ids")

    def __init__(
        self,
        ways: BpeWays,
        ids: tuple[int, ...],
        merges: tuple[tuple[int, int], ...],
        bounds: Sequence[float] | None,
    ) -> None:
        """Takes its parts, and the place and the outcome of each merge."""
        self._ways, self._merges = ways, merges
        self.ids, self.bounds = ids, bounds

    def branch(self, number: int) -> Node:
        if number == len(self._merges):
            return Leaf(self.ids)
        place, merged = self._merges[number]
        return self._ways.stage((*self.ids[:place], merged, *self.ids[place + 2 :]))
