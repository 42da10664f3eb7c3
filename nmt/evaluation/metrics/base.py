"""The interface of metrics: key, direction, score of a corpus, and significance test."""

from __future__ import annotations

import math
import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from nmt.config import EvaluationConfig
from nmt.errors import UserError

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]

Text = Sequence[str]
"""Lines of raw text."""


class ScoringStopped(Exception):
    """Raised when `Metric.interrupted` becomes true during the computation of a score."""


@dataclass(frozen=True)
class Difference:
    """The difference between a system and a baseline in one metric.

    Attributes:
        baseline: the score of the baseline.
        delta: the score of the system minus that of the baseline.
        p_value: probability of a difference at least this large with the same sign, if the two systems were
            equally good: the test of sacreBLEU is one-tailed.
        interval: half the width of the 95% confidence interval of the system's score.
        baseline_interval: the same for the baseline's score.
    """

    baseline: float
    delta: float
    p_value: float
    interval: float
    baseline_interval: float


class Metric(ABC):
    """A measure of translation quality.

    A subclass sets `key` and `name`, implements `score`, and is registered in
    `nmt.evaluation.metrics.METRICS` under its key. Each evaluation creates its own instances.

    Args:
        target_lang: language code of hypotheses and references; empty if it is not known.
        options: options of scoring; a metric reads its section.

    Attributes:
        key: name in `results.json`, `metrics.jsonl` and options.
        name: name in tables and signatures.
        short_name: name in the log of validation; if empty, `name` is used.
        higher_is_better: the direction.
        digits: decimal places in tables.
        needs_sources: whether `score` reads the sources. Otherwise they may be missing.
        is_batched: whether one call with many sentences is much faster than many calls.
        limit: the reason why `left_out` excludes sets, for tables; empty if it excludes none.
        interrupted: a slow metric calls this repeatedly, and raises `ScoringStopped` when it returns true.
    """

    key: ClassVar[str]
    name: ClassVar[str]
    short_name: ClassVar[str] = ""
    higher_is_better: ClassVar[bool] = True
    digits: ClassVar[int] = 2
    needs_sources: ClassVar[bool] = False
    is_batched: ClassVar[bool] = False
    limit: ClassVar[str] = ""

    interrupted: Callable[[], bool]

    def __init__(self, target_lang: str, options: EvaluationConfig) -> None:
        self.target_lang = target_lang
        self.interrupted = bool  # bool() is False

    @abstractmethod
    def score(self, hypotheses: Text, references: Sequence[Text], sources: Text) -> float:
        """Scores a corpus; a score that is not finite counts as none.

        Args:
            hypotheses: one line a sentence.
            references: one or more texts; each has a translation of every sentence.
            sources: line for line; empty if they are not known and `needs_sources` is false.

        Raises:
            ScoringStopped: `interrupted` became true.
            UserError: the score can't be computed.
        """

    def signature(self, num_references: int) -> str:
        """Returns the settings that reproduce the score, as `key:value` separated by `|`.

        Args:
            num_references: number of texts of references.
        """
        return f"nrefs:{num_references}"

    def left_out(self, texts: Sequence[Text]) -> str | None:
        """Returns the reason why this metric can't score the texts, for the log; None if it can.

        The score of such a set is None.

        Args:
            texts: the hypotheses of one or two systems first, then the references.
        """
        return None

    def sentence_scores(
        self, hypotheses: Text, references: Sequence[Text], sources: Text
    ) -> Sequence[float] | None:
        """Returns the score of each sentence if the score of a corpus is their mean; otherwise None.

        With these scores the significance test is fast. Without them it scores every resampled corpus.
        """
        return None

    def sentence_utilities(self, hypotheses: Text, references: Text, sources: Text) -> Sequence[float]:
        """Returns how good each hypothesis is by itself, for minimum Bayes risk decoding. Higher is better.

        By default it is the score of a corpus of one sentence, negative if a lower score is better.

        Args:
            hypotheses: one line a sentence.
            references: the reference of each sentence.
            sources: the source of each sentence.
        """
        scores = self.sentence_scores(hypotheses, [references], sources)
        if scores is None:
            scores = [
                self.score([hypothesis], [[reference]], [source])
                for hypothesis, reference, source in zip(hypotheses, references, sources, strict=True)
            ]
        return [score if self.higher_is_better else -score for score in scores]

    def paired_test(
        self, hypotheses: Text, baseline: Text, references: Sequence[Text], sources: Text, resamples: int
    ) -> tuple[Difference, str]:
        """Tests a system against a baseline by paired bootstrap resampling (Koehn 2004).

        The seed and the arithmetic are those of sacreBLEU.

        Args:
            hypotheses: the hypotheses of the system.
            baseline: the hypotheses of the baseline.
            references: as for `score`.
            sources: as for `score`.
            resamples: number of test sets that are drawn with replacement.

        Returns:
            The difference, and the signature of the test with `bs:` (resamples) and `seed:`.
        """
        # Not needed for scores alone, whose commands start faster without it.
        import numpy as np

        draws = _draws(len(hypotheses), resamples)  # the same for both systems
        ours, theirs = (
            self._resampled(system, references, sources, draws) for system in (hypotheses, baseline)
        )
        with np.errstate(invalid="ignore"):  # scores may be infinite
            leads = np.abs(ours[1] - theirs[1])
            difference = Difference(
                baseline=theirs[0],
                delta=ours[0] - theirs[0],
                p_value=_p_value(ours[0] - theirs[0], leads - leads.mean()),
                interval=_half_width(ours[1]),
                baseline_interval=_half_width(theirs[1]),
            )
        return difference, f"{self.signature(len(references))}|bs:{resamples}|seed:{bootstrap_seed()}"

    def randomised_test(
        self, hypotheses: Text, baseline: Text, references: Sequence[Text], sources: Text, trials: int
    ) -> tuple[float, str]:
        """Tests a system against a baseline by approximate randomisation (Riezler and Maxwell 2005).

        Each of the trials exchanges the hypotheses of random sentences. The other arguments are as for
        `paired_test`.

        Returns:
            The p-value, and the signature of the test with `ar:` (trials) and `seed:`.
        """
        import numpy as np

        rows = np.arange(count := len(hypotheses))
        exchanged = _generator().integers(2, size=(trials, count), dtype=bool)
        both = [*hypotheses, *baseline], [[*text, *text] for text in references], [*sources, *sources]
        mixed = [
            self._resampled(*both, (np.where(trial, rows + count, rows) for trial in side))[1]
            for side in (exchanged, ~exchanged)
        ]
        ours, theirs = (self.number(system, references, sources) for system in (hypotheses, baseline))
        with np.errstate(invalid="ignore"):  # scores may be infinite
            p_value = _p_value(ours - theirs, np.abs(mixed[0] - mixed[1]))
        return p_value, f"{self.signature(len(references))}|ar:{trials}|seed:{bootstrap_seed()}"

    def interval(self, hypotheses: Text, references: Sequence[Text], sources: Text, resamples: int) -> float:
        """Returns half the width of the 95% confidence interval of a score, by bootstrap resampling.

        The arguments are as for `paired_test`, whose interval is the same.
        """
        draws = _draws(len(hypotheses), resamples)
        return _half_width(self._resampled(hypotheses, references, sources, draws)[1])

    def number(self, hypotheses: Text, references: Sequence[Text], sources: Text) -> float:
        """Returns `score` as a number; raises `UserError` if a plugin returns something else."""
        return number_of(self.score(hypotheses, references, sources), self.key)

    def _resampled(
        self, system: Text, references: Sequence[Text], sources: Text, draws: Iterable[Array]
    ) -> tuple[float, Array]:
        """Returns the score of a system, and its scores (R,) on R test sets, each with the rows (N,)."""
        import numpy as np

        score = self.number(system, references, sources)
        sentences = self.sentence_scores(system, references, sources)
        if sentences is not None:
            values = np.asarray(numbers_of(sentences, len(system), self.key))
            return score, np.asarray([values[rows].mean() for rows in draws])
        scores = [
            self.number(
                selected(system, rows),
                [selected(text, rows) for text in references],
                selected(sources, rows),
            )
            for rows in draws
        ]
        return score, np.asarray(scores, np.float64)


