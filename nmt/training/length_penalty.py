"""The length penalty of the final model, chosen on the validation sets: `training.tune_length_penalty`."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from nmt.config import TrainConfig
from nmt.config.storage import with_values
from nmt.data.preparation.prepare import Prepared
from nmt.evaluation.tables import metric_name, shown_score
from nmt.model import Seq2Seq
from nmt.runtime.streams import log, progress
from nmt.training.figures.validated import validation_metrics
from nmt.training.processes.ranks import Ranks
from nmt.training.validation import Validator

Translations: TypeAlias = Mapping[str, Sequence[str]]
"""The name of a validation set → its translations."""
Scores: TypeAlias = dict[str, float | None]
"""The key of a metric → the score; None: the metric has none."""

STEP = 0.4
"""The distance of two penalties that are tried."""
SENTENCES = 300
"""Sentences of each validation set, from its beginning."""
TIMES = 2
"""How often they are translated, if the first penalty is the best: with both of its neighbours."""
LEAST = 1.015
"""The quality of another penalty, relative to the first, from which on it is chosen. A smaller gain on 300
sentences is chance: on whole sets such choices lost 0.1 BLEU on average (docs/recipes.md)."""
_MOST = 10.0
"""The highest that `decoding.length_penalty` allows."""


def measures(config: TrainConfig) -> list[str]:
    """Returns the metrics by which a penalty is chosen; none if the option is off or can't change anything.

    No penalty changes a greedy search. A metric that validations don't have is left out.
    """
    if not config.training.tune_length_penalty or config.decoding.beam_size == 1:
        return []
    return [key for key in ("bleu", "chrf") if key in validation_metrics(config)]


def tuned_length_penalty(
    config: TrainConfig, prepared: Prepared, model: Seq2Seq, ranks: Ranks, known: Translations | None = None
) -> tuple[dict[str, Any] | None, Translations | None]:
    """Chooses the length penalty with which translations of the validation sets are best; all ranks call it.

    It begins with `decoding.length_penalty` and tries lower ones, or else higher ones, while they are better.
    The measure is the product of BLEU and chrF2, since longer translations often have a higher chrF2 and a
    lower BLEU.

    `known` are translations of validation sets with `decoding.length_penalty`. Then another penalty must be
    better on the whole sets too. This takes no time, as the results need their translations.

    Returns:
        `chosen`, the number of `sentences`, the `tried` penalties with their scores, and the two `on_all`
        sentences; None without `measures`. And the translations with the chosen one; None: unknown.
    """
    if not (keys := measures(config)):
        return None, known
    started, first = time.monotonic(), config.decoding.length_penalty
    found: dict[float, Translations] = {}
    if known is not None and known.keys() == prepared.valid.keys():
        found[first] = known

    def scored(penalty: float, limit: int) -> Scores:
        options = with_values(config, {"decoding.length_penalty": penalty})
        validator = Validator(model, options, prepared, ranks, final=True, sentences=limit)
        if penalty in found:
            texts: Translations = {name: text[: limit or None] for name, text in found[penalty].items()}
        else:
            words, total = f"length penalty {penalty:g}", validator.num_sentences
            with progress(total=total, unit="sentences", description=words) as bar:
                texts = validator.hypotheses(bar.update if ranks.is_main else lambda num_lines: None)
        if not limit:
            found[penalty] = texts
        return validator.scores(keys, texts)

    def quality(penalty: float) -> float:
        tried[penalty] = scored(penalty, SENTENCES)
        return _quality(tried[penalty])

    tried, on_all = dict[float, Scores](), dict[float, Scores]()
    best = chosen = climbed(quality, first)
    if best != first and first in found:
        on_all = {penalty: scored(penalty, 0) for penalty in (first, best)}
        if _quality(on_all[best]) <= _quality(on_all[first]):
            chosen = first
    sentences = sum(min(SENTENCES, len(text.sources)) for text in prepared.valid.values())
    log.info(
        "length penalty: %g is chosen on %d sentences of validation, in %.1f seconds (%s; a gain below "
        "%.1f %% does not count%s)",
        *(chosen, sentences, time.monotonic() - started, _in_words(tried), 100 * (LEAST - 1)),
        f"; on all sentences {_in_words(on_all)}" if on_all else "",
    )
    rows = {"tried": tried, "on_all": on_all} if on_all else {"tried": tried}
    tables = {
        name: [{"length_penalty": penalty, **scores} for penalty, scores in sorted(table.items())]
        for name, table in rows.items()
    }
    return {"chosen": chosen, "sentences": sentences, **tables}, found.get(
        chosen, known if chosen == first else None
    )


def _quality(scores: Scores) -> float:
    values = [value for value in scores.values() if value is not None]
    return math.prod(values) if len(values) == len(scores) else -math.inf


def _in_words(table: Mapping[float, Scores]) -> str:
    return "; ".join(
        f"{penalty:g}: "
        + ", ".join(f"{metric_name(key)} {shown_score(key, value)}" for key, value in row.items())
        for penalty, row in sorted(table.items())
    )


def climbed(quality: Callable[[float], float], first: float) -> float:
    """Returns the penalty of the highest quality near `first`, each of which is computed once.

    It goes down in steps while this is better, or else up, between 0 and the highest that is allowed. Of
    equals, it takes the one that was computed first, and stays at `first` if the gain is small.
    """
    best, highest = first, (least := quality(first))
    for step in (-STEP, STEP):
        while 0.0 <= (penalty := round(best + step, 6)) <= _MOST and (found := quality(penalty)) > highest:
            best, highest = penalty, found
        if best != first:
            break
    return best if highest >= LEAST * least else first
