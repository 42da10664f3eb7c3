"""The diagnosis of a finished run: what is wrong with it, by which evidence, and which option to change.

A sound run has no findings. Each threshold has its reason: a test, a source, or what sound and unsound runs
showed, of Multi30k, Tatoeba, LibreOffice's help and Python's documentation, whole or 2,000 pairs of each.
"""

from __future__ import annotations

import math
import textwrap
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from itertools import combinations
from statistics import fmean

from nmt.config import TrainConfig
from nmt.data.cleaning.cleaner import DUPLICATE, NEAR_DUPLICATE
from nmt.data.cleaning.rules.basic import LeakedRule
from nmt.data.subwords.extension import MOST_BYTES
from nmt.evaluation.analysis.signs import SIGNS
from nmt.evaluation.tables import WIDTH, metric_digits, metric_name
from nmt.reports.run import RunRecord
from nmt.runtime.streams import visible
from nmt.training.figures.validated import LOSS, criterion_for
from nmt.training.recipe import SIZES
from nmt.training.text_evidence import TextEvidence
from nmt.training.update.schedule import SCHEDULES

_LEVEL = 0.05  # p-value of the test for a trend
_LEAST = 4  # validations of a trend: four that rise steadily have a p-value of 0.045, three have 0.15
_GAIN = 0.02  # relative; runs that differ only in their seed differ by up to 1.5% in BLEU
_DIVERGED = 0.1  # nats, or of all that the training loss had fallen; sound runs rise by less than 0.01
_HARMLESS = 0.001  # of the updates may be skipped
_GAP = 1.0  # nats a token from training to validation; sound runs: at most 0.8, overfitted ones 1.3 to 5
_CORPUS_A_WEIGHT = 0.1  # target tokens of the corpus for each weight, as in `recipe=auto`
_TOKENS_A_WEIGHT = 20.0  # of the training; a larger model is better with more (Hoffmann et al. 2022)
_PIECES_A_WORD = 2.0  # vocabularies of the recommended size: 1.2 to 1.6
_RARE = 2.0  # occurrences
_DROPPED = 0.1  # of the pairs; clean corpora: at most 0.02
_SURPRISE = 1.25  # text of the same corpora: at most 1.07; of other corpora: 1.14 to 2.3
_LONG_SHARE = 0.1  # of the sources; 0.01 by definition in text like that of the training
_CHRF = 10.0  # points, and
_DEVIATIONS = 3.29  # standard errors: p < 0.001


@dataclass(frozen=True)
class Finding:
    """Something that is wrong.

    Attributes:
        name: such as `overfitted`.
        finding: what it means, as a sentence.
        evidence: the figures that show it.
        option: what to change on the command line; it may be empty.
    """

    name: str
    finding: str
    evidence: str
    option: str = ""


@dataclass(frozen=True)
class FinishedRun(RunRecord):
    """What a diagnosis is made from: the record of a run whose `results` have no diagnosis, and its texts.

    Attributes:
        texts: the evidence of the texts.
        flat_until: the last update before the learning rate began to fall to its end.
    """

    texts: TextEvidence
    flat_until: float = math.inf

    def quality(self) -> list[tuple[int, float]]:
        """Returns the curve of the criterion in the validations; higher is better."""
        options = self.config.training
        key = f"{options.criterion_set}/{options.criterion}" if options.criterion_set else options.criterion
        criterion = criterion_for(options.criterion)
        return [(update, criterion.quality(value)) for update, value in self.series("valid", key)]


def diagnosis(run: FinishedRun) -> list[dict[str, str]]:
    """Returns the findings of a run, for `results.json`; those of the training are first."""
    checks = _diverged, _overfitted, _unfinished, _size, _vocabulary, _dirty, _unlike, _faults
    return [asdict(finding) for check in checks for finding in check(run)]


def diagnosis_text(findings: Sequence[Mapping[str, str]]) -> str:
    """Returns findings as lines of 80 characters; empty without any."""
    lines = ["diagnosis:"] if findings else []
    for one in findings:
        text = visible(f"{one['name']}: {one['finding']} {one['evidence']}")
        lines += textwrap.wrap(text, WIDTH, initial_indent="  ", subsequent_indent="    ")
        if one["option"]:
            lines.append(f"    try: {visible(one['option'])}")
    return "\n".join(lines)


