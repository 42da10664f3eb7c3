"""The translation of a line from the translations of its parts: text, score, word links and attention.

The n-best list of a line has the best combinations of the translations of its parts: those with the highest
sums of scores. So the best translation of a line consists of the best translation of each part. Samples are
combined at random, each once.
"""

from __future__ import annotations

import heapq
import random
from collections.abc import Sequence
from itertools import product
from statistics import fmean
from typing import TYPE_CHECKING

import torch

from nmt.decoding.parts import Parts, joined_text
from nmt.decoding.translation import ScoredText, TranslatedPart, Translation

if TYPE_CHECKING:
    from nmt.decoding.alignment import Alignment


def joined_lines(
    divided: Sequence[Parts], translations: Sequence[Translation], seed: int | None = None
) -> list[Translation]:
    """Returns the translations of lines from those of all their parts, in order; see `joined`."""
    remaining = iter(translations)
    return [joined(parts, [next(remaining) for _ in parts.spans], seed) for parts in divided]


def joined(parts: Parts, translations: Sequence[Translation], seed: int | None = None) -> Translation:
    """Returns the translation of a line.

    Args:
        parts: the line in parts.
        translations: the translation of each part.
        seed: of the combinations of samples; None: the hypotheses are an n-best list.
    """
    assert len(translations) == len(parts.spans)
    if len(translations) == 1:
        return translations[0]
    lists = [translation.hypotheses for translation in translations]
    if seed is None:
        choices = _best_combinations(lists)
    else:
        choices = _random_combinations(lists, seed)
    searched = [translation.num_tokens > 0 for translation in translations]
    hypotheses = [
        _combined(parts, [options[index] for options, index in zip(lists, choice, strict=True)], searched)
        for choice in choices
    ]
    if seed is not None:
        hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
    longest = max(translations, key=lambda translation: translation.truncated)
    limited = max(translations, key=lambda translation: translation.cut_to)  # 0 of one that was not searched
    return Translation(
        tuple(hypotheses),
        truncated=longest.truncated,
        num_tokens=sum(translation.num_tokens for translation in translations),
        cut_to=limited.cut_to,
        cut_by=limited.cut_by,
        unmet=tuple(phrase for translation in translations for phrase in translation.unmet),
        appended=sum(translation.appended for translation in translations),
        numbers=tuple(number for translation in translations for number in translation.numbers),
        skipped=sum(translation.skipped for translation in translations),
        retried=any(translation.retried for translation in translations),
        source_pieces=tuple(piece for translation in translations for piece in translation.source_pieces),
        too_long=parts.too_long,
        parts=tuple(
            TranslatedPart(parts.line[begin:end], best.text, best.score)
            for (begin, end), (best, *_) in zip(parts.spans, lists, strict=True)
        ),
    )


def _best_combinations(lists: Sequence[Sequence[ScoredText]]) -> list[tuple[int, ...]]:
    """Returns the best choices of one hypothesis of each part, as many as the longest list has.

    Each list is in descending order of scores; the first choice consists of their first hypotheses.
    """
    count = max(map(len, lists))
    best: list[tuple[float, tuple[int, ...]]] = [(0.0, ())]
    for hypotheses in lists:
        extended = (
            (-best[rank][0] - hypotheses[index].score, rank, index)
            for rank, index in product(range(len(best)), range(len(hypotheses)))
        )
        chosen = heapq.nsmallest(count, extended)
        best = [(-loss, (*best[rank][1], index)) for loss, rank, index in chosen]
    return [choice for _, choice in best]


def _random_combinations(lists: Sequence[Sequence[ScoredText]], seed: int) -> list[tuple[int, ...]]:
    """Returns choices of one sample of each part; each sample occurs once.

    The samples of a part are in descending order of scores, so the same place in all lists would combine the
    most probable ones.
    """
    count = max(map(len, lists))
    columns = []
    for number, samples in enumerate(lists):
        column = [place % len(samples) for place in range(count)]
        random.Random(f"{seed} {number}").shuffle(column)
        columns.append(column)
    return [*zip(*columns, strict=True)]


def _combined(parts: Parts, chosen: Sequence[ScoredText], searched: Sequence[bool]) -> ScoredText:
    """Returns the translation of a line with these translations of its parts.

    The model has translated the parts for which `searched` is true. The others do not change the score.
    """
    scores = [hypothesis.score for hypothesis, counts in zip(chosen, searched, strict=True) if counts]
    attention = [one.attention for one in chosen if one.attention is not None]
    return ScoredText(
        joined_text([hypothesis.text for hypothesis in chosen], parts.separators),
        fmean(scores) if scores else 0.0,
        torch.block_diag(*attention) if attention else None,  # type: ignore[no-untyped-call]
        _links(parts, chosen) if any(hypothesis.alignment for hypothesis in chosen) else (),
        tuple(piece for hypothesis in chosen for piece in hypothesis.pieces),
    )


def _links(parts: Parts, chosen: Sequence[ScoredText]) -> Alignment:
    """Returns the links of the words of the line and of its translation, at most one for each target word."""
    tag_words = len(parts.tag.split())
    links: dict[int, int] = {}
    written = parts.separators[0]
    for (begin, _), hypothesis, gap in zip(parts.spans, chosen, parts.separators[1:], strict=True):
        source, target = _first_word(parts.line[:begin]), _first_word(written)
        for source_word, target_word in hypothesis.alignment:
            in_line = source_word if source_word < tag_words else source + source_word - tag_words
            links.setdefault(target + target_word, in_line)
        written += f"{hypothesis.text}{gap}"
    return tuple((source, target) for target, source in sorted(links.items()))


def _first_word(before: str) -> int:
    """Returns the number of the word that begins, or is continued, after this text."""
    continues = bool(before) and not before[-1].isspace()
    return len(before.split()) - continues
