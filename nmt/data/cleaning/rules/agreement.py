"""Rules for text that must be equal on both sides: numbers, URLs and e-mail addresses."""

from __future__ import annotations

import re
from collections import Counter
from typing import Any

from nmt.config import CleaningConfig
from nmt.copying.numbers import NumberComparison
from nmt.copying.strings import ADDRESS_LETTERS
from nmt.data.cleaning.rules.rule import Rule, Setting

# The part before an @ is matched only from its first letter: matching from every letter takes quadratic time.
_ADDRESS = re.compile(
    rf"(?:https?://|www\.)[{ADDRESS_LETTERS}._~:/?#@!$&*+,;=%-]+"
    rf"|(?<![{ADDRESS_LETTERS}_.+-])[{ADDRESS_LETTERS}_.+-]+@"
    rf"[{ADDRESS_LETTERS}_-]+(?:\.[{ADDRESS_LETTERS}_-]+)+"
)


class NumbersRule(Rule):
    """Drops pairs whose sides have different numbers: they are probably different sentences.

    `NumberComparison` says which numbers differ.
    """

    name = "numbers"
    words = "the numbers of the sides differ"
    option = "drop_unequal_numbers"
    version = 4

    def __init__(self, source_lang: str = "", target_lang: str = "") -> None:
        self.comparison = NumberComparison(source_lang, target_lang)

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """Enabled by `drop_unequal_numbers`."""
        return cls(setting.source_lang, setting.target_lang) if config.drop_unequal_numbers else None

    def facts(self) -> Any:
        """Returns whether Chinese numerals are read, for each side; nothing if they are not."""
        chinese = self.comparison.chinese
        return {"chinese": chinese} if any(chinese) else {}

    def drops(self, source: str, target: str) -> bool:
        """Whether a side has a number that the other lacks."""
        return self.comparison.differ(source, target)


class AddressesRule(Rule):
    """Drops pairs whose sides have different addresses: a translation leaves them unchanged."""

    name = "addresses"
    words = "the URLs or e-mail addresses of the sides differ"
    option = "drop_unequal_addresses"
    version = 2

    def drops(self, source: str, target: str) -> bool:
        """Whether a side has an address that the other lacks."""
        return _addresses(source) != _addresses(target)


def _addresses(text: str) -> Counter[str]:
    if "@" not in text and "://" not in text and "www." not in text:
        return Counter()
    addresses = (address.rstrip(".,;:!?/").casefold() for address in _ADDRESS.findall(text))
    return Counter(address.partition("://")[2] or address for address in addresses)
