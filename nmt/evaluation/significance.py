"""Whether a system differs from a baseline by more than chance: paired bootstrap resampling."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from nmt.evaluation.scores import (
    METRICS,
    References,
    count_references,
    metrics_for,
    reference_texts,
    require_equal_counts,
    without_ter,
)

RESAMPLES = 1000


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


@dataclass(frozen=True)
class Comparison:
    """A system beside a baseline in every metric.

    Attributes:
        bleu: the difference in BLEU; likewise `chrf` and `ter`. `ter` is None where a line is too long.
        signatures: sacreBLEU's signature of each test; names the number of resamples and the seed.
        resamples: how many test sets were drawn.
        seed: sacreBLEU's seed, 12345 or `$SACREBLEU_SEED`.
    """

    bleu: Difference
    chrf: Difference
    ter: Difference | None
    signatures: dict[str, str]
    resamples: int
    seed: str

    def as_dict(self) -> dict[str, Any]:
        """The comparison as plain numbers and strings, for JSON."""
        return asdict(self)


def compare(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: References,
    target_lang: str,
    resamples: int = RESAMPLES,
) -> Comparison:
    """Tests hypotheses against a baseline by paired bootstrap resampling (Koehn 2004) through sacreBLEU.

    Args:
        hypotheses: raw text of the system.
        baseline: raw text of the other system, line for line.
        references: raw text, line for line; one text or several.
        target_lang: language code of all texts.
        resamples: how many test sets are drawn with replacement.

    Raises:
        UserError: no sentences, unequal counts, or a tokenizer that is not installed.
    """
    from sacrebleu.significance import PairedTest

    texts = reference_texts(references)
    require_equal_counts(
        {"hypotheses": len(hypotheses), "baseline": len(baseline), **count_references(texts)}
    )
    systems = [("baseline", baseline), ("hypotheses", hypotheses)]
    metrics = metrics_for(target_lang)
    if without_ter([hypotheses, baseline, *texts], target_lang) is not None:
        del metrics["ter"]
    test = PairedTest(systems, metrics, texts, test_type="bs", n_samples=resamples)
    signatures, results = test()
    seed = next(iter(signatures.values())).info["seed"]
    return Comparison(
        **{  # type: ignore[arg-type]
            key: _difference(*results[name]) if key in metrics else None for key, name in METRICS.items()
        },
        signatures={key: str(signatures[METRICS[key]]) for key in metrics},
        resamples=resamples,
        seed=str(seed),
    )


def _difference(baseline: Any, system: Any) -> Difference:
    """Reads one metric's two `sacrebleu.significance.Result`s."""
    delta = float(system.score - baseline.score)
    return Difference(
        baseline=float(baseline.score),
        delta=delta,
        # sacreBLEU counts only resamples beyond the observed difference, so that a system compared with
        # itself would come out as different beyond doubt: p = 1 / (resamples + 1).
        p_value=1.0 if delta == 0.0 else float(system.p_value),
        interval=float(system.ci),
        baseline_interval=float(baseline.ci),
    )
