"""The sentences of a line: where they begin and end.

The package sentencex knows the marks at the end of a sentence and the abbreviations of about 240 languages.
The rules here join two of its sentences where it divides one, and add a few marks.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from nmt.copying.strings import find, separates_words
from nmt.languages import language_of

VERSION = 4
"""Part of the fingerprint of facts about training text. Increase it if the same text gives others."""
Span = tuple[int, int]

BREAK = re.compile(r"[\n\v\f\r\x1c-\x1e\x85\u2028\u2029]")
"""A line separator or paragraph separator, which ends a sentence without any mark."""
_PLAIN = re.compile(r"\s*+([\w ,'’()-]*+[.!?]?)\s*")
"""A line that no language divides: it has no mark that may end a sentence, but at its end."""
_LAST_WORD = re.compile(r"[^\s'’(.]*$")
_SPACE, _SPACES = re.compile(r"\s"), re.compile(r"\s+")
_ENDS = re.compile("[។៕]+|।+|[。！？｡]+[”’」』）】》]*")
"""Ends of sentences that sentencex does not know, or not before letters and digits of other scripts."""
_OPENING, _CLOSED = "“‘「『（【《", "”’」』）】》"
_WITH_CAPITALS = frozenset(("Armn", "Cyrl", "Grek", "Latn"))
_INITIALS = re.compile(r"(?:\W?\w\.)+")  # such as `J.-P.`
_TAG = re.compile(r"</?[^>]*>")
_CLOSING = re.compile(r"(?:</[^>]*>)*")
_MARKS = "-–—― ,，、"
"""Marks before the words after direct speech."""
_SPEECH = re.compile(
    r"\w{1,6}?(?:[说說问問答喊叫]|(?<!知)道)"  # Chinese `他说`, and Japanese `彼は答えた`
    r"|\w{1,8}[はが]\w{0,6}?(?:[言尋訊話述囁呟怒]|聞い|聞く|つぶや|ささや|笑っ)"
    r"|(?:[A-Z][\w.'’-]*\s){1,3}(?:said|says|asked|asks|replied|answered|shouted|cried|whispered|added)\b"
)
"""Words after direct speech that may begin like a sentence, such as `他说`, `彼は言った`, `Mary asked`."""
_PARTICLE = re.compile(
    r"(?!\d)[가-힣]|と(?!ても|ころ|き)|って|[がを](?!っ)|の(?![んろ])|に(?![こやわ])|は(?![いじはっ])"
)
"""Particles of Korean and Japanese, which join a quotation to the next words: `“네!”라고`, `「はい。」と`."""
_LOOK = 200
"""Number of characters before a possible end of a sentence that decide about it."""
_WINDOW = 4000
"""Number of characters that sentencex reads at a time."""
_TITLES = frozenset(
    "dr mr mrs ms prof st m mm mme mmes mlle sr sra srta dra dott ing sig tp pgs ths ts д проф डॉ श्री "
    "د".split()
)
"""Abbreviations before a name."""
_BEFORE_NUMBERS = frozenset(
    "n nr no núm num p pp pag pág s str стр p art арт fig рис abb tab табл гл п ст godz poz ust ch cap kap "
    "sec vol bd t σελ nº руб коп max maks макс máx min мин mín approx aprox прибл env ca avg tel réf ref apt "
    "pos lvl eq eqs figs chap nos vers afb rozdz rys pkt изд разд №".split()
)
"""Abbreviations before a number."""
_ORDINAL = re.compile(r"(\w+|\d\. (?:und|oder|bis)) \d{1,2}\.$", re.IGNORECASE)
_BEFORE_ORDINALS = frozenset(
    "am im zum zur vom beim ans ins aufs der die das den dem des ein eine einen einem einer eines mein "
    "meine meinen meinem meiner meines sein seine seinen seinem seiner seines ihr ihre ihren ihrem ihrer "
    "ihres unser unsere unseren unserem unserer unseres jede jeden jedem jeder jedes diese diesen diesem "
    "dieser dieses späten frühen".split()
)
"""German words before an ordinal, such as `im 16. Jahrhundert`."""
_BEGINNINGS = frozenset(
    "der die das den dem wer wen wem ein eine ich du er sie es wir ihr ihre sein seine mein meine man diese "
    "dieser dieses da dann danach damit dabei daher dazu hier dort und oder aber doch denn wenn falls als "
    "ob was wie wo warum war waren ist sind hat kann auch nur noch jetzt heute in im am an auf aus bei mit "
    "nach von vom vor zu zum zur für über unter um seit bis alle viele so nun bitte".split()
)
"""German words that begin a sentence and are not nouns."""
_STRING = re.compile(r"Xx+\b")
"""What sentencex reads in place of a string that is copied. A variable may be a number."""


def sentence_spans(line: str, language: str) -> list[Span]:
    """Returns the beginning and the end of each sentence of a line, with white space alone between them.

    A line without white space at its ends is covered from its first to its last character.

    Args:
        line: raw text. Its URLs, e-mail addresses, tags and variables are not divided.
        language: code of its language, such as `de`; for an unknown one, general rules apply.

    Returns:
        One span or more; none for a blank line.
    """
    if (plain := _PLAIN.fullmatch(line)) and plain[1].strip():
        return [(plain.start(1), plain.start(1) + len(plain[1].rstrip()))]
    spans: list[Span] = []
    begin = 0
    for gap in _SPACES.finditer(line):
        if BREAK.search(gap[0]):
            spans += _spans_between(line, begin, gap.start(), language)
            begin = gap.end()
    return spans + _spans_between(line, begin, len(line), language)


def _spans_between(line: str, begin: int, end: int, language: str) -> list[Span]:
    """Returns the spans of the sentences of a part of a line without line separators."""
    text = line[begin:end]
    trimmed = text.strip()
    if not trimmed:
        return []
    begin += text.index(trimmed[0])
    plain, places = _without_markup(trimmed)
    spans: list[Span] = []
    start = 0
    for left, right in _cuts(plain, language):
        stop, next_start = _gap(trimmed, places[left - 1] + 1, places[right])
        spans.append((begin + start, begin + stop))
        start = next_start
    return [*spans, (begin + start, begin + len(trimmed))]


def _without_markup(text: str) -> tuple[str, range | list[int]]:
    """Returns a text as sentencex reads it, and for each of its characters the place in `text`.

    XML tags are left out, or are a blank. Other strings that are copied, such as URLs, are a word with a
    capital, since a sentence may begin with them; so is the target
    in reStructuredText's `` `text <target>` ``.
    All white space is blanks: sentencex 1.0.32 fails at some longer characters.
    """
    strings = find(text)
    text = _SPACE.sub(" ", text)
    if not strings:
        return text, range(len(text))
    parts: list[str] = []
    places: list[int] = []
    done = 0
    for begin, end in [*strings, (len(text), len(text))]:
        parts.append(text[done:begin])
        places += range(done, begin)
        string = text[begin:end]
        if not _TAG.fullmatch(string) or text[end : end + 1] == "`":
            parts.append("X".ljust(len(string), "x")[: len(string)])
            places += range(begin, end)
        elif separates_words(string):
            parts.append(" ")
            places.append(begin)
        done = end
    return "".join(parts), places


def _gap(text: str, begin: int, end: int) -> Span:
    """Returns the white space between two sentences, which tags may surround; empty if there is none.

    Closing tags belong to the sentence before it, other tags to the sentence after it.
    """
    if space := _SPACES.search(text, begin, end):
        return space.span()
    closing = _CLOSING.match(text, begin, end)
    assert closing is not None
    return closing.end(), closing.end()


def _cuts(text: str, language: str) -> Iterator[Span]:
    """Yields the place after the last character of a sentence and that of the first one of the next."""
    start = place = 0
    is_german = language_of(language).language == "de"
    is_lower = text.islower()
    if is_lower and _WITH_CAPITALS.intersection(language_of(language).scripts):
        language = "en"  # the rules of other languages, such as German, require a capital
    for segment in _segments(text, language):
        # Of a long sentence the end is enough: otherwise the time would grow with the square of its length.
        before, after = text[max(start, place - _LOOK) : place].rstrip(), segment.lstrip()
        if before and after:
            end, begin = max(start, place - _LOOK) + len(before), place + len(segment) - len(after)
            is_ordinal = is_german and _is_ordinal(before, after)
            if not is_ordinal and not _is_one_sentence(before, after, begin > end, is_lower):
                yield end, begin
                start = begin
        place += len(segment)


def _segments(text: str, language: str) -> Iterator[str]:
    for segment in _divided(text, language_of(language).language or language):
        begin = 0
        for match in _ENDS.finditer(segment):
            inside = segment[max(begin, match.end() - _LOOK) : match.end()]
            is_open = sum(map(inside.count, _OPENING)) > sum(map(inside.count, _CLOSED))
            if not is_open and segment[match.end() :].strip():
                yield segment[begin : match.end()]
                begin = match.end()
        yield segment[begin:]


def _divided(text: str, language: str) -> Iterator[str]:
    """Yields the sentences of sentencex, with the white space after them.

    It reads a window at a time, since its time may grow with the square of the length. The last sentence of a
    window is read again with the next window. A sentence that fills a window continues in the next one.
    """
    begin, begun = 0, ""
    while begin < len(text):
        segments = _read(text[begin : begin + _WINDOW], language)
        is_last = begin + _WINDOW >= len(text)
        complete = segments if is_last else segments[:-1]
        for segment in complete:
            yield begun + segment
            begun = ""
        if not is_last and not complete:
            begun += segments[0]
        begin += sum(map(len, complete or segments))
    if begun:
        yield begun


def _read(text: str, language: str) -> list[str]:
    from sentencex import segment  # a library of 4 MB

    try:
        segments = list(segment(language, text))
    except BaseException as error:  # a panic of Rust is no `Exception`; it must not end a server
        if type(error).__name__ != "PanicException":
            raise
        return [text]
    return segments if "".join(segments) == text else [text]


def _is_one_sentence(before: str, after: str, spaced: bool, is_lower: bool) -> bool:
    """Returns whether two texts are one sentence although sentencex divides them.

    `spaced`: whether white space is between them. `is_lower`: whether their line has no capitals.
    """
    if not any(map(str.isalnum, after)) or not _is_sentence(before):  # such as `😀`, and `1.` or `J.`
        return True
    first, last = after[0], before[-1]
    if not spaced and last.isascii():
        return True
    if last in "”’」』" and ((not spaced and _PARTICLE.match(after)) or _SPEECH.match(after.lstrip(_MARKS))):
        return True
    if after.lstrip(_MARKS)[:1].islower() and not is_lower and _has_case(before):
        return True
    word = _LAST_WORD.search(before[:-1])[0].lower()  # type: ignore[index]  # it always matches
    may_be_number = first.isdecimal() or _STRING.match(after) is not None
    return last == "." and (word in _TITLES or (may_be_number and word in _BEFORE_NUMBERS))


def _is_ordinal(before: str, after: str) -> bool:
    """Returns whether a German text ends with an ordinal before its noun."""
    match, beginning = _ORDINAL.search(before), re.match(r"\w+", after)
    if match is None or beginning is None or beginning[0].lower() in _BEGINNINGS:
        return False
    return " " in match[1] or match[1].lower() in _BEFORE_ORDINALS


def _has_case(text: str) -> bool:
    """Returns whether the last letter of a text has a capital or a small form."""
    last = next(filter(str.isalpha, reversed(text)), "")
    return last.upper() != last.lower()


def _is_sentence(text: str) -> bool:
    """Returns whether a text can be a sentence: it has two letters, or one of a script without capitals."""
    if _INITIALS.fullmatch(text):
        return False
    letters = [character for character in text if character.isalpha()]
    return len(letters) > 1 or (len(letters) == 1 and not _has_case(letters[0]))


def joins_without_space(code: str) -> bool:
    """Returns whether a language has no space between sentences: Chinese and Japanese, but not Thai."""
    language = language_of(code)
    return language.is_han or language.is_japanese
