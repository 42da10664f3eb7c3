"""The batches of a call: their sizes, and the worker processes that search them side by side.

A batch has sentences of similar length. On the CPU, the matrix products of a search are small, so two threads
need far more than half of the time of one. Two processes with one thread each search two batches at a time
instead. They are forked: they share the weights of the model, start in milliseconds, and end with the call
that needs them. Their number does not change the results.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial

import torch

from nmt.config import DecodingConfig
from nmt.model import Seq2Seq
from nmt.runtime.machine import may_start_processes
from nmt.runtime.workers import Result, Task, WorkerPool

CPU_TOKENS = 8192
"""Source tokens of a batch on the CPU with `decoding.max_tokens=auto`."""

_AUTO = "auto"
_SENTENCES_EACH = 32  # of a call, for each worker process with `decoding.workers=auto`, at least
_BATCHES_EACH = 2  # of a small call: two workers with batches of different length end at about the same time
_HYPOTHESES = 4096  # of a batch on a GPU; a step of fewer takes as long, because launching its kernels does
_SENTENCES = (64, 2048)  # the fewest and the most of a batch on a GPU; of fewer, memory for logits is ignored
_GPU_TOKENS = (1024, 262_144)
_VALIDATION_TOKENS = 16_384
_SHARE = 3  # caches take up to a third of the free memory, logits another, and the rest remains


@dataclass(frozen=True)
class BatchLimits:
    """The largest batch: its source tokens, padding counted, and its sentences."""

    tokens: int
    sentences: int


def batch_limits(config: DecodingConfig, models: Sequence[Seq2Seq], device: torch.device) -> BatchLimits:
    """Returns the limits of `decoding.max_tokens` and `decoding.max_sentences`, or the choice for `auto`.

    The choice for a GPU depends on its free memory.
    """
    if device.type != "cuda":
        limits = BatchLimits(CPU_TOKENS, config.sentences_per_batch)
    else:
        limits = _for_memory(config, models, _free_bytes(device))
    tokens = limits.tokens if config.max_tokens == "auto" else int(config.max_tokens)
    return BatchLimits(
        tokens, limits.sentences if config.max_sentences == "auto" else int(config.max_sentences)
    )


def with_fixed_limits(config: DecodingConfig, device: torch.device) -> DecodingConfig:
    """Returns the options with each `auto` replaced by a number that does not depend on free memory.

    In 16 bits the batches change rounding. A validation chooses between checkpoints, so it must have the same
    batches in every run.
    """
    if device.type != "cuda":
        return config
    tokens = _VALIDATION_TOKENS if config.max_tokens == "auto" else config.max_tokens
    sentences = config.max_sentences
    if sentences == "auto":
        sentences = _bounded(_HYPOTHESES // (config.samples or config.beam_size), *_SENTENCES)
    return replace(config, max_tokens=tokens, max_sentences=sentences)


def _for_memory(config: DecodingConfig, models: Sequence[Seq2Seq], free: int) -> BatchLimits:
    """Returns the largest batch that probably fits into `free` bytes of a GPU."""
    width = config.samples or config.beam_size
    logits = token = 0
    for model in models:
        options = model.config
        logits += 4 * 4 * width * len(model.output_weight)  # (K, V) fp32, and copies of it
        # The keys and values of a token in all layers; a cache has one width for both.
        layers = 2 * 4 * options.decoder_layers * options.heads * max(options.head_widths)
        # A translation is a little longer than its source. While a cache grows, there are two of them.
        token += layers * (3 * width + 1) + 40 * options.d_model
    sentences = min(_HYPOTHESES // width, free // _SHARE // logits)
    return BatchLimits(
        _bounded(free // _SHARE // token, *_GPU_TOKENS),
        _bounded(sentences, *_SENTENCES),
    )


def _bounded(value: int, low: int, high: int) -> int:
    return max(low, min(value, high))


def _free_bytes(device: torch.device) -> int:
    """Returns the free memory of a GPU, with what torch has reserved but does not use."""
    free, _ = torch.cuda.mem_get_info(device)
    return free + torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)


def batches_by_length(lengths: Sequence[int], max_tokens: int, max_sentences: int) -> list[list[int]]:
    """Groups sentences of similar length into batches.

    The longest sentences come first, so that a batch that does not fit into memory fails at once.

    Args:
        lengths: number of tokens of each sentence.
        max_tokens: maximum number of tokens of a batch, padding counted. A longer sentence is a batch alone.
        max_sentences: maximum number of sentences of a batch.

    Returns:
        The sentence indices of each batch; every index is in exactly one batch.
    """
    batches: list[list[int]] = []
    for index in sorted(range(len(lengths)), key=lambda index: -lengths[index]):
        room = min(max_sentences, max_tokens // lengths[batches[-1][0]]) if batches else 0
        if batches and len(batches[-1]) < room:
            batches[-1].append(index)
        else:
            batches.append([index])
    return batches


def shared_size(size: int, num_sentences: int, workers: int) -> int:
    """Returns the sentences per batch, at most `size`, with which all workers have work until the end."""
    if workers == 1:
        return size
    return min(size, max(_SENTENCES_EACH, math.ceil(num_sentences / (_BATCHES_EACH * workers))))


def num_workers(setting: int | str, device: torch.device, batches: Sequence[Sequence[int]]) -> int:
    """Returns the number of worker processes for a call; 1: none, the call does the work itself.

    With `decoding.workers=auto` it is one per thread that torch uses, if there is enough work for them. Only
    the CPU has workers. Each worker gets at least one batch.
    """
    count = possible_workers(setting, device)
    if setting == _AUTO and sum(map(len, batches)) < _SENTENCES_EACH * count:
        return 1
    return max(1, min(count, len(batches)))


def possible_workers(setting: int | str, device: torch.device) -> int:
    """Returns the same as `num_workers`, for a call with any number of batches."""
    can_fork = sys.platform == "linux" and may_start_processes()
    if device.type != "cpu" or not can_fork:
        return 1
    return torch.get_num_threads() if setting == _AUTO else int(setting)


def search_pool(work: Callable[[Task], Result], count: int) -> WorkerPool[Task, Result]:
    """Returns forked processes that each search one batch at a time, with one thread.

    `work` does a task. It runs in the processes as it is at the time of the fork.
    """
    return WorkerPool(
        partial(_with_one_thread, work),
        count,
        f"decoding.workers={count}: a worker process was killed, probably because memory ran out",
        "Set decoding.workers=1, or lower decoding.max_tokens or decoding.max_sentences.",
        forked=True,
        redo=True,
        name="search",
    )


def _with_one_thread(work: Callable[[Task], Result]) -> Callable[[Task], Result]:
    torch.set_num_threads(1)
    return work
