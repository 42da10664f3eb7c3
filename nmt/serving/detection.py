"""The language of a text, by the detector of the extra `langid`, among the languages that a server has."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

from starlette.exceptions import HTTPException

from nmt.data.cleaning.rules.language import detector
from nmt.languages import distance

_MOST = 3  # languages of an answer


async def detected(text: str, codes: Sequence[str]) -> list[Mapping[str, Any]]:
    """Returns the languages that a text may be in, of `codes`, as LibreTranslate does: the best ones first.

    The confidence is a percentage among all languages that the detector knows. A text without letters, or in
    no language of `codes`, has the first of them with the confidence 0.

    Raises:
        HTTPException: the detector is not installed (501).
    """
    if not any(map(str.isalpha, text)):
        return [{"confidence": 0.0, "language": codes[0]}]
    try:
        values = await asyncio.to_thread(_values, text)
    except ImportError:
        raise HTTPException(
            501, 'The server can\'t detect languages. Its operator can install "nmt[langid]".'
        ) from None
    found: dict[str, float] = {}
    for name, value in values:
        near = [(far, code) for code in codes if (far := distance(name, code)) is not None]
        if near and round(100 * value) > 0:
            found.setdefault(min(near)[1], float(round(100 * value)))
    if not found:
        return [{"confidence": 0.0, "language": codes[0]}]
    return [{"confidence": value, "language": code} for code, value in [*found.items()][:_MOST]]


def _values(text: str) -> list[tuple[str, float]]:
    """Returns codes and probabilities of the languages of a text, the most probable first."""
    values = detector().compute_language_confidence_values(text)
    return [(value.language.iso_code_639_1.name.lower(), value.value) for value in values]
