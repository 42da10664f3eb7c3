"""The string-based metrics of sacreBLEU: BLEU, chrF2, chrF2++ and TER."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, cast

from nmt.config import EvaluationConfig
from nmt.errors import UserError
from nmt.evaluation.metrics.base import Difference, Metric, Text
from nmt.evaluation.metrics.edit_rate import edits
from nmt.languages import language_of

TER_WORDS = 1000
"""Maximum number of words in a line for TER. Its memory grows with the square of the number."""

_SHORT = 400
"""Up to this product of the numbers of words, sacreBLEU's own loop is faster than arrays."""

_REMEMBERED = 20_000
"""Lines whose edits are not counted again, when a score, its interval and several tests need them."""

_EXTRAS = {"ja-mecab": "sacrebleu[ja]", "ko-mecab": "sacrebleu[ko]"}


def tokenizer_for(target_lang: str) -> str:
    """Returns the tokenizer of BLEU for a language: `zh`, `ja-mecab`, `ko-mecab`, or `13a` for others.

    `zh` is for all languages in Chinese characters, such as `yue`. Chinese in Latin letters, `zh-Latn`, has
    `13a`.
    """
    language = language_of(target_lang)
    if language.is_han:
        return "zh"
    return "ja-mecab" if language.is_japanese else "ko-mecab" if language.is_korean else "13a"


class SacreBleuMetric(Metric):
    """A metric that sacreBLEU computes; `name` is its name in sacreBLEU."""

    def __init__(self, target_lang: str, options: EvaluationConfig) -> None:
        super().__init__(target_lang, options)
        self.metric = self.build()

    @abstractmethod
    def build(self) -> Any:
        """Creates the metric of sacreBLEU for the target language."""

    def score(self, hypotheses: Text, references: Sequence[Text], sources: Text) -> float:
        """Scores a corpus with `corpus_score` of sacreBLEU."""
        return float(self.metric.corpus_score(hypotheses, references).score)

    def signature(self, num_references: int) -> str:
        """Returns the signature of sacreBLEU."""
        self.metric.num_refs = num_references
        return str(self.metric.get_signature())

    def paired_test(
        self, hypotheses: Text, baseline: Text, references: Sequence[Text], sources: Text, resamples: int
    ) -> tuple[Difference, str]:
        """Tests a system against a baseline with `PairedTest` of sacreBLEU."""
        theirs, ours, signature = self._tested("bs", hypotheses, baseline, references, resamples)
        delta = float(ours.score - theirs.score)
        difference = Difference(
            baseline=float(theirs.score),
            delta=delta,
            # sacreBLEU counts only resamples beyond the observed difference. A system compared with itself
            # would therefore be significantly different: p = 1 / (resamples + 1).
            p_value=1.0 if delta == 0.0 else float(ours.p_value),
            interval=float(ours.ci),
            baseline_interval=float(theirs.ci),
        )
        return difference, signature

    def randomised_test(
        self, hypotheses: Text, baseline: Text, references: Sequence[Text], sources: Text, trials: int
    ) -> tuple[float, str]:
        """Tests a system against a baseline with `PairedTest` of sacreBLEU."""
        theirs, ours, signature = self._tested("ar", hypotheses, baseline, references, trials)
        return 1.0 if ours.score == theirs.score else float(ours.p_value), signature

    def _tested(
        self, test: str, hypotheses: Text, baseline: Text, references: Sequence[Text], samples: int
    ) -> tuple[Any, Any, str]:
        """Returns the results of the baseline and of the system, and the signature of a test."""
        from sacrebleu.significance import PairedTest

        systems = [("baseline", baseline), ("hypotheses", hypotheses)]
        signatures, results = PairedTest(systems, {self.name: self.metric}, references, test, samples)()
        theirs, ours = cast(list[Any], results[self.name])
        return theirs, ours, str(signatures[self.name])

    def interval(self, hypotheses: Text, references: Sequence[Text], sources: Text, resamples: int) -> float:
        """Returns the interval that sacreBLEU computes."""
        import numpy as np
        from sacrebleu.significance import _bootstrap_resample, estimate_ci

        # `corpus_score` with `n_bootstrap` fails if a test set scores 0.
        statistics = self.metric._extract_corpus_statistics(hypotheses, references)
        _, scores = _bootstrap_resample(statistics, self.metric, resamples)
        return float(estimate_ci(np.array([score.score for score in scores]))[1])


