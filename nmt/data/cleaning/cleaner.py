"""The registry of cleaning rules, pair hashes, and the report of dropped pairs with counts and examples."""

from __future__ import annotations

import unicodedata
from collections import Counter
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Any, ClassVar

from nmt.config import CleaningConfig
from nmt.data.cache import source_of
from nmt.data.cleaning.rules.agreement import AddressesRule, NumbersRule
from nmt.data.cleaning.rules.basic import (
    ControlRule,
    CopiedRule,
    EmptyRule,
    IdenticalRule,
    LeakedRule,
    LongWordRule,
    RatioRule,
)
from nmt.data.cleaning.rules.language import LanguageRule, ScriptRule
from nmt.data.cleaning.rules.rule import Rule as Rule
from nmt.data.cleaning.rules.rule import Setting
from nmt.data.corpora.held_out import HeldOut
from nmt.runtime.arrays import Array
from nmt.runtime.plugins import Registry
from nmt.runtime.streams import visible

NUM_EXAMPLES = 3
"""Number of dropped pairs per rule in the report."""

EXAMPLE_CHARACTERS = 200
"""Number of characters shown of each side, the "…" of a truncated side included."""

_LOG_CHARACTERS = 60  # of each side of an example in the log

DUPLICATE = "duplicate"
"""Name under which preparation counts pairs with the `pair_hash` of an earlier pair."""

NEAR_DUPLICATE = "near_duplicate"
"""Name under which preparation counts the other pairs with the `near_hash` of an earlier pair."""

MALFORMED = "malformed"
"""Name under which preparation counts rows that are not pairs; see `data.max_malformed`."""


RULES: Registry[type[Rule]] = Registry("rule")
"""The rules in the order in which they are applied. A pair is counted under the first rule that drops it.

The slowest built-in rule is the last built-in rule. The rules of plugins follow.
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
    """Drops tokenised pairs with a side that is empty, or longer than `max_pieces` unless that is 0."""

    name: ClassVar[str] = "length"
    option: ClassVar[str] = "max_pieces"

    def __init__(self, config: CleaningConfig) -> None:
        self.max_pieces = config.max_pieces
        self.words = (
            f"a side is longer than {self.max_pieces} pieces" if self.max_pieces else "a side has no pieces"
        )

    def drops(self, num_source: Array, num_target: Array) -> Array:
        """Whether to drop each of N pairs, given the lengths in pieces (N,), EOS not counted: (N,) bool."""
        dropped: Array = (num_source == 0) | (num_target == 0)
        if self.max_pieces:
            dropped |= (num_source > self.max_pieces) | (num_target > self.max_pieces)
        return dropped


def build_rules(
    config: CleaningConfig,
    *held_out: HeldOut,
    languages: tuple[str, str] = ("", ""),
    tags: Collection[str] = (),
) -> list[Rule]:
    """Builds the rules that the options enable, in the order of `RULES`; the other arguments: `Setting`.

    Raises:
        UserError: a rule needs a package that is not installed, or does not support a language.
    """
    setting = Setting(held_out, *languages, tags)
    built = (rule.build(config, setting) for rule in RULES.values())
    return [rule for rule in built if rule is not None]


def option_of(name: str) -> str | None:
    """Returns the full name of the option that sets the rule `name`, or None for a rule without option."""
    others: dict[str, str | None] = {
        PieceRule.name: PieceRule.option,
        DUPLICATE: "drop_duplicates",
        NEAR_DUPLICATE: "drop_near_duplicates",
    }
    if name == MALFORMED:
        return "data.max_malformed"
    option = RULES[name].option if name in RULES else others.get(name)
    return None if option is None else f"data.cleaning.{option}"


def rule_facts(rules: Sequence[Rule]) -> list[Any]:
    """Returns facts that identify the rules and their behaviour, for a fingerprint.

    For a rule outside this package, the source code of its module is included. Text is therefore cleaned
    again after an edit even if `version` stays the same.
    """
    return [[type(rule).__name__, rule.version, rule.facts(), *_source_of(type(rule))] for rule in rules]


def _source_of(rule: type[Rule]) -> list[str]:
    is_built_in = rule.__module__.partition(".")[0] == __name__.partition(".")[0]
    return [] if is_built_in else list(filter(None, [source_of(rule)]))


normal_text: Callable[[str], str] = str.strip
"""Normalises a line for the rules and the store: removes white space at both ends."""


def shortened(text: str, characters: int) -> str:
    """Returns the text, truncated with "…" if it is longer than `characters`."""
    return text if len(text) <= characters else f"{text[: characters - 1]}…"


def pair_hash(source: str, target: str) -> bytes:
    """Returns an 8-byte hash of a pair, the same in every process and on every machine."""
    return blake2b(f"{source}\n{target}".encode(), digest_size=8).digest()


def near_hash(source: str, target: str) -> bytes:
    """Returns a hash of a pair that ignores case and all characters that are not letters.

    Letters that are equal after compatibility normalisation (NFKC) have equal hashes: composed letters,
    ligatures and full-width letters. If a side has no letters, returns `pair_hash`.
    """
    source_key, target_key = (
        unicodedata.normalize("NFKD", text).casefold().translate(_LETTERS) for text in (source, target)
    )
    return pair_hash(source_key, target_key) if source_key and target_key else pair_hash(source, target)


class _Letters(dict[int, str | None]):
    """A table for `str.translate` that removes characters other than letters and their combining marks."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        self[code] = character if unicodedata.category(character)[0] in "LM" else None
        return self[code]


