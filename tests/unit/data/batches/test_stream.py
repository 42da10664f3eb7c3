"""The endless stream of batches."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import pickle
import signal
import threading
import time
from collections import Counter
from dataclasses import replace
from functools import cache
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from toy_corpus import learnt, toy_pairs
from waiting import prefetch_threads, wait_until

from nmt.config import (
    AugmentationConfig,
    CleaningConfig,
    CorpusConfig,
    DataConfig,
    SamplingConfig,
    TrainSplitConfig,
)
from nmt.data.batches import stream as stream_module
from nmt.data.batches.batching import Batch
from nmt.data.batches.blocks import Block, Plan
from nmt.data.batches.stream import BatchStream, Cursor, num_loaders, validation_batches
from nmt.data.store import Shard, Store
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.errors import UserError

Rows = list[tuple[list[int], list[int]]]


@cache
def tokenizer() -> Tokenizer:
    return learnt(toy_pairs(300), vocab_size=380)


@cache
def store(num_pairs: int = 103) -> Store:
    """Unique pairs of real pieces, so that sampling can cut them up."""
    random = Random(num_pairs)
    texts = [
        "".join(random.choices("abcde    ", k=random.randint(2, 30))) + f" {i}" for i in range(num_pairs)
    ]
    ids = tokenizer().encode_source(texts)
    return Store.of(ids, [sentence[::-1] for sentence in ids])


def options(**more: Any) -> DataConfig:
    values: dict[str, Any] = {"max_tokens": 60, "block_pairs": 40, "source_lang": "xx", "target_lang": "yy"}
    return DataConfig(**(values | more))


def content(batch: Batch | None) -> Rows:
    assert batch is not None
    sources = batch.source_ids.split(batch.source.lengths)[: batch.num_sentences]
    targets = batch.target_out.split(batch.target.lengths)[: batch.num_sentences]
    return [(x[:-1].tolist(), y[:-1].tolist()) for x, y in zip(sources, targets, strict=True)]


def first(
    count: int, data: DataConfig, start: Cursor, seed: int = 1, pairs: Store | None = None
) -> list[tuple[Rows, Cursor]]:
    stream = BatchStream(pairs or store(), data, seed, tokenizer(), start=start)
    try:
        return [(content(batch), cursor) for batch, cursor in itertools.islice(stream, count)]
    finally:
        stream.close()


def epochs(count: int, data: DataConfig, seed: int = 1, pairs: Store | None = None) -> list[list[Rows]]:
    stream = BatchStream(pairs or store(), data, seed, tokenizer())
    found: list[list[Rows]] = [[] for _ in range(count)]
    epoch = 0
    for batch, cursor in stream:
        found[epoch].append(content(batch))
        epoch = cursor.epoch
        if epoch == count:
            stream.close()
    return found


def test_every_epoch_has_every_pair_once_in_another_order() -> None:
    pairs = Counter(str((store().pair(i)[0].tolist(), store().pair(i)[1].tolist())) for i in range(103))
    found = epochs(3, options())
    for batches in found:
        assert Counter(str(row) for batch in batches for row in batch) == pairs
        for batch in batches:
            assert sum(len(y) + 1 for _, y in batch) <= 60
            assert sum(len(x) + 1 for x, _ in batch) <= 90
            assert [len(x) for x, _ in batch] == sorted(len(x) for x, _ in batch)
    assert found[0] != found[1] != found[2]
    assert found != epochs(3, options(), seed=2)
    assert found == epochs(3, options())


@given(st.sampled_from([0.0, 0.2]), st.integers(0, 20), st.integers(1, 20))
@settings(max_examples=12)
def test_the_rows_of_a_stretch(alpha: float, skipped: int, count: int) -> None:
    """`rows` names the pairs in the batches between two cursors, across blocks and epochs."""
    data = options(sampling=SamplingConfig(alpha=alpha))
    whole = first(skipped + count, data, Cursor())
    places = [Cursor(), *(cursor for _, cursor in whole)]
    stream = BatchStream(store(), data, 1, tokenizer())
    found = stream.rows(places[skipped], places[skipped + count])
    stream.close()
    assert [place for place, _ in found] == places[skipped : skipped + count]
    for (_, rows), (content_, _) in zip(found, whole[skipped:], strict=True):
        texts = [tokenizer().decode_target([store().pair(row)[1].tolist()])[0] for row in rows.tolist()]
        assert texts == [tokenizer().decode_target([target])[0] for _, target in content_]


def mixed(weights: list[float], **more: Any) -> DataConfig:
    corpora = {f"c{place}": CorpusConfig(weight=weight) for place, weight in enumerate(weights)}
    return options(train=TrainSplitConfig(corpora=corpora), **more)


@cache
def two_corpora() -> Store:
    return Store.joined([store(70), store(33)])


AUGMENTED = AugmentationConfig(capitals=0.2, titles=0.2, unpunctuated=0.5, typos=0.5)
RESUMED = [
    *(options(sampling=SamplingConfig(alpha=alpha), concatenate=concatenate)
      for alpha, concatenate in ((0.0, 0.0), (0.2, 0.0), (0.0, 0.5), (0.2, 0.5))),
    options(augmentation=AUGMENTED, sampling=SamplingConfig(alpha=0.2), concatenate=0.5, reversed=0.5),
    *map(mixed, ([1.0, 2.0], [0.5, 3.0], [0.001, 0.002])),
]  # fmt: skip


@given(st.sampled_from(RESUMED), st.integers(0, 60))
@settings(max_examples=24)
def test_what_follows_a_cursor_does_not_depend_on_the_start(data: DataConfig, skipped: int) -> None:
    pairs = two_corpora() if data.train.corpora else store()
    whole = first(80, data, Cursor(), pairs=pairs)
    start = whole[skipped - 1][1] if skipped else Cursor()
    assert first(80 - skipped, data, start, pairs=pairs) == whole[skipped:]


def test_a_mixture_draws_what_the_weights_say() -> None:
    counts = [Counter[str](), Counter[str]()]
    for batches, counter in zip(epochs(2, mixed([0.5, 2.0]), pairs=two_corpora()), counts, strict=True):
        counter.update(str(row) for batch in batches for row in batch)
    first_rows, second_rows = (
        {str((part.pair(i)[0].tolist(), part.pair(i)[1].tolist())) for i in range(part.num_pairs)}
        for part in (store(70), store(33))
    )
    for counter in counts:
        assert sum(counter[row] for row in first_rows) == 35
        assert {counter[row] for row in second_rows} == {2}
    assert {(counts[0] + counts[1])[row] for row in first_rows} == {1}


def test_an_epoch_without_a_pair_is_passed_over() -> None:
    found = first(2, mixed([0.001, 0.01]), Cursor(), pairs=two_corpora())
    assert [(len(rows), cursor) for rows, cursor in found] == [(1, Cursor(2)), (1, Cursor(5))]


def test_cursor_names_the_next_batch() -> None:
    cursors = [cursor for _, cursor in first(60, options(), Cursor())]
    assert cursors == sorted(cursors)
    assert cursors[0] == Cursor(0, 0, 1)
    assert Cursor(0, 1, 0) in cursors and Cursor(0, 2, 0) in cursors and Cursor(1, 0, 0) in cursors
    assert Cursor(0, 3, 0) not in cursors
    assert Cursor(0, 9, 9) < Cursor(1, 0, 0) < Cursor(1, 0, 1) < Cursor(1, 1, 0)


@pytest.mark.parametrize("world", [2, 3])
def test_ranks_share_the_batches(world: int) -> None:
    data = options(augmentation=AUGMENTED)
    whole = first(30, data, Cursor())
    for rank in range(world):
        stream = BatchStream(store(), data, 1, tokenizer(), pick=lambda i, r=rank: i % world == r)
        for number, (batch, cursor) in enumerate(itertools.islice(stream, 30)):
            assert cursor == whole[number][1]
            assert (batch is None) == (number % world != rank)
            assert batch is None or content(batch) == whole[number][0]
        stream.close()


Calls = list[tuple[int, int]]


@pytest.fixture
def blocks_begun(monkeypatch: pytest.MonkeyPatch) -> Calls:
    """Records (epoch, number) of every block that is started; limits the prefetch to one batch."""
    begun: Calls = []
    make = Plan.block

    def block(plan: Plan, epoch: int, number: int) -> Block:
        begun.append((epoch, number))
        return make(plan, epoch, number)

    monkeypatch.setattr(Plan, "block", block)
    monkeypatch.setattr(stream_module, "AHEAD", 1)
    return begun


def test_blocks_are_made_while_the_one_before_is_used(blocks_begun: Calls) -> None:
    stream = BatchStream(store(), options(), 1, tokenizer())
    wait_until(lambda: len(blocks_begun) == 3)  # in use, in the queue, and the next one
    assert next(stream)[1] == Cursor(0, 0, 1) and stream.seconds_waited > 0
    time.sleep(0.02)
    assert blocks_begun == [(0, 0), (0, 1), (0, 2)]
    for _, cursor in stream:
        if cursor.block:
            break
    wait_until(lambda: len(blocks_begun) == 4)
    assert blocks_begun[3] == (1, 0)
    stream.close()


def test_threads_end_with_the_stream(blocks_begun: Calls) -> None:
    before = prefetch_threads()
    stream = BatchStream(store(), options(), 1, tokenizer())
    next(stream)
    assert prefetch_threads() == before + 2
    stream.rows(Cursor(), Cursor(0, 1))
    assert prefetch_threads() == before + 2
    stream.close()
    stream.close()
    assert prefetch_threads() == before
    assert list(stream) == []


def test_threads_end_with_a_forgotten_stream(blocks_begun: Calls) -> None:
    before = prefetch_threads()
    stream = BatchStream(store(), options(), 1, tokenizer())
    wait_until(lambda: len(blocks_begun) == 3)
    del stream
    gc.collect()
    wait_until(lambda: prefetch_threads() == before)


def test_closing_does_not_wait_for_a_block_that_is_not_begun(
    blocks_begun: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stream closes while its thread waits for block 0: block 1 must not be started."""
    before, counted = prefetch_threads(), Plan.block
    begun, go_on = threading.Event(), threading.Event()

    def block(plan: Plan, epoch: int, number: int) -> Block:
        begun.set()
        go_on.wait(20)
        return counted(plan, epoch, number)

    monkeypatch.setattr(Plan, "block", block)
    stream = BatchStream(store(), options(), 1, tokenizer())
    begun.wait(20)
    closer = threading.Thread(target=stream.close)
    closer.start()
    assert list(stream) == []  # ends as soon as the stream is closed, although block 0 is unfinished
    go_on.set()
    closer.join(20)
    assert prefetch_threads() == before
    assert blocks_begun == [(0, 0)]


