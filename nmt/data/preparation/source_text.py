"""Facts about the training text, from a sample of it: `text` in the report of the data.

A translator compares its input with them: text that the model has not learnt needs another treatment.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from nmt.copying import numbers, strings
from nmt.copying.numbers import NumberComparison
from nmt.copying.strings import ADDRESS, TAG, VARIABLE
from nmt.data import letter_case, sentences
from nmt.data.letter_case import CaseFacts

NUM_LINES = 20_000
"""Number of lines of a sample."""
_VERSION = 3  # increase it if there are other facts
FINGERPRINT = [
    *(_VERSION, letter_case.VERSION, sentences.VERSION, numbers.VERSION, strings.VERSION),
    *(version("sentencex"), NUM_LINES),
]
"""Identifies the way in which the facts are computed."""


def text_facts(pairs: Sequence[tuple[str, str]], langs: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Returns the facts about pairs without tags; `langs` has the codes of the languages of each.

    Returns:
        `case`, the shares of lines in each case, as in `CaseFacts`; null if no line has letters with a case.
        `several_sentences`, the share of lines with more than one sentence. `characters`, a length in
        characters that 99 % of the lines do not exceed. `tags`, `variables` and `addresses`, the shares of
        lines with XML and HTML tags, with variables, and with URLs or e-mail addresses. These are of the
        sources. `number_words`, of the sources with digits, the share whose target has a number of two digits
        in words.
    """
    sources = [(source, lang) for (source, _), (lang, _) in zip(pairs, langs, strict=True)]
    case = CaseFacts.of(sources)
    several = sum(len(sentences.sentence_spans(line, lang)) > 1 for line, lang in sources)
    lengths = sorted(len(line) for line, _ in sources)
    return {
        "case": None if case is None else asdict(case),
        "several_sentences": round(several / len(sources), 4),
        "characters": lengths[(len(lengths) - 1) * 99 // 100],
        "tags": _share(TAG, sources),
        "variables": _share(VARIABLE, sources),
        "addresses": _share(ADDRESS, sources),
        "number_words": _number_words(pairs, langs),
    }


def _share(pattern: re.Pattern[str], sources: Sequence[tuple[str, str]]) -> float:
    return round(sum(pattern.search(line) is not None for line, _ in sources) / len(sources), 4)


def _number_words(pairs: Sequence[tuple[str, str]], langs: Sequence[tuple[str, str]]) -> float:
    comparisons = {pair: NumberComparison(*pair) for pair in dict.fromkeys(langs)}
    in_words = total = 0
    for (source, target), pair in zip(pairs, langs, strict=True):
        if any(map(str.isdigit, source)):
            total += 1
            in_words += comparisons[pair].has_words(source, target)
    return round(in_words / max(total, 1), 4)
