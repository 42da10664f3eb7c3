"""The metrics and their registry: key → class.

To add a metric, write a subclass of `Metric` and register it: `METRICS[Mine.key] = Mine`. Its key is then
valid in `evaluation.metrics`, `training.validate_metrics` and `training.criterion`.
"""

from __future__ import annotations

from collections.abc import Sequence

from nmt.config import EvaluationConfig
from nmt.evaluation.metrics.base import Difference as Difference
from nmt.evaluation.metrics.base import Metric as Metric
from nmt.evaluation.metrics.base import ScoringStopped as ScoringStopped
from nmt.evaluation.metrics.base import Text as Text
from nmt.evaluation.metrics.comet import Comet
from nmt.evaluation.metrics.overlap import Bleu, ChrF, ChrFPlusPlus, Ter
from nmt.evaluation.metrics.overlap import tokenizer_for as tokenizer_for
from nmt.runtime.plugins import Registry

METRICS: Registry[type[Metric]] = Registry("metric")
"""Key → class of a metric. The class is called with the target language and the options of scoring."""

for _kind in (Bleu, ChrF, ChrFPlusPlus, Ter, Comet):
    METRICS[_kind.key] = _kind


def metric_kinds(keys: Sequence[str], option: str = "evaluation.metrics") -> dict[str, type[Metric]]:
    """Returns the class of each metric by its key.

    Raises:
        UserError: a key is not registered; the message begins with `option`.
    """
    return {key: METRICS.find(key, f"{option}=[{','.join(keys)}]") for key in keys}


def metrics_for(
    target_lang: str, options: EvaluationConfig | None = None, keys: Sequence[str] | None = None
) -> dict[str, Metric]:
    """Creates metrics for the language code of hypotheses and references, such as `de`, `zh_CN` or empty.

    Without `options`, they have the defaults; without `keys`, the metrics are those of `options`.

    Raises:
        UserError: a key is not registered, or a metric requires an option or a program that is missing.
    """
    options = options or EvaluationConfig()
    kinds = metric_kinds(options.metrics if keys is None else keys)
    return {key: kind(target_lang, options) for key, kind in kinds.items()}
