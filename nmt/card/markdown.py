"""Markdown of text that may come from a stranger: one line, code, code blocks and tables."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from nmt.runtime import printable

_LONGEST = 200  # characters of a name or a value


def line(text: Any) -> str:
    """Returns a value as one line of limited length without control characters."""
    whole = printable(" ".join(str(text).split()))
    return whole if len(whole) <= _LONGEST else f"{whole[:_LONGEST]}…"


def code(text: Any) -> str:
    """Returns a value as code in Markdown."""
    shown = line(text) or " "
    fence = "`" * (_longest_ticks(shown) + 1)
    space = " " if shown.startswith("`") or shown.endswith("`") else ""
    return f"{fence}{space}{shown}{space}{fence}"


def block(text: str, language: str) -> str:
    """Returns lines of text as a block of code."""
    fence = "`" * max(3, _longest_ticks(text) + 1)
    return f"{fence}{language}\n{text}{fence}"


def table(head: str, rows: Iterable[tuple[str, ...]]) -> str:
    """Returns a table; empty if it has no rows. A vertical bar in a cell needs a backslash, also in code."""
    lines = [" | ".join(cell.replace("|", "\\|") for cell in row) for row in rows]
    rule = " | ".join("---" for _ in head.split(" | "))
    return "\n".join(f"| {one} |" for one in (head, rule, *lines)) if lines else ""


def _longest_ticks(text: str) -> int:
    return max(map(len, re.findall("`+", text)), default=0)
