"""What is known about the text of a model: its languages, and the lines that it was trained with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from nmt.config import DataConfig


@dataclass(frozen=True)
class TextFacts:
    """The facts about the text of a model.

    Attributes:
        source_lang: code of the source language.
        target_lang: code of the target language.
        several_sentences: the share of the source lines with more than one sentence; None, for models of
            earlier versions and of other programs: unknown.
        characters: the length in characters that 99 % of the source lines do not exceed; None: unknown.
    """

    source_lang: str
    target_lang: str
    several_sentences: float | None = None
    characters: int | None = None

    @classmethod
    def of(cls, data: DataConfig, results: Mapping[str, Any]) -> TextFacts:
        """Returns the facts in `results.json` of a model that was trained with these options of the data."""
        languages = data.source_lang, data.target_lang
        try:
            facts = results["data"]["text"]
            return cls(*languages, float(facts["several_sentences"]), int(facts["characters"]))
        except (KeyError, TypeError, ValueError, OverflowError):
            return cls(*languages)
