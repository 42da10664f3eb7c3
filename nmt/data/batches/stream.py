"""The endless stream of training batches, prepared in advance. A batch depends only on its place."""

from __future__ import annotations

import threading
import time
import weakref
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise, starmap, tee
from typing import Generic, TypeVar

import numpy as np

from nmt.config import DataConfig
from nmt.data.batches.batching import Batch, Longest
from nmt.data.batches.blocks import Block, Plan, missing_place_message
from nmt.data.store import Store
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.runtime.arrays import Array
from nmt.runtime.closable_queue import ClosableQueue
from nmt.runtime.machine import may_start_processes
from nmt.runtime.workers import WorkerPool

AHEAD = 16  # picked batches that are prepared in advance
# The number of tokens of a side is a multiple of this. At 2,048 tokens, the padding costs 3 % and saves 20 %.
FILLED_TO = 64

_KILLED = "data.loaders={}: a process that prepares batches was killed, probably because memory ran out"
_REMEDY = "Start again with fewer processes, such as data.loaders=0."


@dataclass(frozen=True, order=True)
class Cursor:
    """The place of the next batch: epoch, block in the epoch, and batch in the block, counted from 0."""

    epoch: int = 0
    block: int = 0
    batch: int = 0


BEGINNING = Cursor()


class BatchStream:
    """The training batches of all epochs, each with the cursor after it.

    Sentences are assigned to batches at random, and sorted by length within a batch. The batches after a
    cursor depend only on the data, their options and the seed, not on where the stream was started. One of
    two threads makes the blocks, or starts processes for that; the other makes batches.

    Args:
        store: training pairs.
        data: budgets, block size, augmentation and sampling.
        seed: seed of the run.
        tokenizer: tokenizer of the pairs, for augmentation and sampling.
        start: place of the first batch.
        pick: whether to return the batch of a given number, counted from 0 at the start of the stream. Other
            batches are returned as None, at almost no cost.
        world: one in `world` batches is picked; `AHEAD * world` batches are prepared in advance.
        workers: processes that make blocks, each one block in advance. With 0, a thread makes them, which
            sometimes blocks the other threads of this process.
        pin: whether to put batches into page-locked memory, for a GPU.
        padded_to: see `Batch.padded`; None: batches are filled to multiples of `FILLED_TO`.
        longest: the limits of the model, which padding pairs keep.

    Raises:
        UserError: no pair fits into a batch.
    """

    def __init__(
        self,
        store: Store,
        data: DataConfig,
        seed: int,
        tokenizer: Tokenizer,
        *,
        start: Cursor = BEGINNING,
        pick: Callable[[int], bool] | None = None,
        world: int = 1,
        workers: int = 0,
        pin: bool = False,
        padded_to: tuple[int, int] | None = None,
        longest: Longest = (None, None),
    ) -> None:
        self._plan = Plan(store, data, seed, tokenizer)
        # The next block should be ready when a block is used up. At most three blocks are in memory: one in
        # use, one ready, and one being computed (65,536 pairs of 30 pieces per side take about 10 MB). With
        # processes, each of them holds one more.
        self._blocks = Prefetch(_blocks(self._plan, start, workers), 1)
        steps = _steps(self._blocks, start.batch)
        batches = _batches(steps, pick or (lambda number: True), pin, padded_to, longest)
        self._items = Prefetch(batches, AHEAD * world)

    def __iter__(self) -> Iterator[tuple[Batch | None, Cursor]]:
        return self

    def __next__(self) -> tuple[Batch | None, Cursor]:
        return next(self._items)

    @property
    def seconds_waited(self) -> float:
        """Time in seconds that the consumer has waited for batches so far."""
        return self._items.seconds_waited

    def rows(self, start: Cursor, end: Cursor) -> list[tuple[Cursor, Array]]:
        """Returns the place and the rows in the store of each batch from `start` up to `end`."""
        places = []
        for place, after, block, rows in _steps(_blocks(self._plan, start, 0), start.batch):
            places.append((place, block.rows.take(rows).flat()))
            if after >= end:
                break
        return places

    def close(self) -> None:
        """Ends the threads, at the latest when the current block is computed."""
        self._blocks.close()  # first, because the other thread may be waiting for a block
        self._items.close()


