"""Scores of raw text by a set of metrics, for all sentences or groups, and comparisons with a baseline."""

from __future__ import annotations

import math
import unicodedata
from collections.abc import Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any

from nmt.config import EvaluationConfig
from nmt.errors import UserError
from nmt.evaluation.metrics import Difference, Metric, metrics_for, tokenizer_for
from nmt.evaluation.metrics.base import bootstrap_seed, selected
from nmt.languages import language_of, language_of_text
from nmt.runtime.streams import log

SIGNIFICANT = 0.05
"""A difference with a p-value below it is called significant."""
RESAMPLES = 1000
TRIALS = 10_000
"""Trials of approximate randomisation, as in sacreBLEU."""


@dataclass(frozen=True)
class Scores:
    """The scores of a set of hypotheses.

    The keys are those of the metrics. A value is None if the metric can't score the set.
    """

    values: Mapping[str, float | None]
    signatures: Mapping[str, str]
    sentences: int

    def __getitem__(self, key: str) -> float | None:
        return self.values[key]

    def as_dict(self) -> dict[str, Any]:
        """Returns the scores in the format of `results.json`."""
        return {**self.values, "signatures": dict(self.signatures), "sentences": self.sentences}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Scores:
        """Reverses `as_dict`.

        Raises:
            KeyError: the signatures or the number of sentences are missing.
            TypeError: a value has the wrong type.
        """
        scores = {key: value for key, value in values.items() if key not in ("signatures", "sentences")}
        signatures, sentences = values["signatures"], values["sentences"]
        if not isinstance(signatures, Mapping) or not isinstance(sentences, int):
            raise TypeError("signatures or sentences have the wrong type")
        if not all(value is None or isinstance(value, int | float) for value in scores.values()):
            raise TypeError("a score is not a number")
        return cls(scores, signatures, sentences)


def mean_of_sets(sets: Collection[Scores]) -> Scores:
    """Returns the mean of each score over several sets; it has no signature.

    A mean is None if a set lacks the score. The number of sentences is that of all sets together.
    """
    keys = dict.fromkeys(key for scores in sets for key in scores.values)
    means = {key: mean_score([scores.values.get(key) for scores in sets]) for key in keys}
    return Scores(means, {}, sum(scores.sentences for scores in sets))


def mean_score(values: Sequence[float | None]) -> float | None:
    """Returns the mean of one or more scores, whatever their order; None if a score is missing."""
    known = [value for value in values if value is not None]
    return math.fsum(known) / len(known) if len(known) == len(values) else None


def score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Mapping[str, Metric],
    *,
    sources: Sequence[str] = (),
) -> Scores:
    """Scores hypotheses against one or more texts of references; `nrefs` in the signatures is their number.

    All texts are raw and detokenised, line for line; `sources` may be empty if no metric needs it.

    Raises:
        UserError: a score can't be computed.
    """
    warn_of_left_out(metrics, [hypotheses, *references])
    return _score(hypotheses, references, sources, metrics)


def _score(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    sources: Sequence[str],
    metrics: Mapping[str, Metric],
) -> Scores:
    return Scores(
        {key: score_of(metric, hypotheses, references, sources) for key, metric in metrics.items()},
        {key: metric.signature(len(references)) for key, metric in metrics.items()},
        len(hypotheses),
    )


def score_of(
    metric: Metric, hypotheses: Sequence[str], references: Sequence[Sequence[str]], sources: Sequence[str]
) -> float | None:
    """Returns the score of one metric; None if the metric can't score the set, or it is not finite.

    The arguments are as for `score`.

    Raises:
        UserError: the score can't be computed.
    """
    assert sources or not metric.needs_sources, "the caller must check that sources are given"
    if metric.left_out([hypotheses, *references]) is not None:
        return None
    value = metric.number(hypotheses, references, sources)
    return value if math.isfinite(value) else None  # JSON can represent only finite numbers


def warn_of_left_out(metrics: Mapping[str, Metric], texts: Sequence[Sequence[str]]) -> None:
    """Logs a warning for each metric that can't score a set of hypotheses and references."""
    reasons = {metric.name: metric.left_out(texts) for metric in metrics.values()}
    others = [name for name, reason in reasons.items() if reason is None]
    more = f". {listed(others)} {'score' if len(others) > 1 else 'scores'} all lines." if others else ""
    for name, reason in reasons.items():
        if reason is not None:
            log.warning("%s is omitted: %s%s", name, reason, more)


def score_groups(
    hypotheses: Sequence[str],
    references: Sequence[Sequence[str]],
    groups: Sequence[str],
    metrics: Mapping[str, Metric],
    *,
    sources: Sequence[str] = (),
    target_langs: Sequence[str] = (),
    options: EvaluationConfig | None = None,
) -> dict[str, Scores]:
    """Scores the sentences of each label separately, in the order in which the labels first appear.

    `groups` has the label of each line, and `target_langs` the language of each reference, if there are
    several: a group in one language has the metrics of that language, with these `options`. The other
    arguments and the errors are as for `score`.
    """
    by_lang = {lang: metrics_for(lang, options, list(metrics)) for lang in dict.fromkeys(target_langs)}
    scores = {}
    for label, numbers in rows_of(groups).items():
        langs = set(selected(target_langs, numbers))
        scores[label] = _score(
            selected(hypotheses, numbers),
            [selected(text, numbers) for text in references],
            selected(sources, numbers),
            by_lang[langs.pop()] if len(langs) == 1 else metrics,
        )
    return scores


def rows_of(groups: Sequence[str]) -> dict[str, list[int]]:
    """Returns the numbers of the lines of each label, in the order in which the labels first appear."""
    rows: dict[str, list[int]] = {}
    for row, label in enumerate(groups):
        rows.setdefault(label, []).append(row)
    return rows


