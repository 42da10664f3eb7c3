"""Facts about the training sources, from a sample of them: `text` in the report of the data.

A translator compares its input with them: text that the model has not learnt needs another treatment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from importlib.metadata import version
from typing import Any

from nmt.data import letter_case, sentences
from nmt.data.letter_case import CaseFacts

NUM_LINES = 20_000
"""Number of lines of a sample."""
FINGERPRINT = [letter_case.VERSION, sentences.VERSION, version("sentencex"), NUM_LINES]
"""Identifies the way in which the facts are computed."""


def text_facts(sources: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Returns the facts about source lines without tags, each with the code of its language.

    Returns:
        `case`, the shares of lines in each case, as in `CaseFacts`; null if no line has letters with a case.
        `several_sentences`, the share of lines with more than one sentence. `characters`, a length in
        characters that 99 % of the lines do not exceed.
    """
    case = CaseFacts.of(sources)
    several = sum(len(sentences.sentence_spans(line, lang)) > 1 for line, lang in sources)
    lengths = sorted(len(line) for line, _ in sources)
    return {
        "case": None if case is None else asdict(case),
        "several_sentences": round(several / len(sources), 4),
        "characters": lengths[(len(lengths) - 1) * 99 // 100],
    }
