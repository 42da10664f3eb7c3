"""The rules that are on by default: nothing to learn from, broken, copied, out of proportion, held out."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from unicodedata import category, combining, normalize

import numpy as np

from nmt.config import CleaningConfig
from nmt.data.cleaning.rules.rule import Rule, Setting
from nmt.data.corpora.tags import without_tag

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
    option = "drop_control"

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
    option = "drop_identical"

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
    option = "max_ratio"

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
    option = "drop_leaked"
    version = 2

    def __init__(self, sources: Iterable[str], targets: Iterable[str], tags: Collection[str] = ()) -> None:
        """Takes all held-out text, and the tags that its sources may begin with and training text not."""
        lines = set(filter(str.strip, sources))
        lines |= {without_tag(line, tags) for line in lines}
        self.sources = frozenset(map(_loose, lines))
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
            setting.tags,
        )

    def drops(self, source: str, target: str) -> bool:
        """Whether a side is held out, but for what `_loose` leaves aside."""
        return _loose(source) in self.sources or _loose(target) in self.targets

    def suspects(self, sources: Sequence[str], targets: Sequence[str]) -> Iterable[int]:
        """Those of which a side begins like one that is held out."""
        suspects: set[int] = set()
        for lines, heads in ((sources, self.source_heads), (targets, self.target_heads)):
            begins = [
                begin.casefold().replace(" ", "")
                if (begin := line[: 2 * _HEAD]).isascii() and begin.isprintable()  # as `_loose`, but faster
                else _loose(begin)
                for line in lines
            ]
            # What no mark follows is the head of the whole text too: nothing else changes places.
            suspects.update(
                place
                for place, begin in enumerate(begins)
                if begin[:_HEAD] in heads or len(begin) <= _HEAD or combining(begin[_HEAD])
            )
        return sorted(suspects)


def _loose(text: str) -> str:
    """What texts that look alike have in common: no case, no white space, compatible characters decomposed.

    Normalisation makes most of these one text to the model: composed or not, of full width, ligatures, the
    three dots of an ellipsis, and invisible characters of format (category Cf), which are left out. So is
    the iota below a Greek letter (U+0345), the one mark that case folding makes a letter.
    """
    if text.isascii() and text.isprintable():
        return text.casefold().replace(" ", "")
    if not text.isprintable():  # what is of category Cf never is
        text = "".join(c for c in text if category(c) != "Cf")
    return "".join(normalize("NFKD", text).replace("\u0345", "").casefold().split())


def _is_control(character: str) -> bool:
    return category(character) == "Cc" and character != "\t"
