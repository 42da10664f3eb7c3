"""Forced scoring of given targets: the log-probabilities that a search would sum."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toy_search import BOS, EOS, NextLogProbs, ToyModel, ToyState, constant, tables

from nmt.decoding.scoring import ScoredTarget, forced_score


def score(
    model: NextLogProbs | ToyModel, targets: Sequence[Sequence[int]], sentences: Sequence[int] | None = None
) -> list[tuple[float, ...]]:
    model = model if isinstance(model, ToyModel) else ToyModel(model)
    sentences = range(len(targets)) if sentences is None else sentences
    return forced_score(model.step, ToyState.of(list(sentences)), targets, bos_id=BOS, eos_id=EOS)


def test_targets_that_have_ended_leave_the_batch() -> None:
    model = ToyModel(constant(-1.0, -2.0, -3.0))
    score(model, [(2,), (2, 2, 2), (), (2,)])
    assert model.widths == [(4, 1), (3, 1), (1, 1), (1, 1)]


@given(
    table=tables,
    targets=st.lists(st.lists(st.integers(2, 4), max_size=6), max_size=6),
    data=st.data(),
)
def test_every_target_is_scored_as_if_alone(
    table: NextLogProbs, targets: list[list[int]], data: st.DataObject
) -> None:
    expected = [
        tuple(table(sentence, tuple(ids[:i]))[[*ids, EOS][i]] for i in range(len(ids) + 1))
        for sentence, ids in enumerate(targets)
    ]
    assert score(table, targets) == expected
    impossible = constant(-1.0, -2.0, -math.inf)
    assert score(impossible, [(2,), ()]) == [(-math.inf, -2.0), (-2.0,)]
    order = data.draw(st.permutations(range(len(targets))))
    assert score(table, [targets[i] for i in order], order) == [expected[i] for i in order]


def test_nan_is_an_error() -> None:
    with pytest.raises(FloatingPointError, match="not a number"):
        score(constant(-1.0, -2.0, math.nan), [(), (2,)])


def test_the_total_counts_eos() -> None:
    assert ScoredTarget((-1.5, -0.25)).log_prob == -1.75
    assert ScoredTarget.of_blank_source([]) == ScoredTarget((0.0,))
    assert ScoredTarget.of_blank_source([7, 8]) == ScoredTarget((-math.inf, -math.inf, -math.inf))
    assert ScoredTarget.of_blank_source([7]).log_prob == -math.inf
