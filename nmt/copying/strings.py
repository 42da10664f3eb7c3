"""Placeholders: characters that replace strings which a translation leaves unchanged, such as URLs and tags.

A placeholder is one character of a private-use area of Unicode, and one piece of the vocabulary. Text that
has such a character itself is not a special case: the character is one of the strings that are replaced.

The patterns take linear time for every text. An unlimited repetition is possessive, so that it never gives
back a character that it has matched. A repetition ends at a character with which the next match may begin.
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect
from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import pairwise
from typing import NamedTuple

VERSION = 1
"""Part of the fingerprint of prepared data. Increase it if the same text gives other placeholders."""
NUM_PLACEHOLDERS = 64
PLACEHOLDERS = tuple(chr(0xF0000 + number) for number in range(NUM_PLACEHOLDERS))
"""The characters by number."""
WORD_START = "\u2581"
"""SentencePiece's replacement for a space, with which a piece begins that begins a word."""

_OWN = f"[{PLACEHOLDERS[0]}-{PLACEHOLDERS[-1]}]"
# RFC 3986 allows only ASCII, but hosts and paths are often displayed with these letters too. Letters of other
# scripts may follow an address without a space: Chinese, Japanese, Thai, or a Korean particle.
ADDRESS_LETTERS = "A-Za-z0-9À-ÖØ-öø-\u037d\u037f-\u0386\u0388-\u052f"
_PATH = rf"{ADDRESS_LETTERS}._~:/?#@!$&'*+,;=%|-"
_URL = (
    rf"(?:(?<![A-Za-z0-9+.-])[A-Za-z][A-Za-z0-9+.-]{{1,15}}://|(?<![{ADDRESS_LETTERS}])www\.)"
    rf"(?=[/{ADDRESS_LETTERS}{{%\[])"
    rf"(?:[{_PATH}]++|\([{_PATH}]*+\)|\[[{_PATH}]*+\]|\{{[{_PATH}]*+\}})++"
)
# The part before an @ is matched only from its first letter: matching from every letter takes quadratic time.
_EMAIL = (
    rf"(?<![{ADDRESS_LETTERS}_.+-])[{ADDRESS_LETTERS}_.+-]++@"
    rf"[{ADDRESS_LETTERS}_-]++(?:\.[{ADDRESS_LETTERS}_-]++)++"
)
_CONTROL = r"\x00-\x08\x0a-\x1f\x7f-\x9f\u2028\u2029"  # without the tab
_TAG = (
    r"<(?:[/?!]?[A-Za-z0-9][\w:.-]*+"
    r"(?:[ \t]++[\w:@][\w:.@-]*+[ \t]*+=[ \t]*+"
    rf"(?:\"[^\"<>{_CONTROL}]*+\"|'[^'<>{_CONTROL}]*+'|[^\s\"'<>=`{_CONTROL}]++))*+[ \t]*+[/?]?"
    rf"|!--(?:[^<>{_CONTROL}-]++|-(?!->))*+--)>"
)
_VARIABLE = rf"[$%#]?\{{(?:\{{[^{{}}{_CONTROL}]*+\}}\}}|[^{{}}\s{_CONTROL}]*+\}})"
_FORMAT = (
    r"%(?:\([^()%\s]++\)|\d{1,3}\$)?[-+#0]{0,4}(?:\d{1,9}|\*)?(?:\.\d{0,9})?(?:hh|h|ll|l|L|q|j|z|t)?"
    r"[sdifuxXoeEgGcprR@](?![A-Za-z0-9])"
)
TAG = re.compile(_TAG)
"""XML and HTML tags, and comments."""
VARIABLE = re.compile(f"{_VARIABLE}|{_FORMAT}")
"""Variables such as `{name}` and `%d`."""
ADDRESS = re.compile(f"{_URL}|{_EMAIL}")
"""URLs and e-mail addresses. A URL may have punctuation at its end that `spans_of` does not include."""
STRING = re.compile("|".join((_URL, _EMAIL, _TAG, _VARIABLE, _FORMAT, _OWN)))
"""The strings that are replaced. A URL is as in `ADDRESS`."""
_NUMBER = re.compile(r"(?<!\d)\d++(?:[.,:/'’٫٬\u00a0\u202f\u2013-]\d++)*+")
UNITS = "[百백千천万萬만亿億억兆조]{1,2}"
"""Matches the units of East Asia after digits, such as `万` of `3万` and `千万` of `2千万`."""
_COPIED = re.compile(rf"(?<!\d)\d[\d.,]*+{UNITS}(?: ?\d[\d,]*+(?:{UNITS})?){{0,4}}|({_NUMBER.pattern})")
"""Matches numbers; the group is empty for one with units, which other languages count otherwise."""
_HINT = re.compile(rf"[<{{%@]|://|www\.|{_OWN}")
_ONE = re.compile(f"({_OWN})")
_CONTROLS = frozenset(map(chr, (*range(9), *range(10, 32), *range(127, 160), 0x2028, 0x2029)))
_AFTER_URL = ".,;:!?'*|"


