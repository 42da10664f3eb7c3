"""Rules about words: too long to be one, or copied instead of translated."""

from __future__ import annotations

import re

from nmt.config import CleaningConfig
from nmt.data.cleaning.rules.rule import Rule, Setting, base_language

_WITHOUT_SPACES = frozenset({"bo", "dz", "ja", "km", "lo", "my", "th", "yue", "zh"})
_WORD = re.compile(r"[^\W\d_]+")
_MIN_WORDS = 5  # fewer may all be names


class LongWordRule(Rule):
    """A long stretch without a space is program text, a table or a broken line."""

    name = "long_word"
    words = "a side has an over-long word"
    option = "max_word"

    def __init__(self, max_word: int, source_spaced: bool = True, target_spaced: bool = True) -> None:
        """Takes the most characters of a word, and which sides put spaces between words."""
        self.max_word = max_word
        self.spaced = source_spaced, target_spaced

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """On unless `max_word` is 0."""
        languages = base_language(setting.source_lang), base_language(setting.target_lang)
        return (
            cls(config.max_word, *(code not in _WITHOUT_SPACES for code in languages))
            if config.max_word
            else None
        )

    def drops(self, source: str, target: str) -> bool:
        """Whether a side, if words have spaces between them there, has a longer word."""
        return any(
            spaced and len(text) > self.max_word and max(map(len, text.split())) > self.max_word
            for spaced, text in zip(self.spaced, (source, target), strict=True)
        )


class CopiedRule(Rule):
    """A source whose words stand in the target as they are was not translated, or only in part."""

    name = "copied"
    words = "the source's words stand in the target"
    option = "max_copied"

    def __init__(self, max_copied: float) -> None:
        """Takes the largest share of the source's words that may stand in the target."""
        self.max_copied = max_copied

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """On unless `max_copied` is 0."""
        return cls(config.max_copied) if config.max_copied else None

    def drops(self, source: str, target: str) -> bool:
        """Whether more of the source's words, five of them or more, stand in the target, case left aside."""
        words = _WORD.findall(source.casefold())
        if len(words) < _MIN_WORDS:
            return False
        there = set(_WORD.findall(target.casefold()))
        return sum(word in there for word in words) > self.max_copied * len(words)
