"""The results of a translator for one line, and what is wrong with them."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from nmt.copying.strings import NUM_PLACEHOLDERS
from nmt.runtime.streams import log

if TYPE_CHECKING:
    from torch import Tensor

    from nmt.decoding.alignment import Alignment


@dataclass(frozen=True)
class ScoredText:
    """A translation and its score.

    Attributes:
        text: one line, without the line break.
        score: log-probability divided by the length penalty; of a line in parts, the mean of their scores.
        attention: (target tokens, source tokens) on the CPU, EOS counted on both sides: the attention weights
            of the source tokens for each target token. None if it was not requested, and for a blank line.
            Of a line in parts, each part has its own tokens, and EOS after them.
        alignment: links of source word and target word, from 0, at most one per target word. Words are
            separated by white space. Empty if it was not requested, and for a blank line.
        pieces: the target tokens of `attention`, EOS last; empty if there is none.
    """

    text: str
    score: float
    attention: Tensor | None = field(default=None, compare=False, repr=False)
    alignment: Alignment = ()
    pieces: tuple[str, ...] = field(default=(), compare=False, repr=False)


@dataclass(frozen=True)
class TranslatedPart:
    """A part of a line that was translated in parts: its source, its best translation and the score of it."""

    source: str
    text: str
    score: float


@dataclass(frozen=True)
class Translation:
    """The result for one line.

    Attributes:
        hypotheses: best first; one or more, at most `decoding.nbest`, or all samples.
        truncated: number of source tokens if the source was cut, otherwise 0. Of a line in parts, that of its
            longest part.
        num_tokens: target tokens of the best hypothesis, EOS counted; 0 for a blank line.
        cut_to: maximum number of source tokens: `decoding.max_source_tokens`, or less if a model requires it.
        cut_by: which of the two it is; see `Searcher.source_limit`.
        unmet: the constraints that the best hypothesis does not meet.
        appended: number of URLs, tags and variables that are at the end of the best hypothesis because the
            search did not place them.
        retried: whether the search was repeated because its first result was a loop (`decoding.retry_loops`).
        skipped: number of characters that are not translated because the line has too many such strings.
        source_pieces: the source tokens of the attention of the hypotheses, EOS last; empty if there is none.
        parts: the parts of the line that were translated one by one; empty if it was translated as a whole.
        too_long: number of its sentences that were divided at commas because they are too long for the model.
        numbers: the numbers of the line that its best translation lacks or changes.
        lost: the numbers of sentences of the line and of its best translation, if that has fewer.
        unknown_tags: the tags that were asked for, but that the model does not have.
    """

    hypotheses: tuple[ScoredText, ...]
    truncated: int = 0
    num_tokens: int = 0
    cut_to: int = 0
    cut_by: str = ""
    unmet: tuple[str, ...] = ()
    appended: int = 0
    skipped: int = 0
    retried: bool = False
    source_pieces: tuple[str, ...] = field(default=(), compare=False, repr=False)
    parts: tuple[TranslatedPart, ...] = ()
    too_long: int = 0
    lost: tuple[int, int] | None = None
    numbers: tuple[str, ...] = ()
    unknown_tags: tuple[str, ...] = ()


BLANK = Translation((ScoredText("", 0.0),))
"""The result for a blank line: the empty line with the probability 1."""


class ProblemLog:
    """Logs the problems of translations: those that many lines may have in one line each, at the end."""

    def __init__(self) -> None:
        self._total, self._lines = 0, {name: list[int]() for name in _OFTEN}

    def add(self, translation: Translation, number: int, *, others: bool = True) -> None:
        """Logs the problems of line `number` that few lines have, unless `others` is false."""
        self._total += 1
        for name, lines in self._lines.items():
            if getattr(translation, name):
                lines.append(number)
        for problem in problems(replace(translation, **_NONE_OF_THEM), number) if others else ():
            log.warning(problem)

    def end(self) -> None:
        """Logs which lines have each of the problems that many lines may have."""
        for name, lines in self._lines.items():
            if lines:
                subject, what, option = _OFTEN[name]
                first = ", ".join(f"{number:,}" for number in lines[:_SHOWN])
                more = ", ..." if len(lines) > _SHOWN else ""
                log.warning(
                    f"{subject} of {len(lines):,} of {self._total:,} lines: {what}. "
                    f"Lines: {first}{more} ({option})"
                )


_SHOWN = 10  # lines that the log names
_OFTEN = {
    "lost": ("sentences", "their translations have fewer", "decoding.split_sentences"),
    "retried": ("loops", "translated again without repetition", "decoding.retry_loops"),
    "numbers": ("numbers", "their translations lack or change some", "decoding.numbers"),
}
_NONE_OF_THEM: dict[str, Any] = {"lost": None, "retried": False, "numbers": ()}


def problems(translation: Translation, number: int) -> list[str]:
    """Returns messages about line `number`: a cut source, lost sentences, unmet constraints and others."""
    messages = [
        f'line {number}: the model has no tag "{tag}". It has read it as text'
        for tag in translation.unknown_tags
    ]
    if translation.too_long:
        sentences = "a sentence" if translation.too_long == 1 else f"{translation.too_long:,} sentences"
        messages.append(
            f"line {number}: {sentences} of more than {translation.cut_to:,} tokens divided at commas "
            f"({translation.cut_by})"
        )
    if translation.lost:
        expected, found = translation.lost
        messages.append(
            f"line {number}: has {expected:,} sentences, but its translation {found:,} "
            "(decoding.split_sentences)"
        )
    if translation.truncated:
        messages.append(
            f"line {number}: cut to {translation.cut_to:,} of {translation.truncated:,} tokens "
            f"({translation.cut_by})"
        )
    if translation.retried:
        messages.append(
            f"line {number}: the translation repeated the same tokens again and again; translated again "
            "without repetition (decoding.retry_loops)"
        )
    if unmet := translation.unmet:
        names = ", ".join(f'"{text}"' for text in unmet)
        subject = f"constraint {names} is" if len(unmet) == 1 else f"constraints {names} are"
        messages.append(f"line {number}: the {subject} not met")
    if numbers := translation.numbers:
        names = ", ".join(f'"{text}"' for text in numbers)
        messages.append(
            f"line {number}: the translation lacks or changes the number{'s' * (len(numbers) > 1)} {names} "
            "(decoding.numbers)"
        )
    if translation.appended:
        messages.append(
            f"line {number}: {translation.appended:,} URLs, tags or variables appended at the end of the "
            "translation"
        )
    if translation.skipped:
        messages.append(
            f"line {number}: more than {NUM_PLACEHOLDERS} URLs, tags or variables; {translation.skipped:,} "
            "characters between them not translated"
        )
    return messages


def pharaoh(alignment: Alignment) -> str:
    """Returns links in the format of Pharaoh, Moses and fast_align: `0-0 2-1`, source before target."""
    return " ".join(f"{source}-{target}" for source, target in alignment)
