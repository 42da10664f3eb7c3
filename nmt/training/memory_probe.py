"""The memory probe: the largest batches that can occur, and the errors raised when memory runs out."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass

import numpy as np
from torch import nn

from nmt.config import DataConfig, Sharding, TrainConfig, TrainingConfig
from nmt.data.batches.batching import Batch
from nmt.data.batches.blocks import budgets, most_pieces
from nmt.data.store import Store
from nmt.data.subwords.tokenizer import EOS_ID
from nmt.errors import UserError
from nmt.model import model_class
from nmt.runtime import choose_device, log, memory_errors
from nmt.runtime.arrays import Array, Side, offsets_of
from nmt.training.figures.memory import MemoryMeter
from nmt.training.update.optimizer import check_optimizer


class OutOfMemory(UserError):
    """A batch does not fit into memory."""


def largest_batches(store: Store, data: DataConfig) -> list[Batch]:
    """Returns artificial batches that take as much memory as any batch of the training.

    The first ones are full of the longest sources and the longest targets, because the memory of attention
    is quadratic in their lengths. The last one has the most sentences.

    Args:
        store: the training pairs; only their lengths are used.
        data: the token budgets, and whether sampling, concatenation or placeholders make sentences longer
            than they are in the store.
    """
    target_budget, source_budget = budgets(data)
    grows = data.sampling.alpha > 0.0 or data.concatenate > 0.0 or data.placeholders
    grown = most_pieces(data) if grows else 0
    sides = [
        _Lengths.of(source_budget, (source for source, _ in store.sides()), grown),
        _Lengths.of(target_budget, (target for _, target in store.sides()), grown),
    ]
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


def batch_memory_errors(data: DataConfig, micro_batches: int) -> AbstractContextManager[None]:
    """Turns running out of memory into an `OutOfMemory` error about `data.max_tokens`."""

    def error() -> OutOfMemory:
        target, source = budgets(data)
        return OutOfMemory(
            f"data.max_tokens={target}: a batch of {target} target and {source} source tokens does not fit "
            f"into memory. data.max_tokens={max(16, target // 2)} training.micro_batches={2 * micro_batches} "
            "makes the same updates in smaller parts; data.max_tokens=auto finds the largest that fits. "
            "The batches of a run can't change: give another run_dir."
        )

    return memory_errors(error)


def model_memory_errors(model: nn.Module, options: TrainingConfig) -> AbstractContextManager[None]:
    """Turns running out of memory into an `OutOfMemory` error about the size of the model.

    Args:
        model: the model to set up for training.
        options: of the training; they determine what memory holds in addition to the weights.
    """

    def error() -> OutOfMemory:
        count = sum(parameter.numel() for parameter in model.parameters())
        frozen = sum(parameter.numel() for parameter in model.parameters() if not parameter.requires_grad)
        return _too_large(count, options, _bytes(count, frozen, options))

    return memory_errors(error)


def require_room(config: TrainConfig, processes: int) -> None:
    """Requires enough free memory to train the layers of the model.

    The estimate is a lower bound: it includes neither the weights of the vocabulary nor the batches. With
    `training.freeze` it assumes that all weights are frozen.

    Args:
        config: the options of the run.
        processes: how many processes train on this machine.

    Raises:
        OutOfMemory: the free memory is too small.
    """
    count = model_class(config.model).num_weights(config.model, 0, 0)
    device = choose_device("auto")
    copies = 1 if device.type == "cuda" or config.training.sharding is Sharding.full else processes
    shares = processes if device.type == "cuda" and config.training.sharding is Sharding.full else 1
    try:
        free = MemoryMeter(device, 1).free()
    except OSError:
        return  # this system does not report the free memory
    taken = _bytes(count, count if config.training.freeze else 0, config.training)
    if taken * copies > free * shares:
        raise _too_large(count, config.training, taken)


def _too_large(count: int, options: TrainingConfig, taken: int) -> OutOfMemory:
    each = _WEIGHT_BYTES + _training_bytes(options)
    frozen = f", {_WEIGHT_BYTES} if frozen" if options.freeze else ""
    return OutOfMemory(
        f"model=: {count:,} parameters do not fit into memory ({taken / 1e9:,.1f} GB; {each} bytes each, "
        f"with gradient and optimizer state{frozen}). Choose a smaller model=, or training.sharding=full, "
        "which shards all of it among the processes, and more processes."
    )


_WEIGHT_BYTES = 4  # fp32


def _bytes(count: int, frozen: int, options: TrainingConfig) -> int:
    """Returns the least bytes for `count` weights, of which some are frozen."""
    return count * _WEIGHT_BYTES + (count - frozen) * _training_bytes(options)


def _training_bytes(options: TrainingConfig) -> int:
    """Returns the least bytes for training a weight: gradient, optimizer state, running mean, start.

    The penalty on the distance from the start needs the starting weight and the distance.
    """
    floats = 1 + check_optimizer(options).floats_per_weight
    return 4 * (floats + (options.ema > 0.0) + 2 * (options.l2_to_start > 0.0))
