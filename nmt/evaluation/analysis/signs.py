"""Signs of faults in single translations, such as loops and lost numbers, compared with the references.

A sign alone proves nothing: a reference may shorten a sentence too, or write a number in words. A fault is a
sign that the translations show significantly more often than the references of the same sentences.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import Any

from nmt.copying.numbers import NumberComparison
from nmt.copying.strings import find, has_letters
from nmt.decoding.candidates import has_loop
from nmt.evaluation.scores import SIGNIFICANT
from nmt.languages import language_of

P_VALUE = 0.001
"""Level of the sign test. It is low because every sign is tested."""
_MARGIN = 10  # bytes added to both lengths, so that the ratio of short lines is not a sign
_RATIO = 1.5  # a translation is short or long only if this ratio separates it from every reference
_LEAST, _MOST = math.log(1.6), math.log(2.5)  # limits of the threshold against the source
OUTLIER = 3.5 / 0.6745
"""Distance of an outlier from the median, in median absolute deviations (Iglewicz and Hoaglin 1993)."""


@dataclass(frozen=True)
class Texts:
    """What translations are compared with, line for line.

    Attributes:
        references: one or more texts.
        sources: empty if they are not known.
        source_lang: code of the language of the sources; empty if unknown.
        target_lang: that of the references.
    """

    references: Sequence[Sequence[str]] = field(repr=False)
    sources: Sequence[str] = field(default=(), repr=False)
    source_lang: str = ""
    target_lang: str = ""


Shown = list[bool | None]
"""Whether each line shows a sign; None if it can't, such as a line without numbers."""


def _empty(texts: Texts, lines: Sequence[str]) -> Shown:
    return [
        not line.strip() if any(part.strip() for part in others) else None
        for line, *others in zip(lines, *texts.references, strict=True)
    ]


def _short(texts: Texts, lines: Sequence[str]) -> Shown:
    return _of_length(texts, lines, -1)


def _long(texts: Texts, lines: Sequence[str]) -> Shown:
    return _of_length(texts, lines, 1)


def _of_length(texts: Texts, lines: Sequence[str], direction: int) -> Shown:
    """Finds lines that are far longer (`direction` 1) or shorter (-1) than each reference and than usual.

    The usual ratio to the source is that of the references: the median, with the outliers of Iglewicz and
    Hoaglin (1993). A reference is not compared with itself.
    """
    others = [reference for reference in texts.references if reference is not lines]
    shown: list[bool | None] = [bool(others or texts.sources)] * len(lines)
    for reference in others:
        changes = map(_growth, lines, reference)
        shown = [
            bool(one) and direction * change > math.log(_RATIO)
            for one, change in zip(shown, changes, strict=True)
        ]
    if texts.sources:
        usual = [*map(_growth, texts.references[0], texts.sources)]
        middle = median(usual)
        spread = median(abs(value - middle) for value in usual)
        threshold = min(max(OUTLIER * spread, _LEAST), _MOST)
        changes = map(_growth, lines, texts.sources)
        shown = [
            bool(one) and direction * (change - middle) > threshold
            for one, change in zip(shown, changes, strict=True)
        ]
    return shown


def _growth(line: str, other: str) -> float:
    return math.log((len(line.encode()) + _MARGIN) / (len(other.encode()) + _MARGIN))


_WORD = re.compile(r"[^\W\d_]+")
_FEW = 5  # all words of a shorter source may be names


def _copied(texts: Texts, lines: Sequence[str]) -> Shown:
    return [
        _is_copy(*pair) if has_letters(pair[0]) else None for pair in zip(texts.sources, lines, strict=True)
    ]


def _is_copy(source: str, line: str) -> bool:
    words, target = _WORD.findall(source.casefold()), set(_WORD.findall(line.casefold()))
    if len(words) < _FEW:
        return source.casefold() == line.casefold()
    return sum(word in target for word in words) > len(words) / 2


