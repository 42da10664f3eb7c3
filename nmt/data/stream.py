"""The endless stream of training batches, each a pure function of its place, made ahead of their use."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace

import numpy as np

from nmt.config import DataConfig
from nmt.data.arrays import Array, Side
from nmt.data.batching import Batch, pack
from nmt.data.mixture import Mixture
from nmt.data.prefetch import Prefetch
from nmt.data.sampling import Sampler
from nmt.data.shuffle import Shuffle
from nmt.data.store import Store
from nmt.data.tokenizer import Tokenizer
from nmt.errors import UserError
from nmt.runtime import log, mix

AHEAD = 16  # batches made ahead, of those that are picked
FILLED_TO = 64  # tokens of a side come in multiples of this; of 2,048, filling up takes 3 % and saves 20 %

_BATCHES, _SOURCE, _TARGET = (
    1,
    2,
    3,
)  # what the seed at one place is used for; nmt.data.mixture has the others


@dataclass(frozen=True, order=True)
class Cursor:
    """The place of the next batch: epoch, block of the epoch, batch of the block; all from 0."""

    epoch: int = 0
    block: int = 0
    batch: int = 0


BEGINNING = Cursor()


def budgets(data: DataConfig) -> tuple[int, int]:
    """Target and source tokens that a batch holds at most, EOS counted."""
    return int(data.max_tokens), int(int(data.max_tokens) * data.max_source_ratio)


def most_pieces(data: DataConfig) -> int:
    """Pieces that a side of a training pair has at most, EOS not counted."""
    limits = [
        data.cleaning_of(f"data.train.corpora.{name}", corpus).max_pieces
        for name, corpus in data.train.corpora.items()
    ] or [data.cleaning.max_pieces]
    return max(limits) if all(limits) else max(budgets(data))


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
        pin: bool = False,
    ) -> None:
        """Starts two threads: one makes the blocks, the other lays out their batches.

        Args:
            store: training pairs.
            data: budgets, block size and sampling.
            seed: of the run.
            tokenizer: whose pieces are sampled from.
            start: where to begin.
            pick: tells for the number of a batch, counted from 0 where the stream begins, whether it is
                wanted; in the place of others comes None, at hardly any cost.
            world: of how many batches one is picked; as many times `AHEAD` places are looked ahead.
            pin: put batches into page-locked memory, for a GPU.

        Raises:
            UserError: no pair fits into a batch.
        """
        self._plan = _Plan(store, data, seed, tokenizer)
        # A block is to be there when the one before is used up. In memory are at most three: the one in use,
        # one that waits, and one in the making (65,536 pairs of 30 pieces a side are some 8 MB).
        self._blocks = Prefetch(_blocks(self._plan, start), 1)
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
        for place, after, block, rows in _walk(_blocks(self._plan, start), start.batch):
            found.append((place, block.rows[rows]))
            if after >= end:
                break
        return found

    def close(self) -> None:
        """Ends the threads, at the latest when the block that is being made is done."""
        self._blocks.close()  # first: who lays out batches may be waiting for a block
        self._items.close()


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


@dataclass(frozen=True, eq=False)
class _Block:
    """The pairs of a block: their rows in the store, both sides, and which of them make up each batch."""

    rows: Array
    source: Side
    target: Side
    batches: list[Array]


class _Plan:
    """What the stream is made from: any block of any epoch, and how many batches it has."""

    def __init__(self, store: Store, data: DataConfig, seed: int, tokenizer: Tokenizer) -> None:
        self._store, self._seed, self._block_pairs = store, seed, data.block_pairs
        self._max_target, self._max_source = budgets(data)
        self._max_pieces = most_pieces(data)
        self._samplers = _samplers(tokenizer, data.sampling.alpha) if data.sampling.alpha > 0.0 else None
        self._mixture = Mixture.of(store.sizes, data)
        longer = store.count_longer(self._max_source - 1, self._max_target - 1)
        if longer == store.num_pairs:
            raise UserError(f"data.max_tokens={data.max_tokens}: no training pair is short enough; raise it")
        if longer:
            log.warning(
                "data.max_tokens=%s: %d of %d training pairs are longer than a whole batch and left out",
                data.max_tokens, longer, store.num_pairs,
            )  # fmt: skip

    def num_blocks(self, epoch: int) -> int:
        """How many blocks an epoch has; none where the weights leave it without a pair."""
        return -(-self._mixture.num_draws(epoch) // self._block_pairs)

    def block(self, epoch: int, block: int) -> _Block:
        """A block of an epoch."""
        start = block * self._block_pairs
        stop = min(start + self._block_pairs, self._mixture.num_draws(epoch))
        rows = self._mixture.rows(self._seed, epoch, start, stop)
        source, target = self._sampled(*self._store.take(rows), epoch, block)
        source_lengths, target_lengths = source.lengths(), target.lengths()
        fits = (source_lengths < self._max_source) & (target_lengths < self._max_target)
        batches = pack(
            source_lengths, target_lengths, np.flatnonzero(fits), self._max_target, self._max_source
        )
        order = Shuffle(len(batches), mix(self._seed, _BATCHES, epoch, block)).rows(0, len(batches))
        return _Block(rows, source, target, [batches[place] for place in order])

    def _sampled(self, source: Side, target: Side, epoch: int, block: int) -> tuple[Side, Side]:
        """The pairs cut up afresh; one that grows beyond what is allowed stays as it was."""
        if self._samplers is None:
            return source, target
        new_source = self._samplers[0].resegment(source, mix(self._seed, _SOURCE, epoch, block))
        new_target = self._samplers[1].resegment(target, mix(self._seed, _TARGET, epoch, block))
        sizes = new_source.lengths(), new_target.lengths()
        kept = (sizes[0] <= min(self._max_pieces, self._max_source - 1)) & (
            sizes[1] <= min(self._max_pieces, self._max_target - 1)
        )
        rows = np.arange(len(kept)) + np.where(kept, len(kept), 0)
        return (
            Side.concatenated([source, new_source]).take(rows),
            Side.concatenated([target, new_target]).take(rows),
        )


def _samplers(tokenizer: Tokenizer, alpha: float) -> tuple[Sampler, Sampler]:
    """One a side; with a joint vocabulary it is the same."""
    source = Sampler(tokenizer.source_processor, tokenizer.segmentation, alpha)
    if tokenizer.joint:
        return source, source
    return source, Sampler(tokenizer.target_processor, tokenizer.segmentation, alpha)


_Step = tuple[Cursor, Cursor, _Block, Array]  # a batch's place, the one after it, its block, its rows there


def _batches(
    steps: Iterator[_Step], pick: Callable[[int], bool], pin: bool
) -> Iterator[tuple[Batch | None, Cursor]]:
    for number, (_, after, block, rows) in enumerate(steps):
        batch = None
        if pick(number):
            batch = Batch.of_sides(block.source.take(rows), block.target.take(rows)).filled(FILLED_TO)
            batch = batch.pin_memory() if pin else batch
        yield batch, after


def _walk(blocks: Iterator[tuple[Cursor, Cursor, _Block]], first: int) -> Iterator[_Step]:
    """The batches of some blocks, from the one numbered `first` of the first block on."""
    for begin, following, block in blocks:
        for batch in range(first, len(block.batches)):
            place, after = replace(begin, batch=batch), replace(begin, batch=batch + 1)
            last = batch + 1 == len(block.batches)
            yield place, following if last else after, block, block.batches[batch]
        first = 0


def _blocks(plan: _Plan, start: Cursor) -> Iterator[tuple[Cursor, Cursor, _Block]]:
    """The blocks from the one of `start` on: where each begins, where the one after it does, and itself."""
    epoch, number = start.epoch, start.block
    while True:
        num_blocks = plan.num_blocks(epoch)
        if not num_blocks:
            epoch += 1
            continue
        following = Cursor(epoch, number + 1) if number + 1 < num_blocks else Cursor(epoch + 1)
        yield Cursor(epoch, number), following, plan.block(epoch, number)
        epoch, number = following.epoch, following.block


def _every(number: int) -> bool:
    return True
