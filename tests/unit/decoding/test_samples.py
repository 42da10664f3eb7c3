"""Sampling: the distribution, its options, and samples that depend on nothing but their line."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_search import (
    BOS,
    EOS,
    NextLogProbs,
    ToyModel,
    ToyState,
    Where,
    constant,
    has_own_attention,
    run,
    search_input,
    tables,
)
from toys import CopyModel, WordTokenizer, translator_of

from nmt.config import DecodingConfig
from nmt.decoding.processors import Prefix, PrefixOptions, SearchProcessor
from nmt.decoding.sampling import Sampling, _draw, _keys, sample
from nmt.decoding.scorers import LengthPenalty
from nmt.decoding.scoring import forced_score
from nmt.decoding.search import Hypothesis
from nmt.errors import UserError


def draw(
    model: NextLogProbs | ToyModel,
    max_lengths: Sequence[int],
    samples: int = 1,
    *,
    sentences: Sequence[int] | None = None,
    sources: Sequence[Sequence[int]] | None = None,
    forbidden: Sequence[int] = (BOS,),
    processors: Sequence[SearchProcessor] = (),
    attention: bool = False,
    **options: Any,
) -> list[list[Hypothesis]]:
    """Draws from `ToyModel`; the source of a sentence is its number unless `sources` has others."""
    model = model if isinstance(model, ToyModel) else ToyModel(model)
    sentences = range(len(max_lengths)) if sentences is None else sentences
    return sample(
        model.step,
        ToyState.of(list(sentences)),
        search_input(max_lengths, [[sentence] for sentence in sentences] if sources is None else sources),
        Sampling(samples, **options),
        scorer=LengthPenalty(0.6),
        forbidden=forbidden,
        processors=processors,
        attention=attention,
    )


def logs(*shares: float) -> NextLogProbs:
    return constant(-30.0, *(math.log(share) if share else -math.inf for share in shares))


def shares_of_first_ids(found: list[Hypothesis]) -> dict[int, float]:
    counts = Counter(one.ids[0] if one.ids else EOS for one in found)
    return {each: count / len(found) for each, count in counts.items()}


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({}, {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}),
        ({"temperature": 0.5}, {1: 1 / 30, 2: 4 / 30, 3: 9 / 30, 4: 16 / 30}),
        ({"temperature": 1e-3}, {4: 1.0}),
        ({"temperature": 1e-40}, {4: 1.0}),
        ({"top_k": 2}, {3: 3 / 7, 4: 4 / 7}),
        ({"top_k": 100}, {1: 0.1, 2: 0.2, 3: 0.3, 4: 0.4}),
        ({"top_p": 0.69}, {3: 3 / 7, 4: 4 / 7}),
        ({"top_p": 0.71}, {2: 2 / 9, 3: 3 / 9, 4: 4 / 9}),
        ({"top_p": 1e-9}, {4: 1.0}),
        ({"top_p": 0.5, "top_k": 3}, {3: 3 / 7, 4: 4 / 7}),  # shares of the three: 2/9, 3/9, 4/9
    ],
    ids=str,
)
def test_options_of_the_distribution(options: dict[str, float], expected: dict[int, float]) -> None:
    [found] = draw(logs(0.1, 0.2, 0.3, 0.4), [30], 4_000, **options)
    assert shares_of_first_ids(found) == pytest.approx(expected, abs=0.03)


@given(tables, st.lists(st.integers(1, 5), min_size=1, max_size=4))
def test_one_candidate_is_greedy_search(table: NextLogProbs, max_lengths: list[int]) -> None:
    greedy = run(table, max_lengths, beam_size=1)
    for options in ({"top_k": 1}, {"top_p": 1e-12}):
        assert draw(table, max_lengths, **options) == greedy


@given(
    tables,
    st.lists(st.tuples(st.integers(0, 5), st.integers(1, 5)), min_size=1, max_size=6, unique=True),
    st.integers(1, 3),
    st.data(),
)
def test_samples_are_those_of_the_line_alone(
    table: NextLogProbs, lines: list[tuple[int, int]], samples: int, data: st.DataObject
) -> None:
    order = data.draw(st.permutations(lines))
    together = draw(
        table, [limit for _, limit in order], samples, sentences=[sentence for sentence, _ in order]
    )
    for (sentence, limit), found in zip(order, together, strict=True):
        assert found == draw(table, [limit], samples, sentences=[sentence])[0]


def test_more_samples_begin_with_the_same_ones() -> None:
    few, many = (Counter(one.ids for one in draw(logs(0.2, 0.4, 0.4), [9], count)[0]) for count in (5, 8))
    assert few <= many


def test_seed_and_source_choose_the_samples() -> None:
    table = logs(0.1, 0.3, 0.3, 0.3)
    base = draw(table, [20], 5)
    assert draw(table, [20], 5) == base
    assert draw(table, [20], 5, seed=2) != base
    assert draw(table, [20], 5, sources=[[7, 8]]) != base
    twice = draw(table, [20, 20], 5, sources=[[0], [0]])
    assert twice[0] == twice[1] == base[0]


@given(tables, st.lists(st.integers(1, 4), min_size=1, max_size=4), st.integers(1, 3))
def test_log_probabilities_are_those_of_forced_scoring(
    table: NextLogProbs, max_lengths: list[int], samples: int
) -> None:
    found = draw(table, max_lengths, samples, temperature=2.0, top_p=0.9)
    for sentence, (limit, hypotheses) in enumerate(zip(max_lengths, found, strict=True)):
        assert len(hypotheses) == samples
        assert hypotheses == sorted(hypotheses, key=lambda one: -one.score)
        for one in hypotheses:
            assert len(one.ids) < limit and BOS not in one.ids
            [scored] = forced_score(
                ToyModel(table).step, ToyState.of([sentence]), [one.ids], bos_id=BOS, eos_id=EOS
            )
            assert one.log_prob == pytest.approx(sum(scored), abs=1e-5)


def test_a_sample_ends_at_its_maximum_length_even_if_that_is_impossible() -> None:
    [[one]] = draw(constant(-9.0, -math.inf, -0.1), [4])
    assert one.ids == (2, 2, 2)


def test_processors_apply() -> None:
    [found] = draw(logs(0.25, 0.25, 0.25, 0.25), [9], 50, processors=[Where(lambda ids, new: new == 3)])
    assert not any(3 in one.ids for one in found)
    prefix = Prefix(PrefixOptions(((4, 4),)))
    [found] = draw(logs(0.4, 0.2, 0.2, 0.2), [9], 50, processors=[prefix])
    assert all(one.ids[:2] == (4, 4) for one in found)


def test_rounding_of_probabilities_changes_no_draw() -> None:
    options = Sampling(1000)
    keys = _keys(options, [1, 2, 3], 4).T  # (4, 1000)
    log_probs = torch.randn(4, 1, 8000, generator=torch.Generator().manual_seed(1)).mul(2).log_softmax(-1)
    noise = torch.randn(log_probs.shape, generator=torch.Generator().manual_seed(2)) * 1e-6
    for chosen in (options, replace(options, top_k=50), replace(options, temperature=0.5)):
        ids, values = _draw(log_probs, keys, chosen)
        others, _ = _draw(log_probs + noise, keys, chosen)
        assert torch.equal(ids, others)
        assert torch.equal(values, log_probs[:, 0].gather(1, ids))
    assert len(_draw(log_probs, keys, options)[0].unique()) > 1000


def test_many_ids_have_the_distribution_of_the_model() -> None:
    options = Sampling(20_000)
    keys = _keys(options, [4], 1).T
    log_probs = torch.linspace(0, -6, 300).log_softmax(-1)[None, None]
    ids, _ = _draw(log_probs, keys, options)
    expected = log_probs.exp().flatten() * 20_000
    found = ids.flatten().bincount(minlength=300)
    chi = float(((found - expected) ** 2 / expected).sum())
    assert 200 < chi < 400  # 299 degrees of freedom: 299 +- 24


def test_nan_is_an_error() -> None:
    with pytest.raises(FloatingPointError, match=r"the log-probability of token 1 is not a number"):
        draw(constant(-1.0, math.nan, -1.0), [5])


def test_attention_follows_the_samples() -> None:
    found = draw(logs(0.3, 0.4, 0.3), [6, 3, 6], 4, attention=True)
    for sentence, hypotheses in enumerate(found):
        assert all(has_own_attention(sentence, one) for one in hypotheses)


def test_a_translator_draws_samples() -> None:
    config = DecodingConfig(samples=3, temperature=1.0, seed=5)
    tokenizer = WordTokenizer()
    tokenizer.words = [f"w{number}" for number in range(200)]  # all that may be drawn
    translator = translator_of([CopyModel()], tokenizer, config)
    lines = ["w1 w2 w3", "", "w4"]
    found = translator.translate(lines)
    assert [len(one.hypotheses) for one in found] == [3, 1, 3]
    assert translator.translate(["w4"])[0] == found[2]


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"samples": 4, "nbest": 2}, r"decoding\.nbest=2: with decoding\.samples=4 all samples are returned"),
        ({"temperature": 0.0}, r"decoding\.temperature=0\.0: must be "),
        ({"top_p": 0.0}, r"decoding\.top_p=0\.0: must be "),
        ({"samples": -1}, r"decoding\.samples=-1: must be "),
    ],
)
def test_options_are_checked(options: dict[str, float], message: str) -> None:
    with pytest.raises(UserError, match=message):
        DecodingConfig(**options)