def test_an_error_in_a_block_comes_after_the_batches_before_it(
    blocks_begun: Calls, monkeypatch: pytest.MonkeyPatch
) -> None:
    whole, counted = first(60, options(), Cursor()), Plan.block

    def block(plan: Plan, epoch: int, number: int) -> Block:
        if number == 2:
            raise OSError("the disk is gone")
        return counted(plan, epoch, number)

    monkeypatch.setattr(Plan, "block", block)
    stream = BatchStream(store(), options(), 1, tokenizer())
    found = []
    with pytest.raises(OSError, match="the disk is gone"):
        for batch, cursor in stream:
            found.append((content(batch), cursor))
    stream.close()
    assert found == whole[: len(found)]
    assert found[-1][1] == Cursor(0, 2)


def test_as_many_batches_are_made_ahead_whatever_the_number_of_processes(blocks_begun: Calls) -> None:
    looked_at: list[int] = []

    def pick(number: int) -> bool:
        looked_at.append(number)
        return number % 4 == 3

    stream = BatchStream(store(), options(), 1, tokenizer(), pick=pick, world=4)
    wait_until(lambda: len(looked_at) == 5)  # four in the queue, one of them a batch; and the next one
    time.sleep(0.02)
    assert len(looked_at) == 5
    stream.close()


