"""Letter case: which lines are in capitals or title case, and text in lower case, capitals or title case.

Only scripts with two cases are concerned, such as Latin, Greek, Cyrillic and Armenian. Georgian text is not
changed to capitals: those of its script (Mtavruli) are too rare to be written.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from enum import Enum

from nmt.languages import language_of

VERSION = 2
"""Part of the fingerprint of `CaseFacts`. Increase it if the same text gives others."""
WORD = re.compile(r"(?:[^\W_]|[\u0300-\u036f])+(?:['’ʼ](?:[^\W_]|[\u0300-\u036f])+)*")
"""Matches words, with their apostrophes."""
_SENTENCE_END = re.compile("[.!?:…]")
_SHORT = 3  # letters of a word that may be in lower case in a title, if its language has no list of them
_TITLE_WORDS = 3  # with a capital, at least, besides the first of a sentence; 2 where punctuation ends it
_CAPITALS = 4  # capitals for each small letter in a word of capitals, such as `McDONALD'S`
_CAPITAL_NOUNS = frozenset(("de", "gsw", "lb", "nds"))
_SMALL_WORDS: dict[str, frozenset[str]] = {
    "en": frozenset(
        "a an the and but or nor for of on in at to by as from with into onto over per than via vs".split()
    ),
    "fil": frozenset("ang ng mga sa at o ni kay na para".split()),
    "id": frozenset("dan atau yang di ke dari untuk pada dengan dalam oleh".split()),
    "ms": frozenset("dan atau yang di ke dari untuk pada dengan dalam oleh".split()),
}
"""Languages whose titles have capitals, with the words that have none there."""


class Case(Enum):
    """The case of a line that differs from that of ordinary text."""

    capitals = "capitals"
    """All letters are capitals: `A DOG RUNS`, `NATO`. A single letter such as `I` is ordinary text."""
    title = "title"
    """All words begin with a capital, except for short ones: `The Man in the Moon Is Tired`."""


def case_of(text: str, lang: str = "") -> Case | None:
    """Returns the case of a line in a language; None for ordinary text. Words with digits do not count."""
    capitals = small = large = titled = first = others = 0  # numbers of words
    language, end = language_of(lang).language, 0
    small_words, has_nouns = _SMALL_WORDS.get(language), language in _CAPITAL_NOUNS
    for match in WORD.finditer(text):
        word, begins = match[0], not end or _SENTENCE_END.search(text, end, match.start()) is not None
        end = match.end()
        kind = _kind(word)
        if kind is _Kind.small:
            small += 1
            if has_nouns or (len(word) > _SHORT if small_words is None else word not in small_words):
                return None
        elif kind is _Kind.capitals:
            large += 1
            capitals += len(word) > 1
        elif kind is _Kind.initial:
            titled += 1
        elif kind is _Kind.other:
            others += 1
        first += begins and kind in (_Kind.capitals, _Kind.initial)
    if others:  # Latin names in Chinese or Korean text
        return None
    if titled == small == 0:
        return Case.capitals if capitals else None
    inside = titled + large - first
    # Names are lines of three words too, but have no full stop; German sentences have as many nouns.
    is_sentence = not has_nouns and _SENTENCE_END.search(text, end) is not None
    is_title = inside >= max(_TITLE_WORDS + has_nouns - is_sentence, small) and titled >= capitals
    return Case.title if is_title else None


class _Kind(Enum):
    """The case of a word without digits. A word with other capitals, such as `iPhone`, is `initial`.

    A word with letters that have no case is `other`.
    """

    capitals = 0
    initial = 1
    small = 2
    other = 3


def _kind(word: str) -> _Kind | None:
    if word.islower():
        return None if has_digits(word) else _Kind.small
    if has_digits(word):
        return None
    large = little = 0
    for letter in word:
        if letter.isupper():
            large += 1
        elif letter.islower():
            little += len(letter.upper()) == 1
        elif letter.isalpha() and not letter.istitle():
            return _Kind.other
    return _Kind.capitals if large >= _CAPITALS * little else _Kind.initial


def has_digits(word: str) -> bool:
    """Returns whether a word has a digit, such as `B2B`."""
    return any(map(str.isdigit, word))


def begins_with_capital(text: str) -> bool | None:
    """Returns whether the first letter with a case is a capital; None if there is no such letter."""
    for letter in text:
        if letter.isupper() or letter.istitle():
            return True
        if letter.islower():
            return False
    return None


@dataclass(frozen=True)
class CaseFacts:
    """Shares of lines in a text, among those with letters that have a case.

    Attributes:
        capitals: lines in capitals.
        title: lines in title case.
        initial: lines whose first letter is a capital.
        mixed: lines with a capital anywhere.
    """

    capitals: float
    title: float
    initial: float
    mixed: float

    @classmethod
    def of(cls, lines: Iterable[tuple[str, str]]) -> CaseFacts | None:
        """Counts lines, each given with its language; None if no line has a letter with a case."""
        total = capitals = title = initial = mixed = 0
        for line, lang in lines:
            begins = begins_with_capital(line)
            if begins is None:
                continue
            case = case_of(line, lang)
            total += 1
            capitals += case is Case.capitals
            title += case is Case.title
            initial += begins
            mixed += begins or line != line.lower()
        counts = (capitals, title, initial, mixed)
        return cls(*(round(count / total, 6) for count in counts)) if total else None


# Text in another case


_DOTTED_I = frozenset(("az", "crh", "gag", "kaa", "tr", "tt"))
_MTAVRULI = {code: code - 0x1C90 + 0x10D0 for code in range(0x1C90, 0x1CC0)}  # to letters without case
_GREEK = re.compile(r"[\u0370-\u03ff\u1f00-\u1fff][\u0300-\u0345\u0370-\u03ff\u1f00-\u1fff]*")
_HIATUS = re.compile("([αεηιουω])[\u0300\u0301\u0342]([ιυ])(?![\u0300-\u0345])")
_ACCENTS = re.compile("[\u0300\u0301\u0313\u0314\u0342]")


def lowered(text: str, lang: str) -> str:
    """Returns a text in lower case, as its language writes it: Turkish `I` is `ı`."""
    if language_of(lang).language in _DOTTED_I:
        text = text.replace("I", "ı")
    return text.replace("İ", "i").lower()


def in_capitals(text: str, lang: str) -> str:
    """Returns a text in capitals, as its language writes them.

    The capital of Turkish `i` is `İ`. That of German `ß` is `ẞ`, the first form in the official rules of 2024
    (§ 25 E3). Greek has no accents in capitals, except in the word `Ή`. Eastern Armenian `և` becomes `ԵՎ`.
    """
    language = language_of(lang).language
    if language in _DOTTED_I:
        text = text.replace("i", "İ")
    elif language == "de":
        text = text.replace("ß", "ẞ")
    elif language == "el":
        text = _GREEK.sub(_greek_capitals, text)
    elif language == "hy":
        text = text.replace("և", "ԵՎ")
    elif language == "lt":
        text = re.sub("([ijį])\u0307", r"\1", text)
    return text.upper().translate(_MTAVRULI)


def _greek_capitals(match: re.Match[str]) -> str:
    if match[0] == "ή":
        return "Ή"
    # An accent separates a vowel from the next one: without it, a diaeresis does.
    text = _HIATUS.sub("\\1\\2\u0308", unicodedata.normalize("NFD", match[0].lower()))
    return unicodedata.normalize("NFC", _ACCENTS.sub("", text)).upper()


def with_capital(word: str, lang: str) -> str:
    """Returns a word with a capital at its beginning: Turkish `istanbul` is `İstanbul`, Dutch `ijs` `IJs`."""
    language = language_of(lang).language
    if language in _DOTTED_I and word[:1] == "i":
        return f"İ{word[1:]}"
    if language == "nl" and word[:2] in ("ij", "Ij"):
        return f"IJ{word[2:]}"
    return word[:1].title() + word[1:]


def in_title_case(text: str, lang: str, fixed: Sequence[tuple[int, int]] = ()) -> str:
    """Returns a text as a title of its language.

    In English and a few others all words but the small ones have a capital. In other languages a title is
    written like a sentence: only the first word gets one. Words with a capital or a digit, and those that
    touch the spans `fixed`, which are in order, remain.
    """
    small = _SMALL_WORDS.get(language_of(lang).language)
    matches = [*WORD.finditer(text)]
    chosen = matches[:1] if small is None else matches
    parts, place, before = [], 0, 0
    begins = [begin for begin, _ in fixed]
    for match in chosen:
        word, (start, end) = match[0], match.span()
        is_outer = match in (matches[0], matches[-1]) or text[before:start].rstrip().endswith(":")
        before = end
        stays = has_digits(word) or not word.islower() or (not is_outer and word in (small or ()))
        span = bisect_left(begins, end) - 1  # the last one that begins before the end of the word
        if stays or span >= 0 and fixed[span][1] > start:
            continue
        parts += [text[place:start], with_capital(word, lang)]
        place = end
    return "".join([*parts, text[place:]])


def outside(text: str, fixed: Sequence[tuple[int, int]], change: Callable[[str], str]) -> str:
    """Returns a text that is changed outside the spans `fixed`, which are in order."""
    parts, place = [], 0
    for start, end in fixed:
        parts += [change(text[place:start]), text[start:end]]
        place = end
    return "".join([*parts, change(text[place:])])
