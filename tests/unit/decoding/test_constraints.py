"""Constraints in beam search: against a naive definition, exhaustive search and hand-computed cases."""

from __future__ import annotations

import itertools
import math
from collections.abc import Collection, Sequence

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_search import (
    NextLogProbs,
    Where,
    alphas,
    assert_same,
    constant,
    exhaustive_search,
    has_own_attention,
    no_repeat,
    prefix,
    random_table,
    run,
    tables,
)

from nmt.decoding import search
from nmt.decoding.constraints import MAX_MATCHES, Automaton, divided

Ids = tuple[int, ...]


def contains(ids: Ids, phrases: Sequence[Ids], continuing: Collection[int] = (), start: int = 0) -> bool:
    """The definition: disjoint occurrences of all phrases, none of them followed by the rest of a word."""
    if not phrases:
        return True
    for at in range(start, len(ids)):
        for number, phrase in enumerate(phrases):
            end = at + len(phrase)
            if ids[at:end] == phrase and not (end < len(ids) and ids[end] in continuing):
                others = [*phrases[:number], *phrases[number + 1 :]]
                if contains(ids, others, continuing, end):
                    return True
    return False


def most_met(ids: Ids, phrases: Sequence[Ids], continuing: Collection[int]) -> int:
    """The largest number of ids of phrases that `ids` contain."""
    subsets = (subset for size in range(len(phrases) + 1) for subset in itertools.combinations(phrases, size))
    return max(sum(map(len, subset)) for subset in subsets if contains(ids, subset, continuing))


phrase = st.lists(st.integers(2, 4), min_size=1, max_size=3).map(tuple)
phrase_lists = st.lists(phrase, min_size=1, max_size=4)
continuing_ids = st.sets(st.integers(2, 4), max_size=2)


@given(phrases=phrase_lists, continuing=continuing_ids, ids=st.lists(st.integers(1, 5), max_size=12))
def test_the_automaton_equals_the_definition(
    phrases: list[Ids], continuing: set[int], ids: list[int]
) -> None:
    automaton = Automaton(phrases, continuing)
    state = automaton.start
    for count, new in enumerate([None, *ids]):
        if new is not None:
            before, wanted = state.progress, state.next_ids
            state = automaton.next(state, new)
            assert state.progress <= before + 1
            assert new in wanted or state.progress <= before
        so_far = tuple(ids[:count])
        assert state.is_met == contains(so_far, phrases, continuing)
        assert state.num_met == most_met(so_far, phrases, continuing) <= state.progress <= automaton.size
        left = automaton.unmet(so_far)
        assert left == sorted(set(left))
        met = [one for number, one in enumerate(phrases) if number not in left]
        assert contains(so_far, met, continuing) and sum(map(len, met)) == state.num_met


@pytest.mark.parametrize(
    ("phrases", "ids", "unmet"),
    [
        ([(2, 2, 3)], (2, 2, 2, 3), []),  # the second 2 may be the first of the phrase
        ([(2,), (2, 3)], (2, 3, 2), []),  # the first 2 belongs to the longer phrase
        ([(2, 3), (3, 4)], (2, 3, 4), [1]),  # no overlap
        ([(2,), (2,), (2,)], (2, 4, 2), [2]),  # one occurrence each
        ([(2,)], (2, 9), [0]),  # 9 continues the word
        ([(2,)], (2, 9, 2), []),
        ([(2,), (2, 9)], (2, 9, 2), []),
        ([(2, 3)], (2,), [0]),
    ],
)
def test_matches_by_hand(phrases: list[Ids], ids: Ids, unmet: list[int]) -> None:
    assert Automaton(phrases, {9}).unmet(ids) == unmet


def test_an_automaton_reads_many_hypotheses() -> None:
    """The ids outside the phrases share their next states, apart from those that continue a word."""
    automaton = Automaton([(2,)], {8, 9})
    assert [automaton.unmet((2, new)) for new in (7, 9, 6, 8)] == [[], [0], [], [0]]
    assert [automaton.unmet((new, 2)) for new in (7, 9, 6, 8)] == [[]] * 4


def test_a_million_matches_are_not_followed() -> None:
    phrases = [(2,) * size for size in range(1, 13)] + [(2,) * 3] * 5
    automaton = Automaton(phrases)
    state = automaton.start
    for _ in range(automaton.size):
        state = automaton.next(state, 2)
    assert len(state.matches) <= 64 and state.progress > automaton.size // 2


