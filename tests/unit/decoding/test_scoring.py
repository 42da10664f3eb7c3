"""Forced scoring of given targets: by a step function, and by the translator in batches of pairs."""

from __future__ import annotations

import math
from collections.abc import Sequence

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from toy_search import BOS, EOS, NextLogProbs, ToyModel, ToyState, constant, tables
from toys import CopyModel, WordTokenizer, pairs_of, translator_of

from nmt.config import DecodingConfig
from nmt.decoding.processors import NoRepeatNgram, NoRepeatNgramOptions
from nmt.decoding.scoring import ScoredTarget, forced_score
from nmt.decoding.translator import Translator
from nmt.errors import UserError


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


INF = math.inf


def translator(model: CopyModel | None = None, **options: float) -> Translator:
    tokenizer = WordTokenizer(nothing=["nothing"])
    return translator_of([model or CopyModel()], tokenizer, DecodingConfig(**options))


def test_by_hand() -> None:
    """The model gives -0.0625 to every copied token and -9 to every other token."""
    pairs = {
        ("w1 w2", "w1 w2"): (-0.0625, -0.0625, -0.0625),
        ("w1 w2", "w1"): (-0.0625, -9.0),
        ("w1", "w2"): (-9.0, -0.0625),
        ("w1", "w2 w3 w1"): (-9.0, -9.0, -9.0, -0.0625),
        ("w3", ""): (-9.0,),
        ("w3", " \u3000"): (-9.0,),
        ("w3", "nothing"): (-9.0,),
        ("", ""): (0.0,),
        ("\t", "nothing"): (0.0,),
        ("", "w1 w2"): (-INF, -INF, -INF),
        ("nothing", "w1"): (-INF, -INF),
    }
    found = pairs_of(translator(max_sentences=3)).score(list(pairs))
    assert found == [ScoredTarget(log_probs) for log_probs in pairs.values()]
    assert found[0].log_prob == -0.1875


words = st.lists(st.sampled_from([f"w{number}" for number in range(9)]), max_size=6).map(" ".join)


@given(
    pairs=st.lists(st.tuples(words, words), max_size=12),
    max_tokens=st.integers(1, 40),
    max_sentences=st.integers(1, 5),
)
def test_every_pair_gets_its_own_score(
    pairs: list[tuple[str, str]], max_tokens: int, max_sentences: int
) -> None:
    expected = []
    for source, target in pairs:
        wanted, given_ids = [*source.split(), "", *[""] * 9], [*target.split(), ""]
        copies = (-0.0625 if one == other else -9.0 for one, other in zip(wanted, given_ids, strict=False))
        blank = (0.0,) if not target else (-INF,) * len(given_ids)
        expected.append(ScoredTarget(tuple(copies) if source else blank))
    assert pairs_of(translator(max_tokens=max_tokens, max_sentences=max_sentences)).score(pairs) == expected


def test_batches_are_by_the_longer_side_and_finished_ones_are_counted() -> None:
    model, counts = CopyModel(), []
    sides = [(3, 1), (1, 9), (2, 2), (12, 1), (1, 1)]
    pairs = [(" ".join(["w"] * source), " ".join(["w"] * target)) for source, target in sides]
    pairs_of(translator(model, max_tokens=20, max_sentences=3)).score(
        [*pairs, ("", "w"), (" ", "")], counts.append
    )
    assert model.batches == [(13,), (2, 4), (3, 2)]
    assert counts == [2, 1, 2, 2]


def test_long_sources_are_cut_as_for_translating() -> None:
    text = " ".join(f"w{number}" for number in range(20))
    cut, whole = pairs_of(translator(max_source_tokens=10)).score([(text, "w0 w1"), ("w0 w1", "w0 w1")])
    assert (cut.truncated, whole.truncated) == (21, 0)
    assert len(cut.token_log_probs) == 3


def test_processors_and_forbidden_ids_do_not_count() -> None:
    model = translator(no_repeat_ngram=1)
    assert pairs_of(model).score([("w1 w1", "w1 w1")]) == [ScoredTarget((-0.0625,) * 3)]


def test_a_callers_processors_come_after_those_of_the_options() -> None:
    mine = NoRepeatNgram(NoRepeatNgramOptions(2))
    config = DecodingConfig(no_repeat_ngram=5)
    both = translator_of([CopyModel()], WordTokenizer(), config, processors=[mine]).searcher.processors
    assert [one.options for one in both] == [NoRepeatNgramOptions(5), NoRepeatNgramOptions(2)]
    assert both[1] is mine


def test_too_little_memory_is_told_in_words() -> None:
    class Large(CopyModel):
        def start(self, batch):
            raise torch.OutOfMemoryError

    with pytest.raises(UserError, match=r"decoding\.max_tokens=8192: .* Lower it"):
        pairs_of(translator(Large())).score([("w1", "w1")])
