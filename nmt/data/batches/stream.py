"""The endless stream of training batches, each a pure function of its place, made ahead of their use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from functools import partial
from itertools import pairwise

import numpy as np

from nmt.config import DataConfig
from nmt.data.arrays import Array
from nmt.data.batches.batching import Batch
from nmt.data.batches.blocks import Block, Plan, every_so_many, not_in_the_data
from nmt.data.batches.prefetch import Prefetch
from nmt.data.store import Store
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.workers import made_in_turn
from nmt.errors import UserError

AHEAD = 16  # batches made ahead, of those that are picked
FILLED_TO = 64  # tokens of a side come in multiples of this; of 2,048, filling up takes 3 % and saves 20 %

_KILLED = (
    "data.loaders={}: one of the processes that make batches was killed, most likely for want of memory; "
    "start again with fewer, such as data.loaders=0"
)


@dataclass(frozen=True, order=True)
class Cursor:
    """The place of the next batch: epoch, block of the epoch, batch of the block; all from 0."""

    epoch: int = 0
    block: int = 0
    batch: int = 0


BEGINNING = Cursor()


class BatchStream:
    """Training batches, epoch after epoch, with the cursor that stands after each.

    Which sentences share a batch is random; inside it they stand in order of length. What follows a cursor
    depends on the data, their options and the seed alone, not on where the stream was started.
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
    ) -> None:
        """Starts two threads: one makes the blocks, or starts processes that do, the other lays out batches.

        Args:
            store: training pairs.
            data: budgets, block size and sampling.
            seed: of the run.
            tokenizer: whose pieces are sampled from.
            start: where to begin.
            pick: tells for the number of a batch, counted from 0 where the stream begins, whether it is
                wanted; in the place of others comes None, at hardly any cost.
            world: of how many batches one is picked; as many times `AHEAD` places are looked ahead.
            workers: processes that make blocks; each has the next of its own ready. Without any, a thread
                makes them, which keeps the others of this process waiting for some of the time.
            pin: put batches into page-locked memory, for a GPU.

        Raises:
            UserError: no pair fits into a batch.
        """
        self._plan = Plan(store, data, seed, tokenizer)
        # A block is to be there when the one before is used up. In memory are at most three: the one in use,
        # one that waits, and one in the making (65,536 pairs of 30 pieces a side are some 10 MB); with
        # processes, one more in each.
        self._blocks = Prefetch(_blocks(self._plan, start, workers), 1)
        batches = _batches(_walk(self._blocks, start.batch), pick or _every, pin)
        self._items = Prefetch(batches, AHEAD * world)

    def __iter__(self) -> Iterator[tuple[Batch | None, Cursor]]:
        """Itself; it never ends."""
        return self

    def __next__(self) -> tuple[Batch | None, Cursor]:
        """The next batch (None if it was not picked) and the cursor after it."""
        return next(self._items)

    @property
    def seconds_waited(self) -> float:
        """How long the consumer has waited for batches so far."""
        return self._items.seconds_waited

    def rows(self, start: Cursor, end: Cursor) -> list[tuple[Cursor, Array]]:
        """What the batches from one place up to another are made of: the place of each, and its rows."""
        found = []
        for place, after, block, rows in _walk(_blocks(self._plan, start, 0), start.batch):
            found.append((place, block.rows[rows]))
            if after >= end:
                break
        return found

    def close(self) -> None:
        """Ends the threads, at the latest when the block that is being made is done."""
        self._blocks.close()  # first: who lays out batches may be waiting for a block
        self._items.close()


def num_loaders(data: DataConfig, *, gpu: bool, world: int, cores: int) -> int:
    """How many processes make the blocks of one process of a run, as `data.loaders` says.

    By itself none where batches are used on the CPU: training there is slower than a thread by far. A GPU
    wants some 600,000 target tokens a second, and its process is busy launching kernels. Every process of a
    run goes through the whole epoch, for which a core makes blocks of 10,000,000 tokens a second or more: for
    few GPUs, a thread has the time. If words are sampled it is 500,000 to 1,000,000.

    Args:
        data: the options.
        gpu: whether batches are used on a GPU.
        world: processes of the run.
        cores: of the machine, for each process of the run that it has.
    """
    if data.loaders != "auto":
        return int(data.loaders)
    plain = -(-world // 8) if world >= 4 else 0
    wanted = 1 + world if data.sampling.alpha > 0.0 else plain
    return max(0, min(wanted, cores - 1)) if gpu else 0


def validation_batches(store: Store, max_tokens: int) -> list[Batch]:
    """All pairs of a store, by length, in batches of at most `max_tokens` a side, or of one longer pair."""
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
    return [Batch.of_sides(source.take(group), target.take(group)).filled(FILLED_TO) for group in rows]


_Step = tuple[Cursor, Cursor, Block, Array]  # a batch's place, the one after it, its block, its rows there


def _batches(
    steps: Iterator[_Step], pick: Callable[[int], bool], pin: bool
) -> Iterator[tuple[Batch | None, Cursor]]:
    for number, (_, after, block, rows) in enumerate(steps):
        batch = None
        if pick(number):
            batch = Batch.of_sides(block.source.take(rows), block.target.take(rows)).filled(FILLED_TO)
            batch = batch.pin_memory() if pin else batch
        yield batch, after


def _walk(blocks: Iterator[tuple[Cursor, Cursor, Block]], first: int) -> Iterator[_Step]:
    """The batches of some blocks, from the one numbered `first` of the first block on."""
    for begin, following, block in blocks:
        if first and first >= len(block.batches):
            raise UserError(not_in_the_data(begin.epoch, begin.block, first))
        for batch in range(first, len(block.batches)):
            place, after = replace(begin, batch=batch), replace(begin, batch=batch + 1)
            last = batch + 1 == len(block.batches)
            yield place, following if last else after, block, block.batches[batch]
        first = 0


def _blocks(plan: Plan, start: Cursor, workers: int) -> Iterator[tuple[Cursor, Cursor, Block]]:
    """The blocks from the one of `start` on: where each begins, where the one after it does, and itself."""
    places = pairwise(plan.places(start.epoch, start.block))
    if not workers:
        for place, following in places:
            yield Cursor(*place), _after(place, following), plan.block(*place)
        return
    make = partial(every_so_many, plan, start.epoch, start.block)
    with closing(made_in_turn(make, workers, _KILLED.format(workers))) as made:
        for (place, following), arrays in zip(places, made, strict=False):
            yield Cursor(*place), _after(place, following), Block.of_arrays(arrays)


def _after(place: tuple[int, int], following: tuple[int, int]) -> Cursor:
    """Where the batches after a block begin: in the epoch after it, be that empty, or in the same."""
    return Cursor(*following) if following[0] == place[0] else Cursor(place[0] + 1)


def _every(number: int) -> bool:
    return True
