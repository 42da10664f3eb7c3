"""Plain text as lines, and what all texts with lines have in common."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

_LINE_END = re.compile(r"(\r?\n|<br />)")


class Document(Protocol):
    """A text as lines, none or more, that can be joined again."""

    @property
    def lines(self) -> Sequence[str]:
        """The lines to translate."""
        ...

    def joined(self, lines: Sequence[str]) -> str:
        """Returns the text with other lines, such as translations."""
        ...


@dataclass(frozen=True)
class Text:
    r"""A text as lines without their ends, one or more; only `\n`, `\r\n` and `<br />` end a line.

    Subtitle Edit writes `<br />` in texts. `ends` has the end of each line; the last one may be empty.
    """

    lines: Sequence[str]
    ends: Sequence[str]

    @classmethod
    def of(cls, text: str) -> Text:
        """Splits a text into lines."""
        parts = _LINE_END.split(text)
        last = parts[-1].removesuffix("\r")
        return cls([*parts[:-1:2], last], [*parts[1::2], parts[-1][len(last) :]])

    def joined(self, lines: Sequence[str]) -> str:
        """Returns other lines, such as translations, with the line ends of this text."""
        return "".join(line + end for line, end in zip(lines, self.ends, strict=True))