@dataclass(frozen=True)
class Comparison:
    """The comparison of a system with a baseline in every metric.

    Attributes:
        differences: by the key of each metric; None if the metric can't score the set, or a number of the
            difference is not finite.
        signatures: of the tests, by the key of each metric.
        resamples: number of test sets that were drawn.
        seed: sacreBLEU's seed, 12345 or `$SACREBLEU_SEED`.
        trials: number of trials of approximate randomisation; None: the test is by bootstrap.
    """

    differences: Mapping[str, Difference | None]
    signatures: Mapping[str, str]
    resamples: int
    seed: str
    trials: int | None = None

    def __getitem__(self, key: str) -> Difference | None:
        return self.differences[key]

    def shown_p_value(self, key: str) -> str:
        """Returns a p-value as a cell, with `≤` before the smallest that the resamples or trials can give."""
        difference, draws = self.differences.get(key), self.trials or self.resamples
        if difference is None:
            return "-"
        least = difference.p_value < 1.5 / (draws + 1)
        return f"{'≤ ' if least else ''}{difference.p_value:.{max(len(str(draws)) - 1, 1)}f}"

    def as_dict(self) -> dict[str, Any]:
        """Returns the comparison as numbers and strings for JSON."""
        differences = {key: value and asdict(value) for key, value in self.differences.items()}
        rest = {"signatures": dict(self.signatures), "resamples": self.resamples, "seed": self.seed}
        return {**differences, **rest, **({} if self.trials is None else {"trials": self.trials})}


def compare(
    hypotheses: Sequence[str],
    baseline: Sequence[str],
    references: Sequence[Sequence[str]],
    metrics: Mapping[str, Metric],
    resamples: int = RESAMPLES,
    *,
    sources: Sequence[str] = (),
    trials: int | None = None,
) -> Comparison:
    """Tests hypotheses against a baseline by paired bootstrap resampling (Koehn 2004) in every metric.

    `resamples` test sets are drawn with replacement; the other arguments are as for `score`. With `trials`,
    the test is by approximate randomisation, and only the intervals are by bootstrap.

    Raises:
        UserError: a score can't be computed.
    """
    differences: dict[str, Difference | None] = {}
    signatures = {}
    for key, metric in metrics.items():
        differences[key] = None
        if metric.left_out([hypotheses, baseline, *references]) is None:
            texts = hypotheses, baseline, references, sources
            test = metric.paired_test(*texts, resamples)
            if trials is not None:
                p_value, signature = metric.randomised_test(*texts, trials)
                test = replace(test[0], p_value=p_value), signature
            if all(map(math.isfinite, asdict(test[0]).values())):  # JSON can represent only finite numbers
                differences[key], signatures[key] = test
    return Comparison(differences, signatures, resamples, bootstrap_seed(), trials)


def require_equal_counts(counts: Mapping[str, int]) -> None:
    """Checks that texts, by their names in messages, have the same number of lines.

    Raises:
        UserError: the counts differ, or there are no sentences.
    """
    if len(set(counts.values())) > 1:
        reported = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise UserError(f"unequal numbers of sentences: {reported}. They must correspond line for line.")
    if not all(counts.values()):
        raise UserError(f"no sentences to score: {' and '.join(counts)} are empty.")


def looks_tokenized(hypotheses: Sequence[str], references: Sequence[str]) -> bool:
    """Returns whether hypotheses seem to be tokenised, which lowers every score.

    That is so if at least one line in ten ends with a space and a full stop, and its reference does not.
    """
    split = sum(
        ours.endswith(" .") and not theirs.endswith(" .")
        for ours, theirs in zip(hypotheses, references, strict=True)
    )
    return split * 10 >= max(1, len(references))


def composed_share(lines: Sequence[str]) -> float:
    """Returns the share of lines in Unicode's composed form, NFC, of one or more."""
    return sum(line.isascii() or unicodedata.is_normalized("NFC", line) for line in lines) / len(lines)


def recognised_languages(
    references: Sequence[str], groups: Sequence[str], options: EvaluationConfig, name: str
) -> tuple[str, list[str]]:
    """Returns the language of references whose script leaves no doubt, else that of each line by its group.

    A language is empty if its script leaves a doubt, or if a metric can't be set up for it. Others are
    logged. There is none of each line if all are empty. `name` is that of the references, for the log.
    """
    whole = _recognised(references, options, name)
    if whole or len(groups) != len(references):
        return whole, []
    langs = {
        label: _recognised(selected(references, numbers), options, f"{name}, group {label}")
        for label, numbers in rows_of(groups).items()
    }
    return "", [langs[label] for label in groups] if any(langs.values()) else []


_RECOGNISED_LINES = 1000


def _recognised(lines: Sequence[str], options: EvaluationConfig, name: str) -> str:
    lang = language_of_text(lines[:_RECOGNISED_LINES])
    if lang:
        try:
            metrics_for(lang, options)
        except UserError as error:
            log.warning("%s: in the script of %s, so whole phrases count as words. %s", name, lang, error)
            return ""
        log.info("%s: in the script of %s. target_lang=CODE gives another language.", name, lang)
    return lang


def warn_of_words(key: str, target_lang: str, metrics: Collection[str]) -> None:
    """Logs a warning if the metrics include BLEU, which has no tokenizer for languages such as Thai.

    `key` is the option of the language, for the message.
    """
    if "bleu" in metrics and not language_of(target_lang).has_spaces and tokenizer_for(target_lang) == "13a":
        log.warning(
            "%s=%s: BLEU has no tokeniser for this language without spaces, so that whole phrases count as "
            "words. Rely on chrF.",
            *(key, target_lang),
        )


def listed(words: Sequence[str]) -> str:
    """Joins words to a list in a sentence: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)
