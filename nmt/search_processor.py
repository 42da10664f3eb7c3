"""The interface of search processors, which lower log-probabilities of the next id before a search selects.

Shapes: B unfinished sentences, K hypotheses per sentence, V ids, t ids of every hypothesis, BOS counted.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor


@dataclass(frozen=True)
class SearchInput:
    """The input of `SearchProcessor.start`.

    Attributes:
        num_sentences: B in the first step.
        sources: source ids of each sentence, without EOS; empty if the caller passed none.
        max_lengths: for each sentence the maximum number of ids after BOS, EOS counted.
        bos_id: the first id of every hypothesis.
        eos_id: the id that ends a hypothesis.
        device: the device of all tensors of the search.
    """

    num_sentences: int
    sources: Sequence[Sequence[int]]
    max_lengths: Sequence[int]
    bos_id: int
    eos_id: int
    device: torch.device


@dataclass(frozen=True)
class NoOptions:
    """The options of a processor without options."""


class SearchProcessor(ABC):
    """The base class of processors, which lower log-probabilities of the next id.

    One object serves many searches. A processor with a state returns a new object from `start`, which belongs
    to one search, and another new object from `select`. A processor without a state defines only `__call__`.

    Args:
        options: an instance of `Options`; None: the defaults.
    """

    Options: ClassVar[type[Any]] = NoOptions
    """A dataclass of the options, with types, defaults and checks; `decoding.processors.NAME` sets them."""

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    def start(self, search: SearchInput) -> SearchProcessor:
        """Returns the processor of one search, which starts with one hypothesis per sentence: BOS alone."""
        return self

    @abstractmethod
    def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        """Returns lowered log-probabilities; -inf forbids an id.

        It must not increase a value: the search stops early on the assumption that log-probabilities are at
        most 0. A sentence without complete hypotheses must have an extension: if processors forbid all of
        them, the search ignores the processors in this step (see `nmt.decoding.search`).

        Args:
            log_probs: (B, K, V) float32, -inf for ids after which the text can't be UTF-8; may be changed in
                place.
            ids: (B, K, t) int64, the hypotheses so far; must not be changed. Some of them may be complete
                hypotheses or arbitrary continuations of these: the search ignores the values for them.

        Returns:
            (B, K, V) float32.
        """

    def select(self, rows: Tensor) -> SearchProcessor:
        """Selects hypotheses in a new order. The search does not call it if the order does not change.

        Args:
            rows: (B', K') int64; see `DecoderState.select`.

        Returns:
            The processor for the hypotheses of `rows`.
        """
        return self
