"""Facts about the training sources, from a sample of them: `text` in the report of the data.

A translator compares its input with them: text that the model has not learnt needs another treatment.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from typing import Any

from nmt.data.letter_case import VERSION, CaseFacts

NUM_LINES = 20_000
"""Number of lines of a sample."""
FINGERPRINT = [VERSION, NUM_LINES]
"""Identifies the way in which the facts are computed."""


def text_facts(sources: Sequence[tuple[str, str]]) -> dict[str, Any]:
    """Returns the facts about source lines without tags, each with the code of its language.

    Returns:
        `case`, the shares of lines in each case, as in `CaseFacts`; null if no line has letters with a case.
    """
    case = CaseFacts.of(sources)
    return {"case": None if case is None else asdict(case)}