_TOKEN = re.compile(r"\d+|([\W_w])\1*|.", re.DOTALL)  # a number, equal signs in a row, or a letter
_LETTERS = re.compile(r"([^\W\d_]{1,4}?)(?<![wㄱ-ㅣـ])\1{3,}")
"""Four equal groups of letters, but not the laughter of Korean and Japanese, nor tatweel, a long line."""
_FEWER_LETTERS = re.compile(r"([^\W\d_]{1,4}?)\1{2,}")
_EQUAL_LETTERS = 5  # of one letter, so that the sign is not a misspelling


def _loops(texts: Texts, lines: Sequence[str]) -> Shown:
    """Finds repeated words; and repeated letters, unless the source or a reference repeats some, as haha."""
    spaced = language_of(texts.target_lang).has_spaces
    others = [text for text in (texts.sources, *texts.references) if text and text is not lines]
    shown: Shown = []
    for row, line in enumerate(map(str.casefold, lines)):
        letters = any(len(match[0]) >= _EQUAL_LETTERS for match in _LETTERS.finditer(line))
        if not spaced:
            letters = letters or _has_loop([match[0] for match in _TOKEN.finditer(line)])
        if letters and any(_FEWER_LETTERS.search(text[row].casefold()) for text in others):
            letters = False
        shown.append(letters or (spaced and _has_loop(line.replace("-", " ").split())))
    return shown


def _has_loop(tokens: Sequence[str]) -> bool:
    return has_loop(tokens, times=3, tokens=4) or has_loop(tokens, times=2, tokens=6)


def _numbers(texts: Texts, lines: Sequence[str]) -> Shown:
    langs = texts.source_lang, texts.target_lang
    numbers = NumberComparison(*langs)
    in_words = any(map(numbers.has_words, texts.sources, texts.references[0]))
    numbers = NumberComparison(*langs, words=in_words)
    shown: Shown = []
    for source, line in zip(texts.sources, lines, strict=True):
        for start, end in reversed(find(source)):  # a lost URL is another sign
            source = f"{source[:start]} {source[end:]}"
        shown.append(bool(numbers.missing(source, line)) if any(map(str.isdigit, source)) else None)
    return shown


def _strings(texts: Texts, lines: Sequence[str]) -> Shown:
    shown: Shown = []
    for source, line in zip(texts.sources, lines, strict=True):
        strings = Counter(source[start:end] for start, end in find(source))
        shown.append(
            any(line.count(string) < count for string, count in strings.items()) if strings else None
        )
    return shown


_NAME = re.compile(r"\w+(?:[-.'’]\w+)*")
_NAME_LENGTH = 3


def _names(texts: Texts, lines: Sequence[str]) -> Shown:
    """Finds lines without a name: a capitalised word inside the source that all references have unchanged."""
    shown: Shown = []
    for source, line, *references in zip(texts.sources, lines, *texts.references, strict=True):
        names = {
            match[0]
            for match in _NAME.finditer(source)
            if match[0][0].isupper()
            and len(match[0]) >= _NAME_LENGTH
            and source[: match.start()][-2:-1].isalnum()
        }
        names = names.intersection(*map(_NAME.findall, references))
        shown.append(any(name.casefold() not in line.casefold() for name in names) if names else None)
    return shown


@dataclass(frozen=True)
class Sign:
    """A sign of faults.

    Attributes:
        words: what translations with the sign have.
        meaning: what is counted, in one line.
        find: returns which lines show it; the lines are translations, or one text of references. None: only
            the model can say it; see `model_signs`.
        needs_sources: whether `find` reads the sources.
        excess: the smallest share of lines with the sign, beyond that of the references, that is a fault.
    """

    words: str
    meaning: str
    find: Callable[[Texts, Sequence[str]], Shown] | None
    needs_sources: bool = True
    excess: float = 0.01


