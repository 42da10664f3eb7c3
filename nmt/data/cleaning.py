"""What is dropped from the training pairs, and the count and examples of each reason."""

from __future__ import annotations

import hashlib
import unicodedata
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np

from nmt.config import CleaningConfig
from nmt.data.corpus import HeldOut

NUM_EXAMPLES = 3
"""Dropped pairs a rule shows in the report."""

EXAMPLE_CHARACTERS = 200
"""How much of each side is shown."""

DUPLICATE = "duplicate"
"""Name under which the preparation counts what `pair_hash` finds."""


class Rule(ABC):
    """A reason to drop a pair, judged by its text alone.

    To add one, write a subclass and name it in `RULES`.
    """

    name: ClassVar[str]
    """Its name in results."""
    words: ClassVar[str]
    """Its meaning in the report: what is the case with a dropped pair."""

    @classmethod
    @abstractmethod
    def build(cls, config: CleaningConfig, held_out: Sequence[HeldOut]) -> Rule | None:
        """Makes the rule as the options want it, or None where they switch it off."""

    @abstractmethod
    def drops(self, source: str, target: str) -> bool:
        """Whether the pair, both sides as `normal_text` gives them, is to go."""


class EmptyRule(Rule):
    """Nothing can be learnt from a side without text."""

    name = "empty"
    words = "one side is empty"

    @classmethod
    def build(cls, config: CleaningConfig, held_out: Sequence[HeldOut]) -> Rule | None:
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
    def build(cls, config: CleaningConfig, held_out: Sequence[HeldOut]) -> Rule | None:
        """On with `drop_control`."""
        return cls() if config.drop_control else None

    def drops(self, source: str, target: str) -> bool:
        """Whether a side has one."""
        return _has_control(source) or _has_control(target)


class IdenticalRule(Rule):
    """A side that was copied, not translated."""

    name = "identical"
    words = "both sides are the same text"

    @classmethod
    def build(cls, config: CleaningConfig, held_out: Sequence[HeldOut]) -> Rule | None:
        """On with `drop_identical`."""
        return cls() if config.drop_identical else None

    def drops(self, source: str, target: str) -> bool:
        """Whether the sides are the same but for case."""
        return source == target or source.casefold() == target.casefold()


class RatioRule(Rule):
    """Sides of very unequal length are seldom translations of each other."""

    name = "ratio"
    words = "one side is far longer than the other"

    def __init__(self, max_ratio: float) -> None:
        """Takes the largest ratio, longer over shorter side in characters, that stays."""
        self.max_ratio = max_ratio

    @classmethod
    def build(cls, config: CleaningConfig, held_out: Sequence[HeldOut]) -> Rule | None:
        """On unless `max_ratio` is 0."""
        return cls(config.max_ratio) if config.max_ratio else None

    def drops(self, source: str, target: str) -> bool:
        """Whether the longer side exceeds `max_ratio` times the shorter."""
        shorter, longer = sorted((len(source), len(target)))
        return longer > self.max_ratio * shorter


class LeakedRule(Rule):
    """A pair that validation or test will ask for must not be learnt by heart."""

    name = "leaked"
    words = "a side stands in validation or test"

    def __init__(self, sources: Iterable[str], targets: Iterable[str]) -> None:
        """Takes all held-out text."""
        self.sources = frozenset(map(_loose, filter(str.strip, sources)))
        self.targets = frozenset(map(_loose, filter(str.strip, targets)))

    @classmethod
    def build(cls, config: CleaningConfig, held_out: Sequence[HeldOut]) -> Rule | None:
        """On with `drop_leaked` where anything is held out."""
        if not config.drop_leaked or not held_out:
            return None
        return cls(
            (text for part in held_out for text in part.sources),
            (text for part in held_out for text in part.references),
        )

    def drops(self, source: str, target: str) -> bool:
        """Whether a side is held out, but for spacing and case."""
        return _loose(source) in self.sources or _loose(target) in self.targets


RULES: dict[str, type[Rule]] = {
    rule.name: rule for rule in (EmptyRule, ControlRule, IdenticalRule, RatioRule, LeakedRule)
}
"""The rules in the order in which they judge; the first that drops a pair is counted."""


