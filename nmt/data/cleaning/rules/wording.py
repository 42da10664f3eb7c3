"""Rules about words: over-long words, and source words copied into the target."""

from __future__ import annotations

import re

from nmt.config import CleaningConfig
from nmt.data.cleaning.rules.rule import Rule, Setting, base_language

_WITHOUT_SPACES = frozenset({"bo", "dz", "ja", "km", "lo", "my", "th", "yue", "zh"})
_WORD = re.compile(r"[^\W\d_]+")
_MIN_WORDS = 5  # all words of a shorter source may be names


class LongWordRule(Rule):
    """Drops pairs with a very long word: it is source code, a table or a broken line."""

    name = "long_word"
    words = "a side has an over-long word"
    option = "max_word"

    def __init__(self, max_word: int, source_spaced: bool = True, target_spaced: bool = True) -> None:
        """Takes the largest word length in characters, and whether each side separates words by spaces."""
        self.max_word = max_word
        self.spaced = source_spaced, target_spaced

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """Enabled unless `max_word` is 0."""
        languages = base_language(setting.source_lang), base_language(setting.target_lang)
        return (
            cls(config.max_word, *(code not in _WITHOUT_SPACES for code in languages))
            if config.max_word
            else None
        )

    def drops(self, source: str, target: str) -> bool:
        """Whether a side that separates words by spaces has a longer word."""
        return any(
            spaced and len(text) > self.max_word and max(map(len, text.split())) > self.max_word
            for spaced, text in zip(self.spaced, (source, target), strict=True)
        )


class CopiedRule(Rule):
    """Drops pairs whose source words occur in the target: they are translated only in part, or not at all."""

    name = "copied"
    words = "the source's words occur in the target"
    option = "max_copied"

    def __init__(self, max_copied: float) -> None:
        """Takes the largest allowed share of the source's words that also occur in the target."""
        self.max_copied = max_copied

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """Enabled unless `max_copied` is 0."""
        return cls(config.max_copied) if config.max_copied else None

    def drops(self, source: str, target: str) -> bool:
        """Whether too many words of a source of at least five words occur in the target, case ignored."""
        words = _WORD.findall(source.casefold())
        if len(words) < _MIN_WORDS:
            return False
        target_words = set(_WORD.findall(target.casefold()))
        return sum(word in target_words for word in words) > self.max_copied * len(words)
