"""Blocks of pairs: parts of an epoch, augmented, sampled, concatenated, reversed and packed at once.

A block depends only on its place. Pairs are concatenated as in Varis & Bojar 2021, section 5.

Shapes: n pairs of a block, m longer pairs made of them.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass

import numpy as np

from nmt.config import DataConfig
from nmt.copying.correspondence import SAMPLE_PAIRS, Pieces
from nmt.copying.insertion import Inserter, count_placeholders, drawn_steps, renumbered
from nmt.data.batches.augmentation import Augmenter
from nmt.data.corpora.mixture import Mixture
from nmt.data.shuffle import Shuffle
from nmt.data.store import Store
from nmt.data.subwords.segmentation import Sampler
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID, NUM_SPECIAL, Vocabulary
from nmt.errors import UserError
from nmt.runtime.arrays import Array, Side, offsets_of
from nmt.runtime.seeds import mix
from nmt.runtime.streams import log

# Streams of random numbers at a place; corpora.mixture uses 0 and 4.
_BATCHES, _SOURCE, _TARGET, _CHAINS, _INSERTED, _STEPS, _AUGMENTED, _REVERSED = 1, 2, 3, 5, 6, 7, 8, 9
_LEXICON_SEED = 1  # of the pairs in which the lexicon of the inserter is counted


def budgets(data: DataConfig) -> tuple[int, int]:
    """Returns the largest numbers of target tokens and of source tokens per batch, EOS counted."""
    return int(data.max_tokens), int(int(data.max_tokens) * data.max_source_ratio)


def most_pieces(data: DataConfig) -> int:
    """Returns the largest number of pieces per side of a training pair, EOS not counted."""
    limits = [
        data.cleaning_of(f"data.train.corpora.{name}", corpus).max_pieces
        for name, corpus in data.train.corpora.items()
    ] or [data.cleaning.max_pieces]
    return max(limits) if all(limits) else max(budgets(data))


@dataclass(frozen=True, eq=False)
class Block:
    """The pairs of a block, in random order.

    Attributes:
        rows: the row of each pair in the store; of a concatenated pair, the rows of its parts.
        source: source sides.
        target: target sides.
        batches: the pairs of each batch, as indices into the block.
    """

    rows: Side
    source: Side
    target: Side
    batches: Side


class Plan:
    """Makes the blocks of any epoch. It can be pickled for other processes, which map the store again.

    Raises:
        UserError: no pair fits into a batch, or pairs are to be reversed between two vocabularies.
    """

    def __init__(self, store: Store, data: DataConfig, seed: int, tokenizer: Tokenizer) -> None:
        self._store, self._seed, self._block_pairs = store, seed, data.block_pairs
        self._max_target, self._max_source = budgets(data)
        # Pieces of a pair that becomes longer; EOS not counted.
        self._limits = (
            min(most_pieces(data), self._max_source - 1),
            min(most_pieces(data), self._max_target - 1),
        )
        self._augmenter = Augmenter(tokenizer, data) if data.augmentation.is_on else None
        self._samplers = _samplers(tokenizer, data.sampling.alpha) if data.sampling.alpha > 0.0 else None
        self._mixture = Mixture.of(store.sizes, data)
        self._concatenate, self._reverse = data.concatenate, data.reversed
        self._symbols = [*tokenizer.source_symbols.values()]
        self._inserter = inserter_of(tokenizer, store) if data.placeholders else None
        self._tags = _tag_ids(tokenizer, data) if data.concatenate or data.placeholders else None
        check_reversed(data, joint=tokenizer.joint)
        longer = store.count_longer(self._max_source - 1, self._max_target - 1)
        if longer == store.num_pairs:
            raise UserError(
                f"data.max_tokens={data.max_tokens}: every training pair is longer than a batch. Increase it."
            )
        if longer:
            log.warning(
                "data.max_tokens=%s: %d of %d training pairs are longer than a batch and are skipped",
                data.max_tokens, longer, store.num_pairs,
            )  # fmt: skip

    def places(self, epoch: int, block: int) -> Iterator[tuple[int, int]]:
        """Yields the epoch and number of each block from this one on, without end.

        An epoch without pairs has no blocks.

        Raises:
            UserError: the epoch has no such block.
        """
        while True:
            num_blocks = -(-self._mixture.num_draws(epoch) // self._block_pairs)
            if block and block >= num_blocks:
                raise UserError(missing_place_message(epoch, block))
            yield from ((epoch, number) for number in range(block, num_blocks))
            epoch, block = epoch + 1, 0

    def block(self, epoch: int, block: int) -> Block:
        """Returns a block of an epoch."""
        start = block * self._block_pairs
        stop = min(start + self._block_pairs, self._mixture.num_draws(epoch))
        drawn = self._mixture.rows(self._seed, epoch, start, stop)
        source, target = self._store.take(drawn)
        backward = np.zeros(len(drawn), np.bool_)
        if self._reverse:
            random = np.random.Generator(np.random.SFC64(mix(self._seed, _REVERSED, epoch, block)))
            has_tag = np.isin(first_ids(source), self._symbols)
            backward = (random.random(len(drawn)) < self._reverse) & ~has_tag
        if self._augmenter is not None:
            corpora, seed = self._mixture.corpora_of(drawn), mix(self._seed, _AUGMENTED, epoch, block)
            new = self._augmenter.augmented(source, target, corpora, seed)
            source, target = self._fitting((source, target), new, ~backward)
        if self._samplers is not None:
            new_source = self._samplers[0].resegment(source, mix(self._seed, _SOURCE, epoch, block))
            new_target = self._samplers[1].resegment(target, mix(self._seed, _TARGET, epoch, block))
            source, target = self._fitting(
                (source, target), (new_source, new_target), np.ones(len(drawn), np.bool_)
            )
        rows = Side(drawn, np.arange(len(drawn) + 1))
        if self._inserter is not None:
            source, target = self._inserted(self._inserter, drawn, source, target, epoch, block)
        if self._concatenate:
            rows, source, target, backward = self._concatenated(rows, source, target, backward, epoch, block)
        if self._inserter is not None:
            steps = drawn_steps(len(source), mix(self._seed, _STEPS, epoch, block))
            source, target = (renumbered(side, self._inserter.first, steps) for side in (source, target))
        if self._reverse:
            source, target = self._fitting((source, target), (begun(target), source), backward)
        lengths = source.lengths(), target.lengths()
        fits = np.flatnonzero((lengths[0] < self._max_source) & (lengths[1] < self._max_target))
        packed = pack(*lengths, fits, self._max_target, self._max_source)
        order = Shuffle(len(packed), mix(self._seed, _BATCHES, epoch, block)).rows(0, len(packed))
        batches = [packed[place] for place in order.tolist()]
        sizes = np.array([len(batch) for batch in batches], np.int64)
        joined = np.concatenate([np.zeros(0, np.int64), *batches])
        return Block(rows, source, target, Side(joined, offsets_of(sizes)))

    def _inserted(
        self, inserter: Inserter, rows: Array, source: Side, target: Side, epoch: int, block: int
    ) -> tuple[Side, Side]:
        """Inserts placeholders, with the numbers 0, 1 and so on in each pair."""
        assert self._tags is not None
        tagged = begins_with(source, self._tags[self._mixture.corpora_of(rows)])
        seed = mix(self._seed, _INSERTED, epoch, block)
        return inserter.insert(source, target, tagged, self._limits, seed)

    def _concatenated(
        self, rows: Side, source: Side, target: Side, backward: Array, epoch: int, block: int
    ) -> tuple[Side, Side, Side, Array]:
        """Pairs that will be reversed are concatenated with each other alone."""
        assert self._tags is not None
        corpora = self._mixture.corpora_of(rows.flat())
        tagged = begins_with(source, self._tags[corpora])
        members = chains(
            source.lengths(),
            target.lengths(),
            2 * corpora + backward,
            tagged,
            fraction=self._concatenate,
            limits=self._limits,
            seed=mix(self._seed, _CHAINS, epoch, block),
        )
        if self._inserter is not None:
            steps = steps_in_chains(count_placeholders(source, self._inserter.first), members)
            source, target = (renumbered(side, self._inserter.first, steps) for side in (source, target))
        return (
            concatenated(rows, members),
            concatenated(source, members, tagged),
            concatenated(target, members),
            backward[members.ids[members.offsets[:-1]]],
        )

    def _fitting(self, old: tuple[Side, Side], new: tuple[Side, Side], wanted: Array) -> tuple[Side, Side]:
        """Returns the new pairs where `wanted`, (n,) bool, and no limit is exceeded and no side is empty.

        The other pairs are the old ones.
        """
        fits = wanted
        for side, limit in zip(new, self._limits, strict=True):
            sizes = side.lengths()
            fits = fits & (sizes > 0) & (sizes <= limit)
        rows = np.arange(len(fits)) + np.where(fits, len(fits), 0)
        source, target = (Side.concatenated(sides).take(rows) for sides in zip(old, new, strict=True))
        return source, target


def missing_place_message(epoch: int, block: int, batch: int = 0) -> str:
    """Returns the error message for a place that does not exist; only a damaged checkpoint has one."""
    return (
        f"the checkpoint is damaged: the data have no epoch {epoch}, block {block}, batch {batch} (counted "
        "from 0). Remove its folder to use the previous checkpoint."
    )


def check_reversed(data: DataConfig, *, joint: bool) -> None:
    """Checks that pairs to reverse have one vocabulary for both sides (`joint`).

    Raises:
        UserError: they have one for each side.
    """
    if data.reversed and not joint:
        raise UserError(
            f"data.reversed={data.reversed}: each side has its own vocabulary, so no pair can be reversed. "
            "Set data.reversed=0, or learn one vocabulary with data.tokenizer.joint=true."
        )


def _tag_ids(tokenizer: Tokenizer, data: DataConfig) -> Array:
    """Returns the id of the tag of each corpus; -1: none."""
    corpora = data.train.corpora.values()
    tags = [corpus.tag for corpus in corpora] if corpora else [data.train.tag]
    return np.array([-1 if tag is None else tokenizer.source_symbols[tag] for tag in tags])


def inserter_of(tokenizer: Tokenizer, store: Store) -> Inserter:
    """Returns the inserter for a tokenizer with placeholders, with the lexicon of a store."""
    symbols = [*range(NUM_SPECIAL), *tokenizer.source_symbols.values(), *tokenizer.placeholders]
    sides = [tokenizer.source] if tokenizer.joint else [tokenizer.source, tokenizer.target]
    pieces = [pieces_of(side, symbols) for side in sides]
    pairs = store.sample(SAMPLE_PAIRS, _LEXICON_SEED)
    return Inserter(tokenizer.placeholders[0], (pieces[0], pieces[-1]), pairs)


def pieces_of(vocabulary: Vocabulary, symbols: Collection[int]) -> Pieces:
    """Returns the facts about the pieces of a vocabulary; see `Pieces`."""
    return Pieces(vocabulary.names, set(filter(vocabulary.is_byte, range(vocabulary.size))), symbols)


def _samplers(tokenizer: Tokenizer, alpha: float) -> tuple[Sampler, Sampler]:
    """Returns one sampler per side; with a joint vocabulary, both are the same object."""
    source = Sampler(tokenizer.source, tokenizer.segmentation, alpha)
    if tokenizer.joint:
        return source, source
    return source, Sampler(tokenizer.target, tokenizer.segmentation, alpha)


OPEN_BATCHES = 8  # batches that are filled at the same time; more of them do not fill batches better


def pack(
    source_lengths: Array, target_lengths: Array, order: Array, max_target: int, max_source: int
) -> list[Array]:
    """Splits a random order of sentences into batches that fill their budgets.

    Packs by first fit into a few open batches. A sentence that does not fit into the oldest open batch goes
    into the next one. If it fits into none, the oldest is closed and a new batch is opened. Sentences near
    each other in `order` therefore share a batch.

    Args:
        source_lengths: source lengths by row, EOS not counted (it is added here).
        target_lengths: target lengths by row, EOS not counted.
        order: the rows to pack, in random order.
        max_target: largest number of target tokens per batch, EOS counted.
        max_source: largest number of source tokens per batch, EOS counted.

    Returns:
        The rows of each batch, sorted by source length, then target length, then row.
    """
    sources = (source_lengths[order].astype(np.int64) + 1).tolist()
    targets = (target_lengths[order].astype(np.int64) + 1).tolist()
    least = min(targets, default=0)
    batches: list[list[int]] = []
    opened: list[tuple[list[int], list[int]]] = []  # rows, [remaining target tokens, remaining source tokens]
    for row, source, target in zip(order.tolist(), sources, targets, strict=True):
        assert source <= max_source and target <= max_target, "a pair exceeds the budget of a batch"
        for place, (rows, left) in enumerate(opened):
            if target <= left[0] and source <= left[1]:
                rows.append(row)
                left[0] -= target
                left[1] -= source
                if left[0] < least:
                    batches.append(opened.pop(place)[0])
                break
        else:
            if len(opened) == OPEN_BATCHES:
                batches.append(opened.pop(0)[0])
            opened.append(([row], [max_target - target, max_source - source]))
    batches.extend(rows for rows, _ in opened)
    return [
        rows[np.lexsort((rows, target_lengths[rows], source_lengths[rows]))]
        for rows in map(np.asarray, batches)
    ]


def chains(
    source_lengths: Array,
    target_lengths: Array,
    corpora: Array,
    tagged: Array,
    *,
    fraction: float,
    limits: tuple[int, int],
    seed: int,
) -> Side:
    """Selects the pairs to concatenate.

    A given fraction of the pairs is chosen at random. Each of them is appended to the pair before it, in the
    order of the block, if both are of the same corpus and the result is within the limits. The pair before
    may itself be appended to another one.

    Args:
        source_lengths: (n,), number of pieces of each source.
        target_lengths: (n,), number of pieces of each target.
        corpora: (n,), the number of the corpus of each pair.
        tagged: (n,) bool, whether a source begins with a tag; it is dropped after another source.
        fraction: of the pairs, from 0 to 1.
        limits: largest number of pieces of a concatenated source and target.
        seed: the result is a pure function of the arguments.

    Returns:
        (m,), for each longer pair the pairs that it consists of, as indices into the block. Each pair is in
        exactly one of them.
    """
    count = len(corpora)
    chosen = Shuffle(count, seed).rows(0, count) < round(fraction * count)
    order = np.argsort(corpora, kind="stable")
    is_new = ~chosen[order]
    is_new[:1] = True
    is_new[1:] |= np.diff(corpora[order]) != 0
    source_left = target_left = 0
    sizes: list[int] = []
    columns = (is_new, source_lengths[order], target_lengths[order], tagged[order])
    for new, source, target, tag in zip(*(column.tolist() for column in columns), strict=True):
        if new or source - tag > source_left or target > target_left:
            sizes.append(1)
            source_left, target_left = limits[0] - source, limits[1] - target
        else:
            sizes[-1] += 1
            source_left, target_left = source_left - (source - tag), target_left - target
    return Side(order, offsets_of(np.array(sizes, np.int64)))


def begins_with(side: Side, ids: Array) -> Array:
    """Returns whether each of n sentences begins with the id at its place in `ids`, (n,); (n,) bool."""
    return np.asarray(first_ids(side) == ids)


def first_ids(side: Side) -> Array:
    """Returns the first id of each of n sentences, (n,) int64; EOS of an empty one."""
    first = np.full(len(side), EOS_ID, np.int64)
    nonempty = np.flatnonzero(side.lengths())
    first[nonempty] = side.ids[side.offsets[nonempty]]
    return first


def begun(side: Side) -> Side:
    """Returns n sentences with BOS before each: as sources, they belong to reversed pairs."""
    ids = np.insert(side.flat(), side.offsets[:-1] - side.offsets[0], BOS_ID)
    return Side(ids, offsets_of(side.lengths() + 1))


def steps_in_chains(counts: Array, members: Side) -> Array:
    """Returns the number of placeholders before each pair in its chain: (n,).

    Args:
        counts: (n,), number of placeholders of each pair.
        members: (m,), as `chains` returns them.
    """
    order = members.flat()
    before = np.cumsum(counts[order]) - counts[order]
    begins = members.offsets[:-1] - members.offsets[0]
    steps = np.empty(len(counts), np.int64)
    steps[order] = before - np.repeat(before[begins], members.lengths())
    return steps


def concatenated(side: Side, members: Side, tagged: Array | None = None) -> Side:
    """Concatenates sentences.

    Args:
        side: the n sentences.
        members: (m,), as `chains` returns them.
        tagged: (n,) bool, whether a sentence begins with a tag. The tag is dropped, unless the sentence is
            the first of its chain. None: no sentence does.

    Returns:
        The m sentences.
    """
    taken = side.take(members.flat())
    if tagged is None:
        return Side(taken.ids, taken.offsets[members.offsets])
    is_first = np.zeros(len(taken), np.bool_)
    is_first[members.offsets[:-1]] = True
    drops = tagged[members.flat()] & ~is_first
    remains = np.ones(len(taken.ids), np.bool_)
    remains[taken.offsets[:-1][drops]] = False
    offsets = offsets_of(taken.lengths() - drops)
    return Side(taken.ids[remains], offsets[members.offsets])
