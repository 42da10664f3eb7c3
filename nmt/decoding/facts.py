"""What is known about the text of a model: its languages, and the lines that it was trained with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Any

from nmt.config import DataConfig
from nmt.copying.numbers import NumberComparison
from nmt.data.letter_case import CaseFacts

FEW = 0.005
"""With a smaller share of training lines of a kind, such as lines in capitals, a model does not know them."""


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
        number_words: of the sources with digits, the share whose target has a number of two digits in words;
            None: unknown.
        tags: the share of the source lines with XML or HTML tags; None: unknown.
        variables: the share of the source lines with variables such as `{name}`; None: unknown.
        addresses: the share of the source lines with URLs or e-mail addresses; None: unknown.
        targets: the target language of each tag, if there are several.
    """

    source_lang: str
    target_lang: str
    several_sentences: float | None = None
    characters: int | None = None
    case: CaseFacts | None = None
    number_words: float | None = None
    tags: float | None = None
    variables: float | None = None
    addresses: float | None = None
    targets: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, data: DataConfig, results: Mapping[str, Any]) -> TextFacts:
        """Returns the facts in `results.json` of a model that was trained with these options of the data."""
        text = results.get("data", {}).get("text")
        facts = text if isinstance(text, Mapping) else {}
        return cls(
            *(data.source_lang, data.target_lang),
            several_sentences=_number(facts.get("several_sentences")),
            characters=None if (length := _number(facts.get("characters"))) is None else int(length),
            case=_case(facts.get("case")),
            number_words=_number(facts.get("number_words")),
            tags=_number(facts.get("tags")),
            variables=_number(facts.get("variables")),
            addresses=_number(facts.get("addresses")),
            targets=data.tag_langs(),
        )

    def comparison(self, tag: str = "") -> NumberComparison:
        """Returns the comparison of the numbers of a line with this tag and of its translation."""
        words = self.number_words is not None and self.number_words >= _WORDS
        return NumberComparison(self.source_lang, self.targets.get(tag, self.target_lang), words=words)


_WORDS = 0.02  # a share of pairs with numbers in words, which a translation may then have too


def _number(value: Any) -> float | None:
    """Returns a recorded number; None if it is none, since the file may come from a stranger."""
    return float(value) if isinstance(value, int | float) and abs(value) < 1e15 else None


def _case(shares: Any) -> CaseFacts | None:
    names = [one.name for one in fields(CaseFacts)]
    values = [_number(shares.get(name)) for name in names] if isinstance(shares, Mapping) else [None]
    return None if None in values else CaseFacts(**dict(zip(names, values, strict=True)))  # type: ignore[arg-type]
