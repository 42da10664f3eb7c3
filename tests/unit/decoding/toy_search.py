"""Beam search over small tables of log-probabilities, an exhaustive search over them, and toy processors."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from hypothesis import strategies as st
from torch import Tensor

from nmt.config import DecodingConfig
from nmt.decoding.constraints import Automaton
from nmt.decoding.processors import (
    NoRepeatNgram,
    NoRepeatNgramOptions,
    Prefix,
    PrefixOptions,
    SearchInput,
    SearchProcessor,
)
from nmt.decoding.scorers import HypothesisScorer
from nmt.decoding.search import Hypothesis, StepOutput, beam_search
from nmt.decoding.utf8 import Characters

BOS, EOS = 0, 1
NextLogProbs = Callable[[int, tuple[int, ...]], list[float]]
"""Sentence and ids so far -> log-probability of every id."""
Allowed = Callable[[tuple[int, ...], int], bool]
"""Ids so far and a new id -> whether it is allowed."""


@dataclass
class ToyState:
    """Stores the sentence and the ids of every hypothesis."""

    sentences: Tensor  # (B, K)
    ids: Tensor  # (B, K, t)

    @classmethod
    def of(cls, sentences: Sequence[int]) -> ToyState:
        column = torch.tensor(sentences)[:, None]
        return cls(column, torch.empty((*column.shape, 0), dtype=torch.int64))

    def select(self, rows: Tensor) -> ToyState:
        sentences = self.sentences.flatten()[rows]
        assert (sentences == sentences[:, :1]).all(), "a hypothesis moved to another sentence"
        return ToyState(sentences, self.ids.flatten(0, 1)[rows])


class ToyModel:
    """A step function over a table of log-probabilities; records its calls."""

    def __init__(self, next_log_probs: NextLogProbs) -> None:
        self.next_log_probs = next_log_probs
        self.attentions: list[bool] = []  # whether each step requested attention
        self.widths: list[tuple[int, int]] = []  # (B, K) of every step

    def step(self, ids: Tensor, state: ToyState, *, attention: bool = False) -> StepOutput[ToyState]:
        self.widths.append(tuple(ids.shape))
        self.attentions.append(attention)
        state = ToyState(state.sentences, torch.cat((state.ids, ids[:, :, None]), 2))
        table = [
            [self.next_log_probs(sentence, tuple(prefix[1:])) for sentence, prefix in zip(*row, strict=True)]
            for row in zip(state.sentences.tolist(), state.ids.tolist(), strict=True)
        ]
        assert (state.ids[:, :, 0] == BOS).all()
        return StepOutput(torch.tensor(table), state, history(state) if attention else None)


def history(state: ToyState) -> Tensor:
    """An attention (B, K, 3) that identifies its hypothesis: sentence, ids as a number, count of ids."""
    _, _, count = state.ids.shape
    return torch.tensor(
        [
            [[sentence, digits(ids[1:]), count - 1] for sentence, ids in zip(*row, strict=True)]
            for row in zip(state.sentences.tolist(), state.ids.tolist(), strict=True)
        ],
        dtype=torch.float32,
    )


def has_own_attention(sentence: int, hypothesis: Hypothesis) -> bool:
    """Whether the attention is that of each token: `history` of the ids before it."""
    ids = hypothesis.ids
    rows = [[sentence, digits(ids[:length]), length] for length in range(len(ids) + 1)]
    return hypothesis.attention is not None and hypothesis.attention.tolist() == rows


def digits(ids: Sequence[int]) -> int:
    """Returns ids below 10 as the digits of a number."""
    return int("".join(map(str, (1, *ids))))


def search_input(max_lengths: Sequence[int], sources: Sequence[Sequence[int]] = ()) -> SearchInput:
    return SearchInput(len(max_lengths), sources, max_lengths, BOS, EOS, torch.device("cpu"))


def run(
    model: NextLogProbs | ToyModel,
    max_lengths: Sequence[int],
    *,
    sentences: Sequence[int] | None = None,
    forbidden: Sequence[int] = (BOS,),
    processors: Sequence[SearchProcessor] = (),
    scorer: HypothesisScorer | None = None,
    constraints: Sequence[Automaton | None] = (),
    characters: Characters | None = None,
    attention: bool = False,
    **options: float,
) -> list[list[Hypothesis]]:
    """Searches with `ToyModel`; `sentences` are the numbers of the sentences in it, 0, 1, ... by default."""
    model = model if isinstance(model, ToyModel) else ToyModel(model)
    sentences = range(len(max_lengths)) if sentences is None else sentences
    return beam_search(
        model.step,
        ToyState.of(list(sentences)),
        search_input(max_lengths),
        DecodingConfig(**options),
        forbidden=forbidden,
        processors=processors,
        scorer=scorer,
        constraints=constraints,
        characters=characters,
        attention=attention,
    )


def random_table(seed: int, vocab: int, grid: int) -> NextLogProbs:
    """Log-probabilities that are multiples of 1/8, so that sums are exact and ties are many."""

    def next_log_probs(sentence: int, ids: tuple[int, ...]) -> list[float]:
        generator = np.random.default_rng([seed, sentence, len(ids), *ids])
        return [-float(n) / 8 for n in generator.integers(0, grid, vocab)]

    return next_log_probs


def penalised(log_prob: float, length: int, alpha: float) -> float:
    return float(np.float32(log_prob) / np.float32(((5 + length) / 6) ** alpha))


def constant(*log_probs: float) -> NextLogProbs:
    return lambda sentence, ids: list(log_probs)


def exhaustive_search(
    next_log_probs: NextLogProbs,
    sentence: int,
    vocab: int,
    max_length: int,
    alpha: float,
    allowed: Allowed = lambda ids, new: True,
) -> list[tuple[float, tuple[int, ...]]]:
    """Returns every sequence whose ids and EOS are allowed, with its score; best first."""
    words = [i for i in range(vocab) if i not in (BOS, EOS)]
    found = []
    for length in range(max_length):
        for ids in itertools.product(words, repeat=length):
            if not all(allowed(ids[:i], (*ids, EOS)[i]) for i in range(length + 1)):
                continue
            log_prob = sum(next_log_probs(sentence, ids[:i])[(*ids, EOS)[i]] for i in range(length + 1))
            found.append((penalised(log_prob, length + 1, alpha), ids))
    return sorted(found, key=lambda item: -item[0])


def assert_same(found: list[Hypothesis], every: list[tuple[float, tuple[int, ...]]]) -> None:
    """Asserts that `found` are the first 5 of `every`, in any order among equal scores."""
    assert len(found) == min(5, len(every))
    assert [one.score for one in found] == [score for score, _ in every[: len(found)]]
    assert all((one.score, one.ids) in every for one in found)
    assert len({one.ids for one in found}) == len(found)


tables = st.builds(random_table, st.integers(0, 10_000), st.just(5), st.sampled_from([3, 12, 100]))
alphas = st.sampled_from([0.0, 0.6, 1.0, 2.0])


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
