"""The word of each piece of a text, from the offsets that SentencePiece reports.

Words are separated by white space, as in `str.split`. Normalisation may change the text, and a word may have
pieces with a space in them, so the text of the pieces does not show where a word begins. SentencePiece
reports for each piece the bytes of the text that it stands for.
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Callable, Sequence
from itertools import accumulate

from nmt.data.subwords.protobuf import protobuf_fields

NO_WORD = -1
"""The number of a piece that belongs to no word, such as a space at the end."""


def words_of_text(text: str, encode: Callable[[list[str]], list[list[int]]]) -> list[int]:
    """Returns the number of the word of each piece of a text.

    Args:
        text: split at spaces; each part is encoded alone, as `Words` does it.
        encode: returns for each part the first byte of each of its pieces.
    """
    parts = [(match.start(), match[0]) for match in re.finditer("[^ ]+", text)]
    starts = [len(text[:start].encode()) for start, _ in parts]
    found = encode([part for _, part in parts]) if parts else []
    begins = [start + begin for start, part in zip(starts, found, strict=True) for begin in part]
    return words_at(text, text, begins)


def words_at(text: str, shown: str, begins: Sequence[int]) -> list[int]:
    """Returns the number of the word at each place.

    A place between two words belongs to the second one: a piece such as `▁word` begins with its space.

    Args:
        text: the text that the places refer to.
        shown: the text that the user sees, which is split into words. It has as many characters as `text`.
        begins: places, as numbers of bytes.
    """
    assert len(text) == len(shown)
    ends = [match.end() for match in re.finditer(r"\S+", shown)]
    byte_ends = [0, *accumulate(len(character.encode()) for character in text)]
    last_bytes = [byte_ends[end] for end in ends]
    words = [bisect_right(last_bytes, begin) for begin in begins]  # the first word that ends after the place
    return [word if word < len(ends) else NO_WORD for word in words]


def piece_begins(message: bytes) -> list[int]:
    """Returns the first byte of each piece of a `SentencePieceText` message (its fields 2 and 4)."""
    pieces = (value for number, value in protobuf_fields(message) if number == 2)
    return [
        next(int(value) for number, value in protobuf_fields(piece) if number == 4)
        for piece in pieces
        if isinstance(piece, bytes)
    ]
