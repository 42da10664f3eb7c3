"""BLEU, chrF and TER of raw text through sacreBLEU, each with its signature."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, cast

from nmt.errors import UserError
from nmt.runtime import log

References = Sequence[str] | Sequence[Sequence[str]]
"""Reference translations line for line: one text, or several texts that each translate every source."""

METRICS = {"bleu": "BLEU", "chrf": "chrF2", "ter": "TER"}
"""Key of each metric in `results.json` → its name in tables and in sacreBLEU."""

TER_WORDS = 1000
"""Words of a line up to which TER is computed. Unrelated lines of so many take about a minute."""

_TOKENIZERS = {
    **dict.fromkeys(("zh", "zho", "chi", "cmn", "yue"), "zh"),
    **dict.fromkeys(("ja", "jpn"), "ja-mecab"),
    **dict.fromkeys(("ko", "kor"), "ko-mecab"),
}
_EXTRAS = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}
_WITHOUT_SPACES = ("zh", "ja-mecab")
_CJK = re.compile("[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff]")  # kana, Han, Hangul


@dataclass(frozen=True)
class Scores:
    """What a set of hypotheses is worth.

    Attributes:
        bleu: corpus BLEU, 0 to 100; higher is better.
        chrf: chrF2, 0 to 100; higher is better.
        ter: translation edit rate in percent, 0 and more; lower is better. None where a line is too long for
            it; see `without_ter`.
        signatures: sacreBLEU's signature of each metric, under the keys above.
        sentences: how many hypotheses were scored.
    """

    bleu: float
    chrf: float
    ter: float | None
    signatures: dict[str, str]
    sentences: int

    def as_dict(self) -> dict[str, Any]:
        """The scores in the shape of `results.json`."""
        return asdict(self)


def score(hypotheses: Sequence[str], references: References, target_lang: str) -> Scores:
    """Scores hypotheses against one or several references each, as `nrefs` of the signatures says.

    Args:
        hypotheses: raw text, detokenised.
        references: raw text, line for line.
        target_lang: language code of both, such as `de` or `zh_CN`; it chooses BLEU's tokenizer.

    Raises:
        UserError: no sentences, unequal counts, or a tokenizer that is not installed.
    """
    texts = reference_texts(references)
    require_equal_counts({"hypotheses": len(hypotheses), **count_references(texts)})
    if (reason := without_ter([hypotheses, *texts], target_lang)) is not None:
        log.warning("%s", reason)
    return _score(hypotheses, texts, target_lang)


def _score(hypotheses: Sequence[str], texts: list[Sequence[str]], target_lang: str) -> Scores:
    values: dict[str, float | None] = {}
    signatures = {}
    for key, metric in metrics_for(target_lang).items():
        if key == "ter" and without_ter([hypotheses, *texts], target_lang) is not None:
            values[key] = None
            metric.corpus_score([""], [[""]] * len(texts))  # the signature gets the number of references
        else:
            values[key] = float(metric.corpus_score(hypotheses, texts).score)
        signatures[key] = str(metric.get_signature())
    return Scores(**values, signatures=signatures, sentences=len(hypotheses))  # type: ignore[arg-type]


def without_ter(texts: Sequence[Sequence[str]], target_lang: str) -> str | None:
    """Why texts get no TER, in one line for the log; None where they do.

    The time of TER grows with the square of a line's words: a line of 60,000 would take weeks. Another way to
    count only such lines would not be TER any more, so the whole set goes without.

    Args:
        texts: hypotheses and references.
        target_lang: their language; where words have no spaces between them, characters count.
    """
    metric = metrics_for(target_lang)["ter"]
    for text in texts:
        for number, line in enumerate(text, start=1):
            if len(line) > TER_WORDS and (words := len(metric.tokenizer(line).split())) > TER_WORDS:
                return (
                    f"TER is left out: line {number} has {words:,} words, and it takes too long for lines of "
                    f"more than {TER_WORDS:,}; BLEU and chrF2 count all lines"
                )
    return None


def score_groups(
    hypotheses: Sequence[str], references: References, groups: Sequence[str], target_lang: str
) -> dict[str, Scores]:
    """Scores the sentences of each label by themselves.

    Args:
        hypotheses: raw text.
        references: raw text, line for line.
        groups: the label of each line.
        target_lang: language code of both texts.

    Returns:
        Label → scores, in the order in which the labels first appear.

    Raises:
        UserError: as `score`.
    """
    texts = reference_texts(references)
    require_equal_counts({"hypotheses": len(hypotheses), **count_references(texts), "groups": len(groups)})
    rows: dict[str, list[int]] = {}
    for row, label in enumerate(groups):
        rows.setdefault(label, []).append(row)
    return {
        label: _score(
            [hypotheses[row] for row in own], [[text[row] for row in own] for text in texts], target_lang
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


def tokenizer_for(target_lang: str) -> str:
    """Names the tokenizer of BLEU in a language: `zh`, `ja-mecab`, `ko-mecab`, or `13a` for all others.

    Args:
        target_lang: a language code of two or three letters, a script or region after it or not:
            `zh`, `zh-TW`, `zho_Hans`.
    """
    return _TOKENIZERS.get(re.split("[-_]", target_lang.lower())[0], "13a")


def metrics_for(target_lang: str) -> dict[str, Any]:
    """Sets up sacreBLEU's metrics for a language, under the keys of `METRICS`.

    TER counts edits of words; Chinese and Japanese put no spaces between them, so there it counts single
    ideographs and what stands between two of them.

    Raises:
        UserError: the language's tokenizer is not installed.
    """
    from sacrebleu.metrics.chrf import CHRF
    from sacrebleu.metrics.ter import TER

    without_spaces = tokenizer_for(target_lang) in _WITHOUT_SPACES
    return {
        "bleu": _bleu_metric(target_lang),
        "chrf": CHRF(),
        "ter": TER(normalized=without_spaces, asian_support=without_spaces),
    }


def require_equal_counts(counts: Mapping[str, int]) -> None:
    """Checks that texts stand line for line.

    Args:
        counts: what is being compared, in the user's words → its number of sentences.

    Raises:
        UserError: the counts differ, or there are no sentences.
    """
    if len(set(counts.values())) > 1:
        listed = ", ".join(f"{name} has {count}" for name, count in counts.items())
        raise UserError(f"unequal numbers of sentences: {listed}; they must stand line for line")
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


def _bleu_metric(target_lang: str) -> Any:
    from sacrebleu.metrics.bleu import BLEU

    tokenizer = tokenizer_for(target_lang)
    try:
        # `force` silences a guess about tokenised text: `looks_tokenized` makes a better one.
        return BLEU(tokenize=tokenizer, force=True)
    except RuntimeError as error:  # sacreBLEU's way of missing MeCab
        if tokenizer not in _EXTRAS:
            raise
        raise UserError(
            f"BLEU for target_lang={target_lang} needs the tokenizer {tokenizer}, which is not installed: "
            f'pip install "{_EXTRAS[tokenizer]}"'
        ) from error
