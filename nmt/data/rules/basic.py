"""The rules that are on by default: nothing to learn from, broken, copied, out of proportion, held out."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

from nmt.config import CleaningConfig
from nmt.data.rules.rule import Rule, Setting

_HEAD = 12  # characters, without spaces, that tell nearly all texts from those held out


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

    def suspects(self, sources: Sequence[str], targets: Sequence[str]) -> Iterable[int]:
        """All if there is an empty side at all."""
        return range(len(sources)) if "" in sources or "" in targets else ()


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

    def suspects(self, sources: Sequence[str], targets: Sequence[str]) -> Iterable[int]:
        """All if there is one at all: U+0000 to U+001F, U+007F, or U+0080 to U+009F, in two bytes."""
        for lines in (sources, targets):
            codes = np.frombuffer("\t".join(lines).encode(), np.uint8)
            low = (codes < 0x20) & (codes != ord("\t"))
            high = (codes[:-1] == 0xC2) & (codes[1:] < 0xA0)
            if low.any() or (codes == 0x7F).any() or high.any():
                return range(len(lines))
        return ()


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
        return source.casefold() == target.casefold()

    def suspects(self, sources: Sequence[str], targets: Sequence[str]) -> Iterable[int]:
        """Those whose sides begin alike."""
        firsts = ([line[:1].casefold()[:1] for line in lines] for lines in (sources, targets))
        return [place for place, (one, other) in enumerate(zip(*firsts, strict=True)) if one == other]


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

    def suspects(self, sources: Sequence[str], targets: Sequence[str]) -> Iterable[int]:
        """Those that are to go."""
        one, other = (np.fromiter(map(len, lines), np.float64, len(lines)) for lines in (sources, targets))
        gone = (one > self.max_ratio * other) | (other > self.max_ratio * one)
        places: list[int] = np.flatnonzero(gone).tolist()
        return places


class LeakedRule(Rule):
    """A pair that validation or test will ask for must not be learnt by heart."""

    name = "leaked"
    words = "a side stands in validation or test"

    def __init__(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Takes all held-out text."""
        self.sources = frozenset(map(_loose, filter(str.strip, sources)))
        self.targets = frozenset(map(_loose, filter(str.strip, targets)))
        self.source_heads = frozenset(text[:_HEAD] for text in self.sources)
        self.target_heads = frozenset(text[:_HEAD] for text in self.targets)

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
        return _loose(source) in self.sources or _loose(target) in self.targets

    def suspects(self, sources: Sequence[str], targets: Sequence[str]) -> Iterable[int]:
        """Those of which a side begins like one that is held out."""
        suspects: set[int] = set()
        for lines, heads in ((sources, self.source_heads), (targets, self.target_heads)):
            begins = [line[: 2 * _HEAD].casefold().replace(" ", "")[:_HEAD] for line in lines]
            suspects.update(
                place
                for place, head in enumerate(begins)
                if head in heads or len(head) < _HEAD or not head.isprintable()  # other white space
            )
        return sorted(suspects)


def _loose(text: str) -> str:
    if text.isprintable():  # then its only white space is " ", which is far faster to take out
        return text.casefold().replace(" ", "")
    return "".join(text.casefold().split())


def _is_control(character: str) -> bool:
    return unicodedata.category(character) == "Cc" and character != "\t"