_LETTERS = _Letters()


@dataclass
class CleaningReport:
    """The number of retained pairs, and the number and examples of dropped pairs for each rule."""

    kept: int = 0
    """Number of retained pairs."""
    dropped: Counter[str] = field(default_factory=Counter)
    """Number of dropped pairs by rule name."""
    words: dict[str, str] = field(default_factory=dict)
    """Descriptions of the rules by name."""
    examples: dict[str, list[tuple[str, str]]] = field(default_factory=dict)
    """The first pairs that each rule dropped, by name."""

    @property
    def total(self) -> int:
        """Number of retained and dropped pairs."""
        return self.kept + sum(self.dropped.values())

    @property
    def hint(self) -> str | None:
        """What to do if `drop_leaked` has dropped most pairs; None if it has not."""
        if self.dropped[LeakedRule.name] <= self.total / 2:
            return None
        return (
            "Most pairs have a side that also occurs in data.valid or data.test: give other files there. If "
            "sides repeat by nature, such as labels or trees, set data.cleaning.drop_leaked=false."
        )

    def drop(self, name: str, words: str, source: str, target: str) -> None:
        """Counts a dropped pair, and stores it as an example if the rule has fewer than `NUM_EXAMPLES`."""
        self.dropped[name] += 1
        self.words[name] = words
        examples = self.examples.setdefault(name, [])
        if len(examples) < NUM_EXAMPLES:
            examples.append((shortened(source, EXAMPLE_CHARACTERS), shortened(target, EXAMPLE_CHARACTERS)))

    def drop_malformed(self, rows: Sequence[str]) -> None:
        """Counts rows that are not pairs, by what is wrong with each; an empty text is not an example."""
        for row in rows:
            where, _, problem = row.partition(": ")
            if row:
                self.drop(MALFORMED, "a row is malformed", where, problem)
            else:
                self.dropped[MALFORMED] += 1

    def merge(self, other: CleaningReport) -> CleaningReport:
        """Returns the sum of two reports; the examples of `self` come first."""
        merged = CleaningReport(
            self.kept + other.kept, self.dropped + other.dropped, self.words | other.words
        )
        for name in merged.dropped:
            both = self.examples.get(name, []) + other.examples.get(name, [])
            merged.examples[name] = both[:NUM_EXAMPLES]
        return merged

    def as_dict(self) -> dict[str, Any]:
        """Returns the report for `results.json`."""
        return {
            "pairs": self.total,
            "kept": self.kept,
            "dropped": {name: self.dropped[name] for name in self._order()},
            "examples": {
                name: [list(pair) for pair in self.examples.get(name, [])] for name in self._order()
            },
        }

    def table(self) -> str:
        """Returns the report as a text table."""
        rows = [("pairs read", self.total)]
        rows += [(f"dropped: {self.words.get(name, name)}", self.dropped[name]) for name in self._order()]
        rows += [("pairs retained", self.kept)]
        width = max(len(words) for words, _ in rows)
        digits = max(len(f"{count:,}") for _, count in rows)
        total = max(self.total, 1)
        return "\n".join(
            f"{words:<{width}}  {count:>{digits},}  {count / total:>6.1%}" for words, count in rows
        )

    def samples(self) -> str:
        """Returns the examples as text: one short line per pair, after the name of its rule."""
        lines = ["examples of dropped pairs (longer in data_report.html):"]
        for name in self._order():
            for pair in self.examples.get(name, []):
                lines.append(
                    f"  {name}: {' ||| '.join(shortened(visible(side), _LOG_CHARACTERS) for side in pair)}"
                )
        return "\n".join(lines if len(lines) > 1 else [])

    def _order(self) -> list[str]:
        known = [name for name in RULES if name in self.dropped]
        return known + sorted(name for name in self.dropped if name not in RULES)
