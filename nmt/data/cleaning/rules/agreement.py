"""Rules for text that must be equal on both sides: numbers, URLs and e-mail addresses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from nmt.copying.strings import ADDRESS_LETTERS
from nmt.data.cleaning.rules.rule import Rule

# Beginnings of the words for thousand, million and so on, in the languages of Europe and some of Asia. A dot
# is the end of a word.
_WORDS = """
    thousand tausend tsd duizend tusen tusind tuhat tuhan mille. mil. mila. mii. tys tisíc tisic
    ezer bin. тыс тис хиляд χιλ mio. mln. mlj milion milio miljo million millió milljo milyo milhã
    milhõ millón millon милион милли млн мільйон εκατομμ triệu juta bn. billi bilj bilh billón mrd
    mld mia. milliar miliar miljar milyar млрд мільярд δισεκ tỷ tn. trilli trilj trilh trillón
    трилли трлн lakh crore हज़ार लाख करोड़
"""
_SCALES = "|".join(word.replace(".", r"\b") for word in _WORDS.split())
_MAGNITUDE = rf"(?:[千万萬亿億兆천만억조]|(?-i:[kKM])\b|[ \u00a0\u202f-]?(?!милли[глмс])(?:{_SCALES}))"
_NUMBER = re.compile(
    r"(?P<groups>(?<!\d)\d{1,3}(?P<mark>[.,'’ \u00a0\u202f])\d{3}(?:(?P=mark)\d{3})*(?!\d))"
    rf"|(?P<decimal>\d+[.,]\d+(?={_MAGNITUDE}))"
    r"|(?P<fraction>(?<=\d[.,])\d+)"
    r"|\d+",
    re.IGNORECASE,
)
_SCALE = re.compile(_MAGNITUDE, re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_DIGIT = re.compile(r"\d")
_LARGEST_WORD = 12

# The part before an @ is matched only from its first letter: matching from every letter takes quadratic time.
_ADDRESS = re.compile(
    rf"(?:https?://|www\.)[{ADDRESS_LETTERS}._~:/?#@!$&*+,;=%-]+"
    rf"|(?<![{ADDRESS_LETTERS}_.+-])[{ADDRESS_LETTERS}_.+-]+@"
    rf"[{ADDRESS_LETTERS}_-]+(?:\.[{ADDRESS_LETTERS}_-]+)+"
)


class NumbersRule(Rule):
    """Drops pairs whose sides have different numbers: they are probably different sentences.

    The order of numbers and leading zeros are ignored. A mark between groups of three digits may also
    separate list items or a fraction (`101,102`). The pair is retained if one of the readings agrees.
    Trailing zeros count, except in a fraction and before a word such as million. So `1.5 million` equals
    `1,500,000`, but the difference to `15 million` is not detected.

    Numbers up to 12 are ignored because they are often written as words. Such numbers followed by zeros (20,
    300, 1000) are also ignored, unless the other side has another such number in their place.
    """

    name = "numbers"
    words = "the numbers of the sides differ"
    option = "drop_unequal_numbers"
    version = 2

    def drops(self, source: str, target: str) -> bool:
        """Whether a side has a number that the other lacks."""
        numbers = _numbers(source), _numbers(target)
        if sorted(map(_digits, numbers[0])) == sorted(map(_digits, numbers[1])):  # true of most pairs
            return False
        unmatched = _unmatched(*numbers)
        return not _may_be_words(*unmatched) and not _may_be_words(*_unmatched(*map(_split, unmatched)))


class AddressesRule(Rule):
    """Drops pairs whose sides have different addresses: a translation leaves them unchanged."""

    name = "addresses"
    words = "the URLs or e-mail addresses of the sides differ"
    option = "drop_unequal_addresses"
    version = 2

    def drops(self, source: str, target: str) -> bool:
        """Whether a side has an address that the other lacks."""
        return _addresses(source) != _addresses(target)


class _Number(NamedTuple):
    """A number in a text, or a part of one.

    Attributes:
        digits: the digits without marks and leading zeros.
        parts: the numbers between the marks, if that is another reading.
        scaled: whether trailing zeros are ignored.
        small: whether the number may be missing on the other side.
        round: whether the number may be a word on the other side.
    """

    digits: str
    parts: tuple[_Number, ...] = ()
    scaled: bool = False
    small: bool = False
    round: bool = False


def _numbers(text: str) -> list[_Number]:
    if not _DIGITS.search(text):
        return []
    return [_number(match, _SCALE.match(text, match.end()) is not None) for match in _NUMBER.finditer(text)]


_digits: Callable[[_Number], str] = attrgetter("digits")


def _number(match: re.Match[str], before_scale: bool) -> _Number:
    # Digits of other scripts become 0 to 9. Numbers remain strings because their length is unlimited.
    text = match[0] if match[0].isascii() else _DIGIT.sub(lambda digit: str(int(digit[0])), match[0])
    runs = _DIGITS.findall(text)
    digits = "".join(runs).lstrip("0") or "0"
    if match["decimal"]:
        is_round = all(map(_is_small, runs))
    else:
        is_round = _is_small(digits.rstrip("0") or "0")
    parts: list[_Number] = []
    if len(runs) > 1 and all(run.strip("0") for run in runs[1:]):  # `1,000` has no other reading
        parts = [_Number(run.lstrip("0") or "0") for run in runs]
        fraction = len(runs) == 2 and (match["decimal"] or match["mark"] in ".,")
        parts[-1] = parts[-1]._replace(scaled=bool(fraction) or before_scale)
    return _Number(
        digits,
        tuple(parts),
        scaled=before_scale or match["fraction"] is not None,
        small=_is_small(digits) and not before_scale,
        round=is_round,
    )


def _is_small(digits: str) -> bool:
    return len(digits) <= 2 and int(digits) <= _LARGEST_WORD


def _split(numbers: Sequence[_Number]) -> list[_Number]:
    """Replaces each number that has parts by its parts."""
    return [part for number in numbers for part in number.parts or (number,)]


def _unmatched(source: Sequence[_Number], target: Sequence[_Number]) -> tuple[list[_Number], list[_Number]]:
    """Returns the numbers of each side without a counterpart.

    Equal numbers are removed first, then numbers that are equal without trailing zeros, if one is `scaled`.
    """
    sources, targets = _cancelled(source, target, _digits)
    scaled, targets = _cancelled([n for n in sources if n.scaled], targets, _significant)
    sources = scaled + [n for n in sources if not n.scaled]
    sources, scaled = _cancelled(sources, [n for n in targets if n.scaled], _significant)
    return sources, scaled + [n for n in targets if not n.scaled]


def _cancelled(
    source: Sequence[_Number], target: Sequence[_Number], key: Callable[[_Number], str]
) -> tuple[list[_Number], list[_Number]]:
    """Removes numbers with equal keys from both sides, the same count from each."""
    shared = Counter(map(key, source)) & Counter(map(key, target))
    return _without(source, shared.copy(), key), _without(target, shared.copy(), key)


def _without(numbers: Sequence[_Number], gone: Counter[str], key: Callable[[_Number], str]) -> list[_Number]:
    retained = []
    for number in numbers:
        if gone[key(number)]:
            gone[key(number)] -= 1
        else:
            retained.append(number)
    return retained


def _significant(number: _Number) -> str:
    return number.digits.rstrip("0") or "0"


def _may_be_words(source: Sequence[_Number], target: Sequence[_Number]) -> bool:
    """Whether all numbers without a counterpart may be words on the other side."""
    sides = [[number for number in side if not number.small] for side in (source, target)]
    return not all(sides) and all(number.round for side in sides for number in side)


def _addresses(text: str) -> Counter[str]:
    if "@" not in text and "://" not in text and "www." not in text:
        return Counter()
    addresses = (address.rstrip(".,;:!?/").casefold() for address in _ADDRESS.findall(text))
    return Counter(address.partition("://")[2] or address for address in addresses)
