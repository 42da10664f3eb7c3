"""The built-in search processors against naive twins and exhaustive search, and their construction."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toy_processors import no_repeat, prefix
from toy_search import BOS, NextLogProbs, alphas, assert_same, constant, exhaustive_search, run, tables

from nmt.config import DecodingConfig
from nmt.decoding.processors import (
    PROCESSORS,
    NoRepeatNgram,
    NoRepeatNgramOptions,
    Prefix,
    PrefixOptions,
    SearchProcessor,
    build_processor,
    configured_processors,
)
from nmt.decoding.search import Hypothesis
from nmt.errors import UserError


@pytest.mark.parametrize(
    ("size", "ids", "log_prob"),
    [
        (1, (2, 3), -4.5),  # 2, 3, then only EOS is left
        (2, (2, 2, 3, 2), -5.5),  # after 2 2 3 2 both 2 and 3 would repeat a pair
        (3, (2, 2, 2, 3, 2, 2), -6.5),  # the sequence is cut by the maximum length of 7
    ],
)
def test_no_repeat_ngram_by_hand(size: int, ids: tuple[int, ...], log_prob: float) -> None:
    table = constant(-9.0, -3.0, -0.5, -1.0)
    [[found]] = run(table, [7], processors=[no_repeat(size)], beam_size=1, length_penalty=0.0)
    assert found == Hypothesis(ids, log_prob, log_prob)


@given(
    ids=st.integers(1, 9).flatmap(
        lambda length: st.lists(
            st.lists(st.lists(st.integers(0, 4), min_size=length, max_size=length), min_size=2, max_size=2),
            min_size=1,
            max_size=3,
        )
    ),
    size=st.integers(1, 4),
)
def test_no_repeat_ngram_is_its_naive_twin(ids: list[list[list[int]]], size: int) -> None:
    with_bos = torch.tensor([[[BOS, *one] for one in row] for row in ids])
    log_probs = torch.arange(-5.0, 0.0).expand(len(ids), 2, 5)
    found = no_repeat(size)(log_probs.clone(), with_bos)
    for row, row_found in zip(ids, found.tolist(), strict=True):
        for one, values in zip(row, row_found, strict=True):
            grams = {tuple(one[i : i + size]) for i in range(len(one) - size + 1)}
            start = one[len(one) - size + 1 :] if len(one) >= size else None
            banned = [start is not None and (*start, new) in grams for new in range(5)]
            assert values == [-math.inf if banned[new] else new - 5.0 for new in range(5)]


@given(table=tables, alpha=alphas, data=st.data())
def test_a_prefix_in_a_wide_beam_is_exhaustive(
    table: NextLogProbs, alpha: float, data: st.DataObject
) -> None:
    """Several sentences, each with its prefix; a prefix that is too long is cut."""
    max_lengths = data.draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    given_ids = st.lists(st.integers(2, 4), max_size=6).map(tuple)
    prefixes = [data.draw(given_ids) for _ in max_lengths]
    options = {"beam_size": 120, "nbest": 5, "length_penalty": alpha}
    found = run(table, max_lengths, processors=[prefix(*prefixes)], **options)
    for sentence, (hypotheses, max_length, start) in enumerate(
        zip(found, max_lengths, prefixes, strict=True)
    ):
        start = start[: max_length - 1]
        every = exhaustive_search(
            table,
            sentence,
            5,
            max_length,
            alpha,
            lambda ids, new, start=start: len(ids) >= len(start) or new == start[len(ids)],
        )
        assert_same(hypotheses, every)


def test_every_processor_is_built_by_name() -> None:
    assert set(PROCESSORS) == {"no_repeat_ngram"}  # prefixes differ between sentences, so no option sets them
    for name, kind in PROCESSORS.items():
        assert dataclasses.is_dataclass(kind.Options)
        assert kind().options == kind.Options()
        assert type(build_processor(name, {})) is kind
    assert build_processor("no_repeat_ngram", {"size": 4}).options == NoRepeatNgramOptions(4)
    assert Prefix(PrefixOptions(((5, 6),))).options == PrefixOptions(((5, 6),))
    assert Prefix().options == PrefixOptions()


NGRAM = "no_repeat_ngram"


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("repeat", {}, ": there is no processor repeat. Choose from no_repeat_ngram."),
        ("prefix", {}, ": there is no processor prefix. Choose from no_repeat_ngram."),
        (
            NGRAM,
            {"sise": 1},
            ".sise: not an option of the processor no_repeat_ngram. It has size. Did you mean "
            "decoding.processors.no_repeat_ngram.size?",
        ),
        (NGRAM, {"size": 2.5}, ".size=2.5: must be a whole number."),
        (NGRAM, {"size": 0}, ".size=0: must be between 1 and 100."),
    ],
)
def test_what_cannot_be_built_is_named(name: str, options: dict[str, Any], message: str) -> None:
    config = DecodingConfig(processors={name: options})
    for build in (lambda: build_processor(name, options), lambda: configured_processors(config)):
        with pytest.raises(UserError) as caught:
            build()
        assert str(caught.value) == f"decoding.processors.{name}{message}"


@dataclass(frozen=True)
class PenaltyOptions:
    strength: float = 1.0


class Penalty(SearchProcessor):
    """A processor of a plugin: lowers the log-probability of one id."""

    Options = PenaltyOptions

    def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        log_probs[:, :, 2] -= self.options.strength
        return log_probs


def test_options_choose_processors_of_plugins_in_their_order(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PROCESSORS, "penalty", Penalty)
    config = DecodingConfig(
        no_repeat_ngram=4, processors={"penalty": {"strength": 2}, "no_repeat_ngram": {"size": 5}}
    )
    assert configured_processors(DecodingConfig()) == []
    found = configured_processors(config)
    assert [type(one) for one in found] == [NoRepeatNgram, Penalty, NoRepeatNgram]
    assert [one.options for one in found] == [
        NoRepeatNgramOptions(4),
        PenaltyOptions(2.0),
        NoRepeatNgramOptions(5),
    ]
    [default] = configured_processors(DecodingConfig(processors={"no_repeat_ngram": None, "penalty": {}}))
    assert default.options == PenaltyOptions(1.0)
    table = constant(-9.0, -3.0, -0.5, -1.0)
    for strength, log_prob in ((0.25, -0.75), (2.0, -1.0)):
        [one] = configured_processors(DecodingConfig(processors={"penalty": {"strength": strength}}))
        [[hypothesis]] = run(table, [2], processors=[one], beam_size=1, length_penalty=0.0)
        assert hypothesis.log_prob == log_prob - 3.0  # EOS


def test_processors_apply_behind_the_prefix_alone() -> None:
    """A prefix that repeats a token remains, with the log-probabilities of the model."""
    table = constant(-9.0, -3.0, -0.5, -1.0)
    with_others = Prefix(PrefixOptions(((2, 2, 3), ())), [no_repeat(1), Penalty()])
    [[first], [second]] = run(table, [5, 5], processors=[with_others], beam_size=1, length_penalty=0.0)
    assert first == Hypothesis((2, 2, 3), -0.5 - 0.5 - 1.0 - 3.0, -5.0)  # then only EOS is left
    assert second == Hypothesis((3, 2), -1.0 - 1.5 - 3.0, -5.5)
