"""The rule about languages: what each side is written in, as lingua-language-detector finds it."""

from __future__ import annotations

from functools import cache
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

from nmt.config import CleaningConfig
from nmt.data.cleaning.rules.rule import Rule, Setting, base_language
from nmt.errors import UserError

if TYPE_CHECKING:
    from lingua import LanguageDetector

_MIN_LETTERS = 20  # less tells no detector anything
_SEVERAL = {"no": ("nb", "nn"), "sh": ("hr", "sr", "bs")}


class LanguageRule(Rule):
    """A side in another language than it should be.

    Of 1,000 clean, short pairs of the quickstart corpus the detector is wrong about 5 with a confidence of
    0.95, about 19 with one of 0.8. It takes about a millisecond a pair.
    """

    name = "language"
    words = "a side is in another language"
    option = "langid_confidence"

    def __init__(self, confidence: float, source_lang: str, target_lang: str) -> None:
        """Takes how sure the detector has to be of another language, and the languages of the sides.

        Raises:
            UserError: the package is not installed, or does not know one of the languages.
        """
        self.confidence = confidence
        known = known_languages()
        self.expected = tuple(_codes(code) for code in (source_lang, target_lang))
        for code, codes in zip((source_lang, target_lang), self.expected, strict=True):
            if not codes <= known:
                raise UserError(
                    f"data.cleaning.langid_confidence={confidence}: lingua knows no language {code!r}; "
                    "give an ISO 639-1 code, or data.cleaning.langid_confidence=0"
                )

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """On unless `langid_confidence` is 0."""
        if not config.langid_confidence:
            return None
        return cls(config.langid_confidence, setting.source_lang, setting.target_lang)

    def drops(self, source: str, target: str) -> bool:
        """Whether the detector is confident that a side with 20 letters or more is in another language."""
        return any(
            self._is_other(text, codes) for text, codes in zip((source, target), self.expected, strict=True)
        )

    def facts(self) -> Any:
        """The version of the detector too."""
        return [vars(self), version("lingua-language-detector")]

    def _is_other(self, text: str, codes: frozenset[str]) -> bool:
        if sum(map(str.isalpha, text)) < _MIN_LETTERS:
            return False
        first = detector().compute_language_confidence_values(text)[0]
        return first.value >= self.confidence and first.language.iso_code_639_1.name.lower() not in codes


def known_languages() -> frozenset[str]:
    """The ISO 639-1 codes of the languages that the detector tells apart.

    Raises:
        UserError: the package is not installed.
    """
    try:
        from lingua import Language
    except ImportError as error:
        raise UserError(
            'data.cleaning.langid_confidence needs lingua-language-detector: pip install "nmt[langid]", '
            "or data.cleaning.langid_confidence=0"
        ) from error
    return frozenset(language.iso_code_639_1.name.lower() for language in Language.all())


@cache
def detector() -> LanguageDetector:
    """The detector of this process, made at first use.

    It is the smaller one of two: some 60 MB in each process instead of 1 GB. It falls behind the larger one
    on text of less than 120 characters, as its authors say, which is why the option asks for confidence.
    """
    from lingua import LanguageDetectorBuilder

    return LanguageDetectorBuilder.from_all_languages().with_low_accuracy_mode().build()


def _codes(code: str) -> frozenset[str]:
    base = base_language(code)
    return frozenset(_SEVERAL.get(base, (base,)))