@pytest.mark.parametrize("continuing", [(), (5,), (8,)])
def test_a_phrase_of_more_repetitions_than_matches(continuing: tuple[int, ...]) -> None:
    phrase = [5] * (MAX_MATCHES + 2)
    automaton = Automaton([phrase, [5, 5]], continuing)
    state = automaton.start
    for new in [*phrase[:-1], 8, 5, 5, 8]:
        state = automaton.next(state, new)
    assert automaton.unmet(phrase[:-1] + [8, 5, 5]) == [0]
    assert automaton.unmet([*phrase, 9, 5, 5]) == []


@settings(max_examples=60)
@given(
    table=tables,
    alpha=alphas,
    phrases=st.lists(phrase, min_size=1, max_size=2),
    continuing=continuing_ids,
    begin=st.lists(st.integers(2, 4), max_size=2).map(tuple),
    max_length=st.integers(1, 5),
)
def test_a_beam_wide_enough_is_exhaustive(
    table: NextLogProbs, alpha: float, phrases: list[Ids], continuing: set[int], begin: Ids, max_length: int
) -> None:
    begin = begin[: max_length - 1]
    every = [
        (score, ids)
        for score, ids in exhaustive_search(table, 0, 5, max_length, alpha)
        if contains(ids, phrases, continuing) and ids[: len(begin)] == begin
    ]
    [found] = run(
        table,
        [max_length],
        constraints=[Automaton(phrases, continuing)],
        processors=[prefix(begin)] if begin else [],
        beam_size=min(1000, 4**max_length),
        nbest=max(1, min(5, len(every))),
        length_penalty=alpha,
    )
    if every:
        assert_same(found, every)
    else:
        assert [Automaton(phrases, continuing).unmet(one.ids) != [] for one in found] == [True]


@given(
    table=tables,
    alpha=alphas,
    phrases=st.lists(st.lists(st.integers(2, 5), min_size=1, max_size=4).map(tuple), min_size=1, max_size=4),
    beam=st.integers(1, 6),
    slack=st.integers(1, 3),
    data=st.data(),
)
def test_constraints_that_fit_are_met_for_every_beam(
    table: NextLogProbs, alpha: float, phrases: list[Ids], beam: int, slack: int, data: st.DataObject
) -> None:
    table = random_table(data.draw(st.integers(0, 1000)), 7, data.draw(st.sampled_from([3, 12, 100])))
    nbest = data.draw(st.integers(1, beam))
    automaton = Automaton(phrases, {6})  # no phrase begins with the id that continues a word
    [found] = run(
        table,
        [automaton.size + slack],
        constraints=[automaton],
        beam_size=beam,
        nbest=nbest,
        length_penalty=alpha,
    )
    assert found
    for one in found:
        assert contains(one.ids, phrases, {6}) and automaton.unmet(one.ids) == []


@given(table=tables, beam=st.integers(1, 5), alpha=alphas, data=st.data())
def test_a_sentence_does_not_depend_on_its_neighbours(
    table: NextLogProbs, beam: int, alpha: float, data: st.DataObject
) -> None:
    max_lengths = [6, 2, 5, 5, 1, 7]
    constraints = [None, Automaton([(2,)]), Automaton([(3, 2), (4,)], {3}), None, Automaton([(2, 2)]), None]
    constraints[5] = Automaton([(4, 4), (4,)], {2})
    options = {"beam_size": beam, "nbest": beam, "length_penalty": alpha}
    together = run(table, max_lengths, constraints=constraints, **options)
    order = data.draw(st.permutations(range(6)))[: data.draw(st.integers(1, 6))]
    apart = run(
        table,
        [max_lengths[i] for i in order],
        sentences=order,
        constraints=[constraints[i] for i in order],
        **options,
    )
    assert apart == [together[i] for i in order]
    plain = run(table, max_lengths, **options)
    assert [together[0], together[3]] == [plain[0], plain[3]]


@pytest.mark.parametrize("interval", [3, 100])
def test_looking_less_often_changes_nothing(interval: int, monkeypatch: pytest.MonkeyPatch) -> None:
    table, max_lengths = random_table(5, vocab=6, grid=40), [9, 3, 6, 1, 9, 4]
    constraints = [Automaton([(2, 3)]), None, Automaton([(4,), (4,)], {5}), Automaton([(2,)]), None, None]
    options = {"beam_size": 3, "nbest": 3}
    expected = run(table, max_lengths, constraints=constraints, **options)
    monkeypatch.setattr(search, "check_interval", lambda device: interval)
    assert run(table, max_lengths, constraints=constraints, **options) == expected


def test_a_met_phrase_may_end_although_the_best_ids_continue_its_word() -> None:
    """EOS is not among the best ids of the hypothesis."""
    automaton = Automaton([(2,)], {3})
    [[found]] = run(
        constant(-9.0, -9.0, -10.0, -0.5), [3], beam_size=1, forbidden=(), constraints=[automaton]
    )
    assert found.ids == (2,)


