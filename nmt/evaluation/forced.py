"""Forced scoring, `nmt-eval score=true`: the log-probability that a model gives to each reference."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nmt.config import EvalConfig, storage
from nmt.decoding.loading import LoadedModels, set_up
from nmt.errors import UserError
from nmt.evaluation.keys import as_option, check_keys
from nmt.evaluation.scores import require_equal_counts
from nmt.evaluation.task import load_models, read_files, warn_of_cut_sources
from nmt.runtime.streams import log, progress

if TYPE_CHECKING:
    from nmt.decoding.scoring import ScoredTarget


@dataclass(frozen=True)
class ForcedReport:
    """The scores of given translations, and the seconds that scoring took.

    Attributes:
        title: the model and the references, in one line.
        scored: the score of each pair.
        details: further entries of the JSON.
    """

    title: str
    scored: Sequence[ScoredTarget]
    seconds: float
    details: Mapping[str, Any] = field(default_factory=dict)

    @property
    def possible(self) -> list[ScoredTarget]:
        """The scores of the pairs whose probability is not 0."""
        return [pair for pair in self.scored if pair.log_prob > -math.inf]

    @property
    def num_tokens(self) -> int:
        """The number of target tokens of the possible pairs, EOS counted."""
        return sum(len(pair.token_log_probs) for pair in self.possible)

    @property
    def mean(self) -> float:
        """The mean log-probability of a target token of the possible pairs; NaN without such a pair."""
        return math.fsum(pair.log_prob for pair in self.possible) / (self.num_tokens or math.nan)

    @property
    def perplexity(self) -> float:
        """The perplexity per token of the possible pairs; it may be infinite."""
        try:
            return math.exp(-self.mean)
        except OverflowError:
            return math.inf

    @property
    def speed(self) -> float:
        """Pairs per second."""
        return len(self.scored) / max(self.seconds, 1e-9)

    def lines(self) -> Iterator[str]:
        """Yields for each pair its log-probability, number of tokens, and log-probability per token."""
        for pair in self.scored:
            count = len(pair.token_log_probs)
            yield f"{_number(pair.log_prob)}\t{count}\t{_number(pair.log_prob / count)}"

    def summary(self) -> str:
        """Returns the summary in one line."""
        return (
            f"{len(self.scored):,} pairs, {self.num_tokens:,} tokens, {self.seconds:,.1f} s, "
            f"{self.speed:,.0f} pairs/s; mean log-probability per token {self.mean:.4f}, "
            f"perplexity {self.perplexity:,.2f}"
        )

    def as_dict(self) -> dict[str, Any]:
        """Returns the content of the JSON; a number that is not finite is None."""
        return {
            "title": self.title,
            "log_prob_per_token": _finite(self.mean),
            "perplexity": _finite(self.perplexity),
            "pairs": len(self.scored),
            "impossible_pairs": len(self.scored) - len(self.possible),
            "tokens": self.num_tokens,
            "seconds": self.seconds,
            "pairs_per_second": self.speed,
            **self.details,
        }


def score_references(config: EvalConfig) -> ForcedReport:
    """Scores the references with the models that `config` names.

    The source and the references are files, or the data of the (first) model, as in an evaluation.

    Raises:
        UserError: as `nmt.evaluation.task.evaluate`, or there are several references of each sentence.
    """
    check_keys(config)
    task = read_files(config, {})
    if len(task.references) > 1:
        raise UserError(
            f"{as_option('references', config.references)}: score=true needs one reference of each sentence, "
            f"and these are {len(task.references)} files. Give one file."
        )
    bundles = load_models(config, task)
    require_equal_counts(task.counts)
    loaded = LoadedModels(bundles, *set_up(config))
    decoding = replace(config.decoding, mbr=None)  # nothing is searched
    _, reader = loaded.readers(decoding)
    pairs = list(zip(task.texts["source"], task.references[0], strict=True))
    start = time.monotonic()
    with progress(total=len(pairs), unit="pairs", description="Scoring") as bar:
        scored = reader.score(pairs, bar.update)
    seconds = time.monotonic() - start
    if cut := sum(pair.truncated > 0 for pair in scored):
        searcher = reader.searcher
        warn_of_cut_sources(cut, len(scored), searcher.max_source_tokens, searcher.source_limit)
    task.details |= {"decoding": storage.to_plain(decoding), "precision": loaded.precision.name}
    report = ForcedReport(task.title, scored, seconds, task.details)
    if impossible := len(scored) - len(report.possible):
        log.warning(
            f"{impossible:,} of {len(scored):,} pairs: the source is blank and the reference is not. Their "
            "probability is 0. The mean and the perplexity do not count them."
        )
    return report


def _number(value: float) -> str:
    return f"{round(value, 6) + 0.0:.6f}"  # without the sign of -0.0


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None
