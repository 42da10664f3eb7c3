"""The utility of minimum Bayes risk decoding: a registered metric that compares single sentences."""

from __future__ import annotations

from nmt.config import DecodingConfig, EvaluationConfig
from nmt.decoding.candidates import Utility
from nmt.evaluation.metrics import metric_kinds


def configured_utility(
    decoding: DecodingConfig, target_lang: str, options: EvaluationConfig | None = None
) -> Utility | None:
    """Returns the metric that `decoding.mbr` selects as a utility; None if it is not set.

    Args:
        decoding: the options of the search.
        target_lang: language code of the translations.
        options: options of scoring; None: the defaults.

    Raises:
        UserError: no such metric is registered, or it requires an option or a program that is missing.
    """
    if decoding.mbr is None:
        return None
    kind = metric_kinds([decoding.mbr], "decoding.mbr")[decoding.mbr]
    metric = kind(target_lang, options or EvaluationConfig())
    return Utility(metric.sentence_utilities, one_by_one=not metric.is_batched)