class Next(Enum):
    """What is next to a string in its line."""

    letter = "letter"
    """A letter or a digit. `mask` inserts a space between it and the placeholder."""
    string = "string"
    """Another string. `mask` inserts a space between the two placeholders."""
    space = "space"
    """White space, or the beginning or the end of the line."""
    other = "other"
    """Punctuation or another character, which stays next to the placeholder."""


@dataclass(frozen=True)
class Original:
    """A string that a placeholder stands for, and what is before and after it."""

    text: str
    before: Next
    after: Next


@dataclass(frozen=True)
class Masked:
    """A line with placeholders in place of its strings.

    Attributes:
        text: the line with placeholders.
        strings: the string of each placeholder, by number.
        skipped: number of characters that the last placeholder hides although they should be translated,
            because the line has more strings than there are placeholders.
    """

    text: str
    strings: tuple[Original, ...] = ()
    skipped: int = 0


def find(text: str, tags: Collection[str] = (), *, numbers: bool = False) -> list[tuple[int, int]]:
    """Returns the beginning and the end of each string to replace, in order.

    The first word is not replaced if it is one of `tags`. With `numbers`, numbers in digits are strings too,
    as long as there are placeholders: dates, times and ranges as a whole, but no part of a word (`B2B`,
    `1st`), and none with a unit that other languages count otherwise (`3万5千`). A number may touch a letter
    without case, such as in `1985年`.
    """
    first = text.split(None, 1)[:1] if tags else []
    begin = text.index(first[0]) + len(first[0]) if first and first[0] in tags else 0
    spans = spans_of(STRING, text, begin) if _HINT.search(text) else []
    if not numbers:
        return spans
    starts = [start for start, _ in spans]
    for match in _COPIED.finditer(text, begin):
        start, end = match.span(1)
        if start < 0:
            continue
        place = bisect(starts, start)
        is_inside = place > 0 and start < spans[place - 1][1]
        if len(spans) >= NUM_PLACEHOLDERS:
            break
        if is_inside or _has_case(text[start - 1 : start]) or _has_case(text[end : end + 1]):
            continue
        starts.insert(place, start)
        spans.insert(place, (start, end))
    return spans


def _has_case(character: str) -> bool:
    return character == "_" or character.lower() != character.upper()


def spans_of(pattern: re.Pattern[str], text: str, begin: int = 0) -> list[tuple[int, int]]:
    """Returns the beginning and the end of each string that matches a pattern of this module, in order."""
    spans = []
    for match in pattern.finditer(text, begin):
        start, end = match.span()
        if match[0][0] in _STARTS_URL:
            end = start + len(match[0].rstrip(_AFTER_URL))
        spans.append((start, end))
    return spans


_STARTS_URL = frozenset("ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz")


