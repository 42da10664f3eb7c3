"""Lexical constraints: phrases that a translation must contain (Hokamp & Liu 2017), and the search for them.

A phrase is met by an occurrence of its ids. The occurrences of the phrases must not overlap, and a phrase
that is given twice must occur twice. The next id after an occurrence must not continue the word, so that
"cat" is not met by "catalogue". An `Automaton` follows all ways to match the phrases at the same time.

The search divides the beam (dynamic beam allocation, Post & Vilar 2018) by these rules:

- The candidates are the best extensions of each open hypothesis, and all ids that continue or begin one of
  its unmet phrases. EOS is a candidate only if all phrases are met.
- A bank is the set of candidates with the same progress: the same number of ids of phrases. The beam is
  divided equally among the banks. The banks with the most progress get the remainder. The best other
  candidates, from all banks, get the slots that a bank can't fill.
- If there are more banks than slots, the bank with the most progress gets one slot. The other slots go to the
  banks with the best candidates. So the most progress never decreases, and it grows in each step until all
  phrases are met, unless an id is forbidden or has the probability 0.
- If the sentence has neither candidates nor complete hypotheses, for example at the maximum length, the open
  hypotheses with the most met phrases may end.

Shapes: B unfinished sentences, K open hypotheses per sentence, M best extensions per hypothesis, C candidates
that a step retains, V ids.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import torch
from torch import Tensor

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
        next_ids: the ids that continue or begin a phrase, in ascending order.
        following: the next states that have been computed, by id.
    """

    matches: tuple[Match, ...]
    progress: int
    num_met: int
    is_met: bool
    next_ids: tuple[int, ...]
    following: dict[int, State] = field(default_factory=dict)


class Automaton:
    """Reads the ids of the hypotheses of one sentence.

    A phrase has one or more ids, and may occur several times. The ids in `continuing` continue a word.
    """

    start: State
    """The state before the first id."""
    size: int
    """The number of ids of all phrases: the progress when all are met."""

    def __init__(self, phrases: Sequence[Sequence[int]], continuing: Collection[int] = ()) -> None:
        assert all(phrases), "a phrase has no ids"
        phrase_ids = [tuple(phrase) for phrase in phrases]
        self._all_phrases, self._continuing = phrase_ids, continuing
        self._phrases = list(dict.fromkeys(phrase_ids))
        self._counts = tuple(phrase_ids.count(phrase) for phrase in self._phrases)
        self._alphabet = {new for phrase in phrase_ids for new in phrase}
        self._states: dict[tuple[Match, ...], State] = {}
        self.size = sum(map(len, phrase_ids))
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
        for index in reversed(range(len(self._all_phrases))):
            phrase = self._all_phrases[index]
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
        ranked = sorted(set(matches), key=lambda match: (-self._num_met(match) - match.place, match))
        useful: list[Match] = []
        for match in ranked:
            if not any(_replaces(other, match) for other in ranked if other is not match):
                useful.append(match)
        key = tuple(useful[:MAX_MATCHES])
        if not any(map(_is_open, key)):
            # Without it the next id might leave no match.
            key = (*key[:-1], next(filter(_is_open, useful)))
        if key not in self._states:
            next_ids = {new for match in key for new in self._next_ids(match)}
            num_met = [self._num_met(match) for match in key]
            self._states[key] = State(
                matches=key,
                progress=max(met + match.place for met, match in zip(num_met, key, strict=True)),
                num_met=max(num_met),
                is_met=max(num_met) == self.size,
                next_ids=tuple(sorted(next_ids)),
            )
        return self._states[key]

    def _next_ids(self, match: Match) -> Iterator[int]:
        """Yields the ids that bring a match nearer to its end."""
        if match.phrase >= 0:
            yield self._phrases[match.phrase][match.place]
            return
        for left, phrase in zip(match.left, self._phrases, strict=True):
            if left:
                yield phrase[0]


