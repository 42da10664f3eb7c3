"""Scores of raw text by a set of metrics, each with its signature; of all sentences, or of groups."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, cast

from nmt.errors import UserError
from nmt.evaluation.metrics import Metric
from nmt.runtime import log

References = Sequence[str] | Sequence[Sequence[str]]
"""Reference translations line for line: one text, or several texts that each translate every source."""

_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")  # kana, Han, Hangul


@dataclass(frozen=True)
class Scores:
    """The scores of a set of hypotheses.

    Attributes:
        values: the score of each metric, under its key; None where the metric leaves the set out.
        signatures: the signature of each metric, under the same keys.
        sentences: number of hypotheses.
    """

    values: Mapping[str, float | None]
    signatures: Mapping[str, str]
    sentences: int

    def __getitem__(self, key: str) -> float | None:
        """The score of a metric."""
        return self.values[key]

    def as_dict(self) -> dict[str, Any]:
        """The scores in the shape of `results.json`."""
        return {**self.values, "signatures": dict(self.signatures), "sentences": self.sentences}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Scores:
        """The reverse of `as_dict`.

        Raises:
            KeyError: the signatures or the number of sentences are missing.
            TypeError: a value has another type.
        """
        scores = {key: value for key, value in values.items() if key not in ("signatures", "sentences")}
        signatures, sentences = values["signatures"], values["sentences"]
        if not isinstance(signatures, Mapping) or not isinstance(sentences, int):
            raise TypeError("signatures or sentences have another type")
        if not all(value is None or isinstance(value, int | float) for value in scores.values()):
            raise TypeError("a score is not a number")
        return cls(scores, signatures, sentences)


def score(
    hypotheses: Sequence[str],
    references: References,
    metrics: Mapping[str, Metric],
    *,
    sources: Sequence[str] = (),
) -> Scores:
    """Scores hypotheses against one or several references each, as `nrefs` of the signatures says.

    Args:
        hypotheses: raw text, detokenised.
        references: raw text, line for line.
        metrics: from `metrics_for`.
        sources: raw text, line for line; empty if no metric needs it.

    Raises:
        UserError: no sentences, unequal counts, or a score that can't be computed.
    """
    texts = reference_texts(references)
    require_equal_counts({"hypotheses": len(hypotheses), **count_references(texts), **_counted(sources)})
    warn_of_left_out(metrics, [hypotheses, *texts])
    return _score(hypotheses, texts, sources, metrics)


def _score(
    hypotheses: Sequence[str],
    texts: Sequence[Sequence[str]],
    sources: Sequence[str],
    metrics: Mapping[str, Metric],
) -> Scores:
    return Scores(
        {key: score_of(metric, hypotheses, texts, sources) for key, metric in metrics.items()},
        {key: metric.signature(len(texts)) for key, metric in metrics.items()},
        len(hypotheses),
    )


def score_of(
    metric: Metric, hypotheses: Sequence[str], texts: Sequence[Sequence[str]], sources: Sequence[str]
) -> float | None:
    """The score of one metric; None if it leaves the set out, or finds no finite number.

    Args:
        metric: the metric.
        hypotheses: raw text.
        texts: one text of references or several.
        sources: raw text; empty if the metric does not need it.

    Raises:
        UserError: the score can't be computed.
    """
    assert sources or not metric.needs_sources, "the caller has made sure that there are sources"
    if metric.left_out([hypotheses, *texts]) is not None:
        return None
    value = float(metric.score(hypotheses, texts, sources))
    return value if math.isfinite(value) else None  # JSON has no other numbers


def warn_of_left_out(metrics: Mapping[str, Metric], texts: Sequence[Sequence[str]]) -> None:
    """Logs which metrics leave a set out, and why.

    Args:
        metrics: all that score the set.
        texts: hypotheses and references.
    """
    reasons = {metric.name: metric.left_out(texts) for metric in metrics.values()}
    others = [name for name, reason in reasons.items() if reason is None]
    more = f"; {listed(others)} {'count' if len(others) > 1 else 'counts'} all lines" if others else ""
    for name, reason in reasons.items():
        if reason is not None:
            log.warning("%s is left out: %s%s", name, reason, more)


def score_groups(
    hypotheses: Sequence[str],
    references: References,
    groups: Sequence[str],
    metrics: Mapping[str, Metric],
    *,
    sources: Sequence[str] = (),
) -> dict[str, Scores]:
    """Scores the sentences of each label by themselves.

    Args:
        hypotheses: raw text.
        references: raw text, line for line.
        groups: the label of each line.
        metrics: as for `score`.
        sources: as for `score`.

    Returns:
        Label → scores, in the order in which the labels first appear.

    Raises:
        UserError: as `score`.
    """
    texts = reference_texts(references)
    counts = {"hypotheses": len(hypotheses), **count_references(texts), "groups": len(groups)}
    require_equal_counts({**counts, **_counted(sources)})
    rows: dict[str, list[int]] = {}
    for row, label in enumerate(groups):
        rows.setdefault(label, []).append(row)

    def drawn(text: Sequence[str], own: Sequence[int]) -> list[str]:
        return [text[row] for row in own] if text else []

    return {
        label: _score(
            drawn(hypotheses, own), [drawn(text, own) for text in texts], drawn(sources, own), metrics
        )
        for label, own in rows.items()
    }


def reference_texts(references: References) -> list[Sequence[str]]:
    """The texts of references, each line for line: the form that sacreBLEU takes."""
    return [text for text in references if not isinstance(text, str)] or [cast(Sequence[str], references)]


def count_references(texts: Sequence[Sequence[str]]) -> dict[str, int]:
    """The number of lines of each text of references, as `require_equal_counts` takes it."""
    names = ["references"] if len(texts) == 1 else [f"references {i + 1}" for i in range(len(texts))]
    return {name: len(text) for name, text in zip(names, texts, strict=True)}


def require_equal_counts(counts: Mapping[str, int]) -> None:
    """Checks that texts stand line for line.

    Args:
        counts: what is being compared, in the user's words → its number of sentences.

    Raises:
        UserError: the counts differ, or there are no sentences.
    """
    if len(set(counts.values())) > 1:
        reported = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise UserError(f"unequal numbers of sentences: {reported}; they must stand line for line")
    if not all(counts.values()):
        raise UserError(f"no sentences to score: {' and '.join(counts)} are empty")


def looks_tokenized(hypotheses: Sequence[str], references: Sequence[str]) -> bool:
    """Whether hypotheses seem to have been left tokenised, which lowers every score.

    The sign is a full stop after a space where the reference has none; one line in ten is enough.
    """
    split = sum(
        ours.endswith(" .") and not theirs.endswith(" .")
        for ours, theirs in zip(hypotheses, references, strict=True)
    )
    return split * 10 >= max(1, len(references))


def lacks_spaces(references: Sequence[str]) -> bool:
    """Whether texts seem to be in a language whose words no tokenizer for spaces can find."""
    letters = [letter for line in references[:1000] for letter in line if letter.isalpha()]
    return 2 * len(_CJK.findall("".join(letters))) > len(letters)


def listed(words: Sequence[str]) -> str:
    """Words as a list in a sentence: `a`, `a and b`, `a, b and c`."""
    return " and ".join([", ".join(words[:-1]), words[-1]] if len(words) > 1 else words)


def _counted(sources: Sequence[str]) -> dict[str, int]:
    return {"sources": len(sources)} if sources else {}