@pytest.mark.parametrize("workers", [1, 3])
def test_processes_make_the_very_same_batches(workers: int) -> None:
    """With augmentation, sampling, a mixture with empty epochs, and a start within a block."""
    data = mixed([0.1, 0.2], block_pairs=5, sampling=SamplingConfig(alpha=0.3), augmentation=AUGMENTED)
    whole = first(40, data, Cursor(), pairs=two_corpora())
    start = next(cursor for _, cursor in whole[5:] if cursor.batch)
    expected = whole[[cursor for _, cursor in whole].index(start) + 1 :]
    stream = BatchStream(two_corpora(), data, 1, tokenizer(), start=start, workers=workers)
    found = [(content(batch), cursor) for batch, cursor in itertools.islice(stream, len(expected))]
    stream.close()
    assert found == expected
    assert multiprocessing.active_children() == []


def test_processes_map_a_store_of_files(tmp_path: Path) -> None:
    paths = [tmp_path / name for name in ("a", "b")]
    for path, part in zip(paths, (store(70), store(33)), strict=True):
        ((source, target),) = part.sides()
        Shard(source, target).write(path)
    opened = Store.open(paths)
    assert len(pickle.dumps(opened)) < 2000
    again = pickle.loads(pickle.dumps(opened))
    for found, expected in zip(again.sides(), opened.sides(), strict=True):
        assert [side.ids.tolist() for side in found] == [side.ids.tolist() for side in expected]
    stream = BatchStream(opened, options(), 1, tokenizer(), workers=1)
    expected = first(20, options(), Cursor(), pairs=opened)
    assert [(content(batch), cursor) for batch, cursor in itertools.islice(stream, 20)] == expected
    stream.close()
    paths[1].unlink()  # still mapped in this process
    paths[1].write_bytes(b"another")
    stream = BatchStream(opened, options(), 1, tokenizer(), workers=1)
    with pytest.raises(UserError, match=r"b: damaged .*Start again"):
        next(stream)
    stream.close()


