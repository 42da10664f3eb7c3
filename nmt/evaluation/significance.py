"""Significance tests of a system against a baseline by paired bootstrap resampling."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nmt.evaluation.metrics import Difference, Metric
from nmt.evaluation.metrics.bootstrap import bootstrap_seed
from nmt.evaluation.scores import References, count_references, reference_texts, require_equal_counts

RESAMPLES = 1000


@dataclass(frozen=True)
class Comparison:
    """The comparison of a system with a baseline in every metric.

    Attributes:
        differences: key of each metric → difference; None if the metric can't score the set.
        signatures: key of each metric → signature of the test, with the number of resamples and the seed.
        resamples: number of test sets that were drawn.
        seed: sacreBLEU's seed, 12345 or `$SACREBLEU_SEED`.
    """

    differences: Mapping[str, Difference | None]
    signatures: Mapping[str, str]
    resamples: int
    seed: str

    def __getitem__(self, key: str) -> Difference | None:
        """Returns the difference in a metric."""
        return self.differences[key]

    def as_dict(self) -> dict[str, Any]:
        """Returns the comparison as numbers and strings for JSON."""
        differences = {key: one and asdict(one) for key, one in self.differences.items()}
        rest = {"signatures": dict(self.signatures), "resamples": self.resamples, "seed": self.seed}
        return {**differences, **rest}


def compare(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: References,
    metrics: Mapping[str, Metric],
    resamples: int = RESAMPLES,
    *,
    sources: Sequence[str] = (),
) -> Comparison:
    """Tests hypotheses against a baseline by paired bootstrap resampling (Koehn 2004) in every metric.

    Args:
        hypotheses: raw text of the system.
        baseline: raw text of the other system, line for line.
        references: raw text, line for line; one or more texts.
        metrics: from `metrics_for`.
        resamples: number of test sets that are drawn with replacement.
        sources: raw text, line for line; empty if no metric needs it.

    Raises:
        UserError: no sentences, unequal counts, or a score that can't be computed.
    """
    texts = reference_texts(references)
    counts = {"hypotheses": len(hypotheses), "baseline": len(baseline), **count_references(texts)}
    require_equal_counts({**counts, "sources": len(sources)} if sources else counts)
    differences: dict[str, Difference | None] = {}
    signatures = {}
    for key, metric in metrics.items():
        differences[key] = None
        if metric.left_out([hypotheses, baseline, *texts]) is None:
            test = metric.paired_test(hypotheses, baseline, texts, sources, resamples)
            differences[key], signatures[key] = test
    return Comparison(differences, signatures, resamples, bootstrap_seed())
