"""The interface of a metric: its key, its direction, its score of a corpus, and its significance test."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from nmt.config import EvaluationConfig

Text = Sequence[str]
"""Lines of raw text."""


class ScoringStopped(Exception):
    """`Metric.interrupted` became true while a score was computed."""


@dataclass(frozen=True)
class Difference:
    """A system beside a baseline in one metric.

    Attributes:
        baseline: the baseline's score.
        delta: the system's score minus the baseline's.
        p_value: probability of a lead at least this large, on the same side, if the two were equally good:
            sacreBLEU's test has one tail.
        interval: half the width of the 95% confidence interval of the system's score.
        baseline_interval: the same of the baseline's.
    """

    baseline: float
    delta: float
    p_value: float
    interval: float
    baseline_interval: float


class Metric(ABC):
    """A number that says how good translations are.

    A subclass sets `key` and `name`, implements `score`, and is registered in
    `nmt.evaluation.metrics.METRICS` under its key. An instance is made for one evaluation.

    Args:
        target_lang: language code of hypotheses and references; empty if it is not known.
        options: of scoring; a metric reads its section.

    Attributes:
        key: name in `results.json`, `metrics.jsonl` and options.
        name: name in tables and signatures.
        short_name: name in the log of validation; `name` if it is empty.
        higher_is_better: the direction.
        digits: decimal places in tables.
        needs_sources: whether `score` reads the sources. Otherwise they may be missing.
        limit: the reason for which `left_out` leaves sets out, for tables; empty if it never does.
        interrupted: a metric that takes long asks this, and raises `ScoringStopped` once it is true.
    """

    key: ClassVar[str]
    name: ClassVar[str]
    short_name: ClassVar[str] = ""
    higher_is_better: ClassVar[bool] = True
    digits: ClassVar[int] = 2
    needs_sources: ClassVar[bool] = False
    limit: ClassVar[str] = ""

    interrupted: Callable[[], bool]

    def __init__(self, target_lang: str, options: EvaluationConfig) -> None:
        self.target_lang = target_lang
        self.interrupted = bool  # bool() is False

    @abstractmethod
    def score(self, hypotheses: Text, references: Sequence[Text], sources: Text) -> float:
        """Scores a corpus.

        Args:
            hypotheses: one line a sentence.
            references: one text or several; each has a translation of every sentence.
            sources: line for line; empty where they are not known, unless `needs_sources` is true.

        Raises:
            ScoringStopped: `interrupted` became true.
            UserError: the score can't be computed.
        """

    def signature(self, num_references: int) -> str:
        """The settings that another must have to get the same score: `key:value` with `|` between.

        Args:
            num_references: texts of references.
        """
        return f"nrefs:{num_references}"

    def left_out(self, texts: Sequence[Text]) -> str | None:
        """The reason for which this metric can't score texts, in words for the log; None if it can.

        A set that is left out has no score.

        Args:
            texts: hypotheses (of one system or two) first, then the references.
        """
        return None

    def sentence_scores(
        self, hypotheses: Text, references: Sequence[Text], sources: Text
    ) -> Sequence[float] | None:
        """The score of each sentence, if the score of a corpus is their mean; otherwise None.

        The significance test is fast with them. Without them it scores every resampled corpus.
        """
        return None

    def paired_test(
        self, hypotheses: Text, baseline: Text, references: Sequence[Text], sources: Text, resamples: int
    ) -> tuple[Difference, str]:
        """Tests a system against a baseline by paired bootstrap resampling (Koehn 2004).

        Args:
            hypotheses: of the system.
            baseline: the hypotheses of the other system.
            references: as for `score`.
            sources: as for `score`.
            resamples: number of test sets that are drawn with replacement.

        Returns:
            The difference, and the signature of the test with `bs:` (resamples) and `seed:`.
        """
        from nmt.evaluation.metrics.bootstrap import paired_bootstrap

        return paired_bootstrap(self, hypotheses, baseline, references, sources, resamples)
