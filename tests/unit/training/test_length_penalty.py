"""The choice of a length penalty: the way to the best one, each of which is computed once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from nmt.config import DecodingConfig, TrainConfig, TrainingConfig
from nmt.training import length_penalty
from nmt.training.length_penalty import climbed, measures, tuned_length_penalty


@pytest.mark.parametrize(
    ("first", "qualities", "best"),
    [
        (1.4, {1.4: 50.0, 1.0: 49.0, 1.8: 49.5}, 1.4),
        (1.4, {1.4: 50.0, 1.0: 51.0, 0.6: 50.5}, 1.0),
        (1.4, {1.4: 50.0, 1.0: 49.0, 1.8: 50.5, 2.2: 51.0, 2.6: 51.0}, 2.2),
        (1.4, {1.4: 50.0, 1.0: 50.0, 1.8: 50.0}, 1.4),
        (1.4, {1.4: 50.0, 1.0: 50.5, 0.6: 50.7, 0.2: 50.6}, 1.4),
        (1.4, {1.4: 50.0, 1.0: 50.5, 0.6: 50.8, 0.2: 50.6}, 0.6),
        (1.4, {1.4: -math.inf, 1.0: -math.inf, 1.8: 1.0, 2.2: 0.0}, 1.8),
        (0.6, {0.6: 1.0, 0.2: 2.0}, 0.2),
        (0.2, {0.2: 1.0, 0.6: 0.5}, 0.2),
        (9.8, {9.8: 1.0, 9.4: 0.5}, 9.8),
        (0.0, {0.0: 1.0, 0.4: 2.0, 0.8: 1.5}, 0.4),
    ],
)
def test_the_way_to_the_best_penalty(first: float, qualities: dict[float, float], best: float) -> None:
    computed: list[float] = []

    def quality(penalty: float) -> float:
        computed.append(penalty)
        return qualities[penalty]

    assert climbed(quality, first) == best
    assert computed == [*qualities]


@pytest.mark.parametrize(
    ("beam_size", "options", "expected"),
    [
        (4, {}, ["bleu", "chrf"]),
        (4, {"validate_metrics": [], "criterion": "chrf"}, ["chrf"]),
        (4, {"validate_metrics": ["ter"], "criterion": "loss"}, []),
        (1, {}, []),
        (4, {"tune_length_penalty": False}, []),
    ],
)
def test_the_metrics_of_the_choice(beam_size: int, options: dict[str, Any], expected: list[str]) -> None:
    training = TrainingConfig(**{"tune_length_penalty": True, **options})
    config = TrainConfig(training=training, decoding=DecodingConfig(beam_size=beam_size))
    assert measures(config) == expected


class Scored:
    """Translates each line to its length penalty; the scores depend on it and on the number of lines."""

    scored: Mapping[tuple[str, int], float] = {}
    translated: list[tuple[str, int]] = []

    def __init__(
        self, model: object, config: TrainConfig, *args: object, sentences: int, final: bool
    ) -> None:
        self.penalty, self.num_sentences = f"{config.decoding.length_penalty:g}", sentences or 1000

    def hypotheses(self, advance: object) -> dict[str, Sequence[str]]:
        self.translated.append((self.penalty, self.num_sentences))
        return {"": [self.penalty] * self.num_sentences}

    def scores(self, keys: Sequence[str], texts: Mapping[str, Sequence[str]]) -> dict[str, float | None]:
        (lines,) = texts.values()
        assert {*lines} == {self.penalty}
        return {"bleu": self.scored[self.penalty, len(lines)], "chrf": 50.0}


@pytest.mark.parametrize("all_known", [True, False])
@pytest.mark.parametrize(("on_all", "chosen"), [(40.1, 1.0), (40.0, 1.4), (39.0, 1.4)])
def test_another_penalty_must_be_better_on_the_whole_set(
    on_all: float, chosen: float, all_known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each set is translated once with each penalty."""
    few, whole = {("1.4", 300): 40.0, ("1", 300): 42.0, ("0.6", 300): 41.0}, {("1.4", 1000): 40.0}
    monkeypatch.setattr(length_penalty, "Validator", Scored)
    monkeypatch.setattr(Scored, "scored", {**few, **whole, ("1", 1000): on_all})
    monkeypatch.setattr(Scored, "translated", translated := [])
    prepared = SimpleNamespace(valid={"": SimpleNamespace(sources=["a"] * 1000)})
    known: dict[str, Sequence[str]] = {"": ["1.4"] * 1000} if all_known else {"other": ["1.4"]}
    config = TrainConfig(
        decoding=DecodingConfig(length_penalty=1.4), training=TrainingConfig(tune_length_penalty=True)
    )
    ranks = SimpleNamespace(is_main=False)
    facts, texts = tuned_length_penalty(config, cast(Any, prepared), cast(Any, None), cast(Any, ranks), known)
    assert facts is not None and facts["sentences"] == 300
    if not all_known:  # a comparison of all sentences would take time
        assert (facts["chosen"], texts) == (1.0, None) and "on_all" not in facts
        assert translated == [("1.4", 300), ("1", 300), ("0.6", 300)]
        return
    assert (facts["chosen"], texts) == (chosen, {"": [f"{chosen:g}"] * 1000})
    assert facts["on_all"] == [
        {"length_penalty": 1.0, "bleu": on_all, "chrf": 50.0},
        {"length_penalty": 1.4, "bleu": 40.0, "chrf": 50.0},
    ]
    assert translated == [("1", 300), ("0.6", 300), ("1", 1000)]
