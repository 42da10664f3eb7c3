"""Bins of sentences by properties of their sources, such as length and rare words; each has scores."""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise

from nmt.languages import language_of

_LENGTHS = (1, 6, 11, 16, 21, 31, 41, 61, 101)
_COUNTS = (0, 1, 2, 5, 10, 100, 1000)
WORD = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")
"""A word without numbers."""
_QUESTION = re.compile("[?？؟՞\u037e](?=$|[\\s\"'”’»«)\\]」』])")

_NEGATIONS = {
    "cs": "ne není nejsou nebyl nebyla nebylo nemá nikdy nic nikdo žádný žádná žádné bez",
    "da": "ikke ingen intet aldrig ingenting uden",
    "de": "nicht nichts nie niemals niemand kein keine keinen keinem keiner keines ohne",
    "en": "no not never nothing nobody none neither nor nowhere cannot without",
    "es": "no nunca jamás nada nadie ningún ninguno ninguna sin tampoco",
    "fr": "ne pas jamais rien aucun aucune sans",
    "it": "non mai niente nulla nessuno nessuna nessun senza",
    "nl": "niet niets nooit niemand geen zonder nergens",
    "no": "ikke ingen intet aldri ingenting uten",
    "pl": "nie nigdy nic nikt żaden żadna żadne bez",
    "pt": "não nunca jamais nada ninguém nenhum nenhuma sem",
    "ru": "не нет ни никогда ничего никто нельзя без",
    "sv": "inte ej ingen inget inga aldrig ingenting utan",
    "tr": "değil yok asla hayır",
    "uk": "не немає ні ніколи нічого ніхто без",
}
"""Words of negation in each language."""
_NEGATION_PARTS = {
    "en": r"n['’]t\b",
    "fr": r"\bn['’]",
    "ja": "ない|なく|なかっ|ません",
    "ko": r"\b안 |않|못|없|아니",
    "zh": "[不没沒無无未]",
}
"""Patterns of negation that is not a word between spaces."""


@dataclass(frozen=True)
class Bins:
    """A partition of sentences.

    Attributes:
        title: what the labels say, such as `source words`.
        labels: the label of each sentence.
        order: all labels in the order in which they are shown.
    """

    title: str
    labels: Sequence[str] = field(repr=False)
    order: Sequence[str]


def bins_of(
    sources: Sequence[str], source_lang: str = "", counts: Mapping[str, int] | None = None
) -> dict[str, Bins]:
    """Returns the bins of sentences by name: `length`, `rare_words`, `numbers`, `negation` and `questions`.

    Args:
        sources: the sources; the result is empty without any.
        source_lang: their language; the words of negation must be known.
        counts: how often each word of the sources, as in `words_of`, occurs in the training sources; None if
            this is not known.
    """
    if not sources:
        return {}
    spaced = language_of(source_lang).has_spaces
    lengths = [len(source.split()) if spaced else len("".join(source.split())) for source in sources]
    unit, edges = ("words", _LENGTHS) if spaced else ("characters", [2 * edge - 1 for edge in _LENGTHS])
    bins = {"length": _by_number(f"source {unit}", lengths, edges)}
    if counts is not None and spaced:
        rarest = [min((counts.get(word, 0) for word in words_of(source)), default=None) for source in sources]
        bins["rare_words"] = _by_number("rarest word in training", rarest, _COUNTS)
    bins["numbers"] = _by_truth("numbers", [any(map(str.isdigit, source)) for source in sources])
    if (pattern := _negation(source_lang)) is not None:
        bins["negation"] = _by_truth(
            "negation", [bool(pattern.search(source.casefold())) for source in sources]
        )
    bins["questions"] = _by_truth("questions", [bool(_QUESTION.search(source)) for source in sources])
    return bins


def words_of(line: str) -> list[str]:
    """Returns the words of a line in one case, without numbers."""
    return WORD.findall(line.casefold())


def _by_number(title: str, numbers: Sequence[int | None], edges: Sequence[int]) -> Bins:
    """Returns bins that begin at ascending edges; None and numbers below the first edge are `none`."""
    ranges = [f"{low}" if high == low + 1 else f"{low}-{high - 1}" for low, high in pairwise(edges)]
    order = ["none", *ranges, f"{edges[-1]} or more"]
    places = [0 if number is None else bisect_right(edges, number) for number in numbers]
    return Bins(title, [order[place] for place in places], order)


def _by_truth(title: str, truths: Sequence[bool]) -> Bins:
    return Bins(title, ["with" if truth else "without" for truth in truths], ("with", "without"))


def _negation(lang: str) -> re.Pattern[str] | None:
    """Returns a pattern of the negations of a language; None if they are not known."""
    language = language_of(lang).language
    words = _NEGATIONS.get("no" if language in ("nb", "nn") else language, "").split()
    patterns = [rf"\b(?:{'|'.join(words)})\b"] if words else []
    if language in _NEGATION_PARTS:
        patterns.append(_NEGATION_PARTS[language])
    return re.compile("|".join(patterns)) if patterns else None
