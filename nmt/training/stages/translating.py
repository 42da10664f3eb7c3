"""Translates the lines of a stage on all ranks: each searches a part of the batches of a chunk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nmt.bundle import Bundle, load_bundles
from nmt.config import DecodingConfig, TrainConfig
from nmt.config.storage import from_plain, to_yaml
from nmt.decoding.facts import TextFacts
from nmt.decoding.pairs import PairReader
from nmt.decoding.torch_searcher import TorchSearcher
from nmt.decoding.translator import Translator
from nmt.training.processes.ranks import Ranks, in_turn
from nmt.training.validation import SharedSearcher

Scored = list[tuple[str, float]]
"""The distinct translations of a line with their scores, best first; empty if there are none."""


@dataclass(frozen=True)
class Job:
    """The models of a stage.

    Attributes:
        key: the option that names the models that translate.
        models: their folders.
        decoding: all options of decoding, as plain values.
        tag: the tag of the lines, which models that have this piece read; None: no tag.
        reverse: the folders of models whose score is added; may be empty.
    """

    key: str
    models: Sequence[str]
    decoding: Mapping[str, Any]
    tag: str | None = None
    reverse: Sequence[str] = ()


def translated(
    job: Job,
    config: TrainConfig,
    ranks: Ranks,
    chunks: Iterable[list[str]],
    advance: Callable[[int], object],
) -> Iterator[tuple[Sequence[str], list[Scored]]]:
    """Yields each chunk of lines with its translations, in rank 0; the other ranks help.

    `advance` is called with the number of lines of each finished batch.

    Raises:
        UserError: a model can't be loaded, or a batch does not fit into memory.
    """
    ranks.share((to_yaml(config), asdict(job)))
    models = _Models(job, ranks)
    for lines in chunks:
        ranks.share(lines)
        yield lines, models.translated(lines, advance)
    ranks.share(None)


def help_to_translate(ranks: Ranks, job: Mapping[str, Any]) -> None:
    """Translates the lines that rank 0 shares in `translated`, until it shares None."""
    models = _Models(Job(**job), ranks)
    while (lines := ranks.share(None)) is not None:
        models.translated(lines)


class _Models:
    """The loaded models of a stage; all ranks call its methods together."""

    def __init__(self, job: Job, ranks: Ranks) -> None:
        self._ranks = ranks
        bundles = load_bundles(job.models, job.key)
        decoding = from_plain(DecodingConfig, job.decoding, "the decoding of a stage")
        first = bundles[0]
        searcher = SharedSearcher(_models_of(bundles), first.tokenizer, decoding, ranks)
        facts = TextFacts.of(first.config.data, first.results)
        self._translator = Translator(searcher, first.tokenizer, facts=facts)
        self._prefix = f"{job.tag} " if job.tag in first.tokenizer.source_symbols else ""
        self._reader = None
        if job.reverse:
            bundles = load_bundles(job.reverse, "distillation.reverse")
            tokenizer, options = bundles[0].tokenizer, bundles[0].config.decoding
            own = TorchSearcher(_models_of(bundles), tokenizer, options, device=ranks.device)
            self._reader = PairReader(own, tokenizer)

    def translated(
        self, lines: Sequence[str], advance: Callable[[int], object] = lambda num_lines: None
    ) -> list[Scored]:
        """Returns the translations of lines. A line that was cut has none."""
        found = self._translator.translate([f"{self._prefix}{line}" for line in lines], advance)
        results = [
            []
            if translation.truncated
            else _distinct([(one.text, one.score) for one in translation.hypotheses])
            for translation in found
        ]
        if self._reader is None:
            return results
        pairs = [(text, line) for line, some in zip(lines, results, strict=True) for text, _ in some]
        reverse = iter(self._reverse_scores(pairs))
        scored = [[(text, score + next(reverse)) for text, score in some] for some in results]
        return [sorted(some, key=lambda one: -one[1]) for some in scored]

    def _reverse_scores(self, pairs: Sequence[tuple[str, str]]) -> list[float]:
        """Returns the mean log-probability of a target token of each pair; each rank computes a part."""
        rank, world = self._ranks.rank, self._ranks.world
        assert self._reader is not None
        own = [one.log_prob / len(one.token_log_probs) for one in self._reader.score(pairs[rank::world])]
        return list(in_turn(self._ranks.exchange(own)))


def _models_of(bundles: Sequence[Bundle]) -> list[Any]:
    return [bundle.model for bundle in bundles]


def _distinct(scored: Scored) -> Scored:
    """Returns the first of equal texts, without blank ones."""
    first: dict[str, float] = {}
    for text, score in scored:
        if text.strip():
            first.setdefault(text, score)
    return list(first.items())
