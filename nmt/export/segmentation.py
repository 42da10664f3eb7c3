"""Equally probable ways to cut a text into pieces."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

_TIE = 1e-5  # relative; SentencePiece adds the log-probabilities of pieces in fp32


def equally_probable(processor: Any, line: str, ids: Sequence[int]) -> bool:
    """Returns whether `ids` encode a text as well as the ids that SentencePiece chooses, up to rounding."""
    found = processor.encode(line)
    if processor.decode(found) != processor.decode(list(ids)):
        return False
    scores = [sum(map(processor.get_score, one)) for one in (found, ids)]
    return bool(abs(scores[0] - scores[1]) <= _TIE * max(1.0, abs(scores[1])))
