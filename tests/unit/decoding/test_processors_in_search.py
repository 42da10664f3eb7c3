"""Search with processors: their state, their order, and constraints that forbid every choice."""

from __future__ import annotations

from collections.abc import Callable

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
from nmt.decoding.search import Hypothesis, StepOutput, beam_search


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


MODEL = constant(-9.0, -5.0, -1.0, -2.0)


def reach_3_second(sentence: int, ids: tuple[int, ...]) -> list[float]:
    return [-9.0, -4.0, -3.0, -1.0] if sentence else [-9.0, -4.0, -1.0, -3.0]


@pytest.mark.parametrize(
    ("table", "max_lengths", "forbids", "width", "expected"),
    [
        # EOS is forbidden, but at the maximum length it is chosen all the same.
        (MODEL, [3], lambda ids, new: new == EOS, 2, [{(2, 2): -7.0, (2, 3): -8.0}]),
        # At the maximum length, those that may end go before those that must, such as the more probable (2,).
        (MODEL, [2], lambda ids, new: new == EOS and ids[-1:] != (3,), 2, [{(3,): -7.0}]),
        # Sentence 1 reaches a dead end at its second token, and leaves it by the choice of the model.
        (
            reach_3_second,
            [3, 3],
            lambda ids, new: len(ids) == 1 and ids[0] == 3,
            1,
            [{(2, 2): -6.0}, {(3, 3): -6.0}],
        ),
        # A dead end ends a sentence that has a result.
        (constant(-9.0, -1.0, -0.25), [5], lambda ids, new: len(ids) == 1, 2, [{(): -1.0}]),
    ],
    ids=["end", "may and must", "dead end", "result"],
)
def test_what_forbids_every_choice(
    table: NextLogProbs,
    max_lengths: list[int],
    forbids: Callable[[tuple[int, ...], int], bool],
    width: int,
    expected: list[dict[tuple[int, ...], float]],
) -> None:
    options = {"beam_size": width, "nbest": width, "length_penalty": 0.0}
    found = run(table, max_lengths, processors=[Where(forbids)], **options)
    assert found == [[Hypothesis(ids, total, total) for ids, total in one.items()] for one in expected]


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
