"""Text as people type it: in capitals, as a title, without its final punctuation, or with typos.

URLs, e-mail addresses, tags, variables and placeholders never change: those that `nmt.copying.strings` finds.
Marks after a letter, such as the vowel signs of Hindi, belong to the letter.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Callable, Iterator, Sequence
from itertools import count, groupby
from typing import NamedTuple

from nmt.copying.strings import find, has_words, is_letter
from nmt.data.letter_case import (
    WORD,
    Case,
    case_of,
    has_digits,
    in_capitals,
    in_title_case,
    outside,
    with_capital,
)
from nmt.runtime.seeds import mix

_FINAL = ".!?…。！？｡।؟۔"
_CODE = frozenset("_/\\@#$%&*+=<>[]{}|^~`")
_SHORTEST = 4  # letters of a word with a typo; fewer are often another word: `in` and `on`
_ACCENTS = range(202, 241)  # combining classes of accents, not of vowel signs, tones and kana's marks
_SPELLED = str.maketrans({"ä": "ae", "ö": "oe", "ü": "ue", "ß": "ss", "Ä": "Ae", "Ö": "Oe", "Ü": "Ue"})
_KEYBOARDS = (
    ("qwertyuiop", "asdfghjkl", "zxcvbnm"),
    ("йцукенгшщзхъ", "фывапролджэ", "ячсмитьбю"),
    (";ςερτυθιοπ", "ασδφγηξκλ", "ζχψωβνμ"),
    ("ㅂㅈㄷㄱㅅㅛㅕㅑㅐㅔ", "ㅁㄴㅇㄹㅎㅗㅓㅏㅣ", "ㅋㅌㅊㅍㅠㅜㅡ"),
)
"""Rows of keys: Latin, Cyrillic, Greek, and the parts of Korean syllables."""


def capitals(pair: tuple[str, str], langs: tuple[str, str]) -> tuple[str, str]:
    """Returns a pair in capitals, as its languages write them; unchanged if its source is without case.

    The source has SS in place of ẞ, which few people type.
    """
    if not _has_case(pair[0], langs[0]):
        return pair
    source, target = (_in_capitals(*side) for side in zip(pair, langs, strict=True))
    return source.replace("ẞ", "SS"), target


def titled(pair: tuple[str, str], langs: tuple[str, str]) -> tuple[str, str]:
    """Returns a source with a capital at each word, and its target as a title of its language.

    The pair is unchanged if its source is without case.
    """
    source, target = pair
    if not _has_case(source, langs[0]):
        return pair

    def change(part: str) -> str:
        return WORD.sub(lambda m: with_capital(m[0], langs[0]) if m[0].islower() else m[0], part)

    return outside(source, find(source), change), in_title_case(target, langs[1], find(target))


def _in_capitals(text: str, lang: str) -> str:
    return outside(text, find(text), lambda part: in_capitals(part, lang))


def _has_case(text: str, lang: str) -> bool:
    """Returns whether all words of a text can be in capitals; those of Latin names in Korean text can't."""
    for start, end in reversed(find(text)):
        text = f"{text[:start]} {text[end:]}"
    return case_of(in_capitals(text, lang), lang) is Case.capitals


def unpunctuated(text: str) -> str:
    """Returns a text without the punctuation that ends it: `.`, `!`, `?` and those of other scripts."""
    shorter = text.rstrip().rstrip(_FINAL).rstrip()
    return shorter if has_words(shorter) and shorter != text.rstrip() else text