SIGNS = {
    "empty": Sign("no text", "empty, unlike the reference", _empty, needs_sources=False),
    "short": Sign(
        "far too little text", "shorter than references of such sources", _short, needs_sources=False
    ),
    "long": Sign("far too much text", "longer than references of such sources", _long, needs_sources=False),
    "copied": Sign("copied sources", "most words of the source, untranslated", _copied),
    "loops": Sign("loops", "words or letters several times in a row", _loops, needs_sources=False),
    "numbers": Sign("lost or changed numbers", "those of the source that are missing", _numbers, excess=0.05),
    "strings": Sign("lost URLs, tags or variables", "of the source, not copied", _strings, excess=0.05),
    "names": Sign(
        "lost names", "only capitalised words count, which all references have unchanged", _names, excess=0.2
    ),
    "unaligned": Sign("words unrelated to the source", "by the attention of the model", None),
}
"""The signs by their names in the JSON. The references have all names, so more lines must lack one."""


@dataclass(frozen=True)
class Count:
    """How often the translations and the first references show a sign.

    Attributes:
        sentences: number of sentences that can show it.
        hypotheses: number of translations that show it.
        references: number of references that show it.
        rows: the sentences, from 0, whose translations show it and whose references do not.
        p_value: of the one-sided sign test, on the sentences where only one of the two shows it.
        is_fault: whether it is significant, and the share large enough.
    """

    sentences: int
    hypotheses: int
    references: int
    rows: Sequence[int]
    p_value: float
    is_fault: bool

    @classmethod
    def of(cls, sign: Sign, by_lines: Shown, by_references: Shown) -> Count:
        """Counts a sign, given which translations and which first references show it."""
        pairs = [*zip(by_lines, by_references, strict=True)]
        sentences = sum(ours is not None for ours, _ in pairs)
        rows = [row for row, (ours, theirs) in enumerate(pairs) if ours and not theirs]
        hypotheses, references = (sum(map(bool, shown)) for shown in zip(*pairs, strict=True))
        p_value = _sign_test(len(rows), sum(bool(theirs and not ours) for ours, theirs in pairs))
        excess = (hypotheses - references) / max(sentences, 1)
        is_fault = p_value < P_VALUE and excess >= sign.excess
        return cls(sentences, hypotheses, references, rows, p_value, is_fault)

    def is_open(self, sign: Sign) -> bool:
        """Returns whether the share is that of a fault, but there are too few sentences to be sure."""
        return (
            not self.is_fault
            and (self.hypotheses - self.references) / self.sentences >= sign.excess
            and self.p_value < SIGNIFICANT  # more sentences might prove it
        )

    def against(self, other: Count) -> float:
        """Returns the two-sided p-value of the sign test that two systems show the sign equally often.

        Sentences whose reference shows it do not count.
        """
        ours, theirs = set(self.rows), set(other.rows)
        fewer, more = sorted((len(ours - theirs), len(theirs - ours)))
        return min(1.0, 2 * _sign_test(more, fewer))

    def as_dict(self) -> dict[str, Any]:
        """Returns the count for the JSON; lines are counted from 1."""
        return {
            "sentences": self.sentences,
            "hypotheses": self.hypotheses,
            "references": self.references,
            "p_value": self.p_value,
            "is_fault": self.is_fault,
            "lines": [row + 1 for row in self.rows],
        }


def counts_of(
    texts: Texts, lines: Sequence[str], further: Mapping[str, tuple[Shown, Shown]] | None = None
) -> dict[str, Count]:
    """Counts all signs in translations that at least one sentence can show.

    `further` has the translations and the references that show a sign which only the model can find.
    """
    shown = {
        name: (sign.find(texts, lines), sign.find(texts, texts.references[0]))
        for name, sign in SIGNS.items()
        if sign.find is not None and (texts.sources or not sign.needs_sources)
    }
    counts = {name: Count.of(SIGNS[name], *both) for name, both in (shown | dict(further or {})).items()}
    return {name: count for name, count in counts.items() if count.sentences}


def _sign_test(more: int, fewer: int) -> float:
    """Returns the probability that a fair coin falls on one side at least `more` times of all these."""
    total = more + fewer
    logs = (
        math.lgamma(total + 1) - math.lgamma(heads + 1) - math.lgamma(total - heads + 1)
        for heads in range(more, total + 1)
    )
    return min(1.0, math.fsum(math.exp(value - total * math.log(2)) for value in logs))
