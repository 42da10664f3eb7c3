"""What is dropped from the training pairs, and the count and examples of each reason."""

from __future__ import annotations

import inspect
import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, ClassVar

import numpy as np

from nmt.config import CleaningConfig
from nmt.data.cleaning.rules.agreement import AddressesRule, NumbersRule
from nmt.data.cleaning.rules.basic import ControlRule, EmptyRule, IdenticalRule, LeakedRule, RatioRule
from nmt.data.cleaning.rules.language import LanguageRule
from nmt.data.cleaning.rules.rule import Rule, Setting
from nmt.data.cleaning.rules.script import ScriptRule
from nmt.data.cleaning.rules.wording import CopiedRule, LongWordRule
from nmt.data.corpora.corpus import HeldOut
from nmt.runtime import Registry

__all__ = [
    "DUPLICATE",
    "EXAMPLE_CHARACTERS",
    "NEAR_DUPLICATE",
    "NUM_EXAMPLES",
    "RULES",
    "CleaningReport",
    "PieceRule",
    "Rule",
    "build_rules",
    "near_hash",
    "normal_text",
    "option_of",
    "pair_hash",
    "rule_facts",
    "shortened",
    "visible",
]

NUM_EXAMPLES = 3
"""Dropped pairs a rule shows in the report."""

EXAMPLE_CHARACTERS = 200
"""How much of each side is shown, the "…" of one that is cut counted in."""

_LOG_CHARACTERS = 60  # of each side of an example in the log

DUPLICATE = "duplicate"
"""Name under which the preparation counts what `pair_hash` finds."""

NEAR_DUPLICATE = "near_duplicate"
"""Name under which it counts what `near_hash` finds beyond that."""


RULES: Registry[type[Rule]] = Registry("rule")
"""The rules in the order in which they judge; the first that drops a pair is counted.

The most expensive built-in rule is the last of them. Those of plugins follow.
"""

for _rule in (
    EmptyRule,
    ControlRule,
    IdenticalRule,
    RatioRule,
    LeakedRule,
    LongWordRule,
    ScriptRule,
    NumbersRule,
    AddressesRule,
    CopiedRule,
    LanguageRule,
):
    RULES[_rule.name] = _rule


class PieceRule:
    """Drops pairs by their lengths in pieces, once they are tokenised: too long, or nothing left."""

    name: ClassVar[str] = "length"
    option: ClassVar[str] = "max_pieces"

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


def build_rules(
    config: CleaningConfig,
    *held_out: HeldOut,
    languages: tuple[str, str] = ("", ""),
    tags: Collection[str] = (),
) -> list[Rule]:
    """The rules that the options switch on, in their order.

    Args:
        config: the options.
        held_out: validation and test, whose text training must not see.
        languages: language codes of source and target.
        tags: what held-out sources may begin with and training text does not.

    Raises:
        UserError: a rule needs a package that is not installed, or knows nothing of a language.
    """
    setting = Setting(held_out, *languages, tags)
    built = (rule.build(config, setting) for rule in RULES.values())
    return [rule for rule in built if rule is not None]


def option_of(name: str) -> str | None:
    """The full name of the option that sets the rule `name` of a report; None if none does."""
    others: dict[str, str | None] = {
        PieceRule.name: PieceRule.option,
        DUPLICATE: "drop_duplicates",
        NEAR_DUPLICATE: "drop_near_duplicates",
    }
    option = RULES[name].option if name in RULES else others.get(name)
    return None if option is None else f"data.cleaning.{option}"


def rule_facts(rules: Sequence[Rule]) -> list[Any]:
    """What stands for rules and how they judge.

    For a rule outside this package, the source of its module is added. So an edit is noticed even if the
    version stays the same.
    """
    return [[type(rule).__name__, rule.version, rule.facts(), *_source_of(type(rule))] for rule in rules]


def _source_of(rule: type[Rule]) -> list[str]:
    if rule.__module__.partition(".")[0] == __name__.partition(".")[0]:
        return []
    module = inspect.getmodule(rule)
    try:
        return [] if module is None else [inspect.getsource(module)]
    except OSError:  # a class defined at a prompt has no source file
        return []


normal_text: Callable[[str], str] = str.strip
"""Makes a line a side as the rules see it and the store keeps it: without white space around it."""


def visible(text: str) -> str:
    """A line for a terminal or a page: what can't be printed as the escape that Python has for it."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def shortened(text: str, characters: int) -> str:
    """The text, or its beginning with "…" where it has more characters."""
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def pair_hash(source: str, target: str) -> bytes:
    """Eight bytes that stand for a pair of lines, the same in every process and on every machine."""
    return blake2b(f"{source}\n{target}".encode(), digest_size=8).digest()


def near_hash(source: str, target: str) -> bytes:
    """A hash of a pair that leaves aside case and all that is no letter, where both sides have letters.

    Letters that normalisation makes the same (NFKC) are: composed ones, ligatures, those of full width.
    """
    source_key, target_key = (
        unicodedata.normalize("NFKD", text).casefold().translate(_LETTERS) for text in (source, target)
    )
    return pair_hash(source_key, target_key) if source_key and target_key else pair_hash(source, target)


class _Letters(dict[int, str | None]):
    """A table for `str.translate` that drops what is neither a letter nor a mark on one."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        self[code] = character if unicodedata.category(character)[0] in "LM" else None
        return self[code]


_LETTERS = _Letters()


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
            examples.append((shortened(source, EXAMPLE_CHARACTERS), shortened(target, EXAMPLE_CHARACTERS)))

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

    def samples(self) -> str:
        """The examples for people: a short line each, under the rule's name."""
        lines = ["examples of what was dropped (longer in data_report.html):"]
        for name in self._order():
            for pair in self.examples.get(name, []):
                lines.append(
                    f"  {name}: {' ||| '.join(shortened(visible(side), _LOG_CHARACTERS) for side in pair)}"
                )
        return "\n".join(lines if len(lines) > 1 else [])

    def _order(self) -> list[str]:
        known = [name for name in RULES if name in self.dropped]
        return known + sorted(name for name in self.dropped if name not in RULES)
