"""The phrases of constraints that a translation can contain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from nmt.data.subwords.tokenizer import Tokenizer


def separated(phrases: Sequence[str], tokenizer: Tokenizer) -> tuple[list[str], tuple[str, ...]]:
    """Returns the phrases that a translation can contain, and those without pieces, such as a blank."""
    pairs = [*zip(phrases, tokenizer.encode_target(phrases), strict=True)]
    return [text for text, ids in pairs if ids], tuple(text for text, ids in pairs if not ids)