def with_typos(text: str, most: int, seed: int) -> str:
    """Returns a text with a typo in each of up to `most` words: a pure function of the arguments.

    A typo of one of the kinds `TYPOS` is in a word of at least four letters; those of a Korean syllable are
    its parts. A word with a digit, or next to a character of code such as `_`, has none. At most every second
    of these words has one, but always at least one of them.
    """
    numbers = (mix(seed, step) for step in count())
    words = _words(text)
    chosen = [
        words.pop(next(numbers) % len(words)) for _ in range(min(most, -(-len(words) // 2)))
    ]  # each from those that are left
    for word in sorted(chosen, reverse=True):
        text = _with_typo(text, word, numbers)
    return text


class _Word(NamedTuple):
    """The place of a word in its text, and whether a space and another word follow it."""

    start: int
    end: int
    is_followed: bool


def _words(text: str) -> list[_Word]:
    """Returns the words that may have a typo."""
    fixed, words, place = find(text), [], 0
    for is_word, group in groupby(text, is_letter):
        word = "".join(group)
        start, end = place, place + len(word)
        place = end
        if not is_word or has_digits(word) or len(unicodedata.normalize("NFD", word)) < _SHORTEST:
            continue
        before, after = text[:start][-1:], text[end : end + 2]
        is_code = before in _CODE or before in (".", ":") or after[:1] in _CODE
        is_code |= after[:1] in (".", ":", "(") and is_letter(after[1:] or " ")
        if is_code or any(start < stop and end > begin for begin, stop in fixed):
            continue
        is_followed = after[:1] == " " and is_letter(after[1:] or " ")
        words.append(_Word(start, end, is_followed))
    return words


def _with_typo(text: str, word: _Word, numbers: Iterator[int]) -> str:
    """Returns the text with a typo of a random kind in a word, among the kinds that apply to it."""
    letters, kinds = _letters(text[word.start : word.end]), list(TYPOS.values())
    while kinds:
        kind = kinds.pop(next(numbers) % len(kinds))
        variants = kind(letters) if kind is not joined or word.is_followed else []
        if variants:
            end = word.end + (kind is joined)
            return text[: word.start] + variants[next(numbers) % len(variants)] + text[end:]
    return text


def _letters(word: str) -> list[str]:
    """Returns the letters of a word, each with its marks."""
    letters: list[str] = []
    for character in word:
        if letters and unicodedata.category(character)[0] == "M":
            letters[-1] += character
        else:
            letters.append(character)
    return letters


# The kinds of typos: each function returns every form of a word with one typo, given its letters.


def swapped(letters: Sequence[str]) -> list[str]:
    """Two neighbours are exchanged."""
    pairs = enumerate(zip(letters, letters[1:], strict=False))
    return [_edited(letters, i, second + first, 2) for i, (first, second) in pairs if first != second]


def deleted(letters: Sequence[str]) -> list[str]:
    """A letter is missing."""
    return [_edited(letters, i, "") for i in range(len(letters))] if len(letters) > 1 else []


def inserted(letters: Sequence[str]) -> list[str]:
    """A letter is added: from a neighbouring key if that is known, else another one of the word."""
    return [
        _edited(letters, i, letter + more)
        for i, letter in enumerate(letters)
        for more in _beside(letter) or dict.fromkeys(other for other in letters if other != letter)
    ]


def doubled(letters: Sequence[str]) -> list[str]:
    """A letter is typed twice."""
    return [_edited(letters, i, letter * 2) for i, letter in enumerate(letters)]


def mistyped(letters: Sequence[str]) -> list[str]:
    """A neighbouring key is typed. The scripts are those of `_KEYBOARDS`."""
    return [_edited(letters, i, key) for i, letter in enumerate(letters) for key in _beside(letter)]


def joined(letters: Sequence[str]) -> list[str]:
    """The space after the word is missing. It does not apply to scripts without spaces."""
    return ["".join(letters)]


def split(letters: Sequence[str]) -> list[str]:
    """A space is added within the word."""
    return [_edited(letters, i, " ", 0) for i in range(1, len(letters))]


def unaccented(letters: Sequence[str]) -> list[str]:
    """Accents are missing, or umlauts are spelled out. It applies to Latin, Greek and Cyrillic letters."""
    word = "".join(letters)
    parts = unicodedata.normalize("NFD", word)
    plain = "".join(part for part in parts if unicodedata.combining(part) not in _ACCENTS)
    forms = unicodedata.normalize("NFC", plain), word.translate(_SPELLED)
    return [form for form in dict.fromkeys(forms) if form != unicodedata.normalize("NFC", word)]


def recased(letters: Sequence[str]) -> list[str]:
    """A letter is a capital in place of a small letter, or the reverse. Not for scripts without case."""
    return [
        _edited(letters, i, other)
        for i, letter in enumerate(letters)
        if (other := letter.swapcase()) != letter and len(other) == len(letter)
    ]


TYPOS: dict[str, Callable[[Sequence[str]], list[str]]] = {
    "swap": swapped,
    "deletion": deleted,
    "insertion": inserted,
    "double": doubled,
    "key": mistyped,
    "joined": joined,
    "split": split,
    "accent": unaccented,
    "case": recased,
}
"""The kinds of typos by name. All of them are equally frequent in the words that they apply to."""


def _edited(letters: Sequence[str], place: int, new: str, size: int = 1) -> str:
    """Returns the word with `new` in place of `size` letters."""
    return "".join([*letters[:place], new, *letters[place + size :]])


def _beside(letter: str) -> list[str]:
    """Returns the letters of the neighbouring keys; of a Korean syllable, those with one part replaced."""
    parts = letter.lower()
    if parts not in _NEIGHBOURS:
        parts = unicodedata.normalize("NFD", parts)
    if any(map(unicodedata.combining, parts)):
        return []
    forms = [
        unicodedata.normalize("NFC", parts[:i] + key + parts[i + 1 :])
        for i, part in enumerate(parts)
        for key in _NEIGHBOURS.get(part, "")
    ]
    # A consonant in place of a Korean vowel does not make a syllable.
    return [form.upper() if letter.isupper() else form for form in forms if len(form) == 1]


def _neighbours() -> dict[str, str]:
    """Returns the neighbours of each key: left and right of it, and two in the rows above and below it."""
    near = ((0, -1), (0, 1), (-1, 0), (-1, 1), (1, -1), (1, 0))
    found = {}
    for rows in _KEYBOARDS:
        # NFKD turns the keys of Korean into the parts of syllables.
        keys = {
            (y, x): part if len(part := unicodedata.normalize("NFKD", key)) == 1 else key
            for y, row in enumerate(rows)
            for x, key in enumerate(row)
        }
        for (y, x), key in keys.items():
            others = (keys.get((y + down, x + right), "") for down, right in near)
            found[key] = "".join(other for other in others if other.isalpha())
    return found


_NEIGHBOURS = _neighbours()
