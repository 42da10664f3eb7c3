"""The languages of a translation, and their codes in files."""

from __future__ import annotations

from typing import NamedTuple

from nmt.languages import distance
from nmt.runtime.streams import visible


class Pair(NamedTuple):
    """The codes of a source and a target language; None: any."""

    source: str | None = None
    target: str | None = None

    def mismatch(self, source: str, target: str) -> str:
        """Returns what is wrong with the languages that a file declares; empty if nothing is."""
        for side, code, wanted in (("source", source, self.source), ("target", target, self.target)):
            if code and wanted and distance(wanted, code) is None:
                return f"its {side} language is {visible(code)}, but the translation's is {wanted}"
        return ""
