"""Paired bootstrap resampling for any metric, with the seed and the arithmetic of sacreBLEU."""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from nmt.evaluation.metrics.base import Difference, Metric, Text

if TYPE_CHECKING:
    import numpy as np

    Array = np.ndarray[Any, Any]


def bootstrap_seed() -> str:
    """Returns the seed of resampling: 12345, or `$SACREBLEU_SEED`, which may be `none`."""
    return os.environ.get("SACREBLEU_SEED", "12345").lower()


def paired_bootstrap(
    metric: Metric,
    hypotheses: Text,
    baseline: Text,
    references: Sequence[Text],
    sources: Text,
    resamples: int,
) -> tuple[Difference, str]:
    """Tests a system against a baseline in one metric; arguments and result as for `Metric.paired_test`."""
    import numpy as np

    seed, count = bootstrap_seed(), len(hypotheses)
    rng = np.random.default_rng(None if seed == "none" else int(seed))
    draws = rng.choice(count, size=(resamples, count), replace=True)  # the same for both systems
    (ours, our_scores), (theirs, their_scores) = (
        _resampled(metric, system, references, sources, draws) for system in (hypotheses, baseline)
    )
    delta = ours - theirs
    leads = np.abs(our_scores - their_scores)
    farther = int((leads - leads.mean() > abs(delta)).sum())
    difference = Difference(
        baseline=theirs,
        delta=delta,
        p_value=1.0 if delta == 0.0 else (farther + 1) / (resamples + 1),
        interval=_half_width(our_scores),
        baseline_interval=_half_width(their_scores),
    )
    return difference, f"{metric.signature(len(references))}|bs:{resamples}|seed:{seed}"


def _resampled(
    metric: Metric, system: Text, references: Sequence[Text], sources: Text, draws: Array
) -> tuple[float, Array]:
    """Returns the score of a system, and its scores (R,) on the resampled test sets with the rows (R, N)."""
    import numpy as np

    score = metric.score(system, references, sources)
    sentences = metric.sentence_scores(system, references, sources)
    if sentences is not None:
        return score, np.asarray(sentences, np.float64)[draws].mean(1)

    def drawn(text: Text, rows: Array) -> list[str]:
        return [text[row] for row in rows] if text else []

    scores = [
        metric.score(drawn(system, rows), [drawn(text, rows) for text in references], drawn(sources, rows))
        for rows in draws
    ]
    return score, np.asarray(scores, np.float64)


def _half_width(scores: Array) -> float:
    """Returns half the width of the interval that holds 95% of the scores, computed as in sacreBLEU."""
    ordered = sorted(map(float, scores))
    cut = len(ordered) // 40
    return 0.5 * (ordered[-cut - 1] - ordered[cut])
