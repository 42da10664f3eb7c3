"""Beam search against a plain-Python twin, exhaustive search and hand-computed cases; hypothesis scorers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toy_search import (
    BOS,
    EOS,
    NextLogProbs,
    ToyModel,
    alphas,
    constant,
    exhaustive_search,
    has_own_attention,
    penalised,
    random_table,
    run,
    tables,
)

from nmt.config import DecodingConfig
from nmt.decoding import beams, search
from nmt.decoding.beams import top_candidates, top_of_rows
from nmt.decoding.scorers import HypothesisScorer, LengthPenalty
from nmt.decoding.search import Hypothesis


def naive_search(
    next_log_probs: NextLogProbs,
    sentence: int,
    max_length: int,
    forbidden: Sequence[int],
    config: DecodingConfig,
) -> list[Hypothesis]:
    """Searches one sentence, one hypothesis at a time, by the rules in the docstring of the module."""
    open_ones: list[tuple[tuple[int, ...], float]] = [((), 0.0)]
    complete: list[Hypothesis] = []
    for length in range(1, max_length + 1):
        extensions = []
        for number, (ids, log_prob) in enumerate(open_ones):
            for new, change in enumerate(next_log_probs(sentence, ids)):
                if new not in forbidden and (length < max_length or new == EOS) and change > -math.inf:
                    extensions.append((-(log_prob + change), number, new, ids))
        open_ones = []
        for negative, _, new, ids in sorted(extensions)[: config.beam_size]:
            if new == EOS:
                score = penalised(-negative, length, config.length_penalty)
                complete.append(Hypothesis(ids, score, -negative))
            else:
                open_ones.append(((*ids, new), -negative))
        complete.sort(key=lambda hypothesis: -hypothesis.score)
        complete = complete[: config.nbest]
        attainable = [penalised(log_prob, max_length, config.length_penalty) for _, log_prob in open_ones]
        if len(complete) == config.nbest and all(complete[-1].score >= bound for bound in attainable):
            break
    return complete


@given(
    table=tables,
    max_lengths=st.lists(st.integers(1, 7), max_size=6),
    beam=st.integers(1, 7),
    alpha=alphas,
    interval=st.sampled_from([1, 3, 100]),
    data=st.data(),
)
def test_equals_the_naive_twin(
    table: NextLogProbs,
    max_lengths: list[int],
    beam: int,
    alpha: float,
    interval: int,
    data: st.DataObject,
) -> None:
    nbest = data.draw(st.integers(1, beam))
    forbidden = data.draw(st.sampled_from([[BOS], [BOS, 3], []]))
    config = DecodingConfig(beam_size=beam, nbest=nbest, length_penalty=alpha)
    expected = [naive_search(table, i, length, forbidden, config) for i, length in enumerate(max_lengths)]
    options = {"beam_size": beam, "nbest": nbest, "length_penalty": alpha}
    with pytest.MonkeyPatch.context() as patched:  # to look less often at what has ended changes nothing
        patched.setattr(search, "check_interval", lambda device: interval)
        assert run(table, max_lengths, forbidden=forbidden, **options) == expected


@given(table=tables, max_length=st.integers(1, 4), alpha=alphas)
def test_a_beam_wide_enough_is_exhaustive(table: NextLogProbs, max_length: int, alpha: float) -> None:
    every = exhaustive_search(table, 0, 5, max_length, alpha)
    [found] = run(
        table, [max_length], beam_size=5**max_length, nbest=min(5, len(every)), length_penalty=alpha
    )
    assert [one.score for one in found] == [score for score, _ in every[: len(found)]]
    assert all((one.score, one.ids) in every for one in found)
    assert len({one.ids for one in found}) == len(found) == min(5, len(every))


def short_or_long(sentence: int, ids: tuple[int, ...]) -> list[float]:
    """EOS at once has -2, `2 2 EOS` has -2.5: the second wins with a strong length penalty."""
    ending = {(): -2.0, (2,): -50.0, (2, 2): -0.5}
    going_on = {(): -1.0, (2,): -1.0, (2, 2): -50.0}
    return [-100.0, ending.get(ids, -50.0), going_on.get(ids, -50.0)]


@pytest.mark.parametrize(
    ("alpha", "ids", "score"),
    [
        (0.0, (), -2.0),
        (0.6, (), -2.0),  # -2.5 / (8 / 6) ** 0.6 = -2.1036 is worse than -2 / (6 / 6) ** 0.6
        (1.0, (2, 2), -1.875),  # -2.5 / (8 / 6) beats -2 / (6 / 6)
    ],
)
def test_length_penalty_by_hand(alpha: float, ids: tuple[int, ...], score: float) -> None:
    [[found]] = run(short_or_long, [6], beam_size=2, length_penalty=alpha)
    assert found.ids == ids
    assert found.score == pytest.approx(score, rel=1e-6)


def test_only_what_is_possible_is_found() -> None:
    impossible = -math.inf
    assert run(constant(-1.0, impossible, -1.0), [3]) == [[]]
    [found] = run(constant(-1.0, -1.0, impossible), [3], beam_size=2, nbest=2)
    assert [one.ids for one in found] == [()]


def test_search_stops_when_nothing_open_can_win() -> None:
    model = ToyModel(constant(-9.0, -0.5, -4.0))
    run(model, [50], beam_size=2, length_penalty=0.6)
    # (2 ...) at -4 could reach at most -4 / (55 / 6) ** 0.6 = -1.06 in 50 tokens: worse than EOS at once.
    assert model.widths == [(1, 1)]
    model = ToyModel(constant(-9.0, -0.5, -1.0))
    run(model, [50], beam_size=2, length_penalty=0.6)
    # At -1, -2, -3 it could reach -0.26, -0.53, -0.79, so the search ends after the second step.
    assert [batch for batch, _ in model.widths] == [1, 1]


def test_finished_sentences_leave_the_batch() -> None:
    def next_log_probs(sentence: int, ids: tuple[int, ...]) -> list[float]:
        ends = len(ids) == sentence
        return [-50.0, -0.1 if ends else -30.0, -30.0 if ends else -0.1]

    model = ToyModel(next_log_probs)
    found = run(model, [10, 10, 10], beam_size=2, length_penalty=0.0)
    assert [len(one.ids) for [one] in found] == [0, 1, 2]
    assert [batch for batch, _ in model.widths] == [3, 2, 1]


@pytest.mark.parametrize("when", [0, 2])
def test_nan_is_an_error(when: int) -> None:
    def next_log_probs(sentence: int, ids: tuple[int, ...]) -> list[float]:
        return [math.nan if sentence == 1 and len(ids) == when else -1.0, -5.0, -1.0]

    with pytest.raises(FloatingPointError, match=f"token {when + 1} is not a number"):
        run(next_log_probs, [6, 6], forbidden=())


@given(
    rows=st.integers(1, 40).flatmap(
        lambda size: st.lists(
            st.lists(st.sampled_from([-math.inf, -2.0, -1.5, -1.0, 0.0]), min_size=size, max_size=size),
            min_size=1,
            max_size=4,
        )
    ),
    data=st.data(),
)
def test_top_candidates_takes_the_lower_index_of_equals(rows: list[list[float]], data: st.DataObject) -> None:
    count = data.draw(st.integers(1, len(rows[0])))
    expected = [sorted(range(len(row)), key=lambda i: (-row[i], i))[:count] for row in rows]
    values, indices = top_candidates(torch.tensor(rows), count)
    assert indices.tolist() == expected
    assert values.tolist() == [[row[i] for i in places] for row, places in zip(rows, expected, strict=True)]


@given(
    seed=st.integers(0, 1000),
    num_scores=st.sampled_from([5, 63, 64, 640, 700, 1000, 8000]),
    count=st.integers(1, 9),
    values=st.sampled_from([2, 30, 10**6]),
)
def test_the_search_in_chunks_equals_that_in_rows(
    seed: int, num_scores: int, count: int, values: int
) -> None:
    """Few distinct values give many equal scores, whose order is that of their indices."""
    generator = torch.Generator().manual_seed(seed)
    scores = torch.randint(values, (4, num_scores), generator=generator).float()
    scores[scores < values // 5] = -math.inf
    count = min(count, num_scores)
    expected = top_candidates(scores, count)
    for found in (top_of_rows(scores, count), beams._sorted(scores, count)):
        assert torch.equal(found[0], expected[0]) and torch.equal(found[1], expected[1])


def test_a_row_with_nan_has_it_first() -> None:
    scores = torch.zeros(2, 1000)
    scores[1, 700] = math.nan
    values, indices = top_of_rows(scores, 3)
    assert values[0].tolist() == [0.0] * 3 and indices[0].tolist() == [0, 1, 2]
    assert math.isnan(values[1, 0].item()) and indices[1, 0] == 700


@pytest.mark.parametrize("interval", [1, 3])
@given(
    table=tables,
    max_lengths=st.lists(st.integers(1, 7), min_size=1, max_size=6),
    beam=st.integers(1, 6),
    alpha=alphas,
    data=st.data(),
)
def test_attention_follows_its_hypotheses(
    interval: int, table: NextLogProbs, max_lengths: list[int], beam: int, alpha: float, data: st.DataObject
) -> None:
    options = {"beam_size": beam, "nbest": data.draw(st.integers(1, beam)), "length_penalty": alpha}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(search, "check_interval", lambda device: interval)
        found = run(table, max_lengths, attention=True, **options)
        assert found == run(table, max_lengths, **options)
    for sentence, hypotheses in enumerate(found):
        assert all(map(has_own_attention, [sentence] * len(hypotheses), hypotheses))


@pytest.mark.parametrize("attention", [False, True])
def test_attention_is_asked_for_at_every_step_or_never(attention: bool) -> None:
    model = ToyModel(random_table(7, vocab=5, grid=30))
    found = run(model, [5, 3], attention=attention, beam_size=2)
    assert model.attentions == [attention] * len(model.widths)
    assert [isinstance(one.attention, torch.Tensor) for [one] in found] == [attention, attention]


@pytest.mark.parametrize(
    ("alpha", "length", "penalty"),
    [(0.0, 9, 1.0), (1.0, 1, 1.0), (1.0, 7, 2.0), (0.5, 19, 2.0), (2.0, 7, 4.0)],
)
def test_the_length_penalty_of_gnmt(alpha: float, length: int, penalty: float) -> None:
    scorer = LengthPenalty(alpha)
    assert scorer.penalty(length) == pytest.approx(penalty)
    log_probs = torch.tensor([[-3.0, -math.inf], [0.0, -1.0]])
    torch.testing.assert_close(scorer.score(log_probs, length), log_probs / penalty)
    bound = scorer.bound(torch.tensor([-3.0, -math.inf, -3.0]), (length, 5, 1))
    torch.testing.assert_close(bound, torch.tensor([-3.0 / penalty, -math.inf, -3.0]))


@given(
    alpha=alphas,
    log_prob=st.floats(-1000, 0, width=32, allow_subnormal=False),
    length=st.integers(1, 500),
    max_length=st.integers(1, 500),
)
def test_the_score_at_the_maximum_length_is_the_bound_to_the_bit(
    alpha: float, log_prob: float, length: int, max_length: int
) -> None:
    scorer = LengthPenalty(alpha)
    log_probs = torch.tensor([log_prob])
    bound = scorer.bound(log_probs, (max_length,))
    assert torch.equal(bound, scorer.score(log_probs, max_length))
    if length <= max_length:
        assert (scorer.score(log_probs, length) <= bound).all()


@dataclass(frozen=True)
class WordReward(HypothesisScorer):
    """Adds `reward` for every token: log_prob + reward * |Y| (He et al. 2016)."""

    reward: float

    def score(self, log_probs: Tensor, length: int) -> Tensor:
        return log_probs + self.reward * length

    def bound(self, log_probs: Tensor, max_lengths: tuple[int, ...]) -> Tensor:
        return log_probs + self.reward * torch.tensor(max_lengths)


def test_a_reward_by_hand() -> None:
    table = constant(-9.0, -1.0, -0.5)
    [[short]] = run(table, [4], scorer=WordReward(0.25), beam_size=4)
    assert short == Hypothesis((), -0.75, -1.0)
    [[long]] = run(table, [4], scorer=WordReward(1.0), beam_size=4)
    assert long == Hypothesis((2, 2, 2), 1.5, -2.5)
