"""Terminology files: the required translations of source terms.

A file has a line `source term<TAB>target term` for each term, in UTF-8. Blank lines and lines that begin with
# are ignored. A target term is written as in the file, without white space at its ends. A source term occurs
in a line only as whole words; the number of spaces between them has no effect. A term in lower case matches
in any case. A term with a capital letter matches exactly.

A word is a sequence of letters, digits and combining marks. Chinese, Japanese, Thai, Lao, Khmer and Burmese
do not separate words, so each of their characters is a word. Korean attaches particles to words, so a Korean
term begins where a word begins, and more Hangul may follow it.
"""

from __future__ import annotations

import os
import re
import unicodedata
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

from nmt.config import TranslateConfig
from nmt.data.corpora.text import read_lines
from nmt.errors import UserError
from nmt.runtime.files import expanded
from nmt.runtime.os_errors import read_errors

Parts = tuple[str, ...]
Terms = Callable[[str], Sequence[str]]
"""Returns the constraints of a line."""


class Terminology:
    """Finds the terms of a line: target terms by their source terms, which are split into words."""

    def __init__(self, terms: Mapping[Parts, str]) -> None:
        self._terms = terms
        self._lengths: dict[str, list[int]] = {}  # of the terms with the same first part, longest first
        for parts in terms:
            lengths = self._lengths.setdefault(parts[0], [])
            if len(parts) not in lengths:
                lengths.append(len(parts))
                lengths.sort(reverse=True)

    @classmethod
    def of(cls, terms: Iterable[tuple[str, str]], base: Terminology | None = None) -> Terminology:
        """Returns terms, each a source and a target term, and those of `base` with other source terms."""
        own = {tuple(split_words(source)): target for source, target in terms}
        return cls({**(base._terms if base is not None else {}), **own})

    def targets(self, line: str) -> list[str]:
        """Returns the target terms of the source terms in a line.

        Terms are found from left to right, the longest first. They do not overlap. A term that occurs twice
        yields its target term twice.
        """
        exact = split_words(line)
        lower = [part.lower() for part in exact]
        targets, position = [], 0
        while position < len(exact):
            # Inside a word that begins in the part before
            if position and _is_hangul(exact[position - 1][-1]) and _is_hangul(exact[position][0]):
                position += 1
                continue
            matches = [self._match(exact, position), self._match(lower, position)]
            length, target = max(matches, key=lambda match: match[0])  # the exact one if both are equal
            if length:
                targets.append(target)
            position += length or 1
        return targets

    def _match(self, parts: Sequence[str], position: int) -> tuple[int, str]:
        """Returns the length and the target of the longest term at a position; 0 without one."""
        first = parts[position].removeprefix(" ")
        for length in self._lengths.get(first, ()):
            target = self._terms.get((first, *parts[position + 1 : position + length]))
            if target is not None and position + length <= len(parts):
                return length, target
        return 0, ""


def configured_terms(config: TranslateConfig) -> Terms | None:
    """Returns the terms of `config.terminology`; None if the option is not given.

    Raises:
        UserError: as for `load_terminology`, or the translations are samples.
    """
    if config.terminology is None:
        return None
    if config.decoding.samples:
        raise UserError(
            f"terminology={config.terminology}: samples can't have constraints. Set decoding.samples=0."
        )
    return load_terminology(config.terminology).targets


def load_terminology(file: str | os.PathLike[str]) -> Terminology:
    """Reads a terminology file; the module's docstring has its format.

    Raises:
        UserError: the file can't be read or is not UTF-8, a line is not two terms with a tab between them, or
            a source term has two target terms.
    """
    path = expanded(os.fspath(file))
    with read_errors(path):
        if not path.exists():
            raise UserError(f"terminology={file}: there is no such file (looked at {path.absolute()}).")
        if path.is_dir():
            raise UserError(f"terminology={file}: is a folder. Give a file.")
    terms: dict[Parts, str] = {}
    numbers: dict[Parts, int] = {}
    for number, line in enumerate(read_lines(path), 1):
        if not line.strip() or line.startswith("#"):
            continue
        fields = [field.strip() for field in line.split("\t")]
        if len(fields) != 2 or not all(fields):
            raise UserError(
                f"{path}:{number}: must be a source term, a tab and a target term, not {line[:60]!r}."
            )
        source, target = fields
        parts = tuple(split_words(source))
        if parts in terms and terms[parts] != target:
            raise UserError(
                f"{path}:{number}: {source!r} has another target term in line {numbers[parts]}. "
                "Remove one of the two lines."
            )
        terms.setdefault(parts, target)
        numbers.setdefault(parts, number)
    return Terminology(terms)


_UNSPACED = ("CJK ", "HIRAGANA ", "KATAKANA ", "BOPOMOFO ", "THAI ", "LAO ", "KHMER ", "MYANMAR ")
_BYTE = re.compile("<0x([0-9A-F]{2})>")


def split_words(text: str) -> list[str]:
    """Splits a text, normalised to NFC, into words and single other characters.

    A part after white space begins with a space, except the first part.
    """
    parts: list[str] = []
    is_open, space = False, ""
    for character in unicodedata.normalize("NFC", text):
        if character.isspace():
            is_open, space = False, " " if parts else ""
            continue
        is_word, is_alone, is_mark = _kind(character)
        joins = (is_mark and not space and bool(parts)) or (is_word and is_open and not is_alone)
        if joins:
            parts[-1] += character
        else:
            parts.append(space + character)
            is_open = is_word and not is_alone
        space = ""
    return parts


def continuing_ids(pieces: Iterable[str]) -> frozenset[int]:
    """Returns the ids of the pieces of a vocabulary that continue the word of the piece before them."""
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
