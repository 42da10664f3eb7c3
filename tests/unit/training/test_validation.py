"""The criterion: its direction, and missing or non-finite values; metrics over the ranks."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest
import torch
import torch.distributed as dist

from nmt.config import DataConfig, SetConfig, SplitConfig, TrainConfig, TrainingConfig
from nmt.decoding.search import Hypothesis
from nmt.errors import UserError
from nmt.training.figures.validated import (
    Figures,
    Validation,
    criterion_for,
    criterion_sets,
    validation_metrics,
)
from nmt.training.processes.ranks import Ranks
from nmt.training.state.progress import Progress
from nmt.training.validation import ValidationStopped, _hypothesis, _packed, shared_scores


@pytest.mark.parametrize(
    ("key", "better", "worse", "words"),
    [
        ("bleu", 30.0, 29.0, "BLEU  30.00"),
        ("chrf", 60.5, 60.4, "chrF2  60.50"),
        ("chrfpp", 60.5, 60.4, "chrF2++  60.50"),
        ("ter", 55.0, 100.0, "TER  55.00"),
        ("comet", 0.85, 0.5, "COMET   0.8500"),
        ("loss", 2.25, 2.5, "loss   2.2500"),
    ],
)
def test_the_direction(key: str, better: float, worse: float, words: str) -> None:
    criterion = criterion_for(key)
    assert criterion.quality(better) > criterion.quality(worse) > -math.inf
    assert criterion.value(criterion.quality(better)) == better
    for value in (None, math.nan, math.inf):
        assert criterion.quality(value) == -math.inf
    assert criterion.figure(better) == words
    assert criterion.metric == (None if key == "loss" else key)


def test_a_value_that_is_missing() -> None:
    assert criterion_for("ter").figure(None) == "TER      -"


def test_an_unknown_criterion_is_an_error_with_the_choices() -> None:
    with pytest.raises(UserError) as caught:
        validation_metrics(TrainConfig(training=TrainingConfig(criterion="blue")))
    assert str(caught.value) == (
        "training.criterion=blue: there is no such criterion. "
        "Choose from loss, bleu, chrf, chrfpp, ter, comet."
    )


@pytest.mark.parametrize(
    ("criterion", "metrics", "expected"),
    [
        ("bleu", ["bleu", "chrf"], ["bleu", "chrf"]),
        ("loss", ["bleu", "chrf"], ["bleu", "chrf"]),
        ("ter", ["bleu", "chrf"], ["bleu", "chrf", "ter"]),
        ("chrf", ["chrfpp"], ["chrfpp", "chrf"]),
        ("loss", [], []),
    ],
)
def test_a_validation_computes_the_criterion(criterion: str, metrics: list[str], expected: list[str]) -> None:
    config = TrainConfig(training=TrainingConfig(criterion=criterion, validate_metrics=metrics))
    assert validation_metrics(config) == expected


@pytest.mark.parametrize(("key", "best"), [("ter", 2), ("loss", 3), ("bleu", 1)])
def test_the_best_validation_follows_the_direction(key: str, best: int) -> None:
    validations = [
        Figures(3.0, 2.0, {"bleu": 30.0, "ter": 60.0}),
        Figures(2.5, 2.0, {"bleu": 20.0, "ter": 50.0}),
        Figures(2.0, 2.0, {"bleu": 25.0, "ter": None}),
    ]
    progress, options = Progress(), TrainingConfig(validate_every=1, criterion=key)
    criterion = criterion_for(key)
    for found in validations:
        progress.advance()
        value = Validation({"": found}, []).criterion_value(options)
        progress.note_validation(criterion.quality(value), options)
    assert progress.best is not None and progress.best.update == best
    assert progress.worse_validations == 3 - best


def test_the_words_of_a_validation() -> None:
    scores = {"bleu": 27.304, "chrf": 56.1, "chrfpp": 55.0, "ter": None}
    words = "loss 3.000, perplexity 7.39, BLEU 27.30, chrF 56.10, chrF++ 55.00, TER -"
    assert list(Validation({"": Figures(3.0, 2.0, scores)}, []).in_words()) == [words]


def two_ranks(score: Callable[[int, str], float | None]) -> list[Any]:
    """Returns what each of two ranks, which are threads here, gets for three metrics: scores or an error."""
    store = dist.HashStore()

    def scores(rank: int) -> Any:
        ranks = Ranks(rank, 2, torch.device("cpu"), store)
        try:
            return shared_scores(["bleu", "chrf", "ter"], lambda key: score(rank, key), ranks)
        except (UserError, ValidationStopped) as error:
            return error

    with ThreadPoolExecutor(2) as threads:
        return list(threads.map(scores, range(2)))


def test_each_metric_is_computed_by_one_rank_and_known_by_all() -> None:
    computed: list[tuple[int, str]] = []

    def score(rank: int, key: str) -> float | None:
        computed.append((rank, key))
        return {"bleu": 0.1 + 0.2, "chrf": None, "ter": 7.0}[key]

    results = two_ranks(score)
    assert sorted(computed) == [(0, "bleu"), (0, "ter"), (1, "chrf")]
    assert results == [{"bleu": 0.1 + 0.2, "chrf": None, "ter": 7.0}] * 2
    assert list(results[1]) == ["bleu", "chrf", "ter"]


@pytest.mark.parametrize("error", [UserError("chrf: failed"), ValidationStopped()])
@pytest.mark.parametrize("failing", ["bleu", "chrf"])
def test_no_rank_waits_for_one_whose_metric_fails(error: Exception, failing: str) -> None:
    def score(rank: int, key: str) -> float:
        if key == failing:
            raise error
        return 1.0

    assert [(type(result), str(result)) for result in two_ranks(score)] == [(type(error), str(error))] * 2


SETS = {
    "de": Figures(2.0, math.log(8), {"bleu": 30.0, "ter": 40.0}),
    "zh-Hans": Figures(1.0, math.log(2), {"bleu": 10.0, "ter": None}),
}


def test_several_sets_have_means_and_figures_of_their_own() -> None:
    validation = Validation(SETS, [{"set": "de"}])
    assert validation.as_dict() == {
        **{"loss": 1.5, "ppl": pytest.approx(4.0), "bleu": 20.0, "ter": None},
        **{"de/loss": 2.0, "de/ppl": pytest.approx(8.0), "de/bleu": 30.0, "de/ter": 40.0},
        **{"zh-Hans/loss": 1.0, "zh-Hans/ppl": pytest.approx(2.0), "zh-Hans/bleu": 10.0, "zh-Hans/ter": None},
        "samples": [{"set": "de"}],
    }
    assert list(validation.in_words()) == [
        "loss 1.500, perplexity 4.00, BLEU 20.00, TER -",
        "  de       loss 2.000, perplexity 8.00, BLEU 30.00, TER 40.00",
        "  zh-Hans  loss 1.000, perplexity 2.00, BLEU 10.00, TER -",
    ]


@pytest.mark.parametrize(
    ("criterion", "name", "expected"),
    [
        *(("bleu", None, 20.0), ("bleu", "de", 30.0), ("loss", None, 1.5), ("loss", "zh-Hans", 1.0)),
        *(("ter", None, None), ("ter", "de", 40.0)),
    ],
)
def test_the_criterion_is_the_mean_or_a_set(criterion: str, name: str | None, expected: float | None) -> None:
    options = TrainingConfig(criterion=criterion, criterion_set=name)
    assert Validation(SETS, []).criterion_value(options) == expected


def test_the_sets_that_the_criterion_needs() -> None:
    sets = SplitConfig(sets={"a": SetConfig(), "b": SetConfig()})
    data = DataConfig(valid=sets)
    assert criterion_sets(TrainConfig()) == [""]
    assert criterion_sets(TrainConfig(data=data)) == ["a", "b"]
    assert criterion_sets(TrainConfig(data=data, training=TrainingConfig(criterion_set="b"))) == ["b"]
    for given, known in ((data, "Choose from a, b."), (DataConfig(), "There are none. Remove it.")):
        with pytest.raises(UserError) as caught:
            TrainConfig(data=given, training=TrainingConfig(criterion_set="c"))
        assert str(caught.value) == f"training.criterion_set=c: not a set of data.valid.sets. {known}"


def test_hypotheses_of_other_ranks_have_their_attention() -> None:
    for attention in (torch.rand(3, 5), torch.rand(4, 6)[1:, ::2], None):
        sent = [[4, 5], -1.5, -3.0, [0], _packed(attention)]
        found = _hypothesis(json.loads(json.dumps(sent)))
        assert found == Hypothesis((4, 5), -1.5, -3.0, None, (0,))
        if attention is None:
            assert found.attention is None
        else:
            assert torch.equal(found.attention, attention)
