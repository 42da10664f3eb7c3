"""Rules about the language of each side: the identified language, and the script of its letters."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from nmt.config import CleaningConfig
from nmt.data.cleaning.rules.rule import Rule, Setting, base_language
from nmt.errors import UserError

if TYPE_CHECKING:
    from lingua import LanguageDetector
import unicodedata

from nmt.runtime.streams import log

_MIN_LETTERS = 20  # detection is unreliable on shorter text
_SEVERAL = {"no": ("nb", "nn"), "sh": ("hr", "sr", "bs")}


class LanguageRule(Rule):
    """Drops pairs with a side in an unexpected language.

    On 1,000 clean, short pairs of the quickstart corpus, the detector is wrong about 5 pairs at a confidence
    of 0.95, and about 19 pairs at 0.8. It takes about one millisecond per pair.

    Raises:
        UserError: the package is not installed, or does not support one of the languages.
    """

    name = "language"
    words = "a side is in another language"
    option = "langid_confidence"

    def __init__(self, confidence: float, source_lang: str, target_lang: str) -> None:
        self.confidence = confidence
        try:
            from lingua import Language
        except ImportError as error:
            raise UserError(
                "data.cleaning.langid_confidence: lingua-language-detector is not installed. "
                'Run pip install "nmt[langid]", or set data.cleaning.langid_confidence=0.'
            ) from error
        known = frozenset(language.iso_code_639_1.name.lower() for language in Language.all())
        self.expected = tuple(_codes(code) for code in (source_lang, target_lang))
        for code, codes in zip((source_lang, target_lang), self.expected, strict=True):
            if not codes <= known:
                raise UserError(
                    f"data.cleaning.langid_confidence={confidence}: lingua does not support language "
                    f"{code!r}. Give an ISO 639-1 code, or set data.cleaning.langid_confidence=0."
                )

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """Enabled unless `langid_confidence` is 0."""
        if not config.langid_confidence:
            return None
        return cls(config.langid_confidence, setting.source_lang, setting.target_lang)

    def drops(self, source: str, target: str) -> bool:
        """Whether the detector is confident that a side of at least 20 letters is in another language."""
        return any(
            self._is_other(text, codes) for text, codes in zip((source, target), self.expected, strict=True)
        )

    def facts(self) -> Any:
        """Returns the attributes and the version of the detector."""
        return [vars(self), version("lingua-language-detector")]

    def _is_other(self, text: str, codes: frozenset[str]) -> bool:
        if sum(map(str.isalpha, text)) < _MIN_LETTERS:
            return False
        first = detector().compute_language_confidence_values(text)[0]
        return first.value >= self.confidence and first.language.iso_code_639_1.name.lower() not in codes


@cache
def detector() -> LanguageDetector:
    """Returns the detector of this process, created at the first call.

    It is the smaller of two detectors: about 60 MB per process instead of 1 GB. According to its authors, it
    is less accurate on texts of fewer than 120 characters. The option therefore requires a confidence.
    """
    from lingua import LanguageDetectorBuilder

    return LanguageDetectorBuilder.from_all_languages().with_low_accuracy_mode().build()


def _codes(code: str) -> frozenset[str]:
    base = base_language(code)
    return frozenset(_SEVERAL.get(base, (base,)))


_LATIN = (
    "af az bs ca cs cy da de en eo es et eu fi fo fr fy ga gd gl ha hr hu id ig is it jv la lb lt lv mg mi "
    "ms mt nb nl nn no oc om pl pt rm ro rw sk sl sn so sq st su sv sw tk tl tn tr uz vi wo xh yo zu"
)
_CYRILLIC = "ab ba be bg ce cv kk ky mk mn os ru tg tt uk"
_ARABIC = "ar arz ckb fa ps sd ug ur"
_DEVANAGARI = "bh hi kok mai mr ne sa"
SCRIPTS: dict[str, frozenset[str]] = {
    **dict.fromkeys(_LATIN.split(), frozenset({"LATIN"})),
    **dict.fromkeys(_CYRILLIC.split(), frozenset({"CYRILLIC"})),
    **dict.fromkeys(_ARABIC.split(), frozenset({"ARABIC"})),
    **dict.fromkeys(_DEVANAGARI.split(), frozenset({"DEVANAGARI"})),
    "sr": frozenset({"CYRILLIC", "LATIN"}),
    "ku": frozenset({"LATIN", "ARABIC"}),
    "zh": frozenset({"CJK", "BOPOMOFO"}),
    "yue": frozenset({"CJK", "BOPOMOFO"}),
    "ja": frozenset({"CJK", "HIRAGANA", "KATAKANA", "KATAKANA-HIRAGANA"}),
    "ko": frozenset({"HANGUL", "CJK"}),
    "el": frozenset({"GREEK"}),
    "he": frozenset({"HEBREW"}),
    "yi": frozenset({"HEBREW"}),
    "hy": frozenset({"ARMENIAN"}),
    "ka": frozenset({"GEORGIAN"}),
    "am": frozenset({"ETHIOPIC"}),
    "ti": frozenset({"ETHIOPIC"}),
    "as": frozenset({"BENGALI"}),
    "bn": frozenset({"BENGALI"}),
    "pa": frozenset({"GURMUKHI"}),
    "gu": frozenset({"GUJARATI"}),
    "or": frozenset({"ORIYA"}),
    "ta": frozenset({"TAMIL"}),
    "te": frozenset({"TELUGU"}),
    "kn": frozenset({"KANNADA"}),
    "ml": frozenset({"MALAYALAM"}),
    "si": frozenset({"SINHALA"}),
    "th": frozenset({"THAI"}),
    "lo": frozenset({"LAO"}),
    "bo": frozenset({"TIBETAN"}),
    "dz": frozenset({"TIBETAN"}),
    "my": frozenset({"MYANMAR"}),
    "km": frozenset({"KHMER"}),
}
"""Scripts of each language. A script is the first word of the Unicode names of its letters."""


class ScriptRule(Rule):
    """Drops pairs with a side in another script: it is another language, or was decoded wrongly."""

    name = "script"
    words = "a side is not in the script of its language"
    option = "min_script"

    def __init__(self, min_script: float, source_lang: str, target_lang: str) -> None:
        self.min_script = min_script
        self.scripts = tuple(SCRIPTS.get(base_language(code)) for code in (source_lang, target_lang))

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """Enabled unless `min_script` is 0. A side whose language is not in `SCRIPTS` is not checked."""
        if not config.min_script:
            return None
        for code in (setting.source_lang, setting.target_lang):
            if base_language(code) not in SCRIPTS:
                log.warning(
                    "data.cleaning.min_script: no script is known for %r. That side is not checked.", code
                )
        return cls(config.min_script, setting.source_lang, setting.target_lang)

    def drops(self, source: str, target: str) -> bool:
        """Whether too few letters of a side are in its scripts. A side without letters is retained."""
        return any(
            scripts is not None and self._is_other(text, scripts)
            for text, scripts in zip((source, target), self.scripts, strict=True)
        )

    def _is_other(self, text: str, scripts: frozenset[str]) -> bool:
        if text.isascii() and "LATIN" in scripts:  # most lines in most languages
            return False
        of_letters = [script for script in map(script_of, text) if script]
        return sum(script in scripts for script in of_letters) < self.min_script * len(of_letters)


@cache
def script_of(character: str) -> str:
    """Returns the script of a letter, the first word of its Unicode name; empty for other characters."""
    if not character.isalpha():
        return ""
    words = unicodedata.name(character, "").replace("FULLWIDTH ", "").replace("HALFWIDTH ", "").split()
    return words[0] if words else ""
