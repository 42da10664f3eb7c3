"""Prepared pairs in mapped shards."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from safetensors.numpy import load_file

from nmt.data.store import Shard, Store
from nmt.errors import UserError
from nmt.runtime.arrays import Side, smallest_dtype

SENTENCES = st.lists(st.lists(st.integers(0, 65_535), max_size=5), min_size=1, max_size=12)


def shard(sources: list[list[int]], targets: list[list[int]]) -> Shard:
    return Shard(Side.of(sources, np.uint16), Side.of(targets, np.uint16))


def lists(side: Side) -> list[list[int]]:
    return [ids.tolist() for ids in side]


def test_smallest_dtype() -> None:
    table = {0: np.uint16, 65_535: np.uint16, 65_536: np.uint32, 2**32 - 1: np.uint32, 2**32: np.uint64}
    assert {largest: smallest_dtype(largest) for largest in table} == table


@given(SENTENCES, st.lists(st.integers(0, 11), max_size=20))
def test_take_of_a_side_against_naive(sentences: list[list[int]], rows: list[int]) -> None:
    chosen = [row % len(sentences) for row in rows]
    taken = Side.of(sentences, np.uint16).take(np.array(chosen, np.int64))
    assert lists(taken) == [sentences[row] for row in chosen]
    assert taken.lengths().tolist() == [len(sentences[row]) for row in chosen]
    assert taken.ids.dtype == np.uint16


@given(st.lists(SENTENCES, min_size=1, max_size=4), st.lists(st.integers(0, 99), max_size=20))
def test_take_of_a_store_against_naive(parts: list[list[list[int]]], rows: list[int]) -> None:
    sources = [sentence for part in parts for sentence in part]
    targets = [sentence[::-1] for sentence in sources]
    store = Store(shard(part, [sentence[::-1] for sentence in part]) for part in parts)
    chosen = [row % len(sources) for row in rows]
    taken = store.take(np.array(chosen, np.int64))
    assert [lists(side) for side in taken] == [
        [sources[row] for row in chosen],
        [targets[row] for row in chosen],
    ]
    assert store.num_pairs == len(sources)
    count = len(rows)
    first = store.first(count)
    assert [first.pair(row)[0].tolist() for row in range(first.num_pairs)] == sources[: count or None]
    assert [store.pair(row)[0].tolist() for row in range(len(sources))] == sources
    assert [store.pair(row)[1].tolist() for row in range(len(sources))] == targets
    assert store.num_source_tokens == store.num_target_tokens == sum(map(len, sources))
    assert store.count_longer(2, 3) == sum(len(sentence) > 2 for sentence in sources)
    with pytest.raises(IndexError):
        store.pair(len(sources))[0]


def test_written_and_mapped(tmp_path: Path) -> None:
    path = tmp_path / "00000.safetensors"
    written = Shard(
        Side.of([[1, 2], []], np.uint16),
        Side.of([[70_000], [3]], np.uint32),
        {"odd": np.arange(3, dtype="u1")},
    )
    Shard(written.source, written.target, written.more, {"kept": 2}).write(path)
    opened = Shard.open(path)
    assert (lists(opened.source), lists(opened.target)) == ([[1, 2], []], [[70_000], [3]])
    assert (opened.source.ids.dtype, opened.target.ids.dtype) == (np.uint16, np.uint32)
    assert opened.more["odd"].tolist() == [0, 1, 2]
    assert opened.facts == {"kept": 2}
    assert not opened.source.ids.flags.owndata and not opened.source.ids.flags.writeable
    assert lists(Store.open([path, path]).take(np.array([3, 0]))[1]) == [[3], [70_000]]


def test_file_is_what_the_safetensors_library_reads(tmp_path: Path) -> None:
    path = tmp_path / "a.safetensors"
    shard([[1, 2], [3]], [[4], []]).write(path)
    assert {name: array.tolist() for name, array in load_file(path).items()} == {
        "source": [1, 2, 3],
        "source_offsets": [0, 2, 3],
        "target": [4],
        "target_offsets": [0, 1, 1],
    }


@pytest.mark.parametrize("damage", ["missing", "empty", "cut", "header", "other"])
def test_damaged_file_is_named(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "00007.safetensors"
    shard([[1, 2, 3]], [[4]]).write(path)
    content = path.read_bytes()
    if damage == "missing":
        path.unlink()
    else:
        wrong = {
            "empty": b"",
            "cut": content[:-1],
            "header": b"\xff" * 8 + content[8:],
            "other": b"text" * 99,
        }
        path.write_bytes(wrong[damage])
    with pytest.raises(UserError, match="00007.safetensors: damaged"):
        Shard.open(path)
