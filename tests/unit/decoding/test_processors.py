"""Search processors: the built-in ones against naive twins, their construction, and their use in search."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from toy_search import (
    BOS,
    EOS,
    AtMost,
    NextLogProbs,
    Recorder,
    ToyModel,
    ToyState,
    Where,
    alphas,
    assert_same,
    constant,
    exhaustive_search,
    no_repeat,
    prefix,
    run,
    tables,
)

from nmt.config import DecodingConfig
from nmt.decoding import search
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
from nmt.decoding.search import Hypothesis, StepOutput
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

    class Same(ToyModel):
        def step(self, ids: Tensor, state: ToyState, *, attention: bool = False) -> StepOutput[ToyState]:
            return StepOutput(kept, super().step(ids, state).state)

    run(Same(constant(0.0, 0.0, 0.0)), [3], forbidden=(), beam_size=1, processors=[prefix((0, 2))])
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