class Bleu(SacreBleuMetric):
    """BLEU (Papineni et al. 2002), 0 to 100; its tokenizer depends on the target language."""

    key, name = "bleu", "BLEU"

    def sentence_utilities(self, hypotheses: Text, references: Text, sources: Text) -> Sequence[float]:
        """Returns smoothed BLEU of each sentence, without n-grams that are longer than the sentence."""
        from sacrebleu.metrics.bleu import BLEU

        metric = BLEU(tokenize=tokenizer_for(self.target_lang), force=True, effective_order=True)
        return [
            float(metric.sentence_score(hypothesis, [reference]).score)
            for hypothesis, reference in zip(hypotheses, references, strict=True)
        ]

    def build(self) -> Any:
        """Creates BLEU with the tokenizer of the target language.

        Raises:
            UserError: the tokenizer is not installed.
        """
        from sacrebleu.metrics.bleu import BLEU

        tokenizer = tokenizer_for(self.target_lang)
        try:
            # `force` disables the warning about tokenised text; `looks_tokenized` is more reliable.
            return BLEU(tokenize=tokenizer, force=True)
        except RuntimeError as error:  # sacreBLEU raises it if MeCab is missing
            if tokenizer not in _EXTRAS:
                raise
            raise UserError(
                f"target_lang={self.target_lang}: BLEU needs the tokenizer {tokenizer}, which is not "
                f'installed. Install it: pip install "{_EXTRAS[tokenizer]}"'
            ) from error


class ChrF(SacreBleuMetric):
    """chrF2 (Popović 2015), 0 to 100: n-grams of characters, where recall has twice the weight."""

    key, name, short_name = "chrf", "chrF2", "chrF"

    def build(self) -> Any:
        """Creates the chrF of sacreBLEU with its defaults."""
        from sacrebleu.metrics.chrf import CHRF

        return CHRF()


class ChrFPlusPlus(SacreBleuMetric):
    """chrF2++ (Popović 2017), 0 to 100: chrF2 with words and pairs of words."""

    key, name, short_name = "chrfpp", "chrF2++", "chrF++"

    def build(self) -> Any:
        """Creates the chrF of sacreBLEU with n-grams of up to two words."""
        from sacrebleu.metrics.chrf import CHRF

        return CHRF(word_order=2)


class Ter(SacreBleuMetric):
    """Translation edit rate (Snover et al. 2006) in percent, at least 0.

    It counts edits of words. Chinese and Japanese put no spaces between words, so it counts single ideographs
    and the text between them there.

    The edits of long lines are counted by `edit_rate.edits`: sacreBLEU takes half a minute for a line of 900
    words. A set with a line of more than `TER_WORDS` words has no score.
    """

    key, name, higher_is_better = "ter", "TER", False
    limit = f"a line has more than {TER_WORDS:,} words"

    def build(self) -> Any:
        """Creates the TER of sacreBLEU, which counts the edits of long lines in arrays."""
        from sacrebleu.metrics.lib_ter import translation_edit_rate
        from sacrebleu.metrics.ter import TER

        @lru_cache(_REMEMBERED)
        def fewest(hypothesis: str, reference: str) -> int:
            words, wanted = hypothesis.split(), reference.split()
            if len(words) * len(wanted) <= _SHORT:
                return int(translation_edit_rate(words, wanted)[0])
            return edits(words, wanted)

        class LongLines(TER):
            def _compute_segment_statistics(self, hypothesis: str, ref_kwargs: Any) -> list[float]:
                references = ref_kwargs["ref_words"]
                counts = [fewest(hypothesis, " ".join(reference)) for reference in references]
                return [min(counts), sum(map(len, references)) / len(references)]

        language = language_of(self.target_lang)
        without_spaces = language.is_han or language.is_japanese
        return LongLines(normalized=without_spaces, asian_support=without_spaces)

    def left_out(self, texts: Sequence[Text]) -> str | None:
        """Returns a message about the first line with too many words; without spaces, characters count."""
        for text in texts:
            for number, line in enumerate(text, start=1):
                if len(line) > TER_WORDS and (words := len(self.metric.tokenizer(line).split())) > TER_WORDS:
                    return (
                        f"line {number} has {words:,} words, and lines with more than {TER_WORDS:,} words "
                        "take too long"
                    )
        return None