def rise_p_value(values: Sequence[float]) -> float:
    """Returns the p-value of the one-sided test that values rise (Mann 1945; Kendall 1975).

    It is the probability that as many pairs of values rise in a random order, by the normal approximation
    with a correction for continuity. For 4 values it is 0.045, and exactly 0.042.
    """
    number = len(values)
    score = sum((later > earlier) - (later < earlier) for earlier, later in combinations(values, 2))
    deviation = math.sqrt(number * (number - 1) * (2 * number + 5) / 18)
    return 0.5 * math.erfc((score - 1) / deviation / math.sqrt(2)) if number > 1 else 1.0


def _end(points: Sequence[tuple[int, float]]) -> list[tuple[int, float]]:
    """Returns the later half of a curve, at least `_LEAST` points if it has them."""
    return list(points[-max(_LEAST, math.ceil(len(points) / 2)) :])


def _rises(points: Sequence[tuple[int, float]], direction: int = 1) -> bool:
    """Returns whether values rise, or fall with `direction` -1, by more than chance."""
    values = [direction * value for _, value in points]
    return len(points) >= _LEAST and rise_p_value(values) < _LEVEL


def _diverged(run: FinishedRun) -> Iterator[Finding]:
    """Non-finite updates, a training loss that rose, or a model that knows only how frequent pieces are."""
    evidence, updates = [], run.training["updates"]
    kinds = [record["kind"] for record in run.records]
    rollbacks, skipped = kinds.count("went_back"), kinds.count("skipped")
    if rollbacks or skipped > max(1, _HARMLESS * updates):
        evidence.append(f"Skipped updates: {skipped}; rollbacks: {rollbacks}.")
    losses = run.series("train", LOSS)
    width = max(1, len(losses) // 10)
    means = [fmean(loss for _, loss in losses[end - width : end]) for end in range(width, len(losses) + 1)]
    if means and means[-1] - min(means) > _DIVERGED * max(1.0, means[0] - min(means)):
        best = losses[means.index(min(means)) + width - 1][0]
        evidence.append(f"Training loss: {min(means):.3f} at update {best:,}, {means[-1]:.3f} at the end.")
    pieces, perplexities = run.texts.target, run.series("valid", "ppl")
    if perplexities and perplexities[-1][1] >= pieces.perplexity and not _rises(_end(losses), -1):
        evidence.append(
            f"Validation perplexity {perplexities[-1][1]:.1f}; the frequencies of the pieces alone give "
            f"{pieces.perplexity:.1f}."
        )
    if evidence:
        yield Finding(
            "diverged",
            "The training was unstable or did not learn: its learning rate is probably too high.",
            " ".join(evidence),
            "find_rate=true; training.clip_norm=1",
        )


def _overfitted(run: FinishedRun) -> Iterator[Finding]:
    """The validation loss rises, or stays above its lowest, while the training loss falls.

    BLEU often improves for long while the loss rises; then the training did not last too long. Early
    stopping ends at such a rise, and retains the best checkpoint.
    """
    losses, quality = run.series("valid", LOSS), run.quality()
    window = _end(losses)
    if len(window) < _LEAST or run.training["ended"].startswith("training.patience"):
        return
    first, (last, loss) = window[0][0], window[-1]
    best, least = min(losses, key=lambda point: point[1])
    peak = max(quality, key=lambda point: point[1], default=(0, 0.0))[0]
    limit = (1 + _GAIN) * least
    stays = min(window, key=lambda point: point[1])[1] > limit and peak < first
    rises = _rises(window) and not _rises([point for point in quality if point[0] >= first])
    trained = [point for point in run.series("train", LOSS) if best <= point[0]]
    if loss > limit and (stays or rises) and trained and trained[-1][1] < trained[0][1]:
        yield Finding(
            "overfitted",
            "The model learnt its training text by heart, and got worse on other text.",
            f"Validation loss: {least:.3f} at update {best:,}, {loss:.3f} at update {last:,}. "
            f"Training loss: {trained[0][1]:.3f} and {trained[-1][1]:.3f}. Best validation: update {peak:,}.",
            "; ".join(["training.patience=5", *_regularised(run.config)]),
        )


def _regularised(config: TrainConfig) -> Iterator[str]:
    """Yields options against overfitting that the run does not have."""
    if config.model.dropout < 0.3:
        yield "model.dropout=0.3"
    if not config.training.rdrop:
        yield "training.rdrop=3"


_DOUBLED = ("budget", "max_updates", "max_epochs", "max_minutes")


def _unfinished(run: FinishedRun) -> Iterator[Finding]:
    """The criterion still rose when the training ended.

    While the learning rate falls to its end, every training improves, so that part does not count. If it
    falls during the whole training, nothing counts. Fewer validations than `_LEAST` can't tell.
    """
    options = run.config.training
    schedule = SCHEDULES.get(options.schedule.name)
    if schedule is not None and schedule.depends_on_max_updates:
        return
    limit = run.training["ended"].removeprefix("training.").split("=")[0]
    flat = [point for point in run.quality() if point[0] <= run.flat_until]
    window, best = _end(flat), max(flat, key=lambda point: point[1], default=(0, 0.0))
    if limit == "patience" or not _rises(window) or best[0] < window[0][0]:
        return
    (first, begin), (last, end) = window[0], window[-1]
    if end - begin > _GAIN * abs(end):
        criterion = criterion_for(options.criterion)
        digits, name = criterion.digits, criterion.name
        yield Finding(
            "still_improving",
            "The training ended while the model still improved.",
            f"Validation {name}: {criterion.value(begin):.{digits}f} at update {first:,}, "
            f"{criterion.value(end):.{digits}f} at update {last:,}"
            + (", before the learning rate fell." if run.flat_until < math.inf else "."),
            _larger(limit, run.config),
        )


def _larger(limit: str, config: TrainConfig) -> str:
    """Returns twice the limit that ended the training, as an option."""
    if limit not in _DOUBLED:
        return ""
    if limit == "budget":
        return f"training.budget={2 * (config.training.budget_minutes or 0):g}m"
    return f"training.{limit}={2 * getattr(config.training, limit):g}"


def _size(run: FinishedRun) -> Iterator[Finding]:
    """A model that is too large or too small for its data."""
    weights, tokens = run.training["parameters"], run.texts.target.tokens
    trained, validated = run.series("train", "ppl"), run.series("valid", "ppl")
    if not trained or not validated:
        return
    before, after = trained[-1][1], validated[-1][1]
    gap = math.log(after / before)
    perplexities = f"Perplexity: {before:.2f} in training, {after:.2f} in validation."
    width, options = run.config.model.d_model, [*_regularised(run.config)]
    if gap > _GAP and tokens < _CORPUS_A_WEIGHT * weights:
        name, words = "small_corpus", "The corpus is small even for a small model"
        if width > SIZES[0].d_model:  # on 2,000 pairs, width 64 is worse than 128
            name, words = "too_large", "The model is too large for its corpus"
            options.append(f"model.d_model={width // 2}")
        yield Finding(
            name,
            f"{words}, which it knows by heart. More pairs help most.",
            f"{perplexities} Target tokens of the corpus: {tokens:,} for {weights:,} weights.",
            "; ".join(options),
        )
    seen, points = run.training["target_tokens"], _end(run.quality())
    if (
        seen > _TOKENS_A_WEIGHT * weights
        and abs(gap) < _GAP / 10
        and after > 2  # a bit per token is left to learn
        and len(points) >= _LEAST
        and not _rises(points)
    ):
        yield Finding(
            "too_small",
            "The model is too small for its corpus: it has stopped learning, also on the training text.",
            f"{perplexities} Target tokens that it was trained on: {seen:,} for {weights:,} weights.",
            f"model.d_model={2 * width}",
        )


def _vocabulary(run: FinishedRun) -> Iterator[Finding]:
    """A vocabulary that is too small or too large for the corpus, or lacks characters of it.

    Pieces that occur once or twice are not learnt (Sennrich and Zhang 2019).
    """
    texts, sides = run.texts, (run.texts.source, run.texts.target)
    for pieces in sides:
        if pieces.byte_share > MOST_BYTES:
            yield Finding(
                "characters",
                "The vocabulary lacks characters of the training text.",
                f"Bytes and unknown pieces: {pieces.byte_share:.1%} of the pieces of {pieces.lang}.",
                "data.tokenizer.character_coverage=1",
            )
    size, usual = max(pieces.vocab_size for pieces in sides), texts.recommended
    asked = run.config.data.tokenizer.vocab_size  # the text may allow fewer, and no option changes that
    short = [
        f" A word of {pieces.lang} has {pieces.per_word:.1f} pieces."
        for pieces in sides
        if pieces.per_word is not None and pieces.per_word >= _PIECES_A_WORD
    ]
    rare = [
        f" Half of the pieces of {pieces.lang} occur at most {pieces.median:.0f} times."
        for pieces in sides
        if pieces.median <= _RARE
    ]
    for word, found, is_other in (
        ("small", short, max(size, asked) < usual),
        ("large", rare, 0 < 2 * usual <= size),
    ):
        if found and is_other:
            yield Finding(
                f"{word}_vocabulary",
                f"The vocabulary is too {word} for the corpus.",
                f"Pieces: {size:,}; recommended for {texts.pairs:,} pairs: {usual:,}.{''.join(found)}",
                "data.tokenizer.vocab_size=auto",
            )


def _dirty(run: FinishedRun) -> Iterator[Finding]:
    """Warnings about the first pairs, and many pairs that the cleaning dropped."""
    data = run.results["data"]
    cleaning, warnings = data["cleaning"], data.get("warnings", ())
    same = (DUPLICATE, NEAR_DUPLICATE, LeakedRule.name)
    dropped = {rule: number for rule, number in cleaning["dropped"].items() if rule not in same}
    evidence = list(warnings)
    if sum(dropped.values()) > _DROPPED * cleaning["pairs"]:
        most = sorted(dropped, key=lambda rule: -dropped[rule])[:3]
        evidence.append(
            f"Dropped: {sum(dropped.values()):,} of {cleaning['pairs']:,} pairs ("
            + ", ".join(f"{rule} {dropped[rule]:,}" for rule in most)
            + ")."
        )
    if evidence:
        yield Finding(
            "dirty_data",
            "The data are dirty, or not what the options say. See data_report.html.",
            " ".join(evidence),
            "data/cleaning=crawled",
        )


def _unlike(run: FinishedRun) -> Iterator[Finding]:
    """Held-out text unlike the training text, and test scores far below those of the validation."""
    held_out = run.texts.held_out
    validated = [text for key, text in held_out.items() if key.split(".")[0] == "valid"]
    for key, text in held_out.items():
        evidence = []
        if text.surprise > _SURPRISE:
            evidence.append(
                f"Its sources are {text.surprise:.2f} times as surprising as the training sources, by the "
                "frequencies of their pieces."
            )
        if text.long_share > _LONG_SHARE:
            evidence.append(f"{text.long_share:.0%} of them are longer than 99% of the training sources.")
        for other in validated if key.split(".")[0] == "test" else ():
            error = math.hypot(text.chrf_error, other.chrf_error)
            if other.chrf - text.chrf > max(_CHRF, _DEVIATIONS * error):
                evidence.append(
                    f"Mean {metric_name('chrf')} of a sentence: {text.chrf:.{metric_digits('chrf')}f}, and "
                    f"{other.chrf:.{metric_digits('chrf')}f} in validation."
                )
                break
        if evidence:
            yield Finding(
                f"unlike_{key}",
                f"data.{key} is unlike the training text. Train on such text too, or fine-tune on it.",
                " ".join(evidence),
                "start_from=FOLDER",
            )


_OPTIONS = {
    "copied": "data.cleaning.max_copied=0.8",
    "loops": "decoding.retry_loops=true",
    "numbers": "data.cleaning.drop_unequal_numbers=true; data.placeholders=true; decoding.numbers=copy",
    "strings": "data.placeholders=true",
}


def _faults(run: FinishedRun) -> Iterator[Finding]:
    """Signs of faults that the translations show more often than the references."""
    faults: dict[str, list[str]] = {}
    for key, text in run.texts.held_out.items():
        for name, count in text.signs.items():
            if count.is_fault:
                words = f"{key}: {count.hypotheses} of {count.sentences}, references {count.references}."
                faults.setdefault(name, []).append(words)
    options = _OPTIONS | ({"loops": ""} if run.config.decoding.retry_loops else {})
    # No penalty is right for a model that writes both.
    if not {"short", "long"} <= faults.keys() and not run.config.training.tune_length_penalty:
        options = options | dict.fromkeys(["short", "long"], "training.tune_length_penalty=true")
    for name in sorted(faults, key=list(SIGNS).index):
        problem = f"The translations have {SIGNS[name].words} more often than the references."
        yield Finding(name, problem, " ".join(faults[name]), options.get(name, ""))
