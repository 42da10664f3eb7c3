"""Lines in parts, which are translated one by one: the choice of the parts of a line.

A part is a sentence or, of a sentence that is too long for the model, some of its clauses.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Literal, TypeVar

from nmt.data.corpora.sources import without_tag
from nmt.data.sentences import BREAK, Span, joins_without_space, sentence_spans
from nmt.decoding.facts import TextFacts
from nmt.decoding.translation import Translation
from nmt.languages import language_of

_CLAUSE_ENDS = (re.compile(r"[;:]\s+|\s[–—]\s+|[؛；：]\s*"), re.compile(r"[,،]\s+|[，、]\s*"))
"""Marks between clauses, the stronger ones first."""
_SPACES = re.compile(r"\s+")

T = TypeVar("T")

FEW = 0.05
"""With a smaller share of training lines of several sentences, `auto` divides all lines of several. Otherwise
it divides those that are longer than almost all training lines."""


@dataclass(frozen=True)
class Parts:
    """A line and its parts, one or more.

    Attributes:
        line: the raw line.
        spans: the beginning and the end of each part, with white space alone between them. An undivided line
            is its only part.
        tag: the tag at the beginning of a divided line, with the white space after it. Each part has it.
        separators: the text before, between and after the translations of the parts.
        too_long: number of sentences that are divided because they are too long for the model.
    """

    line: str
    spans: tuple[Span, ...]
    tag: str = ""
    separators: tuple[str, ...] = ("", "")
    too_long: int = 0

    @classmethod
    def undivided(cls, line: str) -> Parts:
        """Returns a line as its only part."""
        return cls(line, ((0, len(line)),))

    @property
    def texts(self) -> list[str]:
        """The text of each part, as it is translated."""
        return [f"{self.tag}{self.line[begin:end]}" for begin, end in self.spans]

    @property
    def gaps(self) -> list[str]:
        """The text of the line before, between and after the parts, without the tag."""
        ends = [len(self.tag), *(end for _, end in self.spans)]
        begins = [*(begin for begin, _ in self.spans), len(self.line)]
        return [self.line[end:begin] for end, begin in zip(ends, begins, strict=True)]


def of_first_parts(values: Sequence[T] | None, divided: Sequence[Parts], other: T) -> list[T] | None:
    """Returns a value for each part: that of its line for the first part, and `other` for the rest."""
    if values is None:
        return None
    return [
        value if place == 0 else other
        for value, parts in zip(values, divided, strict=True)
        for place in range(len(parts.spans))
    ]


def phrases_of_parts(
    phrases: Sequence[Sequence[str]] | None,
    divided: Sequence[Parts],
    translate: Callable[[Sequence[int], Sequence[Sequence[str]]], Sequence[Translation]],
) -> list[list[str]] | None:
    """Returns the phrases of each part that its translation must contain, from those of the lines.

    A phrase of a divided line belongs to the part whose translation loses the least of its score by it. If it
    occurs several times in the list of its line, it belongs to as many parts.

    Args:
        phrases: for each line its phrases; None: none.
        divided: the lines.
        translate: translates parts, given by their numbers among all parts, each with one phrase or none.
    """
    if phrases is None:
        return None
    numbers, begin = [], 0
    for parts in divided:
        numbers.append(range(begin, begin + len(parts.spans)))
        begin += len(parts.spans)
    pairs = [
        (number, phrase)
        for own, places in zip(phrases, numbers, strict=True)
        if own and len(places) > 1
        for phrase in ("", *dict.fromkeys(own))
        for number in places
    ]
    terms = [[phrase] if phrase else [] for _, phrase in pairs]
    found = translate([number for number, _ in pairs], terms) if pairs else []
    score = {
        (number, phrase): -math.inf if phrase in one.unmet else one.hypotheses[0].score
        for (number, phrase), one in zip(pairs, found, strict=True)
    }
    chosen: list[list[str]] = [[] for _ in range(begin)]
    for own, places in zip(phrases, numbers, strict=True):
        if len(places) == 1:
            chosen[places[0]] = list(own)
            continue
        for phrase in dict.fromkeys(own):
            order = sorted(places, key=lambda number: score[number, ""] - score[number, phrase])
            for occurrence in range(list(own).count(phrase)):
                chosen[order[occurrence % len(order)]].append(phrase)
    return chosen


def advance_of_parts(advance: Callable[[int], object], divided: Sequence[Parts]) -> Callable[[int], object]:
    """Returns a function that is called with numbers of parts, and calls `advance` with numbers of lines.

    The sum of the lines is in proportion to that of the parts.
    """
    num_lines, num_parts = len(divided), sum(len(parts.spans) for parts in divided)
    finished = 0

    def advance_parts(count: int) -> None:
        nonlocal finished
        before, finished = finished, finished + count
        advance(finished * num_lines // num_parts - before * num_lines // num_parts)

    return advance if num_lines == num_parts else advance_parts


def joined_text(texts: Sequence[str], separators: Sequence[str]) -> str:
    """Returns texts with the separators before, between and after them."""
    first, *others = separators
    return first + "".join(f"{text}{gap}" for text, gap in zip(texts, others, strict=True))


@dataclass(frozen=True)
class Splitter:
    """Divides lines into parts.

    Attributes:
        facts: the languages, and the lines of the training.
        option: `decoding.split_sentences`.
        tags: the tags of the vocabulary, one of which may be the first word of a line.
        count: returns the number of tokens of each text, EOS counted.
        max_tokens: maximum number of tokens of a source, EOS counted.
    """

    facts: TextFacts
    option: bool | Literal["auto"]
    tags: tuple[str, ...]
    count: Callable[[Sequence[str]], Sequence[int]]
    max_tokens: int

    def divide(self, lines: Sequence[str], prefixes: Sequence[str] | None = None) -> list[Parts]:
        """Returns the parts of each line; `prefixes` has the beginning of each translation."""
        beginnings = prefixes or [""] * len(lines)
        return [self.parts(line, prefix) for line, prefix in zip(lines, beginnings, strict=True)]

    def parts(self, line: str, prefix: str = "") -> Parts:
        """Returns the parts of a line.

        The line is undivided if the prefix of its translation has several sentences, since it is not known to
        which parts they belong.
        """
        if not self._may_divide(line):
            return Parts.undivided(line)
        tag = self._tag(line)
        sentences = sentence_spans(line[len(tag) :], self.facts.source_lang)
        too_long, spans = 0, list[Span]()
        for begin, end in sentences:
            clauses = self._clauses(line[len(tag) + begin : len(tag) + end], tag)
            too_long += len(clauses) > 1
            spans += [(len(tag) + begin + start, len(tag) + begin + stop) for start, stop in clauses]
        target = self._target(tag)
        if len(spans) < 2 or (prefix and len(sentence_spans(prefix, target)) > 1):
            return Parts.undivided(line)
        before, *between, after = Parts(line, (*spans,), tag).gaps
        separators = self._outer(before), *(self._inner(gap, target) for gap in between), self._outer(after)
        return Parts(line, (*spans,), tag, separators, too_long)

    def with_lost_sentences(
        self, divided: Sequence[Parts], translations: Sequence[Translation]
    ) -> list[Translation]:
        """Returns the translations of lines, with the numbers of sentences where some are lost."""
        return [
            translation
            if (lost := self.lost(parts, translation)) is None
            else replace(translation, lost=lost)
            for parts, translation in zip(divided, translations, strict=True)
        ]

    def lost(self, parts: Parts, translation: Translation) -> tuple[int, int] | None:
        """Returns the numbers of sentences of a line and its translation if this has fewer; None otherwise.

        A part of a divided line has lost its sentence only if its translation is blank.
        """
        if translation.parts:
            found = sum(bool(part.text.strip()) for part in translation.parts)
            return None if found == len(translation.parts) else (len(translation.parts), found)
        tag = self._tag(parts.line)
        expected = len(sentence_spans(parts.line[len(tag) :], self.facts.source_lang))
        if expected < 2:  # the usual case, without a look at the translation
            return None
        found = len(sentence_spans(translation.hypotheses[0].text, self._target(tag)))
        return (expected, found) if found < expected else None

    def _may_divide(self, line: str) -> bool:
        if self.option != "auto":
            return self.option
        share, usual = self.facts.several_sentences, self.facts.characters
        if share is None or usual is None:
            return False
        return share < FEW or len(line) > usual

    def _tag(self, line: str) -> str:
        """Returns the tag at the beginning of a line and the white space after it; empty if it has none."""
        return line.removesuffix(without_tag(line, self.tags)) if self.tags else ""

    def _target(self, tag: str) -> str:
        """Returns the target language of a line with this tag."""
        return self.facts.targets.get(tag.strip(), self.facts.target_lang)

    def _clauses(self, sentence: str, tag: str) -> list[Span]:
        """Returns the parts of a sentence: the whole if the model reads it, otherwise groups of clauses.

        A clause without marks may remain too long.
        """
        whole = [(0, len(sentence))]
        if len(f"{tag}{sentence}".encode()) < self.max_tokens:  # a token has one byte or more
            return whole
        if self.count([f"{tag}{sentence}"])[0] <= self.max_tokens:
            return whole
        clauses = whole
        ends = _CLAUSE_ENDS if language_of(self.facts.source_lang).has_spaces else (*_CLAUSE_ENDS, _SPACES)
        for mark in ends:
            sizes = self.count([f"{tag}{sentence[begin:end]}" for begin, end in clauses])
            clauses = [
                part
                for span, size in zip(clauses, sizes, strict=True)
                for part in ([span] if size <= self.max_tokens else _divided(sentence, span, mark))
            ]
        sizes = self.count([f"{tag}{sentence[begin:end]}" for begin, end in clauses])
        return [*self._grouped(clauses, sizes)]

    def _grouped(self, clauses: Sequence[Span], sizes: Sequence[int]) -> Iterator[Span]:
        """Yields clauses together as long as the model reads them, and as training lines are long."""
        longest = self.facts.characters or max(end for _, end in clauses)
        (start, stop), tokens = clauses[0], sizes[0]
        for (begin, end), size in zip(clauses[1:], sizes[1:], strict=True):
            if tokens + size > self.max_tokens or end - start > longest:
                yield start, stop
                start, tokens = begin, 0
            stop, tokens = end, tokens + size
        yield start, stop

    def _inner(self, gap: str, target: str) -> str:
        """Returns the text between two translations, for that between their parts."""
        if BREAK.search(gap) or "\t" in gap:
            return gap
        if joins_without_space(target):
            return ""
        added = "" if language_of(self.facts.source_lang).has_spaces else " "
        return gap.replace("\u3000", " ") or added

    @staticmethod
    def _outer(gap: str) -> str:
        """Returns the text before or after a translation; spaces there are lost, as those of other lines."""
        return gap if BREAK.search(gap) else ""


def _divided(text: str, span: Span, mark: re.Pattern[str]) -> Iterator[Span]:
    """Yields the parts of a span of a text that end at a mark."""
    begin, end = span
    for match in mark.finditer(text, begin, end):
        stop = match.start() + len(match[0].rstrip())
        if begin < stop and match.end() < end:
            yield begin, stop
            begin = match.end()
    yield begin, end
