"""The sizes of batches that `auto` chooses."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from nmt.config import DecodingConfig, ModelConfig
from nmt.decoding import search_batches
from nmt.decoding.search_batches import BatchLimits, batch_limits, shared_size, with_fixed_limits
from nmt.errors import UserError
from nmt.model.transformer import Transformer


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


@pytest.mark.parametrize("option", ["max_sentences", "max_tokens"])
@pytest.mark.parametrize("value", [0, -3, 10_000_001, "many", 2.5, None, True])
def test_wrong_values(option: str, value: object) -> None:
    bounds = r"between 1 and (1|10),000,000\."
    message = bounds if type(value) is int else r"auto or a number\."
    with pytest.raises(UserError, match=rf"decoding\.{option}=.*: must be {message}"):
        DecodingConfig(**{option: value})


def test_a_validation_on_a_gpu_has_the_same_batches_whatever_memory_is_free() -> None:
    gpu = torch.device("cuda")
    found = with_fixed_limits(DecodingConfig(), gpu)
    assert (found.max_tokens, found.max_sentences) == (16_384, 1024)
    assert with_fixed_limits(DecodingConfig(beam_size=1), gpu).max_sentences == 2048
    given = DecodingConfig(max_tokens=99, max_sentences=7)
    assert with_fixed_limits(given, gpu) == given
    assert with_fixed_limits(DecodingConfig(), torch.device("cpu")) == DecodingConfig()


def test_auto_on_the_cpu_and_given_numbers() -> None:
    cpu = torch.device("cpu")
    assert batch_limits(DecodingConfig(), [], cpu) == BatchLimits(8192, 128)
    assert batch_limits(DecodingConfig(max_tokens=99, max_sentences=7), [], cpu) == BatchLimits(99, 7)


@pytest.mark.parametrize(
    ("beam_size", "gigabytes", "expected"),
    [
        (4, 80, BatchLimits(78_438, 1024)),  # base, from a vocabulary of 37,000
        (1, 80, BatchLimits(224_497, 2048)),
        (4, 12, BatchLimits(11_765, 1024)),
        (4, 2, BatchLimits(1960, 281)),
        (50, 2, BatchLimits(1024, 64)),
    ],
)
def test_auto_on_a_gpu_is_what_fits(
    beam_size: int, gigabytes: int, expected: BatchLimits, monkeypatch: pytest.MonkeyPatch
) -> None:
    with torch.device("meta"):
        model = Transformer(ModelConfig(), 37_000, 37_000)
    monkeypatch.setattr(search_batches, "_free_bytes", lambda device: gigabytes * 10**9)
    config = DecodingConfig(beam_size=beam_size)
    assert batch_limits(config, [model], torch.device("cuda")) == expected
