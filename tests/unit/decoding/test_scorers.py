"""Hypothesis scorers: GNMT's length penalty by hand, and an example of a user's scorer."""

from __future__ import annotations

import math
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toy_search import alphas, constant, run

from nmt.decoding.scorers import HypothesisScorer, LengthPenalty
from nmt.decoding.search import Hypothesis


@pytest.mark.parametrize(
    ("alpha", "length", "penalty"),
    [(0.0, 9, 1.0), (1.0, 1, 1.0), (1.0, 7, 2.0), (0.5, 19, 2.0), (2.0, 7, 4.0)],
)
def test_length_penalty_by_hand(alpha: float, length: int, penalty: float) -> None:
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
