"""Flat batches."""

from __future__ import annotations

from itertools import accumulate
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

from nmt.data.batches.batching import IGNORED_ID, Batch
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID

PAIRS = st.lists(st.tuples(st.integers(0, 14), st.integers(0, 14)), max_size=60)


@given(PAIRS)
def test_twice_is_the_batch_of_the_pairs_and_the_pairs_again(lengths: list[tuple[int, int]]) -> None:
    sources = [[4 + n % 7] * source for n, (source, _) in enumerate(lengths)]
    targets = [[5 + n % 7] * target for n, (_, target) in enumerate(lengths)]
    found, expected = Batch.of(sources, targets).twice(), Batch.of(sources * 2, targets * 2)
    for name in ("source_ids", "target_in", "target_out"):
        assert torch.equal(getattr(found, name), getattr(expected, name))
    for a, b in ((found.source, expected.source), (found.target, expected.target)):
        assert torch.equal(a.cu_seqlens, b.cu_seqlens) and torch.equal(a.positions, b.positions)
        assert (a.cu_seqlens.dtype, a.lengths, a.max_len) == (b.cu_seqlens.dtype, b.lengths, b.max_len)


def test_dtypes() -> None:
    batch = Batch.of([[4]], [[5]])
    assert {batch.source_ids.dtype, batch.target_in.dtype, batch.target_out.dtype} == {torch.int64}
    assert batch.source.cu_seqlens.dtype == torch.int32
    assert batch.source.positions.dtype == torch.int64
    moved = batch.to("cpu", non_blocking=True)
    assert torch.equal(moved.target_out, batch.target_out) and moved.target.lengths == batch.target.lengths


@given(st.lists(st.tuples(st.lists(st.integers(3, 99)), st.lists(st.integers(3, 99))), max_size=8))
def test_batch_against_naive(pairs: list[tuple[list[int], list[int]]]) -> None:
    batch = Batch.of([x for x, _ in pairs], [y for _, y in pairs])
    assert batch.source_ids.tolist() == [i for x, _ in pairs for i in [*x, 2]]
    assert batch.target_in.tolist() == [i for _, y in pairs for i in [1, *y]]
    assert batch.target_out.tolist() == [i for _, y in pairs for i in [*y, 2]]
    assert batch.source.positions.tolist() == [i for x, _ in pairs for i in range(len(x) + 1)]
    assert batch.target.lengths == tuple(len(y) + 1 for _, y in pairs)
    assert batch.source.cu_seqlens.tolist() == [0, *accumulate(len(x) + 1 for x, _ in pairs)]
    assert batch.source.max_len == max((len(x) + 1 for x, _ in pairs), default=0)
    assert (batch.num_sentences, batch.num_target_tokens) == (len(pairs), len(batch.target_out))


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=9), st.integers(1, 16))
def test_filling_comes_last_and_counts_for_nothing(lengths: list[tuple[int, int]], multiple: int) -> None:
    batch = Batch.of([[5] * source for source, _ in lengths], [[7] * target for _, target in lengths])
    filled = batch.filled(multiple)
    for side in (filled.source_ids, filled.target_in, filled.target_out):
        assert len(side) % multiple == 0
    assert filled.num_sentences == batch.num_sentences == len(lengths)
    assert filled.num_target_tokens == batch.num_target_tokens
    for name in ("source_ids", "target_in", "target_out"):
        whole = getattr(batch, name)
        assert torch.equal(getattr(filled, name)[: len(whole)], whole)
    for own, whole in ((filled.source, batch.source), (filled.target, batch.target)):
        assert own.lengths[: len(lengths)] == whole.lengths
        assert len(own.lengths) - len(whole.lengths) == (filled.filling != (0, 0))
        assert all(length > 0 for length in own.lengths)
    assert (filled is batch) == all(len(x) % multiple == 0 for x in (batch.source_ids, batch.target_out))


