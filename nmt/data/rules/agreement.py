"""Rules for what has to stand on both sides alike: numbers, and addresses of pages and mailboxes."""

from __future__ import annotations

import re
from collections import Counter

from nmt.config import CleaningConfig
from nmt.data.rules.rule import Rule, Setting

_GROUPS = re.compile(r"(?<!\d)\d{1,3}(?:([.,'’ \u00a0\u202f])\d{3})(?:\1\d{3})*(?!\d)")
_DIGITS = re.compile(r"\d+")
# What is before an @ is looked for from its first letter alone: from every letter takes time by the square.
_ADDRESS = re.compile(r"(?:https?://|www\.)[^\s<>\"“”„()]+|(?<![\w.+-])[\w.+-]+@[\w-]+(?:\.[\w-]+)+")
_LARGEST_WORD = 12


class NumbersRule(Rule):
    """Other numbers tell of another sentence.

    Numbers are compared whatever their order, the marks between their groups of three, and zeros before and
    behind them (`1,000,000`, `1.000.000` and `1 million` are alike). What is 12 or less without those zeros
    is left out: it is as often written as a word.
    """

    name = "numbers"
    words = "the numbers of the sides disagree"

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """On with `drop_unequal_numbers`."""
        return cls() if config.drop_unequal_numbers else None

    def drops(self, source: str, target: str) -> bool:
        """Whether a side has a number that the other lacks."""
        return _numbers(source) != _numbers(target)


class AddressesRule(Rule):
    """Addresses stay as they are in a translation."""

    name = "addresses"
    words = "the URLs or e-mail addresses of the sides disagree"

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """On with `drop_unequal_addresses`."""
        return cls() if config.drop_unequal_addresses else None

    def drops(self, source: str, target: str) -> bool:
        """Whether a side has an address that the other lacks."""
        return _addresses(source) != _addresses(target)


def _numbers(text: str) -> Counter[str]:
    if not _DIGITS.search(text):
        return Counter()
    joined = _GROUPS.sub(lambda match: "".join(_DIGITS.findall(match[0])), text)
    # Other digits than 0 to 9 become those; numbers stay text, for there is no end to their length.
    found = (
        "".join(str(int(digit)) for digit in digits).strip("0") or "0" for digits in _DIGITS.findall(joined)
    )
    return Counter(number for number in found if len(number) > 2 or int(number) > _LARGEST_WORD)


def _addresses(text: str) -> Counter[str]:
    if "@" not in text and "://" not in text and "www." not in text:
        return Counter()
    found = (address.rstrip(".,;:!?'’»/").casefold() for address in _ADDRESS.findall(text))
    return Counter(address.partition("://")[2] or address for address in found)
