"""Batches that fit into memory: the memory probe, and the search for the largest.

The probe runs before the first update. The search, for `data.max_tokens=auto` and
`training.fit_micro_batches`, runs once for each run.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, replace

import numpy as np
import torch
from torch import nn

from nmt.bundle import read_config
from nmt.config import DataConfig, Precision, Sharding, TrainConfig, TrainingConfig
from nmt.config.storage import with_values
from nmt.data.batches.batching import Batch
from nmt.data.batches.blocks import budgets, most_pieces
from nmt.data.batches.stream import FILLED_TO
from nmt.data.preparation.prepare import Prepared
from nmt.data.store import Store
from nmt.data.subwords.vocabulary import EOS_ID
from nmt.errors import UserError
from nmt.model import model_class
from nmt.model.gpu.graphs import padding_steps
from nmt.runtime.arrays import Array, Side, offsets_of
from nmt.runtime.machine import choose_device, memory_errors
from nmt.runtime.streams import log
from nmt.training.figures.memory import MemoryMeter
from nmt.training.processes.launcher import num_processes
from nmt.training.processes.ranks import Ranks
from nmt.training.state.run_folder import RunFolder, fixed_options, options_before_choices
from nmt.training.state.warm_start import initial_model
from nmt.training.update.ema import RunningMean
from nmt.training.update.optimizer import check_optimizer
from nmt.training.update.training_step import TrainingStep

LARGEST = 25_000  # target tokens of an update in the paper; larger batches rarely help
SMALLEST = 16
_SHARE = 0.8  # of the free memory; the rest is for prefetched batches and fragmentation
_RESERVE = 64 * 2**20  # bytes, for validation, writing checkpoints and threads
_KERNEL_RESERVE = 256 * 2**20  # bytes; measured: 0.1 to 0.3 GB
_MULTIPLE = 8
_FIRST_PROBE = 512  # tokens; large enough to measure how memory grows, and fast
_WEIGHT_BYTES = 4  # fp32


class OutOfMemory(UserError):
    """A batch or a model does not fit into memory."""


def require_room(config: TrainConfig, processes: int) -> None:
    """Requires enough free memory to train the layers of the model, and batches that can be searched for.

    The estimate is a lower bound: it includes neither the weights of the vocabulary nor the batches. With
    `training.freeze` it assumes that all weights are frozen.

    The search runs in one process, before the others start. A sharded model needs all of them, and the memory
    that it leaves free on each differs.

    `processes` train on this machine.

    Raises:
        OutOfMemory: the free memory is too small.
        UserError: `data.max_tokens=auto` is given and the model is sharded among several processes.
    """
    options, device = config.training, choose_device("auto")
    sharded = options.sharding is Sharding.full
    if config.data.max_tokens == "auto" and sharded and int(options.devices) > 1:
        raise UserError(
            "data.max_tokens=auto: not supported with training.sharding=full on several processes. "
            "Give a number, such as data.max_tokens=4096 (the largest batches are tried before training)."
        )
    count = model_class(config.model).num_weights(config.model, 0, 0)
    taken = _bytes(count, count if options.freeze else 0, options)
    each = taken
    if sharded and int(options.devices) > 1:  # a shard of all of it, and the whole weights, for validation
        each = taken // int(options.devices) + count * _WEIGHT_BYTES
    try:
        free = MemoryMeter(device, 1).free()
    except OSError:
        return  # this system does not report the free memory
    if each * (1 if device.type == "cuda" else processes) > free:
        raise _too_large(count, options, taken)


def with_former_split(config: TrainConfig, folder: RunFolder) -> TrainConfig:
    """Returns the options without `training.fit_micro_batches`, unless the search is still to be made.

    The run in the folder has micro-batches already; they are used if an update is as large. A run without a
    checkpoint may start again with other options. Then they are used only if all options are the same and
    there are enough for all processes. `data.max_tokens=auto` has the largest micro-batches anyway, and on a
    CPU the micro-batches are as given.
    """
    if not config.training.fit_micro_batches:
        return config
    as_given = with_values(config, {"training.fit_micro_batches": False})
    if config.data.max_tokens == "auto":
        return as_given
    unresolved = config if choose_device("auto").type == "cuda" else as_given
    try:
        saved = read_config(folder.config)
    except UserError:
        return unresolved  # nothing to resume, or `RunFolder.check` reports the error
    tokens, parts = saved.data.max_tokens, saved.training.micro_batches
    as_saved, as_large = _with_split(config, tokens, parts), tokens == _split_evenly(config, parts)
    if folder.holds_checkpoints():
        return as_saved if as_large else as_given  # `RunFolder.check` reports the difference
    same = options_before_choices(saved, as_saved) == fixed_options(as_saved)
    return as_saved if same and as_large and parts >= num_processes(config.training) else unresolved


def with_fitting_batches(config: TrainConfig, prepared: Prepared, processes: int) -> TrainConfig:
    """Returns the options with the largest micro-batches that fit into memory, if they are to be found.

    `data.max_tokens=auto` is replaced by a number. With `training.fit_micro_batches` an update has as few
    micro-batches as fit, the same number for each process. With `training.sharding=full` on several processes
    batches can't be tried; then the micro-batches are as given, but at least one per process.

    `processes` share the memory of this machine.

    Raises:
        UserError: not even the smallest batch fits into memory.
    """
    options = config.training
    if config.data.max_tokens == "auto":
        tokens = _largest_fitting(config, prepared, processes, "data.max_tokens=auto", LARGEST)
        log.info("data.max_tokens=auto: %d target tokens fit into a micro-batch", tokens)
        return with_values(config, {"data.max_tokens": tokens})
    if not options.fit_micro_batches:
        return config
    world = int(options.devices)
    if options.sharding is Sharding.full and world > 1:
        parts = max(world, options.micro_batches)
    else:
        most = _split_evenly(config, world)
        name = "training.fit_micro_batches=true"
        parts = world * -(-most // _largest_fitting(config, prepared, processes, name, most))
    tokens = _split_evenly(config, parts)
    log.info(
        "training.fit_micro_batches=true: data.max_tokens=%d training.micro_batches=%d",
        *(tokens, parts),
    )
    return _with_split(config, tokens, parts)


def training_parts(config: TrainConfig, prepared: Prepared, ranks: Ranks) -> tuple[TrainingStep, RunningMean]:
    """Returns all parts of a training that hold memory: the model with its optimizer, and the running mean.

    Raises:
        OutOfMemory: they do not fit into memory.
        UserError: see `initial_model` and `TrainingStep`.
    """
    model = initial_model(config, prepared, resumable=True)
    with _model_memory_errors(model, config.training):
        step = TrainingStep(model, config.training, ranks)
        return step, RunningMean(step.parallel, config.training.ema, is_main=ranks.is_main)


def probe_memory(step: TrainingStep, store: Store, config: TrainConfig, loss_scale: float = 1.0) -> None:
    """Runs the memory probe: forward and backward passes of the largest batches that can occur.

    If they fit, training won't run out of memory. The probe changes no state: the next update zeroes the
    gradients and seeds dropout again.

    Raises:
        OutOfMemory: the batches don't fit into memory.
    """
    step.model.train()
    longest = step.model.longest
    with _batch_memory_errors(config.data, config.training.micro_batches):
        for batch in largest_batches(store, config.data):
            steps = padding_steps(*budgets(config.data))
            padded = batch.padded(steps, longest) if step.captured else batch.filled(FILLED_TO, longest)
            step.probe(padded, loss_scale=loss_scale)


def largest_batches(store: Store, data: DataConfig) -> list[Batch]:
    """Returns artificial batches that take as much memory as any batch of the training.

    The first ones are full of the longest sources and the longest targets, because the memory of attention
    is quadratic in their lengths. The last one has the most sentences.

    Of the pairs in `store` only the lengths are used. Augmentation, sampling, concatenation and placeholders
    make sentences longer than they are there. Augmentation may also leave a sentence of one piece. Each side
    of a reversed pair is a sentence of the other side.
    """
    target_budget, source_budget = budgets(data)
    augments = data.augmentation.is_on
    changes = data.sampling.alpha, data.concatenate, data.reversed
    grows = augments or max(changes) > 0.0 or data.placeholders
    grown = most_pieces(data) if grows else 0
    sides = [
        _Lengths.of(source_budget, (source for source, _ in store.sides()), grown),
        _Lengths.of(target_budget, (target for _, target in store.sides()), grown),
    ]
    if augments or data.reversed:
        shortest = 2 if augments else min(side.shortest for side in sides)
        sides = [replace(side, shortest=shortest) for side in sides]
    most = min(side.budget // side.shortest for side in sides)
    fewest = sorted({min(most, -(-side.budget // side.longest)) for side in sides})
    batches = [Batch.of_sides(*(side.filled(count, 1) for side in sides)) for count in fewest]
    batches.append(Batch.of_sides(*(side.filled(most, side.shortest) for side in sides)))
    return batches


@dataclass(frozen=True)
class _Lengths:
    """One side of a batch: its token budget, and its shortest and longest sentence; all include EOS."""

    budget: int
    shortest: int
    longest: int

    @classmethod
    def of(cls, budget: int, shards: Iterable[Side], grown: int) -> _Lengths:
        shortest, longest = budget, 1 + grown
        for shard in shards:
            lengths = shard.lengths() + 1
            shortest = min(shortest, int(lengths.min(initial=budget)))
            longest = max(longest, int(lengths.max(initial=1)))
        return cls(budget, shortest, min(longest, budget))

    def filled(self, count: int, shortest: int) -> Side:
        """Returns `count` sentences by length: as many of the longest as fit, the others the shortest."""
        left = self.budget - count * shortest - np.arange(count) * (self.longest - shortest)
        sizes: Array = shortest + left.clip(0, self.longest - shortest)[::-1]
        offsets = offsets_of(sizes - 1)
        return Side(np.full(int(offsets[-1]), EOS_ID), offsets)


@contextmanager
def logged_if_slow(text: str, seconds: float = 2.0) -> Iterator[None]:
    """Logs `text` once if the work within takes longer than `seconds`."""
    timer = threading.Timer(seconds, log.info, [text])
    timer.daemon = True
    timer.start()
    try:
        yield
    finally:
        timer.cancel()


def _largest_fitting(
    config: TrainConfig, prepared: Prepared, processes: int, option: str, largest: int
) -> int:
    """Returns the largest `data.max_tokens` up to `largest` that fits; `option` is for the log."""
    device = choose_device("auto")
    meter = MemoryMeter(device, processes)
    with logged_if_slow(f"{option}: searching for the largest batches that fit into memory"):
        tokens = _search(config, prepared, Ranks.join(0, 1, 0, device), meter, largest)
    meter.release()  # the memory of the search
    return tokens


def _search(config: TrainConfig, prepared: Prepared, ranks: Ranks, meter: MemoryMeter, largest: int) -> int:
    parts = training_parts(config, prepared, ranks)  # both hold memory

    def probe(tokens: int) -> None:
        probe_memory(parts[0], prepared.train, with_values(config, {"data.max_tokens": tokens}))

    batches = largest_batches(prepared.train, replace(config.data, max_tokens=LARGEST))
    longest = max(side.max_len for batch in batches for side in (batch.source, batch.target))
    # Of a graph and of a pass without it, which have memory of their own, the meter sees one.
    copies = 1 if parts[0].captured is None else 2
    return largest_max_tokens(
        probe, meter, largest, longest=longest, copies=copies, reserve=_reserve(config, ranks.device)
    )


def largest_max_tokens(
    probe: Callable[[int], None],
    meter: MemoryMeter,
    largest: int = LARGEST,
    *,
    longest: int = 0,
    copies: int = 1,
    reserve: int = 0,
) -> int:
    """Returns the largest `data.max_tokens` up to `largest` with which the largest batches fit into memory.

    For given sentence lengths, the memory of a batch grows linearly with its tokens. Two small batches
    therefore predict the memory of large ones. The prediction is tried, and lowered until it fits.

    Args:
        probe: runs the memory probe with a number of tokens.
        meter: of the memory of this process.
        largest: the upper limit.
        longest: tokens of the longest sentence.
        copies: how often a batch takes the memory that the meter sees.
        reserve: the bytes to leave free.

    Raises:
        OutOfMemory: not even the smallest batch fits.
    """
    first = max(_FIRST_PROBE, longest)  # room for the longest sentence, as attention is quadratic in it
    taken = []
    try:
        probe(first)  # so that one-time allocations are not counted
        free = meter.free() - reserve
        for tokens in (first, 2 * first):
            meter.start()
            probe(tokens)
            taken.append(meter.taken())
        bytes_per_token = max(1.0, copies * (taken[1] - taken[0]) / first)
        tokens = min(LARGEST, _rounded(first + (_SHARE * free - copies * taken[0]) / bytes_per_token))
    except OutOfMemory:
        tokens = first
    except OSError:
        log.warning("data.max_tokens=auto: this system does not report the memory of a process; using 4096")
        tokens = 4096
    tokens = min(largest, tokens)
    while True:
        try:
            probe(tokens)
            return tokens
        except OutOfMemory:
            if tokens == SMALLEST:
                raise
        meter.release()  # after `except`: the error holds references to the tensors of the failed batch
        tokens = _rounded(0.8 * tokens)


def _reserve(config: TrainConfig, device: torch.device) -> int:
    """Returns the bytes to leave free: for other uses, and for kernels that oneDNN compiles later."""
    plain = config.training.precision is Precision.fp32 and not config.training.onednn_fp32
    return _RESERVE if plain or device.type == "cuda" else _RESERVE + _KERNEL_RESERVE


def _rounded(tokens: float) -> int:
    return max(SMALLEST, int(tokens) // _MULTIPLE * _MULTIPLE)


def _split_evenly(config: TrainConfig, parts: int) -> int:
    """Returns the target tokens of a micro-batch if an update of the same size had `parts` of them."""
    tokens: int = config.data.max_tokens * config.training.micro_batches
    return max(SMALLEST, tokens // parts)


def _with_split(config: TrainConfig, max_tokens: int, micro_batches: int) -> TrainConfig:
    """Returns the options with these micro-batches, without `training.fit_micro_batches`."""
    values = {"data.max_tokens": max_tokens, "training.micro_batches": micro_batches}
    return with_values(config, {**values, "training.fit_micro_batches": False})


def _batch_memory_errors(data: DataConfig, micro_batches: int) -> AbstractContextManager[None]:
    """Turns running out of memory into an `OutOfMemory` error about `data.max_tokens`."""

    def error() -> OutOfMemory:
        target, source = budgets(data)
        return OutOfMemory(
            f"data.max_tokens={target}: a batch of {target} target and {source} source tokens does not fit "
            f"into memory. data.max_tokens={max(SMALLEST, target // 2)} "
            f"training.micro_batches={2 * micro_batches} makes the same updates in smaller parts; "
            "data.max_tokens=auto finds the largest that fits. "
            "The batches of a run can't change: give another run_dir."
        )

    return memory_errors(error)


def _model_memory_errors(model: nn.Module, options: TrainingConfig) -> AbstractContextManager[None]:
    """Turns running out of memory into an `OutOfMemory` error about the size of the model."""

    def error() -> OutOfMemory:
        count = sum(parameter.numel() for parameter in model.parameters())
        frozen = sum(parameter.numel() for parameter in model.parameters() if not parameter.requires_grad)
        return _too_large(count, options, _bytes(count, frozen, options))

    return memory_errors(error)


def _too_large(count: int, options: TrainingConfig, taken: int) -> OutOfMemory:
    each = _WEIGHT_BYTES + _training_bytes(options)
    frozen = f", {_WEIGHT_BYTES} if frozen" if options.freeze else ""
    return OutOfMemory(
        f"model=: {count:,} parameters do not fit into memory ({taken / 1e9:,.1f} GB; {each} bytes each, "
        f"with gradient and optimizer state{frozen}). Choose a smaller model=, or training.sharding=full, "
        "which shards all of it among the processes, and more processes."
    )


def _bytes(count: int, frozen: int, options: TrainingConfig) -> int:
    """Returns the least bytes for `count` weights, of which some are frozen."""
    return count * _WEIGHT_BYTES + (count - frozen) * _training_bytes(options)


def _training_bytes(options: TrainingConfig) -> int:
    """Returns the least bytes for training a weight: gradient, optimizer state, running mean, start.

    The penalty on the distance from the start needs the starting weight and the distance.
    """
    floats = 1 + check_optimizer(options).floats_per_weight
    return 4 * (floats + (options.ema > 0.0) + 2 * (options.l2_to_start > 0.0))
