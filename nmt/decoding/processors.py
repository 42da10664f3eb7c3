"""Search processors, which lower log-probabilities of the next id before the search selects extensions.

Shapes: B unfinished sentences, K hypotheses per sentence, V ids, t ids of every hypothesis, BOS counted.

To add a processor, derive a class from `SearchProcessor` and register it: `PROCESSORS["mine"] = Mine`. The
option `decoding.processors` then selects it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from nmt.config import DecodingConfig, typed_options
from nmt.config.checks import between, check
from nmt.decoding.beams import top_of_rows
from nmt.runtime.plugins import Registry
from nmt.search_processor import NoOptions as NoOptions
from nmt.search_processor import SearchInput as SearchInput
from nmt.search_processor import SearchProcessor as SearchProcessor


def configured_processors(config: DecodingConfig) -> list[SearchProcessor]:
    """Builds the processors that the options select, in the order in which they are applied.

    Raises:
        UserError: a processor is not registered, or one of its options is unknown or has a wrong value.
    """
    processors: list[SearchProcessor] = []
    if config.no_repeat_ngram:
        processors.append(build_processor("no_repeat_ngram", {"size": config.no_repeat_ngram}))
    for name, options in config.processors.items():
        if options is not None:
            processors.append(build_processor(name, options))
    if config.diversity:
        # The search retains at most `beam_size` extensions of a hypothesis, besides a few forbidden ids.
        processors.append(Diversity(DiversityOptions(config.diversity, config.beam_size + 4)))
    return processors


def build_processor(name: str, options: Mapping[str, Any]) -> SearchProcessor:
    """Builds the processor that is registered under a name, with values for the fields of its `Options`.

    Raises:
        UserError: the processor is not registered, or an option is unknown or has a wrong value.
    """
    key = f"decoding.processors.{name}"
    kind = PROCESSORS.find(name, key)
    return kind(typed_options(kind.Options, options, key, f"the processor {name}"))


@dataclass(frozen=True)
class NoRepeatNgramOptions:
    """Options of `NoRepeatNgram`."""

    size: int = 3
    """Tokens of an n-gram; 1 or more."""

    def __post_init__(self) -> None:
        check("size", self.size, between(1, 100))


class NoRepeatNgram(SearchProcessor):
    """Forbids repeated n-grams of `size` tokens in a hypothesis (Paulus et al. 2018, section 2.5)."""

    Options = NoRepeatNgramOptions
    options: NoRepeatNgramOptions

    def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        """Forbids each id that would repeat an n-gram of the hypothesis."""
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
class DiversityOptions:
    """Options of `Diversity`."""

    rate: float
    """Subtracted once for each more probable id of the same hypothesis."""
    ranked: int
    """The number of ids that are ranked. All others have the rank after them."""


class Diversity(SearchProcessor):
    """Lowers the extensions of a hypothesis by their ranks, so that the beam has more different beginnings.

    The most probable extension of each hypothesis is not lowered, the second by `rate`, the third by twice
    `rate`, and so on (Li, Monroe & Jurafsky 2016, section 3.2). This processor is not registered, since it
    depends on the beam; see `configured_processors`.
    """

    Options = DiversityOptions
    options: DiversityOptions

    def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        """Subtracts the rank of each id times the rate."""
        rows, ranked = log_probs.flatten(0, 1), min(self.options.ranked, log_probs.shape[2])
        values, best = top_of_rows(rows, ranked)
        ranks = torch.arange(ranked, dtype=rows.dtype, device=rows.device)
        lowered = (rows - self.options.rate * ranked).scatter_(1, best, values - self.options.rate * ranks)
        return lowered.view_as(log_probs)


@dataclass(frozen=True)
class PrefixOptions:
    """Options of `Prefix`."""

    prefixes: tuple[tuple[int, ...], ...] = ()
    """The first ids of each sentence of the batch, without BOS; a prefix may be empty."""


class Prefix(SearchProcessor):
    """Forces every hypothesis to begin with given ids, scored by the log-probabilities of the model.

    A prefix that exceeds the maximum length is cut. A prefix must not have ids that the search forbids. This
    processor is not registered, since the prefix differs between sentences; see `Translator.translate`.

    Args:
        options: the prefixes.
        others: processors that apply only to the tokens after the prefix, so that they can't forbid it.
        ids: (B, K, P) int64, the prefix of every hypothesis in a search, padded with -1; None before `start`.
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
        """Returns the processor of one search, with one padded prefix per sentence."""
        prefixes = self.options.prefixes
        assert len(prefixes) == search.num_sentences, "there must be one prefix per sentence"
        longest = max(map(len, prefixes), default=0)
        padded = [[*prefix, *[-1] * (longest - len(prefix))] for prefix in prefixes]
        ids = torch.tensor(padded, dtype=torch.int64, device=search.device)
        others = [processor.start(search) for processor in self._others]
        return Prefix(self.options, others, ids=ids.view(len(prefixes), 1, longest))

    def __call__(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        """Forbids all ids except the next one of the prefix; after the prefix the other processors apply."""
        assert self._ids is not None, "call the processor that start returns"
        place = ids.shape[2] - 1
        if place >= self._ids.shape[2]:
            return self._apply_others(log_probs, ids)
        forced = self._ids[:, :, place, None]  # (B, K, 1)
        is_other = torch.arange(log_probs.shape[2], device=log_probs.device) != forced
        within = log_probs.masked_fill(is_other, -torch.inf)
        return torch.where(forced >= 0, within, self._apply_others(log_probs, ids))

    def _apply_others(self, log_probs: Tensor, ids: Tensor) -> Tensor:
        for processor in self._others:
            log_probs = processor(log_probs, ids)
        return log_probs

    def select(self, rows: Tensor) -> Prefix:
        """Reorders the prefixes; see `SearchProcessor.select`."""
        assert self._ids is not None, "call select of the processor that start returns"
        others = [processor.select(rows) for processor in self._others]
        return Prefix(self.options, others, ids=self._ids.flatten(0, 1)[rows])


PROCESSORS: Registry[type[SearchProcessor]] = Registry("processor")
"""The processors by name; `decoding.processors` selects them."""

PROCESSORS["no_repeat_ngram"] = NoRepeatNgram
