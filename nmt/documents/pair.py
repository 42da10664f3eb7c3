"""The languages of a translation, and their codes in files."""

from __future__ import annotations

from typing import NamedTuple

from nmt.errors import UserError
from nmt.languages import distance
from nmt.runtime.streams import visible


class TooManyLines(UserError):
    """A file has more lines than a reader may find."""


class Pair(NamedTuple):
    """The codes of a source and a target language; None: any. And the most lines that a file may have."""

    source: str | None = None
    target: str | None = None
    most_lines: int = 1 << 62

    def mismatch(self, source: str, target: str) -> str:
        """Returns what is wrong with the languages that a file declares; empty if nothing is."""
        for side, code, wanted in (("source", source, self.source), ("target", target, self.target)):
            if code and wanted and distance(wanted, code) is None:
                return f"its {side} language is {visible(code)}, but the translation's is {wanted}"
        return ""