def mask(text: str, tags: Collection[str] = (), *, numbers: bool = False) -> Masked:
    """Replaces the strings of a line by placeholders 0, 1 and so on.

    A space is inserted between a placeholder and a letter, so that the words next to it have their usual
    pieces. `restore` removes it. If a line has too many strings, the last placeholder stands for all text
    from its string to the last string. The first word is not replaced if it is one of `tags`. With
    `numbers`, numbers are replaced too, as in `find`.
    """
    spans = find(text, tags, numbers=numbers)
    if not spans:
        return Masked(text)
    skipped = 0
    if len(spans) > NUM_PLACEHOLDERS:
        rest = spans[NUM_PLACEHOLDERS - 1 :]
        gaps = [text[end:start] for (_, end), (start, _) in pairwise(rest)]
        skipped = sum(len(gap) for gap in gaps if has_words(gap))
        spans = [*spans[: NUM_PLACEHOLDERS - 1], (rest[0][0], rest[-1][1])]
    masked, strings = _replaced(text, spans, range(len(spans)))
    return Masked(masked, tuple(strings), skipped)


class Bare(NamedTuple):
    """A masked line without its XML and HTML tags.

    Its placeholders are numbered as if the line had never had tags; `numbers` has the number in the line of
    each.
    """

    text: str
    numbers: tuple[int, ...]


def without_tags(line: Masked) -> Bare | None:
    """Returns a masked line without its XML and HTML tags; None if it has none.

    The parts of a word that only a tag separates are joined: `<b>un</b>able` is `unable`. A space remains in
    the place of a tag that separates words, such as `<br>`.
    """
    text, numbers = line.text, []
    for number, original in enumerate(line.strings):
        if _TAG_NAME.match(original.text) is None or line.skipped and number == len(line.strings) - 1:
            numbers.append(number)
            continue
        before = " " * (original.before in _APART)
        after = " " * (original.after is Next.letter)
        inserted = f"{before}{PLACEHOLDERS[number]}{after}"
        separates = before and after and separates_words(original.text)
        text = text.replace(inserted, " " if separates else "", 1)
    if text == line.text:
        return None
    new = {ord(PLACEHOLDERS[number]): PLACEHOLDERS[place] for place, number in enumerate(numbers)}
    return Bare(text.translate(new), tuple(numbers))


class TagPair(NamedTuple):
    """The numbers of the placeholders of an opening and a closing tag, and whether they enclose words."""

    opening: int
    closing: int
    has_words: bool


def tag_pairs(line: Masked) -> list[TagPair]:
    """Returns the pairs of tags of a masked line, by their closing tags. Unclosed tags are left out."""
    pairs: list[TagPair] = []
    opened: list[tuple[str, int]] = []
    for number, original in enumerate(line.strings):
        if (tag := _TAG_NAME.match(original.text)) is None or original.text.endswith("/>"):
            continue
        name = tag[1].casefold()
        if not original.text.startswith("</"):
            opened.append((name, number))
            continue
        place = next((i for i in reversed(range(len(opened))) if opened[i][0] == name), None)
        if place is not None:
            begin, end = (line.text.index(PLACEHOLDERS[i]) for i in (opened[place][1], number))
            pairs.append(TagPair(opened[place][1], number, has_words(_ONE.sub("", line.text[begin:end]))))
            del opened[place:]
    return pairs


_TAG_NAME = re.compile(r"<[/?!]?([\w:.-]*)")
_SEPARATORS = frozenset("br hr p div li ul ol dl dt dd tr td th table h1 h2 h3 h4 h5 h6 img".split())


def separates_words(string: str) -> bool:
    """Returns whether a string is a tag such as `<br>`, which stands between words even without spaces."""
    tag = _TAG_NAME.match(string)
    return tag is not None and tag[1].casefold() in _SEPARATORS


class MaskedPair(NamedTuple):
    """A pair with placeholders in place of the strings that both sides have in common.

    `strings` has the string of each placeholder, by number, as it is in the source.
    """

    source: str
    target: str
    strings: tuple[Original, ...] = ()