@given(
    st.lists(st.tuples(st.integers(0, 90), st.integers(0, 90)), min_size=1, max_size=12),
    st.integers(1, 300),
    st.integers(1, 300),
)
def test_padded_batches_have_the_shapes_that_their_sizes_determine(
    lengths: list[tuple[int, int]], source_step: int, target_step: int
) -> None:
    batch = Batch.of([[5] * s for s, _ in lengths], [[6] * t for _, t in lengths])
    padded = batch.padded((source_step, target_step))
    sizes = padded.shape
    assert sizes == (
        -(-batch.shape[0] // source_step) * source_step,
        -(-batch.shape[1] // target_step) * target_step,
    )
    assert padded.num_sentences == len(lengths) and padded.num_target_tokens == batch.num_target_tokens
    for name in ("source_ids", "target_in", "target_out"):
        whole = getattr(batch, name)
        assert torch.equal(getattr(padded, name)[: len(whole)], whole)
    assert (padded.target_out[batch.shape[1] :] == IGNORED_ID).all()
    for own, size in ((padded.source, sizes[0]), (padded.target, sizes[1])):
        assert len(own.cu_seqlens) == sizes[1] + sizes[0] // 64 + 2
        assert len(own.lengths) == len(padded.source.lengths) < len(own.cu_seqlens)
        assert max(own.lengths[len(lengths) :], default=0) <= 64
        assert own.cu_seqlens[-1] == size == sum(own.lengths)
        assert own.cu_seqlens.tolist()[: len(own.lengths) + 1] == [0, *accumulate(own.lengths)]


def test_a_padded_batch_by_hand() -> None:
    padded = Batch.of([[5]], [[6, 7, 8]]).padded((4, 8))
    assert padded.source_ids.tolist() == [5, EOS_ID, EOS_ID, EOS_ID]
    assert padded.target_out.tolist() == [6, 7, 8, EOS_ID, -1, -1, -1, -1]
    assert (padded.source.lengths, padded.target.lengths) == ((2, 2), (4, 4))
    assert padded.source.cu_seqlens.tolist() == [0, 2] + [4] * 8
    assert padded.source.sentences.tolist() == [0, 0, 1, 1]
    exact = Batch.of([[5]], [[6, 7, 8]]).padded((2, 4))
    assert exact.filling == (0, 0) and exact.num_filling == 0


def test_a_filled_batch_by_hand() -> None:
    filled = Batch.of([[5]], [[6, 7, 8]]).filled(4)
    assert filled.source_ids.tolist() == [5, EOS_ID, EOS_ID, EOS_ID]
    assert filled.target_in.tolist() == [BOS_ID, 6, 7, 8, BOS_ID, BOS_ID, BOS_ID, BOS_ID]
    assert filled.target_out.tolist() == [6, 7, 8, EOS_ID, EOS_ID, EOS_ID, EOS_ID, EOS_ID]
    assert (filled.source.lengths, filled.target.lengths, filled.filling) == ((2, 2), (4, 4), (2, 4))


@given(
    st.lists(st.tuples(st.integers(0, 9), st.integers(0, 9)), min_size=1, max_size=9),
    st.integers(1, 64),
    st.tuples(st.none() | st.integers(10, 70), st.none() | st.integers(10, 70)),
)
def test_padding_pairs_keep_the_limits_of_the_model(
    lengths: list[tuple[int, int]], multiple: int, longest: tuple[int | None, int | None]
) -> None:
    batch = Batch.of([[5] * source for source, _ in lengths], [[7] * target for _, target in lengths])
    filled = batch.filled(multiple, longest)
    assert min((*filled.source.lengths, *filled.target.lengths)) > 0
    for padded in (filled, batch.padded((multiple, multiple), longest)):
        for own, ids, limit in zip(
            (padded.source, padded.target), (padded.source_ids, padded.target_out), longest, strict=True
        ):
            assert len(ids) % multiple == 0
            assert sum(own.lengths) == len(ids)
            assert limit is None or own.max_len <= limit
        assert padded.num_sentences == len(lengths)
        assert padded.num_target_tokens == batch.num_target_tokens
        assert len(padded.source.lengths) == len(padded.target.lengths)


def test_a_filled_batch_with_a_limit_by_hand() -> None:
    filled = Batch.of([[5]], [[6, 7, 8]]).filled(64, (30, 40))
    assert filled.source.lengths == (2, 20, 21, 21)
    assert filled.target.lengths == (4, 20, 20, 20)
    assert filled.num_filling == 3


class Copies(TorchDispatchMode):
    """Counts the copies to another device."""

    count = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.count += "_to_copy" in str(func)
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("filled", [True, False])
def test_pinned_memory_is_one_piece(filled: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Tensor, "pin_memory", lambda self: self.clone())
    batch = Batch.of([[7, 8], [9], []], [[5], [], [4, 4]])
    batch = batch.filled(8) if filled else batch
    pinned = batch.pin_memory()
    assert pinned.memory is not None
    assert pinned.memory.numel() == sum(x.numel() * x.element_size() for x in batch._tensors())
    for a, b in zip(pinned._tensors(), batch._tensors(), strict=True):
        assert torch.equal(a, b) and a.dtype is b.dtype
        assert a.untyped_storage().data_ptr() == pinned.memory.untyped_storage().data_ptr()
    assert (pinned.source.lengths, pinned.target.max_len) == (batch.source.lengths, batch.target.max_len)
    assert pinned.num_target_tokens == batch.num_target_tokens
    with Copies() as copies:
        moved = pinned.to("meta", non_blocking=True)
    assert copies.count == 1
    assert all(x.device.type == "meta" for x in moved._tensors())
    assert [x.shape for x in moved._tensors()] == [x.shape for x in batch._tensors()]
    assert pinned.twice().memory is None
