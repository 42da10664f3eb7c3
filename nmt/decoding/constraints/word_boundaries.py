"""The boundaries of words: in lines for terms, and between target pieces for constraints.

A word is a sequence of letters, digits and combining marks. Chinese, Japanese, Thai, Lao, Khmer and Burmese
do not separate words, so each of their characters is a word. Korean attaches particles to words, so a Korean
term begins where a word begins, and more Hangul may follow it.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable
from functools import lru_cache

WORD_MARK = "\u2581"
"""Begins the pieces that begin a word, in SentencePiece models."""

_UNSPACED = ("CJK ", "HIRAGANA ", "KATAKANA ", "BOPOMOFO ", "THAI ", "LAO ", "KHMER ", "MYANMAR ")
_BYTE = re.compile("<0x([0-9A-F]{2})>")


def split_words(text: str) -> list[str]:
    """Splits a text into words and single other characters.

    Args:
        text: any text. It is normalised to NFC.

    Returns:
        The parts. A part after white space begins with a space, except the first part.
    """
    parts: list[str] = []
    is_open, space = False, ""
    for one in unicodedata.normalize("NFC", text):
        if one.isspace():
            is_open, space = False, " " if parts else ""
            continue
        is_word, is_alone, is_mark = _kind(one)
        joins = (is_mark and not space and bool(parts)) or (is_word and is_open and not is_alone)
        if joins:
            parts[-1] += one
        else:
            parts.append(space + one)
            is_open = is_word and not is_alone
        space = ""
    return parts


def begins_inside(before: str, part: str) -> bool:
    """Returns whether a part of `split_words` is inside a word that begins in the part before it."""
    return _is_hangul(before[-1]) and _is_hangul(part[0])


def continuing_ids(pieces: Iterable[str]) -> frozenset[int]:
    """Returns the ids of the pieces that continue the word of the piece before them.

    Args:
        pieces: the pieces of the vocabulary in the order of their ids.
    """
    return frozenset(number for number, piece in enumerate(pieces) if _continues(piece))


def _continues(piece: str) -> bool:
    if byte := _BYTE.fullmatch(piece):
        code = int(byte[1], 16)
        return code >= 0x80 or chr(code).isalnum()
    if not piece:
        return False
    is_word, is_alone, _ = _kind(piece[0])
    return is_word and not is_alone


@lru_cache(maxsize=1 << 16)
def _kind(character: str) -> tuple[bool, bool, bool]:
    """Returns whether a character is part of words, whether it is a word alone, whether it is a mark."""
    category = unicodedata.category(character)[0]
    is_alone = unicodedata.name(character, "").startswith(_UNSPACED) or _is_hangul(character)
    return category in "LNM", is_alone and category != "M", category == "M"


def _is_hangul(character: str) -> bool:
    return unicodedata.name(character, "").startswith("HANGUL ")