@pytest.mark.parametrize(
    ("slots", "selected"),
    [
        (1, [(9.0, 0, 2)]),  # the bank with the most progress
        (2, [(1.0, 0, 3), (9.0, 0, 2)]),  # and that with the best candidate
        (3, [(1.0, 0, 3), (4.0, 0, 4), (9.0, 0, 2)]),
        (4, [(1.0, 0, 3), (2.0, 1, 3), (4.0, 0, 4), (9.0, 0, 2)]),
        (5, [(1.0, 0, 3), (2.0, 1, 3), (4.0, 0, 4), (5.0, 1, 4), (9.0, 0, 2)]),
        (9, [(1.0, 0, 3), (2.0, 1, 3), (3.0, 2, 3), (4.0, 0, 4), (5.0, 1, 4), (9.0, 0, 2)]),
    ],
)
def test_the_beam_is_divided_among_the_banks(slots: int, selected: list[tuple[float, int, int]]) -> None:
    banks = {
        0: [(1.0, 0, 3), (2.0, 1, 3), (3.0, 2, 3)],
        1: [(4.0, 0, 4), (5.0, 1, 4)],
        2: [(9.0, 0, 2)],
    }
    assert divided(banks, slots) == selected


def test_equal_candidates_go_by_hypothesis_then_by_id() -> None:
    [found] = run(
        constant(-1.0, -1.0, -1.0, -1.0),
        [3],
        beam_size=8,
        nbest=8,
        length_penalty=0.0,
        constraints=[Automaton([(3,)])],
    )
    assert [one.ids for one in found] == [(3,), (2, 3), (3, 2), (3, 3)]


def test_without_room_the_most_met_phrases_win() -> None:
    automaton = Automaton([(2, 3), (4, 4)])
    [found] = run(constant(-9.0, -1.0, -2.0, -2.0, -0.1), [4], beam_size=5, constraints=[automaton])
    assert len(found) == 1 and automaton.unmet(found[0].ids) == [0]


def test_processors_come_first() -> None:
    """A forbidden phrase is not met; a repeated phrase is forbidden by the n-gram processor."""
    automaton = Automaton([(2,)])
    forbids = Where(lambda ids, new: new == 2)
    [[found]] = run(
        constant(-9.0, -1.0, -1.0, -3.0), [4], processors=[forbids], constraints=[automaton], beam_size=3
    )
    assert 2 not in found.ids and automaton.unmet(found.ids) == [0]
    twice = Automaton([(2,), (2,)])
    [[found]] = run(
        constant(-9.0, -1.0, -1.0, -3.0), [4], processors=[no_repeat(1)], constraints=[twice], beam_size=3
    )
    assert found.ids.count(2) == 1 and twice.unmet(found.ids) == [1]


def test_an_impossible_phrase_still_gives_a_translation() -> None:
    automaton = Automaton([(2,)])
    [[found]] = run(
        constant(-9.0, -1.0, -math.inf, -1.0), [3], constraints=[automaton], forbidden=(), beam_size=2
    )
    assert automaton.unmet(found.ids) == [0]
    [[found]] = run(
        constant(-9.0, -1.0, -0.1, -1.0), [3], constraints=[automaton], forbidden=(0, 2), beam_size=2
    )
    assert automaton.unmet(found.ids) == [0]


@pytest.mark.parametrize("nbest", [1, 3])
def test_attention_belongs_to_the_hypothesis(nbest: int) -> None:
    [found, _] = run(
        random_table(3, 6, 12),
        [6, 5],
        constraints=[Automaton([(2, 4), (3,)]), None],
        beam_size=4,
        nbest=nbest,
        attention=True,
    )
    assert all(has_own_attention(0, one) for one in found)


def test_nan_is_an_error() -> None:
    def next_log_probs(sentence: int, ids: Ids) -> list[float]:
        return [math.nan if len(ids) == 1 else -1.0, -5.0, -1.0]

    with pytest.raises(FloatingPointError, match="token 2 is not a number"):
        run(next_log_probs, [6], forbidden=(), constraints=[Automaton([(2,)])])


def test_a_search_without_constraints_selects_no_banks(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*arguments: object) -> None:
        raise AssertionError("the banks were used")

    monkeypatch.setattr("nmt.decoding.constraints.Banks.select", fail)
    assert run(constant(-9.0, -1.0, -1.0), [4, 3], constraints=[None, None])
    assert run(constant(-9.0, -1.0, -1.0), [4, 3])
