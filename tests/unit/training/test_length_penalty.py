"""The choice of a length penalty: the way to the best one, each of which is computed once."""

from __future__ import annotations

import math
from typing import Any

import pytest

from nmt.config import DecodingConfig, TrainConfig, TrainingConfig
from nmt.training.length_penalty import climbed, measures


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
