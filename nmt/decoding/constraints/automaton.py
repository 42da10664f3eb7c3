"""Lexical constraints: phrases that a translation must contain (Hokamp & Liu 2017).

A phrase is met by an occurrence of its ids. The occurrences of the phrases must not overlap, and a phrase
that is given twice must occur twice. The next id after an occurrence must not continue the word, so that
"cat" is not met by "catalogue".

An `Automaton` follows all ways to match the phrases at the same time. It builds its states when a hypothesis
first reaches them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

MAX_MATCHES = 64
"""Matches that a state retains. Only phrases that overlap in many ways have more."""


class Match(NamedTuple):
    """One way to match the phrases with the ids so far.

    Attributes:
        left: for each distinct phrase the number of occurrences that are still missing.
        phrase: the phrase that has begun; -1: none.
        place: number of ids of this phrase so far.
        is_fresh: whether the last id was the end of a phrase, so that the next id may continue its last word.
    """

    left: tuple[int, ...]
    phrase: int = -1
    place: int = 0
    is_fresh: bool = False


@dataclass(eq=False, slots=True)
class State:
    """A state of an automaton: all matches after the ids of a hypothesis.

    Attributes:
        matches: one or more.
        progress: the largest number of ids of met phrases and of the phrase that has begun.
        num_met: the largest number of ids of met phrases.
        is_met: whether all phrases are met.
        wanted: the ids that continue or begin a phrase, in ascending order.
        following: the next states that have been computed, by id.
    """

    matches: tuple[Match, ...]
    progress: int
    num_met: int
    is_met: bool
    wanted: tuple[int, ...]
    following: dict[int, State] = field(default_factory=dict)


class Automaton:
    """Reads the ids of the hypotheses of one sentence.

    Args:
        phrases: one or more ids each. A phrase may occur several times.
        continuing: the ids that continue a word.
    """

    start: State
    """The state before the first id."""
    size: int
    """The number of ids of all phrases: the progress when all are met."""

    def __init__(self, phrases: Sequence[Sequence[int]], continuing: Collection[int] = ()) -> None:
        assert all(phrases), "a phrase has no ids"
        given = [tuple(phrase) for phrase in phrases]
        self._given, self._continuing = given, continuing
        self._phrases = list(dict.fromkeys(given))
        self._counts = tuple(given.count(phrase) for phrase in self._phrases)
        self._alphabet = {one for phrase in given for one in phrase}
        self._states: dict[tuple[Match, ...], State] = {}
        self.size = sum(map(len, given))
        self.start = self._state([Match(self._counts)])

    def next(self, state: State, new: int) -> State:
        """Returns the state after the id `new`."""
        # All ids outside the phrases act like one of two: -1, or -2 if they continue a word.
        key = new if new in self._alphabet else -2 if new in self._continuing else -1
        following = state.following.get(key)
        if following is None:
            matches = [after for match in state.matches for after in self._read(match, new)]
            following = state.following[key] = self._state(matches)
        return following

    def unmet(self, ids: Sequence[int]) -> list[int]:
        """Returns the indices of the phrases that a complete hypothesis does not meet, in ascending order."""
        state = self.start
        for new in ids:
            state = self.next(state, new)
        left = dict(zip(self._phrases, max(state.matches, key=self._num_met).left, strict=True))
        indices = []
        for index in reversed(range(len(self._given))):
            phrase = self._given[index]
            if left[phrase]:
                left[phrase] -= 1
                indices.append(index)
        return indices[::-1]

    def _read(self, match: Match, new: int) -> Iterator[Match]:
        """Yields all ways to extend a match by an id."""
        if match.is_fresh and new in self._continuing:
            return
        if match.phrase >= 0:
            if self._phrases[match.phrase][match.place] == new:
                yield self._advanced(match.left, match.phrase, match.place)
            return
        yield Match(match.left)
        for number, phrase in enumerate(self._phrases):
            if match.left[number] and phrase[0] == new:
                yield self._advanced(match.left, number, 0)

    def _advanced(self, left: tuple[int, ...], phrase: int, place: int) -> Match:
        """Returns the match after id `place` of a phrase."""
        if place + 1 < len(self._phrases[phrase]):
            return Match(left, phrase, place + 1)
        return Match((*left[:phrase], left[phrase] - 1, *left[phrase + 1 :]), is_fresh=True)

    def _num_met(self, match: Match) -> int:
        pairs = zip(self._counts, match.left, self._phrases, strict=True)
        return sum((count - left) * len(phrase) for count, left, phrase in pairs)

    def _state(self, matches: Sequence[Match]) -> State:
        """Returns the state of some matches, without those that another one makes useless."""
        ranked = sorted(set(matches), key=lambda one: (-self._num_met(one) - one.place, one))
        useful: list[Match] = []
        for match in ranked:
            if not any(_replaces(other, match) for other in ranked if other is not match):
                useful.append(match)
        key = tuple(useful[:MAX_MATCHES])
        if key not in self._states:
            wanted = {one for match in key for one in self._wanted(match)}
            num_met = [self._num_met(match) for match in key]
            self._states[key] = State(
                matches=key,
                progress=max(met + match.place for met, match in zip(num_met, key, strict=True)),
                num_met=max(num_met),
                is_met=max(num_met) == self.size,
                wanted=tuple(sorted(wanted)),
            )
        return self._states[key]

    def _wanted(self, match: Match) -> Iterator[int]:
        """Yields the ids that bring a match nearer to its end."""
        if match.phrase >= 0:
            yield self._phrases[match.phrase][match.place]
            return
        for left, phrase in zip(match.left, self._phrases, strict=True):
            if left:
                yield phrase[0]


def _replaces(better: Match, match: Match) -> bool:
    """Returns whether every continuation that completes `match` also completes the different `better`."""
    return (
        (better.phrase, better.place) == (match.phrase, match.place)
        and better.is_fresh <= match.is_fresh
        and all(one <= other for one, other in zip(better.left, match.left, strict=True))
    )