def mask_pair(source: str, target: str, tags: Collection[str] = ()) -> MaskedPair:
    """Replaces the strings that both sides have equally often, by the same placeholders on both sides.

    The numbers are in the order of the source. At most `NUM_PLACEHOLDERS` strings are replaced. Afterwards
    the text has no other placeholder characters: those that it had become U+FFFD. The first word of the
    source is not replaced if it is one of `tags`.
    """
    if not (_HINT.search(source) or _HINT.search(target)):
        return MaskedPair(source, target)
    sides = (source, target)
    spans = (find(source, tags), find(target))
    places: list[dict[str, list[int]]] = []  # of each side: string → its places in the list of spans
    for text, side_spans in zip(sides, spans, strict=True):
        by_string = defaultdict(list)
        for place, (start, end) in enumerate(side_spans):
            by_string[text[start:end]].append(place)
        places.append(by_string)
    partners = {
        place: partner
        for string, source_places in places[0].items()
        if len(source_places) == len(target_places := places[1].get(string, []))
        for place, partner in zip(source_places, target_places, strict=True)
    }
    chosen = sorted(partners)[:NUM_PLACEHOLDERS]
    numbers = {partners[place]: number for number, place in enumerate(chosen)}
    ordered = sorted(numbers)
    masked, strings = _replaced(source, [spans[0][place] for place in chosen], range(len(chosen)))
    masked_target, _ = _replaced(
        target, [spans[1][place] for place in ordered], [numbers[place] for place in ordered]
    )
    return MaskedPair(masked, masked_target, tuple(strings))


def restore(text: str, strings: Sequence[Original]) -> tuple[str, int]:
    """Puts the strings, as `mask` returns them, back in place of the placeholders of a translation.

    Each is in the result exactly once. A placeholder that is unknown or repeated is removed. Strings without
    a placeholder are appended, and their number is returned with the text.
    """
    if not strings and not _ONE.search(text):
        return text, 0
    parts = _ONE.split(text)  # text and placeholders in turn
    numbers = [ord(part) - ord(PLACEHOLDERS[0]) for part in parts[1::2]]
    missing = dict(enumerate(strings))
    for place, number in enumerate(numbers):
        at = 2 * place + 1
        original = missing.pop(number, None)
        if original is None:
            parts[at - 1], parts[at] = parts[at - 1].removesuffix(" "), ""
            continue
        parts[at] = original.text
        follows = place > 0 and numbers[place - 1] == number - 1
        is_followed = place + 1 < len(numbers) and numbers[place + 1] == number + 1
        if _joined(original.before, parts[at - 1].strip(" "), follows):
            parts[at - 1] = parts[at - 1].removesuffix(" ")
        elif original.before is Next.space and _touches(parts[at - 1][-1:], place > 0):
            parts[at - 1] += " "
        if _joined(original.after, parts[at + 1].strip(" "), is_followed):
            parts[at + 1] = parts[at + 1].removeprefix(" ")
        elif original.after is Next.space and _touches(parts[at + 1][:1], place + 1 < len(numbers)):
            parts[at + 1] = f" {parts[at + 1]}"
    whole = "".join(parts)
    for original in missing.values():
        whole += original.text if not whole or whole[-1].isspace() else f" {original.text}"
    return whole, len(missing)


def _joined(neighbour: Next, text: str, is_same_string: bool) -> bool:
    """Returns whether a string joins its neighbour in the translation, as it does in the source."""
    return neighbour is Next.letter and bool(text) or neighbour is Next.string and not text and is_same_string


def _touches(character: str, is_string: bool) -> bool:
    """Returns whether a string would join a letter or another string, unlike in the source."""
    return is_letter(character) if character else is_string


def has_words(text: str) -> bool:
    """Returns whether a masked line has something to translate: a letter, a digit or a control character."""
    return any(is_letter(character) or character in _CONTROLS for character in text)