def num_loaders(data: DataConfig, *, gpu: bool, world: int, cores: int) -> int:
    """Returns the number of processes that make blocks for one of `world` ranks, from `data.loaders`.

    With `auto` it is 0 for training on the CPU, which is much slower than a thread that makes blocks. A GPU
    needs about 600,000 target tokens per second, and its process is busy launching kernels, which a thread
    that makes blocks interrupts: a launch then waits for up to 5 ms. Every rank makes all blocks of an epoch.
    A core makes blocks of at least 7,000,000 tokens per second, so a process is enough for a few GPUs. With
    subword sampling it makes 500,000 to 1,000,000 tokens per second; with augmentation of some pairs, about
    as many. `cores` are those of the machine per rank on it.
    """
    if data.loaders != "auto":
        return int(data.loaders)
    is_slow = data.sampling.alpha > 0.0 or data.augmentation.is_on
    wanted = 1 + world if is_slow else -(-world // 8)
    return max(0, min(wanted, cores - 1)) if gpu else 0


def validation_batches(store: Store, max_tokens: int, longest: Longest = (None, None)) -> list[Batch]:
    """Returns all pairs of a store, sorted by length, in batches of at most `max_tokens` tokens per side.

    A longer pair is a batch of one pair. Padding pairs keep `longest`, the limits of the model.
    """
    source, target = store.take(np.arange(store.num_pairs))
    source_sizes, target_sizes = source.lengths() + 1, target.lengths() + 1
    order = np.lexsort((source_sizes, target_sizes))
    groups: list[list[int]] = []
    room = (0, 0)
    for row in order.tolist():
        if not groups or source_sizes[row] > room[0] or target_sizes[row] > room[1]:
            groups.append([])
            room = (max_tokens, max_tokens)
        groups[-1].append(row)
        room = (room[0] - int(source_sizes[row]), room[1] - int(target_sizes[row]))
    rows = [np.array(group) for group in groups]
    batches = (Batch.of_sides(source.take(group), target.take(group)) for group in rows)
    return [batch.filled(FILLED_TO, longest) for batch in batches]


_Step = tuple[Cursor, Cursor, Block, Array]  # place of a batch, the next place, its block, its pairs there


def _batches(
    steps: Iterator[_Step],
    pick: Callable[[int], bool],
    pin: bool,
    padded_to: tuple[int, int] | None = None,
    longest: Longest = (None, None),
) -> Iterator[tuple[Batch | None, Cursor]]:
    for number, (_, after, block, rows) in enumerate(steps):
        batch = None
        if pick(number):
            batch = Batch.of_sides(block.source.take(rows), block.target.take(rows))
            batch = (
                batch.filled(FILLED_TO, longest) if padded_to is None else batch.padded(padded_to, longest)
            )
            batch = batch.pin_memory() if pin else batch
        yield batch, after


def _steps(blocks: Iterator[tuple[Cursor, Cursor, Block]], first: int) -> Iterator[_Step]:
    """Yields the batches of the blocks, from batch `first` of the first block on.

    Raises:
        UserError: the first block has no such batch.
    """
    for begin, following, block in blocks:
        if first and first >= len(block.batches):
            raise UserError(missing_place_message(begin.epoch, begin.block, first))
        for batch in range(first, len(block.batches)):
            place, after = replace(begin, batch=batch), replace(begin, batch=batch + 1)
            last = batch + 1 == len(block.batches)
            yield place, following if last else after, block, block.batches[batch]
        first = 0


def _blocks(plan: Plan, start: Cursor, workers: int) -> Iterator[tuple[Cursor, Cursor, Block]]:
    """Yields the blocks from the block of `start` on: its place, the place after it, and the block."""
    places, tasks = tee(plan.places(start.epoch, start.block))
    with ExitStack() as stack:
        blocks: Iterator[Block] = starmap(plan.block, tasks)
        if workers and may_start_processes():
            setup, killed = partial(_maker, plan), _KILLED.format(workers)
            pool = stack.enter_context(WorkerPool(setup, workers, killed, _REMEDY, name="loader"))
            blocks = pool.ordered(tasks, workers)
        for (place, following), block in zip(pairwise(places), blocks, strict=False):
            yield Cursor(*place), _after(place, following), block


def _maker(plan: Plan) -> Callable[[tuple[int, int]], Block]:
    """Returns the function with which a process makes the block of a place."""
    return lambda place: plan.block(*place)


def _after(place: tuple[int, int], following: tuple[int, int]) -> Cursor:
    """Returns the place after a block: the next block of its epoch, or the next epoch, even if empty."""
    return Cursor(*following) if following[0] == place[0] else Cursor(place[0] + 1)


Item = TypeVar("Item")


class Prefetch(Generic[Item]):
    """The items of an iterator, computed up to `depth` items in advance by a thread.

    An exception of the iterator is raised to the consumer, after the items before it. The thread ends at
    `close` or when this object is garbage-collected. The iterator must therefore not refer to this object.

    Attributes:
        seconds_waited: time in seconds that the consumer has waited for items so far.
    """

    def __init__(self, items: Iterator[Item], depth: int) -> None:
        self.seconds_waited = 0.0
        self._queue: ClosableQueue[Item] = ClosableQueue(depth)
        self._thread = threading.Thread(target=self._queue.fill, args=(items,), name="prefetch", daemon=True)
        self._thread.start()
        weakref.finalize(self, self._queue.close)

    def __iter__(self) -> Iterator[Item]:
        return self

    def __next__(self) -> Item:
        start = time.perf_counter()
        try:
            return self._queue.take()
        finally:
            self.seconds_waited += time.perf_counter() - start

    def close(self) -> None:
        """Ends the thread, at the latest when its current item is computed. Can be called repeatedly."""
        self._queue.close()
        self._thread.join()
