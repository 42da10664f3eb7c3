"""Search processors for tests: without a state, with one, and one that only records."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from nmt.decoding.processors import (
    NoRepeatNgram,
    NoRepeatNgramOptions,
    Prefix,
    PrefixOptions,
    SearchInput,
    SearchProcessor,
)


def no_repeat(size: int) -> NoRepeatNgram:
    return NoRepeatNgram(NoRepeatNgramOptions(size))


def prefix(*prefixes: tuple[int, ...]) -> Prefix:
    return Prefix(PrefixOptions(prefixes))


class Where(SearchProcessor):
    """Forbids a new id if a function of the ids so far (without BOS) and the new id is true; no state."""

    def __init__(self, forbids: Callable[[tuple[int, ...], int], bool]) -> None:
        super().__init__()
        self.forbids = forbids

    def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        banned = [
            [[self.forbids(tuple(one[1:]), new) for new in range(log_probs.shape[2])] for one in row]
            for row in ids.tolist()
        ]
        return log_probs.masked_fill(torch.tensor(banned), -torch.inf)


class AtMost(SearchProcessor):
    """Allows each id at most `limit` times in a hypothesis; counts incrementally."""

    def __init__(self, limit: int, counts: Tensor | None = None) -> None:
        super().__init__()
        self.limit = limit
        self.counts = counts  # (B, K, V)

    def start(self, search: SearchInput) -> AtMost:
        return AtMost(self.limit, torch.zeros(search.num_sentences, 1, 1, dtype=torch.int64))

    def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        self.counts = self.counts.expand(*self.counts.shape[:2], log_probs.shape[2]).clone()
        if ids.shape[2] > 1:
            newest = ids[:, :, -1:]
            self.counts.scatter_add_(2, newest, torch.ones_like(newest))
        return log_probs.masked_fill(self.counts >= self.limit, -torch.inf)

    def select(self, rows: Tensor) -> AtMost:
        return AtMost(self.limit, self.counts.flatten(0, 1)[rows])


class Recorder(SearchProcessor):
    """Changes nothing; records its arguments."""

    def __init__(self) -> None:
        super().__init__()
        self.starts: list[SearchInput] = []
        self.shapes: list[tuple[tuple[int, ...], tuple[int, ...]]] = []

    def start(self, search: SearchInput) -> Recorder:
        self.starts.append(search)
        return self

    def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        self.shapes.append((tuple(log_probs.shape), tuple(ids.shape)))
        return log_probs
