"""The attention that a search collects: each row matches its hypothesis and token."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_search import NextLogProbs, ToyModel, alphas, digits, random_table, run, tables

from nmt.decoding import search
from nmt.decoding.search import Hypothesis


def expected(sentence: int, hypothesis: Hypothesis) -> list[list[float]]:
    """Returns `toy_search.history` of each token: the ids before it."""
    ids = hypothesis.ids
    return [[sentence, digits(ids[:length]), length] for length in range(len(ids) + 1)]


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
        for one in hypotheses:
            assert one.attention is not None
            assert one.attention.tolist() == expected(sentence, one)


@pytest.mark.parametrize("attention", [False, True])
def test_attention_is_asked_for_at_every_step_or_never(attention: bool) -> None:
    model = ToyModel(random_table(7, vocab=5, grid=30))
    found = run(model, [5, 3], attention=attention, beam_size=2)
    assert model.attentions == [attention] * len(model.widths)
    assert [isinstance(one.attention, torch.Tensor) for [one] in found] == [attention, attention]