def _generator() -> np.random.Generator:
    """Returns sacreBLEU's generator of random numbers."""
    import numpy as np

    seed = bootstrap_seed()
    return np.random.default_rng(None if seed == "none" else int(seed))


def _draws(count: int, resamples: int) -> Array:
    """Returns the rows (R, N) of test sets that are drawn with replacement."""
    return _generator().choice(count, size=(resamples, count), replace=True)


def _half_width(scores: Array) -> float:
    from sacrebleu.significance import estimate_ci

    return float(estimate_ci(scores)[1])


def _p_value(delta: float, leads: Array) -> float:
    """Returns the p-value of a difference; `leads` (R,) are differences between equally good systems."""
    farther, resamples = int((leads > abs(delta)).sum()), len(leads)
    return 1.0 if delta == 0.0 else (farther + 1) / (resamples + 1)


def number_of(value: Any, key: str) -> float:
    """Returns a score that the metric `key` has computed; one that is too large for a float is infinite.

    Raises:
        UserError: the score is not a number.
    """
    try:
        return float(value)
    except OverflowError:
        return math.inf
    except (TypeError, ValueError):
        raise UserError(
            f"metric {key}: its score is {value!r:.40}, not a number. Correct the metric."
        ) from None


def numbers_of(values: Iterable[Any], count: int, key: str) -> list[float]:
    """Returns the score of each of `count` sentences; the errors are as for `number_of`."""
    numbers = [number_of(value, key) for value in values]
    if len(numbers) != count:
        raise UserError(f"metric {key}: has {len(numbers)} scores of {count} sentences. Correct the metric.")
    return numbers


def selected(text: Text, rows: Iterable[int]) -> list[str]:
    """Returns the lines of a text with these numbers; none if the text is empty because it is not needed."""
    return [text[row] for row in rows] if text else []


def bootstrap_seed() -> str:
    """Returns the seed of resampling: 12345, or `$SACREBLEU_SEED`, which may be `none`."""
    return os.environ.get("SACREBLEU_SEED", "12345").lower()
