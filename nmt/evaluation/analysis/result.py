"""The analysis of an evaluation: intervals, scores of bins, signs of faults, and single sentences."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from nmt.config import EvaluationConfig
from nmt.evaluation.analysis.bins import bins_of, words_of
from nmt.evaluation.analysis.model_signs import ModelFacts
from nmt.evaluation.analysis.segments import Calibration, Segment, chosen_segments, sentence_chrf
from nmt.evaluation.analysis.signs import SIGNS, Count, Texts, counts_of
from nmt.evaluation.metrics import Metric
from nmt.evaluation.scores import RESAMPLES, Comparison, Scores, score_groups
from nmt.languages import language_of


@dataclass(frozen=True)
class Partition:
    """The scores of the sentences of each bin.

    Attributes:
        title: what the labels say, such as `source words`.
        scores: label → scores of the hypotheses, in order; bins without sentences are omitted.
        baseline: the same of the baseline; empty if there is none.
    """

    title: str
    scores: Mapping[str, Scores]
    baseline: Mapping[str, Scores] = field(default_factory=dict)

    def as_dict(self) -> dict[str, Any]:
        """Returns the scores for the JSON."""
        bins = {label: scores.as_dict() for label, scores in self.scores.items()}
        for label, scores in self.baseline.items():
            bins[label]["baseline"] = dict(scores.values)
        for scores_of_bin in bins.values():
            del scores_of_bin["signatures"]  # those of the whole set
        return {"title": self.title, "bins": bins}


@dataclass(frozen=True)
class Analysis:
    """What an evaluation shows beyond its scores.

    Attributes:
        intervals: key of each metric → half the width of the 95% interval of its score, by bootstrap.
        partitions: name → scores by bins, if there are several; see `bins_of`.
        signs: name → how often the hypotheses and the references show a sign of faults; see `SIGNS`.
        worst: the sentences with the worst chrF; see `chosen_segments`.
        sentence_chrf: chrF2 of each sentence, of the hypotheses and of the baseline if there is one.
        baseline_signs: the same of the baseline; empty if there is none.
        won, lost: the sentences where the chrF of the hypotheses is most above, and most below, that of the
            baseline.
        calibration: how well the model's scores predict chrF; None if there are no scores.
        examples: more sentences, with signs of faults.
        length_ratio: characters of the hypotheses, divided by those of the first references.
        source_lang, target_lang: codes of the languages; empty if unknown.
        unseen: the words in the sources of all lists that the training text does not have; None if that is
            not known.
    """

    intervals: Mapping[str, float]
    partitions: Mapping[str, Partition]
    signs: Mapping[str, Count]
    worst: Sequence[Segment]
    sentence_chrf: Sequence[Sequence[float]] = field(repr=False)
    baseline_signs: Mapping[str, Count] = field(default_factory=dict)
    won: Sequence[Segment] = ()
    lost: Sequence[Segment] = ()
    calibration: Calibration | None = None
    examples: Sequence[Segment] = ()
    length_ratio: float = 1.0
    source_lang: str = ""
    target_lang: str = ""
    unseen: Sequence[str] | None = None

    @property
    def faults(self) -> list[str]:
        """The names of the signs that are significantly more frequent than in the references."""
        return [name for name, count in self.signs.items() if count.is_fault]

    @property
    def undecided(self) -> list[str]:
        """The names of the signs that may be faults, in too few sentences to tell."""
        return [name for name, count in self.signs.items() if count.is_open(SIGNS[name])]

    @property
    def segments(self) -> list[Segment]:
        """The sentences of all lists."""
        return [*self.won, *self.lost, *self.worst, *self.examples]

    def as_dict(self) -> dict[str, Any]:
        """Returns the analysis for the JSON."""
        signs = {name: count.as_dict() for name, count in self.signs.items()}
        for name, count in self.baseline_signs.items():
            signs[name]["baseline"] = count.as_dict()
            signs[name]["difference_p_value"] = self.signs[name].against(count)
        return {
            "intervals": dict(self.intervals),
            "length_ratio": self.length_ratio,
            "partitions": {name: partition.as_dict() for name, partition in self.partitions.items()},
            "faults": self.faults,
            "undecided": self.undecided,
            "signs": signs,
            "worst": [segment.as_dict() for segment in self.worst],
            "won": [segment.as_dict() for segment in self.won],
            "lost": [segment.as_dict() for segment in self.lost],
            "examples": [segment.as_dict() for segment in self.examples],
            "unseen_words": self.unseen,
            "calibration": self.calibration and self.calibration.as_dict(),
            "sentence_chrf": [[round(value, 2) for value in values] for values in self.sentence_chrf],
        }


def analyse(
    hypotheses: Sequence[str],
    texts: Texts,
    metrics: Mapping[str, Metric],
    *,
    baseline: Sequence[str] = (),
    comparison: Comparison | None = None,
    model: ModelFacts | None = None,
    counts: Mapping[str, int] | None = None,
    target_langs: Sequence[str] = (),
    options: EvaluationConfig | None = None,
) -> Analysis:
    """Analyses hypotheses, and a baseline if there is one.

    Args:
        hypotheses: raw lines.
        texts: the references and the sources, if they are known.
        metrics: the metrics of the report.
        baseline: the lines of another system.
        comparison: with the baseline; its intervals are not computed again.
        model: what the model says about the lines; None if the hypotheses were given.
        counts: see `bins_of`.
        target_langs: as for `score_groups`.
        options: as for `score_groups`.

    Raises:
        UserError: a score can't be computed.
    """
    systems = [hypotheses, baseline] if baseline else [hypotheses]
    partitions = {}
    for name, bins in bins_of(texts.sources, texts.source_lang, counts).items():
        if len(set(bins.labels)) == 1:
            continue  # the scores of the whole set
        scores = []
        for system in systems:
            unordered = score_groups(
                *(system, texts.references, bins.labels, metrics),
                sources=texts.sources, target_langs=target_langs, options=options,
            )  # fmt: skip
            scores.append({label: unordered[label] for label in bins.order if label in unordered})
        partitions[name] = Partition(bins.title, *scores)
    tested = comparison.differences if comparison else {}
    intervals = {}
    for key, metric in metrics.items():
        if (difference := tested.get(key)) is not None:
            intervals[key] = difference.interval
        elif metric.left_out([hypotheses, *texts.references]) is None:
            intervals[key] = metric.interval(hypotheses, texts.references, texts.sources, RESAMPLES)
    model = model or ModelFacts()
    signs = [counts_of(texts, system, model.signs_of(number)) for number, system in enumerate(systems)]
    judged = [name for name in signs[0] if all(name in counts for counts in signs)]
    signs = [{name: counts[name] for name in judged} for counts in signs]
    chrf = [sentence_chrf(system, texts) for system in systems]
    calibration = Calibration.of(model.scores, chrf[0], model.token_scores) if model.scores else None
    low = calibration.low if calibration else ()
    worst, won, lost, examples = chosen_segments(texts, systems, chrf, signs, low)
    theirs = signs[1] if baseline else {}
    ours, reference = (sum(map(len, lines)) for lines in (hypotheses, texts.references[0]))
    unseen = None
    if counts is not None and language_of(texts.source_lang).has_spaces:
        sources = {segment.source for segment in (*won, *lost, *worst, *examples)}
        unseen = sorted({word for source in sources for word in words_of(source) if not counts.get(word)})
    return Analysis(
        *(intervals, partitions, signs[0], worst, chrf, theirs, won, lost, calibration, examples),
        length_ratio=ours / max(reference, 1),
        source_lang=texts.source_lang,
        target_lang=texts.target_lang,
        unseen=unseen,
    )
