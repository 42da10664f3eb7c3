"""Search with processors: their state, their order, and constraints that forbid every choice."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toy_processors import AtMost, Recorder, Where, no_repeat, prefix
from toy_search import (
    BOS,
    EOS,
    NextLogProbs,
    alphas,
    assert_same,
    constant,
    exhaustive_search,
    run,
    search_input,
    tables,
)

from nmt.config import DecodingConfig
from nmt.decoding import search
from nmt.decoding.processors import SearchProcessor
from nmt.decoding.search import Hypothesis, beam_search
from nmt.decoding.step import StepOutput


@given(table=tables, alpha=alphas, seed=st.integers(0, 1000), max_length=st.integers(1, 5))
def test_any_constraint_in_a_wide_beam_is_exhaustive(
    table: NextLogProbs, alpha: float, seed: int, max_length: int
) -> None:
    """If the constraint forbids every sequence, the search falls back and finds some hypothesis."""

    def allowed(ids: tuple[int, ...], new: int) -> bool:
        return hash((seed, *ids, new)) % 3 > 0

    every = exhaustive_search(table, 0, 5, max_length, alpha, allowed)
    [found] = run(
        table,
        [max_length],
        processors=[Where(lambda ids, new: not allowed(ids, new))],
        beam_size=120,
        nbest=5,
        length_penalty=alpha,
    )
    if every:
        assert_same(found, every)
    else:
        assert found


@pytest.mark.parametrize("interval", [1, 3])
@given(
    table=tables,
    max_lengths=st.lists(st.integers(1, 7), min_size=1, max_size=5),
    beam=st.integers(1, 6),
    limit=st.integers(1, 2),
    alpha=alphas,
)
def test_a_state_follows_its_hypotheses(
    interval: int, table: NextLogProbs, max_lengths: list[int], beam: int, limit: int, alpha: float
) -> None:
    """A processor with incremental counts equals its twin that counts again at every step."""
    options = {"beam_size": beam, "nbest": beam, "length_penalty": alpha}
    twin = Where(lambda ids, new: ids.count(new) >= limit)
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(search, "check_interval", lambda device: interval)
        found = run(table, max_lengths, processors=[AtMost(limit)], **options)
        assert found == run(table, max_lengths, processors=[twin], **options)


@given(table=tables, beam=st.integers(1, 5), data=st.data())
def test_a_sentence_does_not_depend_on_its_neighbours(
    table: NextLogProbs, beam: int, data: st.DataObject
) -> None:
    max_lengths, starts = [6, 2, 5, 5, 1, 7], [(2, 2), (), (3,), (4, 2, 4), (2,), ()]
    options = {"beam_size": beam, "nbest": beam}
    together = run(table, max_lengths, processors=[prefix(*starts), AtMost(2)], **options)
    order = data.draw(st.permutations(range(6)))[: data.draw(st.integers(1, 6))]
    some = [prefix(*(starts[i] for i in order)), AtMost(2)]
    apart = run(table, [max_lengths[i] for i in order], sentences=order, processors=some, **options)
    assert apart == [together[i] for i in order]


@given(table=tables, beam=st.integers(1, 4), max_lengths=st.lists(st.integers(1, 5), min_size=1, max_size=3))
def test_processors_that_change_nothing_change_nothing(
    table: NextLogProbs, beam: int, max_lengths: list[int]
) -> None:
    options = {"beam_size": beam, "nbest": beam}
    idle = [no_repeat(9), prefix(*[()] * len(max_lengths)), Recorder()]
    assert run(table, max_lengths, processors=idle, **options) == run(table, max_lengths, **options)


def test_processors_follow_each_other_and_their_values_are_summed() -> None:
    class Cut(SearchProcessor):
        def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
            return torch.where(log_probs == -4.0, -8.0, log_probs)

    class Doubled(SearchProcessor):
        def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
            return log_probs * 2

    table = constant(-9.0, -3.0, -2.0)
    [[one]] = run(table, [2], processors=[Doubled(), Cut()], beam_size=1, length_penalty=0.0)
    assert one == Hypothesis((), -6.0, -6.0)  # id 2: 2 * -2 = -4, which becomes -8
    [[other]] = run(table, [2], processors=[Cut(), Doubled()], beam_size=1, length_penalty=0.0)
    assert other == Hypothesis((2,), -10.0, -10.0)  # 2 * -2 for 2 and 2 * -3 for EOS


def test_a_processor_learns_the_batch_and_sees_every_id() -> None:
    recorder = Recorder()
    run(constant(-9.0, -50.0, -1.0, -2.0), [3, 2], processors=[recorder], beam_size=2, length_penalty=0.0)
    [start] = recorder.starts
    assert (start.num_sentences, list(start.max_lengths), start.bos_id, start.eos_id) == (2, [3, 2], BOS, EOS)
    assert start.device == torch.device("cpu")
    assert recorder.shapes == [((2, 1, 4), (2, 1, 1)), ((2, 2, 4), (2, 2, 2)), ((1, 2, 4), (1, 2, 3))]


def test_the_log_probabilities_of_the_step_stay_as_they_are() -> None:
    kept = torch.tensor([[[-9.0, -3.0, -1.0]]])
    before = kept.clone()

    def step(ids: Tensor, state: Recorded, *, attention: bool = False) -> StepOutput[Recorded]:
        return StepOutput(kept, state)

    class Recorded:
        def select(self, rows: Tensor) -> Recorded:
            return self

    beam_search(
        step,
        Recorded(),
        search_input([3]),
        DecodingConfig(beam_size=1),
        processors=[prefix((0, 2))],
    )
    assert torch.equal(kept, before)


def test_eos_forbidden_at_the_maximum_length_is_chosen_all_the_same() -> None:
    never_ends = Where(lambda ids, new: new == EOS)
    [found] = run(
        constant(-9.0, -5.0, -1.0, -2.0),
        [3],
        processors=[never_ends],
        beam_size=2,
        nbest=2,
        length_penalty=0.0,
    )
    assert found == [Hypothesis((2, 2), -7.0, -7.0), Hypothesis((2, 3), -8.0, -8.0)]


def test_at_the_maximum_length_those_that_may_end_go_before_those_that_must() -> None:
    not_after_2 = Where(lambda ids, new: new == EOS and ids[-1:] != (3,))
    [found] = run(
        constant(-9.0, -5.0, -1.0, -2.0),
        [2],
        processors=[not_after_2],
        beam_size=2,
        nbest=2,
        length_penalty=0.0,
    )
    assert found == [Hypothesis((3,), -7.0, -7.0)]  # not (2,), which is more probable


def test_a_dead_end_is_left_by_the_models_own_choice() -> None:
    """Sentence 1 reaches a dead end at its second token, sentence 0 does not."""
    dead_end = Where(lambda ids, new: len(ids) == 1 and ids[0] == 3)
    found = run(
        lambda sentence, ids: [-9.0, -4.0, -3.0, -1.0] if sentence else [-9.0, -4.0, -1.0, -3.0],
        [3, 3],
        processors=[dead_end],
        beam_size=1,
        length_penalty=0.0,
    )
    assert found == [[Hypothesis((2, 2), -6.0, -6.0)], [Hypothesis((3, 3), -6.0, -6.0)]]


def test_a_dead_end_ends_a_sentence_that_has_a_result() -> None:
    dead_end = Where(lambda ids, new: len(ids) == 1)
    [found] = run(
        constant(-9.0, -1.0, -0.25),
        [5],
        processors=[dead_end],
        beam_size=2,
        nbest=2,
        length_penalty=0.0,
    )
    assert found == [Hypothesis((), -1.0, -1.0)]


@given(
    table=tables,
    seed=st.integers(0, 1000),
    beam=st.integers(1, 5),
    max_lengths=st.lists(st.integers(1, 6), min_size=1, max_size=4),
    share=st.integers(1, 4),
)
def test_no_constraint_leaves_a_sentence_without_a_result(
    table: NextLogProbs, seed: int, beam: int, max_lengths: list[int], share: int
) -> None:
    strict = Where(lambda ids, new: hash((seed, *ids, new)) % 4 < share)  # share 4 forbids everything
    found = run(table, max_lengths, processors=[strict], beam_size=beam, nbest=beam)
    assert all(found)
    for hypotheses, max_length in zip(found, max_lengths, strict=True):
        assert all(len(one.ids) < max_length for one in hypotheses)


def test_nan_is_an_error_with_processors_too() -> None:
    with pytest.raises(FloatingPointError, match="token 1 is not a number"):
        run(constant(-1.0, float("nan"), -1.0), [3], processors=[no_repeat(1)], beam_size=1)