def _is_open(match: Match) -> bool:
    """Returns whether any id may follow."""
    return match.phrase < 0 and not match.is_fresh


def _replaces(better: Match, match: Match) -> bool:
    """Returns whether every continuation that completes `match` also completes the different `better`."""
    return (
        (better.phrase, better.place) == (match.phrase, match.place)
        and better.is_fresh <= match.is_fresh
        and all(fewer <= more for fewer, more in zip(better.left, match.left, strict=True))
    )


Candidate = tuple[float, int, int]
"""Negative log-probability, hypothesis and new id; the smallest candidate is the best."""


@dataclass(frozen=True, slots=True)
class Row:
    """A sentence with constraints, and the states of its K hypotheses."""

    automaton: Automaton
    max_length: int
    states: Sequence[State]


@dataclass(frozen=True, slots=True)
class Banks:
    """The sentences of a batch that have constraints.

    Attributes:
        rows: by their row in the batch.
        eos_id: the id that ends a hypothesis.
        forbidden: ids that a hypothesis must not have.
    """

    rows: Mapping[int, Row]
    eos_id: int
    forbidden: Collection[int]

    @classmethod
    def start(
        cls,
        automata: Sequence[Automaton | None],
        max_lengths: Sequence[int],
        eos_id: int,
        forbidden: Collection[int],
    ) -> Banks | None:
        """Returns the banks before the first step; None if no sentence has constraints."""
        rows = {
            row: Row(automaton, max_lengths[row], [automaton.start])
            for row, automaton in enumerate(automata)
            if automaton is not None
        }
        return cls(rows, eos_id, frozenset(forbidden)) if rows else None

    def take(self, rows: Iterable[int]) -> Banks | None:
        """Returns the banks of the sentences `rows`; None if none of them has constraints."""
        taken = {new: self.rows[old] for new, old in enumerate(rows) if old in self.rows}
        return Banks(taken, self.eos_id, self.forbidden) if taken else None

    def select(
        self,
        selected: tuple[Tensor, Tensor, Tensor],
        totals: Tensor,
        ids: Tensor,
        log_probs: Tensor,
        open_log_probs: Tensor,
        complete_scores: Tensor,
        length: int,
    ) -> tuple[tuple[Tensor, Tensor, Tensor], Banks]:
        """Selects the candidates of the sentences with constraints; the other sentences are unchanged.

        Args:
            selected: (B, C) each, the selection without constraints: log-probabilities, parents, new ids.
            totals: (B, K * M), the log-probabilities of the best extensions.
            ids: (B, K * M), their newest ids.
            log_probs: (B, K, V), of the next id, after the processors.
            open_log_probs: (B, K), of the open hypotheses.
            complete_scores: (B, N), best first.
            length: the number of ids after BOS that a hypothesis has after this step.

        Returns:
            `selected` with the new selection of the sentences with constraints, and the banks after the step.
        """
        best, parents, chosen = selected
        width, size = log_probs.shape[1], best.shape[1]
        places = torch.tensor([*self.rows], device=totals.device)
        added = [self._added(row, length) for row in self.rows.values()]
        extra = self._extra(added, log_probs, open_log_probs)
        all_totals, all_ids = totals[places].tolist(), ids[places].tolist()
        nothing = (complete_scores[places, 0] == -math.inf).tolist()
        new_rows: dict[int, Row] = {}
        all_picked: list[list[Candidate]] = []
        for number, (place, row) in enumerate(self.rows.items()):
            values = all_totals[number]
            if any(map(math.isnan, values)):  # the search fails after this step
                columns = (best[place].tolist(), parents[place].tolist(), chosen[place].tolist())
                picked = [(-value, parent, new) for value, parent, new in zip(*columns, strict=True)]
            else:
                span = len(values) // width
                pairs = [(at // span, new) for at, new in enumerate(all_ids[number])]
                # At the maximum length EOS occurs several times, and only the first is possible.
                totals_of = {
                    pair: value for pair, value in zip(pairs, values, strict=True) if value > -math.inf
                }
                totals_of |= zip(added[number], extra[number], strict=True)
                candidates = [(-value, *pair) for pair, value in totals_of.items() if value > -math.inf]
                picked = self._picked(row, candidates, size, nothing[number])
                picked += [(math.inf, 0, self.eos_id)] * (size - len(picked))
            all_picked.append(picked)
            states = [row.automaton.next(row.states[parent], new) for _, parent, new in picked]
            new_rows[place] = Row(row.automaton, row.max_length, states)
        costs, new_parents, new_ids = zip(*(zip(*picked, strict=True) for picked in all_picked), strict=True)
        best = best.index_copy(0, places, -best.new_tensor(costs))
        parents = parents.index_copy(0, places, parents.new_tensor(new_parents))
        chosen = chosen.index_copy(0, places, chosen.new_tensor(new_ids))
        return (best, parents, chosen), Banks(new_rows, self.eos_id, self.forbidden)

    def _added(self, row: Row, length: int) -> list[tuple[int, int]]:
        """Returns hypothesis and id of the candidates that the constraints of a sentence add."""
        pairs = []
        for hypothesis, state in enumerate(row.states):
            if state.is_met:
                pairs.append((hypothesis, self.eos_id))
            if length < row.max_length:
                pairs += [(hypothesis, new) for new in state.next_ids if new not in self.forbidden]
        return pairs

    def _extra(
        self, added: Sequence[Sequence[tuple[int, int]]], log_probs: Tensor, open_log_probs: Tensor
    ) -> list[list[float]]:
        """Returns the log-probabilities of the added candidates of each sentence with constraints."""
        flat = [(row, *pair) for row, pairs in zip(self.rows, added, strict=True) for pair in pairs]
        index = torch.tensor(flat, dtype=torch.int64, device=log_probs.device).view(-1, 3)
        rows, hypotheses, new = index.unbind(1)
        values = log_probs[rows, hypotheses, new].float() + open_log_probs[rows, hypotheses]
        left = iter(values.tolist())
        return [[next(left) for _ in pairs] for pairs in added]

    def _picked(
        self, row: Row, candidates: Sequence[Candidate], size: int, has_no_result: bool
    ) -> list[Candidate]:
        """Returns the selected candidates of a sentence, best first, at most `size`."""
        banks: dict[int, list[Candidate]] = {}
        for candidate in sorted(candidates):
            _, hypothesis, new = candidate
            state = row.states[hypothesis]
            if new != self.eos_id:
                banks.setdefault(row.automaton.next(state, new).progress, []).append(candidate)
            elif state.is_met:
                banks.setdefault(state.progress, []).append(candidate)
        if not banks and has_no_result:
            most = max((row.states[hypothesis].num_met for _, hypothesis, _ in candidates), default=0)
            return sorted(candidate for candidate in candidates if row.states[candidate[1]].num_met == most)[
                :size
            ]
        return divided(banks, size)


def divided(banks: Mapping[int, Sequence[Candidate]], slots: int) -> list[Candidate]:
    """Returns the best candidates, which share the slots of a beam by the rules of the module.

    `banks` has the candidates by their progress, best first; none of them is empty.
    """
    if not banks:
        return []
    ranked = [banks[progress] for progress in sorted(banks, reverse=True)]
    if len(ranked) > slots:
        return sorted([ranked[0][0], *sorted(bank[0] for bank in ranked[1:])[: slots - 1]])
    share, remainder = divmod(slots, len(ranked))
    shares = [share + (place < remainder) for place in range(len(ranked))]
    picked = [best for bank, count in zip(ranked, shares, strict=True) for best in bank[:count]]
    others = sorted(other for bank, count in zip(ranked, shares, strict=True) for other in bank[count:])
    return sorted([*picked, *others[: slots - len(picked)]])
