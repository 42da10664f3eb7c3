"""Rules for text that must be equal on both sides: numbers, URLs and e-mail addresses."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import Any, NamedTuple

from nmt.config import CleaningConfig
from nmt.copying.strings import ADDRESS_LETTERS
from nmt.data.cleaning.rules.rule import Rule, Setting
from nmt.languages import language_of

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
_CHINESE_DIGITS = {
    **{digit: value for value, digit in enumerate("零一二三四五六七八九")},
    "〇": 0,
    "两": 2,
    "兩": 2,
}
_CHINESE_WORDS = {
    "十": 10,
    "百": 100,
    "千": 1000,
    "万": 10**4,
    "萬": 10**4,
    "亿": 10**8,
    "億": 10**8,
    "兆": 10**12,
}
_CHINESE_NUMERAL = re.compile(rf"[{''.join([*_CHINESE_DIGITS, *_CHINESE_WORDS])}]{{2,30}}")

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

    Chinese numerals in Chinese and Japanese text may have a counterpart, but need none: `一九八五` and
    `一千九百八十五` equal `1985`.
    """

    name = "numbers"
    words = "the numbers of the sides differ"
    option = "drop_unequal_numbers"
    version = 2

    def __init__(self, source_lang: str = "", target_lang: str = "") -> None:
        languages = language_of(source_lang), language_of(target_lang)
        self.chinese = tuple(language.is_han or language.is_japanese for language in languages)

    @classmethod
    def build(cls, config: CleaningConfig, setting: Setting) -> Rule | None:
        """Enabled by `drop_unequal_numbers`."""
        return cls(setting.source_lang, setting.target_lang) if config.drop_unequal_numbers else None

    def facts(self) -> Any:
        """Returns the attributes; none if no side may have Chinese numerals, as in earlier versions."""
        return vars(self) if any(self.chinese) else {}

    def drops(self, source: str, target: str) -> bool:
        """Whether a side has a number that the other lacks."""
        numbers = _numbers(source), _numbers(target)
        if not _differ(*numbers):
            return False
        more = [
            _chinese_numbers(text) if chinese else []
            for text, chinese in zip((source, target), self.chinese, strict=True)
        ]
        return not any(more) or _differ(numbers[0] + more[0], numbers[1] + more[1])


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


def _differ(source: Sequence[_Number], target: Sequence[_Number]) -> bool:
    if sorted(map(_digits, source)) == sorted(map(_digits, target)):  # true of most pairs
        return False
    unmatched = _unmatched(source, target)
    return not _may_be_words(*unmatched) and not _may_be_words(*_unmatched(*map(_split, unmatched)))


def _chinese_numbers(text: str) -> list[_Number]:
    """Returns the numbers in Chinese numerals of two characters or more; the other side may lack them."""
    values = map(_chinese_digits, _CHINESE_NUMERAL.findall(text))
    return [_Number(digits.lstrip("0") or "0", small=True) for digits in values]


def _chinese_digits(numeral: str) -> str:
    """Returns the digits of a numeral, which has them one by one, or with the words for 10, 100 and so on."""
    if _CHINESE_WORDS.keys().isdisjoint(numeral):
        return "".join(str(_CHINESE_DIGITS[character]) for character in numeral)
    total = part = digit = 0  # `part` is the number below 10,000 before 万, 亿 or 兆
    for character in numeral:
        if (value := _CHINESE_DIGITS.get(character)) is not None:
            digit = value
        elif (value := _CHINESE_WORDS[character]) < 10_000:
            part, digit = part + (digit or 1) * value, 0
        else:
            total, part, digit = total + (part + digit or 1) * value, 0, 0
    return str(total + part + digit)


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
