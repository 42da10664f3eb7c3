"""What is known about the text of a model: its languages, and the lines that it was trained with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from nmt.config import DataConfig
from nmt.data.letter_case import CaseFacts


@dataclass(frozen=True)
class TextFacts:
    """The facts about the text of a model.

    Attributes:
        source_lang: code of the source language.
        target_lang: code of the target language.
        several_sentences: the share of the source lines with more than one sentence; None, for models of
            earlier versions and of other programs: unknown.
        characters: the length in characters that 99 % of the source lines do not exceed; None: unknown.
        case: the shares of the source lines in each case; None: unknown, or there are no letters with a case.
        targets: the target language of each tag, if there are several.
    """

    source_lang: str
    target_lang: str
    several_sentences: float | None = None
    characters: int | None = None
    case: CaseFacts | None = None
    targets: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, data: DataConfig, results: Mapping[str, Any]) -> TextFacts:
        """Returns the facts in `results.json` of a model that was trained with these options of the data."""
        several = characters = case = None
        try:
            facts = results["data"]["text"]
            case = _case(facts.get("case"))
            several, characters = float(facts["several_sentences"]), int(facts["characters"])
        except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
            pass
        return cls(data.source_lang, data.target_lang, several, characters, case, data.tag_langs())


def _case(shares: Any) -> CaseFacts | None:
    """Returns the recorded shares; raises an error if they are none."""
    return None if shares is None else CaseFacts(*(float(shares[one.name]) for one in fields(CaseFacts)))
