"""What the comparison of exports shares: equally probable pieces of a text, and batches by length."""

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


def batches_of(lengths: Sequence[int], max_tokens: int = 2048) -> list[list[int]]:
    """Returns the numbers of sentences in batches of similar lengths.

    Args:
        lengths: the length of each sentence in tokens.
        max_tokens: maximum number of tokens of a batch, padding counted; a longer sentence is alone.
    """
    batches: list[list[int]] = []
    for row in sorted(range(len(lengths)), key=lengths.__getitem__):
        if batches and (len(batches[-1]) + 1) * lengths[row] <= max_tokens:
            batches[-1].append(row)
        else:
            batches.append([row])
    return batches
