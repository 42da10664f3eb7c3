"""A model that copies its source, and a tokenizer of words: tests of the translator without a network."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from toy_corpus import learnt

from nmt.config import DecodingConfig
from nmt.copying.strings import PLACEHOLDERS
from nmt.data.batches.batching import Batch
from nmt.data.subwords.tokenizer import Tokenizer
from nmt.data.subwords.vocabulary import BOS_ID, EOS_ID
from nmt.decoding.pairs import PairReader
from nmt.decoding.torch_searcher import TorchSearcher
from nmt.decoding.translator import Translator
from nmt.model.backend import Backend

FIRST_WORD = 4
CPU = torch.device("cpu")


def translator_of(
    models: Sequence[Any], tokenizer: Any, config: DecodingConfig, utility: Any = None, **others: Any
) -> Translator:
    """Returns a translator with a searcher of PyTorch on the CPU."""
    searcher = TorchSearcher(models, tokenizer, config, device=CPU, **others)
    return Translator(searcher, tokenizer, utility=utility)


@cache
def tokenizer_with(symbol: str, placeholders: bool = True) -> Tokenizer:
    """Returns a small tokenizer with a user symbol and, if wanted, the placeholders."""
    pairs = [(f"some words of {i} to see, or learn at me", f"and (the) others. {i}") for i in range(80)]
    return learnt(pairs, vocab_size=420, user_symbols=[symbol, *(PLACEHOLDERS if placeholders else ())])


def pairs_of(translator: Translator) -> PairReader:
    """Returns a reader of given pairs with the models and options of a translator."""
    assert isinstance(translator.searcher, TorchSearcher)
    return PairReader(translator.searcher, translator.tokenizer)


def some_lines(seed: int, count: int) -> list[str]:
    """Returns lines of one to nine words."""
    generator = random.Random(seed)
    words = "red green blue old new big small cat dog bird house tree sees likes finds".split()
    return [" ".join(generator.choices(words, k=generator.randint(1, 9))) for _ in range(count)]


class WordTokenizer:
    """A new word gets the next id; words in `nothing` have no pieces. Both sides have the same vocabulary."""

    placeholders = range(0)
    source_symbols: dict[str, int] = {}

    def __init__(self, nothing: Sequence[str] = ()) -> None:
        self.words: list[str] = []
        self.nothing = set(nothing)

    def encode_source(self, texts: Sequence[str]) -> list[list[int]]:
        return [[self._id(word) for word in text.split() if word not in self.nothing] for text in texts]

    encode_target = encode_source

    def decode_target(self, ids: Sequence[Sequence[int]]) -> list[str]:
        return [" ".join(self.words[i - FIRST_WORD] for i in sequence) for sequence in ids]

    source = target = property(lambda self: self)

    def pieces_of(self, ids: Sequence[int]) -> list[str]:
        return [f"\u2581{self.words[i - FIRST_WORD]}" for i in ids]

    @property
    def names(self) -> list[str]:
        return ["\u2581special"] * FIRST_WORD + [f"\u2581{word}" for word in self.words]

    def _id(self, word: str) -> int:
        if word not in self.words:
            self.words.append(word)
        return FIRST_WORD + self.words.index(word)


@dataclass(frozen=True)
class CopyState:
    sources: list[list[int]]
    position: int

    def select(self, rows: Tensor) -> CopyState:
        # All hypotheses of a sentence have the same length, so only the sentence matters.
        width = rows.new_tensor(self.width)
        return CopyState([self.sources[row] for row in (rows[:, 0] // width).tolist()], self.position)

    width: int = 1


class CopyModel(nn.Module):
    """Gives the source's next word the probability 1 - (V - 1) / e^9; records the lengths of every batch."""

    backend = Backend(CPU)
    output_weight = torch.zeros(1, 1)
    max_source_len: int | None = None
    max_target_len: int | None = None

    def __init__(self, vocab: int = 200) -> None:
        super().__init__()
        self.vocab = vocab
        self.batches: list[tuple[int, ...]] = []
        self.modes: list[bool] = []

    def start(self, batch: Batch) -> CopyState:
        source = batch.source
        self.batches.append(source.lengths)
        self.modes.append(self.training)
        ends = source.cu_seqlens[1:].long() - 1
        assert (batch.source_ids[ends] == EOS_ID).all()
        return CopyState([part.tolist() for part in batch.source_ids.split(list(source.lengths))], 0)

    def step(self, ids: Tensor, state: CopyState) -> tuple[Tensor, CopyState]:
        if state.position == 0:
            assert (ids == BOS_ID).all()
        log_probs = torch.full((*ids.shape, self.vocab), -9.0)
        for row, source in enumerate(state.sources):
            log_probs[row, :, (source + [EOS_ID])[min(state.position, len(source))]] = -0.0625
        return log_probs, CopyState(state.sources, state.position + 1, ids.shape[1])


class NanModel(CopyModel):
    """A model whose probabilities are NaN."""

    def step(self, ids: Tensor, state: CopyState) -> tuple[Tensor, CopyState]:
        log_probs, state = super().step(ids, state)
        return log_probs * torch.nan, state
