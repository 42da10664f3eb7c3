"""The rules that are on by default: nothing to learn from, broken, copied, out of proportion, held out."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable

import numpy as np

from nmt.config import CleaningConfig
from nmt.data.rules.rule import Rule, Setting

_HEAD = 12  # characters that are looked at first


class EmptyRule(Rule):
    """Nothing can be learnt from a side without text."""

    name = "empty"
    words = "one side is empty"

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """Always on."""
        return cls()

    def drops(self, source: str, target: str) -> bool:
        """Whether a side is empty."""
        return not source or not target


class ControlRule(Rule):
    """Control characters (Unicode category Cc) other than a tab are the trace of a broken conversion."""

    name = "control"
    words = "a side has control characters"

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """On with `drop_control`."""
        return cls() if config.drop_control else None

    def drops(self, source: str, target: str) -> bool:
        """Whether a side has one."""
        if source.isprintable() and target.isprintable():  # most are; far faster than looking at each one
            return False
        return any(map(_is_control, source)) or any(map(_is_control, target))

    def may_drop(self, lines: bytes) -> bool:
        """Whether there is one at all: U+0000 to U+001F, U+007F, or U+0080 to U+009F, in two bytes."""
        codes = np.frombuffer(lines, np.uint8)
        low = (codes < 0x20) & (codes != ord("\t")) & (codes != ord("\n"))
        high = (codes[:-1] == 0xC2) & (codes[1:] < 0xA0)
        return bool(low.any() or (codes == 0x7F).any() or high.any())


class IdenticalRule(Rule):
    """A side that was copied, not translated."""

    name = "identical"
    words = "both sides are the same text"

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """On with `drop_identical`."""
        return cls() if config.drop_identical else None

    def drops(self, source: str, target: str) -> bool:
        """Whether the sides are the same but for case."""
        alike = source[:1].casefold()[:1] == target[:1].casefold()[:1]  # of most, the beginning tells
        return alike and source.casefold() == target.casefold()


class RatioRule(Rule):
    """Sides of very unequal length are seldom translations of each other."""

    name = "ratio"
    words = "one side is far longer than the other"

    def __init__(self, max_ratio: float) -> None:
        """Takes the largest ratio, longer over shorter side in characters, that stays."""
        self.max_ratio = max_ratio

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """On unless `max_ratio` is 0."""
        return cls(config.max_ratio) if config.max_ratio else None

    def drops(self, source: str, target: str) -> bool:
        """Whether the longer side exceeds `max_ratio` times the shorter."""
        one, other = len(source), len(target)
        return one > self.max_ratio * other or other > self.max_ratio * one


class LeakedRule(Rule):
    """A pair that validation or test will ask for must not be learnt by heart."""

    name = "leaked"
    words = "a side stands in validation or test"

    def __init__(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Takes all held-out text."""
        self.sources = _HeldOutTexts(sources)
        self.targets = _HeldOutTexts(targets)

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """On with `drop_leaked` where anything is held out."""
        if not config.drop_leaked or not setting.held_out:
            return None
        return cls(
            (text for part in setting.held_out for text in part.sources),
            (text for part in setting.held_out for text in part.references),
        )

    def drops(self, source: str, target: str) -> bool:
        """Whether a side is held out, but for spacing and case."""
        return self.sources.hold(source) or self.targets.hold(target)


class _HeldOutTexts:
    """Texts that are found whatever their spacing and case."""

    def __init__(self, texts: Iterable[str]) -> None:
        self._texts = frozenset(map(_loose, filter(str.strip, texts)))
        self._heads = frozenset(text[:_HEAD] for text in self._texts)

    def hold(self, text: str) -> bool:
        """Whether a text is one of them; its beginning is enough to tell nearly all that are not."""
        head = text[: 2 * _HEAD].casefold().replace(" ", "")[:_HEAD]
        if len(head) == _HEAD and head not in self._heads and head.isprintable():  # no other white space
            return False
        return _loose(text) in self._texts


def _loose(text: str) -> str:
    if text.isprintable():  # then its only white space is " ", which is far faster to take out
        return text.casefold().replace(" ", "")
    return "".join(text.casefold().split())


def _is_control(character: str) -> bool:
    return unicodedata.category(character) == "Cc" and character != "\t"
