"""Batches of a call: their sizes, and worker processes that search them with the same results."""

from __future__ import annotations

import logging
import multiprocessing
import os
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from toys import CopyModel, NanModel, WordTokenizer, pairs_of, translator_of

from nmt.config import DecodingConfig, ModelConfig, Precision
from nmt.decoding import search_batches
from nmt.decoding.search_batches import (
    BatchLimits,
    batch_limits,
    num_workers,
    search_pool,
    shared_size,
    with_fixed_limits,
)
from nmt.decoding.translator import Translator
from nmt.errors import UserError
from nmt.model.transformer import Transformer

on_linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has worker processes")
CPU = torch.device("cpu")
LINES = [f"w{number % 19} w{number % 7}" + " w3" * (number % 9) for number in range(40)] + ["", "w1"]


def translator(workers: int | str, model: CopyModel | None = None, **options: float) -> Translator:
    config = DecodingConfig(workers=workers, max_sentences=4, **options)
    return translator_of([model or CopyModel()], WordTokenizer(), config, precision=Precision.fp32)


@pytest.mark.parametrize("workers", [2, 3])
def test_translations_are_those_of_one_process(workers: int) -> None:
    alone, several = (translator(count, beam_size=3, nbest=2) for count in (1, workers))
    counts: list[int] = []
    assert several.translate(LINES, counts.append) == alone.translate(LINES)
    assert sum(counts) == len(LINES)
    prefixes = ["w5" if number % 3 else "" for number in range(len(LINES))]
    phrases = [[f"w{number % 4} w9"] if number % 2 else [] for number in range(len(LINES))]
    for options in ({"prefixes": prefixes}, {"constraints": phrases}):
        assert several.translate(LINES, **options) == alone.translate(LINES, **options)
    pairs = [(line, line) for line in LINES]
    assert pairs_of(several).score(pairs) == pairs_of(alone).score(pairs)
    assert multiprocessing.active_children() == []


def test_errors_of_a_worker_are_raised_and_end_the_others() -> None:
    with pytest.raises(UserError, match="the probabilities of the model are NaN"):
        translator(2, NanModel()).translate(LINES)
    assert multiprocessing.active_children() == []


def test_an_interrupted_call_ends_its_workers() -> None:
    def interrupt(count: int) -> None:
        if count > 1:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        translator(2).translate(LINES, interrupt)
    assert multiprocessing.active_children() == []


def pooled(work: Callable[[int], object], jobs: list[int], count: int = 2) -> dict[int, object]:
    with search_pool(work, count) as pool:
        found = list(pool.run(jobs))
    assert len(found) == len(jobs)
    return dict(found)


@on_linux
def test_a_worker_has_one_thread() -> None:
    before = torch.get_num_threads()
    assert pooled(lambda _: torch.get_num_threads(), [0, 1]) == {0: 1, 1: 1}
    assert torch.get_num_threads() == before


@on_linux
def test_the_job_of_a_killed_worker_is_done_again(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    marker = tmp_path / "killed"

    def work(job: int) -> int:
        if job == 3 and not marker.exists():
            marker.touch()
            os.kill(os.getpid(), signal.SIGKILL)
        return -job

    with caplog.at_level(logging.WARNING, logger="nmt"):
        assert pooled(work, [*range(8)]) == {job: -job for job in range(8)}
    [message] = caplog.messages
    assert message == (
        "decoding.workers=2: a worker process was killed, probably because memory ran out; "
        "continuing with 1 worker"
    )


@on_linux
@pytest.mark.parametrize("deadly", [{3}, {3, 4, 5}])
def test_a_job_that_kills_its_workers_is_one_clear_line(deadly: set[int]) -> None:
    def work(job: int) -> int:
        if job in deadly:
            os.kill(os.getpid(), signal.SIGKILL)
        return job

    expected = (
        r"^decoding\.workers=2: a worker process was killed, probably because memory ran out\. "
        r"Set decoding\.workers=1, or lower decoding\.max_tokens or decoding\.max_sentences\.$"
    )
    with pytest.raises(UserError, match=expected):
        pooled(work, [*range(8)])
    assert multiprocessing.active_children() == []


@on_linux
def test_number_of_workers() -> None:
    threads = torch.get_num_threads()
    torch.set_num_threads(4)
    try:
        full = [[0] * 32] * 8
        assert num_workers("auto", CPU, full) == 4
        assert num_workers("auto", CPU, [[0] * 64] * 3) == 3
        assert num_workers("auto", CPU, [[0]] * 100) == 1  # not worth it
        assert num_workers(2, CPU, [[0]] * 3) == 2
        assert num_workers(8, CPU, [[0]] * 3) == 3
        assert num_workers(1, CPU, full) == 1
        assert num_workers(8, CPU, []) == 1
        assert num_workers(8, torch.device("cuda"), full) == 1
    finally:
        torch.set_num_threads(threads)


# Sizes


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
    assert with_fixed_limits(DecodingConfig(), CPU) == DecodingConfig()
    assert batch_limits(DecodingConfig(), [], CPU) == BatchLimits(8192, 128)
    assert batch_limits(given, [], CPU) == BatchLimits(99, 7)


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