class PieceRule:
    """Drops pairs by their lengths in pieces, once they are tokenised: too long, or nothing left."""

    name: ClassVar[str] = "length"

    def __init__(self, config: CleaningConfig) -> None:
        """Takes `max_pieces`; with 0 only sides without any piece are dropped."""
        self.max_pieces = config.max_pieces
        self.words = (
            f"a side is longer than {self.max_pieces} pieces" if self.max_pieces else "a side has no piece"
        )

    def drops(self, num_source: int, num_target: int) -> bool:
        """Whether the pair is to go, given its lengths in pieces, EOS not counted."""
        return bool(self.mask(np.array([num_source]), np.array([num_target]))[0])

    def mask(self, num_source: np.ndarray, num_target: np.ndarray) -> np.ndarray:
        """`drops` for many pairs: (N,) and (N,) lengths to (N,) truth values."""
        gone: np.ndarray = (num_source == 0) | (num_target == 0)
        if self.max_pieces:
            gone |= (num_source > self.max_pieces) | (num_target > self.max_pieces)
        return gone


def build_rules(config: CleaningConfig, *held_out: HeldOut) -> list[Rule]:
    """The rules that the options switch on, in their order.

    Args:
        config: the options.
        held_out: validation and test, whose text training must not see.
    """
    built = (rule.build(config, held_out) for rule in RULES.values())
    return [rule for rule in built if rule is not None]


def first_rule(rules: Sequence[Rule], source: str, target: str) -> Rule | None:
    """The first rule that drops the pair, or None where it stays."""
    for rule in rules:
        if rule.drops(source, target):
            return rule
    return None


def normal_text(text: str) -> str:
    """A side as the rules see it and the store keeps it: without white space around it."""
    return text.strip()


def pair_hash(source: str, target: str) -> int:
    """A 64-bit hash of a pair, the same in every process and on every machine."""
    first = source.encode("utf-8")
    content = len(first).to_bytes(8, "little") + first + target.encode("utf-8")
    return int.from_bytes(hashlib.blake2b(content, digest_size=8).digest(), "little")


def _loose(text: str) -> str:
    return "".join(text.casefold().split())


def _has_control(text: str) -> bool:
    if text.isprintable():  # true of most lines, and far faster than looking at each character
        return False
    return any(unicodedata.category(character) == "Cc" and character != "\t" for character in text)


@dataclass
class CleaningReport:
    """How many pairs stayed, how many each rule dropped, and a few of those."""

    kept: int = 0
    dropped: Counter[str] = field(default_factory=Counter)
    """Counts by the name of the rule."""
    words: dict[str, str] = field(default_factory=dict)
    """The rules' meanings by name."""
    examples: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """The first pairs that each rule dropped."""

    @property
    def total(self) -> int:
        """Pairs seen."""
        return self.kept + sum(self.dropped.values())

    def keep(self, count: int = 1) -> None:
        """Counts pairs that stay."""
        self.kept += count

    def drop(self, name: str, words: str, source: str, target: str) -> None:
        """Counts a dropped pair and keeps it if it is among the rule's first.

        Args:
            name: the rule's name.
            words: the rule's meaning.
            source: the pair's source.
            target: the pair's target.
        """
        self.dropped[name] += 1
        self.words[name] = words
        examples = self.examples.setdefault(name, [])
        if len(examples) < NUM_EXAMPLES:
            examples.append((source[:EXAMPLE_CHARACTERS], target[:EXAMPLE_CHARACTERS]))

    def merge(self, other: CleaningReport) -> CleaningReport:
        """The two reports as one; examples of `self` come first."""
        merged = CleaningReport(
            self.kept + other.kept, self.dropped + other.dropped, self.words | other.words
        )
        for name in merged.dropped:
            both = self.examples.get(name, []) + other.examples.get(name, [])
            merged.examples[name] = both[:NUM_EXAMPLES]
        return merged

    def as_dict(self) -> dict[str, Any]:
        """The report for `results.json`."""
        return {
            "pairs": self.total,
            "kept": self.kept,
            "dropped": {name: self.dropped[name] for name in self._order()},
            "examples": {
                name: [list(pair) for pair in self.examples.get(name, [])] for name in self._order()
            },
        }

    def table(self) -> str:
        """The report as a table for people."""
        rows = [("pairs read", self.total)]
        rows += [(f"dropped: {self.words.get(name, name)}", self.dropped[name]) for name in self._order()]
        rows += [("kept", self.kept)]
        width = max(len(words) for words, _ in rows)
        digits = max(len(f"{count:,}") for _, count in rows)
        total = max(self.total, 1)
        return "\n".join(
            f"{words:<{width}}  {count:>{digits},}  {count / total:>6.1%}" for words, count in rows
        )

    def _order(self) -> list[str]:
        known = [name for name in RULES if name in self.dropped]
        return known + sorted(name for name in self.dropped if name not in RULES)