@pytest.mark.parametrize(
    ("alpha", "gpu", "world", "cores", "expected"),
    [
        (0.1, False, 1, 64, 0),  # on the CPU, training is slower than one thread
        (0.0, True, 1, 16, 1),
        (0.0, True, 3, 2, 1),
        (0.0, True, 1, 1, 0),
        (0.0, True, 8, 16, 1),
        (0.0, True, 64, 16, 8),
        (0.1, True, 1, 16, 2),
        (0.1, True, 8, 24, 9),
        (0.1, True, 8, 6, 5),  # one core is reserved for training
        (0.1, True, 1, 1, 0),
        (0.0, True, 16, 0, 0),  # more processes than cores
    ],
)
def test_how_many_processes(alpha: float, gpu: bool, world: int, cores: int, expected: int) -> None:
    data = options(sampling=SamplingConfig(alpha=alpha))
    assert num_loaders(data, gpu=gpu, world=world, cores=cores) == expected
    if alpha:
        data = options(augmentation=AUGMENTED)
        assert num_loaders(data, gpu=gpu, world=world, cores=cores) == expected
    assert num_loaders(replace(data, loaders=3), gpu=gpu, world=world, cores=cores) == 3


def test_a_killed_process_ends_the_stream(capfd: pytest.CaptureFixture[str]) -> None:
    stream = BatchStream(store(), options(), 1, tokenizer(), workers=2)
    next(stream)
    killed = multiprocessing.active_children()[0]
    assert killed.pid is not None
    os.kill(killed.pid, signal.SIGKILL)
    with pytest.raises(UserError, match=r"^data\.loaders=2: a process .* data\.loaders=0\.$"):
        for _ in stream:
            pass
    stream.close()
    assert multiprocessing.active_children() == []
    assert capfd.readouterr().err == ""


def test_sampling_keeps_the_text_and_changes_with_the_epoch() -> None:
    plain = {tuple(store().pair(i)[0].tolist()) for i in range(103)}
    found = epochs(2, options(sampling=SamplingConfig(alpha=0.2)))
    own = tokenizer()
    for batches in found:
        rows = [row for batch in batches for row in batch]
        texts = Counter(own.source.processor.decode([x for x, _ in rows]))
        assert texts == Counter(
            own.source.processor.decode([store().pair(i)[0].tolist() for i in range(103)])
        )
        assert sum(tuple(x) not in plain for x, _ in rows) > 20
        assert all(sum(len(y) + 1 for _, y in batch) <= 60 for batch in batches)
    assert {str(x) for b in found[0] for x, _ in b} != {str(x) for b in found[1] for x, _ in b}


def test_a_sample_that_grows_too_long_is_not_used() -> None:
    longest = max(len(side) for row in range(103) for side in store().pair(row))
    data = options(sampling=SamplingConfig(alpha=0.01), cleaning=CleaningConfig(max_pieces=longest))
    rows = [row for batch in epochs(1, data)[0] for row in batch]
    assert len(rows) == 103
    assert max(max(len(x), len(y)) for x, y in rows) <= longest


def test_pairs_longer_than_a_batch_are_left_out_and_counted(caplog: pytest.LogCaptureFixture) -> None:
    data = options(max_tokens=16, max_source_ratio=1.0)
    short = sum(len(store().pair(i)[0]) < 16 for i in range(103))
    assert 0 < short < 103
    with caplog.at_level("WARNING", "nmt"):
        rows = [row for batch in epochs(1, data)[0] for row in batch]
    assert len(rows) == short
    assert f"{103 - short} of 103 training pairs" in caplog.text
    long = Store.of([[5] * 40], [[5] * 40])
    with pytest.raises(UserError, match="data.max_tokens=16"):
        BatchStream(long, data, 1, tokenizer())


def test_validation_batches_hold_every_pair_once() -> None:
    batches = validation_batches(store(), 64)
    pairs = Counter(str((store().pair(i)[0].tolist(), store().pair(i)[1].tolist())) for i in range(103))
    assert Counter(str(row) for batch in batches for row in content(batch)) == pairs
    assert all(
        sum(batch.source.lengths) - batch.filling[0] <= 64 and batch.num_target_tokens <= 64
        for batch in batches
    )
    assert len(batches) < 40


def test_validation_takes_a_pair_longer_than_the_budget() -> None:
    batches = validation_batches(Store.of([[5], [6] * 30], [[7], [8]]), 16)
    assert [batch.num_sentences for batch in batches] == [1, 1]
    assert validation_batches(Store.of([], []), 16) == []


PLACES = [Cursor(0, 99, 0), Cursor(0, 0, 999), Cursor(3, 10**9, 0), Cursor(0, 1, 10**12)]


@pytest.mark.parametrize("place", PLACES)
def test_places_that_the_data_do_not_have(place: Cursor) -> None:
    stream = BatchStream(store(), options(block_pairs=40), 1, tokenizer(), start=place)
    with pytest.raises(UserError, match="the checkpoint is damaged: the data have no epoch"):
        next(stream)
    stream.close()
