"""Search processors: they lower log-probabilities of the next id before the search chooses.

Shapes: B sentences still searched, K hypotheses of each, V ids, t ids of every hypothesis so far, BOS first.

A new processor derives from `SearchProcessor` and is registered: `PROCESSORS["mine"] = Mine`. The option
`decoding.processors` then chooses it.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar

import torch
from torch import Tensor

from nmt.config import DecodingConfig, typed_options
from nmt.config.checks import between, check
from nmt.runtime import Registry


def configured_processors(config: DecodingConfig) -> list[SearchProcessor]:
    """The processors that the options ask for, in the order of their application.

    Raises:
        UserError: there is no such processor, or it does not take its options.
    """
    processors = []
    if config.no_repeat_ngram:
        processors.append(build_processor("no_repeat_ngram", {"size": config.no_repeat_ngram}))
    for name, options in config.processors.items():
        if options is not None:
            processors.append(build_processor(name, options))
    return processors


def build_processor(name: str, options: Mapping[str, Any]) -> SearchProcessor:
    """Builds a registered processor.

    Args:
        name: a key of `PROCESSORS`.
        options: values for the fields of its `Options`.

    Raises:
        UserError: there is no such processor, or it does not take its options.
    """
    key = f"decoding.processors.{name}"
    kind = PROCESSORS.find(name, key)
    return kind(typed_options(kind.Options, options, key, f"the processor {name}"))


@dataclass(frozen=True)
class SearchInput:
    """What a processor learns before the first step of a search.

    Attributes:
        num_sentences: B at the start.
        sources: ids of each sentence, without EOS; empty if the caller gave none.
        max_lengths: for each sentence the largest number of ids after BOS, EOS counted.
        bos_id: the first id of every hypothesis.
        eos_id: the id that ends a hypothesis.
        device: of all tensors of the search.
    """

    num_sentences: int
    sources: Sequence[Sequence[int]]
    max_lengths: Sequence[int]
    bos_id: int
    eos_id: int
    device: torch.device


@dataclass(frozen=True)
class NoOptions:
    """The options of a processor that has none."""


class SearchProcessor(ABC):
    """Lowers log-probabilities of the next id.

    One object serves many searches. A processor that remembers anything returns another object from `start`,
    which belongs to one search, and from `select`. A processor without a state defines `__call__` alone.

    Args:
        options: an instance of `Options`; None: their defaults.
    """

    Options: ClassVar[type[Any]] = NoOptions
    """A dataclass: the options, with types, defaults and checks; `decoding.processors.NAME` sets them."""

    def __init__(self, options: Any = None) -> None:
        self.options = self.Options() if options is None else options

    def start(self, search: SearchInput) -> SearchProcessor:
        """The processor of one search; at first every sentence has one hypothesis, which holds BOS alone."""
        return self

    @abstractmethod
    def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        """Lowers values, to -inf for ids that must not follow.

        It never raises a value: the search stops early because log-probabilities are at most 0. If no
        hypothesis of a sentence is left an id, the search does without processors for this step, unless the
        sentence has a complete hypothesis (see `nmt.decoding.search`).

        Args:
            log_probs: (B, K, V) float32; may be changed in place.
            ids: (B, K, t) int64, all of each hypothesis; not to be changed. Complete hypotheses and arbitrary
                continuations of them can be among them: the search ignores what is returned for those.

        Returns:
            (B, K, V) float32.
        """

    def select(self, rows: Tensor) -> SearchProcessor:
        """Reorders hypotheses.

        Args:
            rows: (B', K') int64; see `State.select`. It is not called if nothing changes.

        Returns:
            The processor for the hypotheses of `rows`.
        """
        return self


@dataclass(frozen=True)
class NoRepeatNgramOptions:
    """Options of `NoRepeatNgram`."""

    size: int = 3
    """Tokens of an n-gram; 1 or more."""

    def __post_init__(self) -> None:
        """Checks the value."""
        check("size", self.size, between(1, 100))


class NoRepeatNgram(SearchProcessor):
    """No n-gram of `size` tokens occurs twice in a hypothesis (Paulus et al. 2018, section 2.5)."""

    Options = NoRepeatNgramOptions
    options: NoRepeatNgramOptions

    def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        """Forbids each id that would complete an n-gram that the hypothesis already has."""
        size, chosen = self.options.size, ids[:, :, 1:]
        num_chosen = chosen.shape[2]
        if num_chosen < size:
            return log_probs
        ngrams = chosen.unfold(2, size, 1)  # (B, K, n-grams so far, size)
        newest = chosen[:, :, None, num_chosen - size + 1 :]  # (B, K, 1, size - 1)
        repeats = (ngrams[..., :-1] == newest).all(-1)
        highest = torch.where(repeats, -torch.inf, torch.inf)
        return log_probs.scatter_reduce_(2, ngrams[..., -1], highest, "amin")


@dataclass(frozen=True)
class PrefixOptions:
    """Options of `Prefix`."""

    prefixes: tuple[tuple[int, ...], ...] = ()
    """The ids that each sentence of the batch begins with, without BOS; may be none."""


class Prefix(SearchProcessor):
    """Every hypothesis begins with the given ids, each at the model's own log-probability.

    A prefix that is longer than the maximum length allows is cut. It must not hold ids that the search
    forbids. It is not registered: each sentence has its own prefix, see `Translator.translate`.

    Args:
        options: the prefixes.
        others: processors that must not forbid a prefix. They apply to the tokens behind it.
        ids: of a search: (B, K, P) int64, the prefix of every hypothesis, filled up with -1.
    """

    Options = PrefixOptions
    options: PrefixOptions

    def __init__(
        self,
        options: PrefixOptions | None = None,
        others: Sequence[SearchProcessor] = (),
        *,
        ids: Tensor | None = None,
    ) -> None:
        super().__init__(options)
        self._others, self._ids = others, ids

    def start(self, search: SearchInput) -> Prefix:
        """Pads the prefixes, one a sentence."""
        prefixes = self.options.prefixes
        assert len(prefixes) == search.num_sentences, "one prefix a sentence"
        longest = max(map(len, prefixes), default=0)
        padded = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]
        ids = torch.tensor(padded, dtype=torch.int64, device=search.device)
        others = [processor.start(search) for processor in self._others]
        return Prefix(self.options, others, ids=ids.view(len(prefixes), 1, longest))

    def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        """Forbids every id but the prefix' next one; behind the prefix the others apply."""
        assert self._ids is not None, "only what start returns can be called"
        place = ids.shape[2] - 1
        if place >= self._ids.shape[2]:
            return self._after(log_probs, ids)
        forced = self._ids[:, :, place, None]  # (B, K, 1)
        is_other = torch.arange(log_probs.shape[2], device=log_probs.device) != forced
        within = log_probs.masked_fill(is_other, -torch.inf)
        return torch.where(forced >= 0, within, self._after(log_probs, ids))

    def _after(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        for processor in self._others:
            log_probs = processor(log_probs, ids)
        return log_probs

    def select(self, rows: Tensor) -> Prefix:
        """Reorders the prefixes; see `SearchProcessor.select`."""
        assert self._ids is not None, "only what start returns can be reordered"
        others = [processor.select(rows) for processor in self._others]
        return Prefix(self.options, others, ids=self._ids.flatten(0, 1)[rows])


PROCESSORS: Registry[type[SearchProcessor]] = Registry("processor")
"""The processors by the names that `decoding.processors` selects."""

PROCESSORS["no_repeat_ngram"] = NoRepeatNgram
