"""The sizes of batches that `auto` chooses."""

from __future__ import annotations

from typing import Any

import pytest

from nmt.config import DecodingConfig
from nmt.decoding.batches.workers import shared_size
from nmt.errors import UserError


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        ({"beam_size": 1}, 256),
        ({"beam_size": 2}, 256),
        ({}, 128),
        ({"beam_size": 8}, 64),
        ({"beam_size": 100}, 64),
        ({"samples": 5}, 102),
        ({"samples": 1, "beam_size": 8}, 256),
        ({"max_sentences": 7}, 7),
    ],
)
def test_sentences_per_batch(options: dict[str, Any], expected: int) -> None:
    assert DecodingConfig(**options).sentences_per_batch == expected


@pytest.mark.parametrize(
    ("sentences", "workers", "expected"),
    [(10_000, 1, 256), (10, 1, 256), (10_000, 2, 256), (1014, 2, 254), (100, 2, 32), (400, 4, 50)],
)
def test_workers_share_small_calls(sentences: int, workers: int, expected: int) -> None:
    assert shared_size(256, sentences, workers) == expected


@pytest.mark.parametrize("value", [0, -3, 1_000_001])
def test_out_of_bounds(value: int) -> None:
    with pytest.raises(UserError, match=r"decoding\.max_sentences=.*: must be between 1 and 1,000,000\."):
        DecodingConfig(max_sentences=value)


@pytest.mark.parametrize("value", ["many", 2.5, None, True])
def test_wrong_types(value: object) -> None:
    with pytest.raises(UserError, match=r"decoding\.max_sentences=.*: must be auto or a number\."):
        DecodingConfig(max_sentences=value)
