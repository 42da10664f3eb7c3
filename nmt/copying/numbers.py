"""Numbers in text, and their comparison with those of a translation, which may write them otherwise.

Two texts are compared without their languages: digits of all scripts are equal, and marks between digits may
separate groups, a fraction or items of a list. Only Chinese numerals are looked for in Chinese and Japanese
text alone.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Sequence
from operator import attrgetter
from typing import NamedTuple

from nmt.copying.strings import UNITS
from nmt.languages import language_of

VERSION = 2
"""Part of the fingerprint of facts about numbers. Increase it if the same text gives others."""

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
_MAGNITUDE = rf"(?:[百백千万萬亿億兆천만억조]|(?-i:[kKM])\b|[ \u00a0\u202f-]?(?!милли[глмс])(?:{_SCALES}))"
_RUN = r"(?:\d{1,3},\d{3}(?!\d)|\d{1,12})"
_NUMBER = re.compile(
    r"(?P<groups>(?<!\d)\d{1,3}(?P<mark>[.,٬'’ \u00a0\u202f])\d{3}(?:(?P=mark)\d{3})*(?!\d))"
    r"|(?P<lakhs>(?<!\d)(?<!\d,)\d{1,2}(?:,\d{2}(?=,))++,\d{3}(?!\d))"
    rf"|(?P<mixed>{_RUN}{UNITS}(?= ?\d)(?: ?{_RUN}{UNITS}){{0,4}}(?: ?{_RUN}(?!{UNITS}|\d))?)"
    rf"|(?P<decimal>\d+[.,٫]\d+(?={_MAGNITUDE}))"
    r"|(?P<fraction>(?<=\d[.,٫])\d+)"
    r"|\d+",
    re.IGNORECASE,
)
_MIXED_PART = re.compile(rf"({_RUN})({UNITS})?")
_VALUES = {
    **dict.fromkeys("百백", 100),
    **dict.fromkeys("千천", 1000),
    **dict.fromkeys("万萬만", 10**4),
    **dict.fromkeys("亿億억", 10**8),
    **dict.fromkeys("兆조", 10**12),
}
"""The values of units after digits."""
_HALF_DAY = re.compile(
    r"(?<![\d:.,])(\d{1,2})(?:[:.]\d\d)?[ \u00a0\u202f]?([ap])(?:\.[ \u00a0]?m\.|m\b)", re.IGNORECASE
)
_ROMAN = re.compile(r"\b((?=[IVXLC])(?:XC|XL|L?X{0,3}|C{1,3})(?:IX|IV|V?I{0,3}))(e|er|ème)?\b")
_ROMAN_VALUES = {"I": 1, "V": 5, "X": 10, "L": 50, "C": 100}
_SCALE = re.compile(_MAGNITUDE, re.IGNORECASE)
_DIGITS = re.compile(r"\d+")
_DIGIT = re.compile(r"\d")
_LARGEST_WORD = 12
_CHINESE_DIGITS = dict(zip("零一二三四五六七八九〇两兩", (*range(10), 0, 2, 2), strict=True))
_CHINESE_WORDS = {"十": 10, **{unit: value for unit, value in _VALUES.items() if unit not in "백천만억조"}}
_CHINESE_NUMERAL = re.compile(rf"[{''.join([*_CHINESE_DIGITS, *_CHINESE_WORDS])}]{{2,30}}")


class NumberComparison:
    """Compares the numbers of two texts; a translation may write them otherwise.

    The order of numbers and leading zeros are ignored. A mark between groups of three digits may also
    separate list items or a fraction (`101,102`). One of the readings must agree. Trailing zeros count,
    except in a fraction and before a word such as million. So `1.5 million` equals `1,500,000`, but the
    difference to `15 million` is not detected. `12,34,567` is one number, and so are `12万3456` (123,456) and
    `3만 5천` (35,000).

    Numbers up to 12 may be words on the other side, and such numbers followed by zeros (20, 300, 1000).

    Chinese numerals in Chinese and Japanese text may have a counterpart, but need none: `一九八五` and
    `一千九百八十五` equal `1985`.

    Args:
        source_lang: code of the language of the source.
        target_lang: that of the target.
        words: whether a translation may have every number of two digits in words (see `missing`).

    Attributes:
        chinese: whether Chinese numerals of the source and of the target are read.
    """

    def __init__(self, source_lang: str = "", target_lang: str = "", *, words: bool = False) -> None:
        languages = language_of(source_lang), language_of(target_lang)
        self.chinese = tuple(language.is_han or language.is_japanese for language in languages)
        self._words = words

    def differ(self, source: str, target: str) -> bool:
        """Returns whether a side has a number that the other lacks.

        Numbers that may be words are ignored, unless a round number has another one in its place.
        """
        numbers = _numbers(source), _numbers(target)
        if not _differ(*numbers):
            return False
        more = self._chinese(source, target)
        return not any(more) or _differ(numbers[0] + more[0], numbers[1] + more[1])

    def missing(self, source: str, translation: str) -> tuple[str, ...]:
        """Returns the numbers of a source that its translation lacks or changes, as the source has them.

        A number that may be a word is missing only if the translation has another number in its place. Times
        of half a day and of a whole day are equal (`3 p.m.` and `15`), and Roman numerals may be a
        counterpart.
        """
        missing = [number.text for number in self._missing(source, translation, self._words)]
        return tuple(sorted(missing, key=source.find))

    def has_words(self, source: str, target: str) -> bool:
        """Returns whether a target may have numbers of two digits above 12 in words, and lacks no others."""
        return bool(self._missing(source, target, False)) and not self._missing(source, target, True)

    def _missing(self, source: str, translation: str, words: bool) -> Sequence[Number]:
        if not (numbers := _numbers(source)):
            return ()
        unmatched, others = _unmatched(numbers, _numbers(translation))
        if not unmatched:
            return ()
        more = [*map(_roman_numbers, (source, translation))]
        for some, chinese in zip(more, self._chinese(source, translation), strict=True):
            some += chinese
        readings = []
        for reading in ((unmatched, others), (_split(unmatched), _split(others))):
            left, right = _unmatched(reading[0] + more[0], reading[1] + more[1])
            left, right = _without_times(left, right, source, translation)
            left, right = ([one for one in side if not one.optional] for side in (left, right))
            if not right:
                left = [one for one in left if not (one.small or one.round or words and len(one.digits) <= 2)]
            readings.append(left)
        return min(readings, key=len)

    def _chinese(self, source: str, target: str) -> list[list[Number]]:
        return [
            _chinese_numbers(text) if chinese else []
            for text, chinese in zip((source, target), self.chinese, strict=True)
        ]


class Number(NamedTuple):
    """A number in a text, or a part of one.

    Attributes:
        digits: the digits without marks and leading zeros.
        parts: the numbers between the marks, if that is another reading.
        scaled: whether trailing zeros are ignored.
        small: whether the number may be missing on the other side.
        round: whether the number may be a word on the other side.
        text: the number as it is written.
        optional: whether the number is not in digits, so that the other side may lack it.
    """

    digits: str
    parts: tuple[Number, ...] = ()
    scaled: bool = False
    small: bool = False
    round: bool = False
    text: str = ""
    optional: bool = False


def _numbers(text: str) -> list[Number]:
    if not _DIGITS.search(text):
        return []
    return [_number(match, _SCALE.match(text, match.end()) is not None) for match in _NUMBER.finditer(text)]


_digits: Callable[[Number], str] = attrgetter("digits")


def _differ(source: Sequence[Number], target: Sequence[Number]) -> bool:
    if sorted(map(_digits, source)) == sorted(map(_digits, target)):  # true of most pairs
        return False
    unmatched = _unmatched(source, target)
    return not _may_be_words(*unmatched) and not _may_be_words(*_unmatched(*map(_split, unmatched)))


def _chinese_numbers(text: str) -> list[Number]:
    """Returns the numbers in Chinese numerals of two characters or more; the other side may lack them."""
    values = map(_chinese_digits, _CHINESE_NUMERAL.findall(text))
    return [Number(digits.lstrip("0") or "0", small=True, optional=True) for digits in values]


def _roman_numbers(text: str) -> list[Number]:
    """Returns the Roman numerals from 2 to 399; the other side may lack them."""
    return [
        Number(str(_roman_value(numeral)), small=True, optional=True)
        for numeral, ordinal in _ROMAN.findall(text)
        if numeral not in ("", "I", "C") and (len(numeral) > 1 or not ordinal)
    ]


def _roman_value(numeral: str) -> int:
    values = [_ROMAN_VALUES[letter] for letter in numeral]
    return sum(-one if one < after else one for one, after in zip(values, [*values[1:], 0], strict=True))


def _without_times(
    source: Sequence[Number], target: Sequence[Number], *texts: str
) -> tuple[list[Number], list[Number]]:
    """Removes hours that are equal if one side counts those of half a day, such as `3 p.m.`."""
    counts = [Counter(map(_digits, numbers)) for numbers in (source, target)]
    gone: list[Counter[str]] = [Counter(), Counter()]
    for side, text in enumerate(texts):
        for match in _HALF_DAY.finditer(text):
            hour = int(match[1])
            pair = [str(hour), str(hour % 12 + (12 if match[2] in "pP" else 0))]
            equal = pair if side == 0 else pair[::-1]
            if all(counts[number][digits] > gone[number][digits] for number, digits in enumerate(equal)):
                for number, digits in enumerate(equal):
                    gone[number][digits] += 1
    return _without(source, gone[0], _digits), _without(target, gone[1], _digits)


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


def _mixed_digits(text: str) -> tuple[str, list[Number]]:
    """Returns the digits of a number with units, such as `3万5千`, and its parts: 30000 and 5000."""
    total = below = 0  # `below` is the number below 10,000 before 万, 亿 or 兆
    parts = []
    for match in _MIXED_PART.finditer(text):
        value = int(match[1].replace(",", ""))
        factors = [_VALUES[unit] for unit in match[2] or ""]
        parts.append(Number(str(value * math.prod(factors)), text=match[0]))
        below += value * math.prod(factor for factor in factors if factor < 10_000)
        for factor in factors:
            if factor >= 10_000:
                total, below = total + below * factor, 0
    return str(total + below), parts


def _number(match: re.Match[str], before_scale: bool) -> Number:
    # Digits of other scripts become 0 to 9. Numbers remain strings because their length is unlimited.
    text = match[0] if match[0].isascii() else _DIGIT.sub(lambda digit: str(int(digit[0])), match[0])
    runs = _DIGITS.findall(text)
    digits = "".join(runs).lstrip("0") or "0"
    parts: list[Number] = []
    if match["mixed"]:
        digits, parts = _mixed_digits(text)
    elif len(runs) > 1 and all(run.strip("0") for run in runs[1:]):  # `1,000` has no other reading
        parts = [Number(run.lstrip("0") or "0", text=run) for run in runs]
        fraction = len(runs) == 2 and (match["decimal"] or match["mark"] and match["mark"] in ".,٬")
        parts[-1] = parts[-1]._replace(scaled=bool(fraction) or before_scale)
    if match["decimal"]:
        is_round = all(map(_is_small, runs))
    else:
        is_round = _is_small(digits.rstrip("0") or "0")
    return Number(
        digits,
        tuple(parts),
        scaled=before_scale or match["fraction"] is not None,
        small=_is_small(digits) and not before_scale,
        round=is_round,
        text=match[0],
    )


def _is_small(digits: str) -> bool:
    return len(digits) <= 2 and int(digits) <= _LARGEST_WORD


def _split(numbers: Sequence[Number]) -> list[Number]:
    """Replaces each number that has parts by its parts."""
    return [part for number in numbers for part in number.parts or (number,)]


def _unmatched(source: Sequence[Number], target: Sequence[Number]) -> tuple[list[Number], list[Number]]:
    """Returns the numbers of each side without a counterpart.

    Equal numbers are removed first, then numbers that are equal without trailing zeros, if one is `scaled`.
    """
    sources, targets = _cancelled(source, target, _digits)
    scaled, targets = _cancelled([n for n in sources if n.scaled], targets, _significant)
    sources = scaled + [n for n in sources if not n.scaled]
    sources, scaled = _cancelled(sources, [n for n in targets if n.scaled], _significant)
    return sources, scaled + [n for n in targets if not n.scaled]


def _cancelled(
    source: Sequence[Number], target: Sequence[Number], key: Callable[[Number], str]
) -> tuple[list[Number], list[Number]]:
    """Removes numbers with equal keys from both sides, the same count from each."""
    shared = Counter(map(key, source)) & Counter(map(key, target))
    return _without(source, shared.copy(), key), _without(target, shared.copy(), key)


def _without(numbers: Sequence[Number], gone: Counter[str], key: Callable[[Number], str]) -> list[Number]:
    retained = []
    for number in numbers:
        if gone[key(number)]:
            gone[key(number)] -= 1
        else:
            retained.append(number)
    return retained


def _significant(number: Number) -> str:
    return number.digits.rstrip("0") or "0"


def _may_be_words(source: Sequence[Number], target: Sequence[Number]) -> bool:
    """Whether all numbers without a counterpart may be words on the other side."""
    sides = [[number for number in side if not number.small] for side in (source, target)]
    return not all(sides) and all(number.round for side in sides for number in side)