def has_letters(text: str) -> bool:
    """Returns whether a text has a letter of any script, or a control character.

    Letters are those of Unicode's categories L. Digits, Roman numerals (Ⅳ), marks without a letter, currency
    signs, punctuation, symbols, emoji and placeholders are none, but the Chinese numeral 五 and the º of `1º`
    are.
    """
    return any(map(str.isalpha, text)) or not _CONTROLS.isdisjoint(text)


def is_visible(text: str) -> bool:
    """Returns whether a text has more than white space, controls, characters of formatting and fillers."""
    return any(
        character in _VISIBLE_FORMATS
        or (unicodedata.category(character) not in _INVISIBLE and character not in _FILLERS)
        for character in text
    )


_INVISIBLE = frozenset(("Zs", "Zl", "Zp", "Cc", "Cf"))
_VISIBLE_FORMATS = frozenset(
    "\u0600\u0601\u0602\u0603\u0604\u0605\u06dd\u070f\u0890\u0891\u08e2\U000110bd\U000110cd"
)
"""Unicode's Prepended_Concatenation_Mark: signs around numbers, such as the end of an ayah."""
_FILLERS = frozenset("\u115f\u1160\u3164\uffa0")
"""Letters of Hangul that are not visible."""


def mask_texts(texts: Sequence[str], strings: Sequence[Original]) -> list[str]:
    """Replaces the strings of a line in parts of its translation by the placeholders of the line.

    The parts are such as the beginning of the translation, or phrases that it must contain. Each string of
    the line is replaced at most once. Other strings remain, except placeholder characters, which become
    U+FFFD.
    """
    left = {number: original.text for number, original in enumerate(strings)}
    has_numbers = any(_NUMBER.fullmatch(string) for string in left.values())
    masked = []
    for text in texts:
        spans, numbers = [], []
        for start, end in find(text, numbers=has_numbers):
            number = next((number for number, string in left.items() if string == text[start:end]), None)
            if number is not None:
                del left[number]
                spans.append((start, end))
                numbers.append(number)
        masked.append(_replaced(text, spans, numbers)[0])
    return masked


def number_of(character: str) -> int | None:
    """Returns the number of a placeholder; None for any other character."""
    number = ord(character) - ord(PLACEHOLDERS[0])
    return number if 0 <= number < NUM_PLACEHOLDERS else None


def _replaced(
    text: str, spans: Sequence[tuple[int, int]], numbers: Sequence[int]
) -> tuple[str, list[Original]]:
    """Replaces spans by the placeholders of these numbers; other placeholder characters become U+FFFD."""
    parts: list[str] = []
    strings: list[Original] = []
    edges = [0, *(end for _, end in spans)], [*(start for start, _ in spans), len(text)]
    between = [text[start:end] for start, end in zip(*edges, strict=True)]
    for (start, end), number, left, right in zip(spans, numbers, between, between[1:], strict=False):
        before = _neighbour(left[-1:], bool(strings))
        after = _neighbour(right[:1], end < len(text))
        if _NUMBER.fullmatch(string := text[start:end]):  # the model writes what is next to it
            strings.append(Original(string, Next.other, Next.other))
        else:
            strings.append(Original(string, before, after))
        # The space between two placeholders is inserted with the second one.
        parts += [_ONE.sub("\ufffd", left), " " * (before in _APART), PLACEHOLDERS[number]]
        parts += [" " * (after is Next.letter)]
    return "".join([*parts, _ONE.sub("\ufffd", between[-1])]), strings


_APART = (Next.letter, Next.string)


def _neighbour(character: str, is_string: bool) -> Next:
    """Returns what is next to a string: a character, or if there is none, perhaps another string."""
    if not character:
        return Next.string if is_string else Next.space
    if is_letter(character):
        return Next.letter
    return Next.space if character.isspace() else Next.other


def is_letter(character: str) -> bool:
    """Returns whether a character is a letter, a mark or a digit."""
    return unicodedata.category(character)[0] in "LMN"
