"""Phrasings that readers found hard: none of them is in the prose of `nmt` and of the pages.

The list has only phrasings that are nearly always wrong here. CONTRIBUTING.md has the rules.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from doc_pages import ROOT, name, page, pages

BANNED = {
    r"(is|are|was|were) (told)": "is logged, is reported",
    r"(?<!there )(?<!it )(is|are) (no) (?!longer|more|other)[a-z]+": "is not a ...",
    r"(comes|come|came) (to)(?! an end)": "yields, is",
    r"(go|goes|going|gone|went) (on)(?! to)": "resume, continue",
    r"whoever|anew|likewise|meanwhile": "again, in the same way, at the same time",
    r"as it stands": "literally, unchanged",
    r"but for": "except for",
    r"hears? of": "reads, receives",
    r"tells of": "describes, shows",
    r"so many": "a number, `count`",
    r"(is|are|be|was|were) (kept)": "is retained, is stored, stays",
    r"beside": "next to, besides",
    r"mend(s|ed|ing)?": "repair, fix, correct",
    r"the way back": "rollback",
    r"(is|are) (no) (number)": "is not finite",
    r"newcomer|indisputable": "new entry, clear",
}
"""Phrasing → better words."""

_PATTERNS = {
    re.compile(rf"\b(?:{phrase})\b".replace(" (", r"\s+(?:#\s*)?("), re.IGNORECASE): better
    for phrase, better in BANNED.items()
}
"""A phrasing may be broken over two lines, also of a comment, where a group begins."""


def python_files() -> list[Path]:
    """The modules of `nmt`."""
    return sorted((ROOT / "nmt").rglob("*.py"))


def prose(path: Path) -> str:
    """The text of a file; of a page without its code, with the lines where they were."""
    if path.suffix == ".py":
        return path.read_text(encoding="utf-8")
    lines = dict(page(path)[0])
    return "\n".join(re.sub(r"`[^`]*`", "``", lines.get(number, "")) for number in range(1, max(lines) + 1))


def findings(text: str) -> Iterator[tuple[int, str, str]]:
    """Line, phrasing and better words of each banned phrasing in a text."""
    for pattern, better in _PATTERNS.items():
        for match in pattern.finditer(text):
            yield text.count("\n", 0, match.start()) + 1, " ".join(match[0].split()), better


def test_plain_english() -> None:
    found = [
        f"{name(path)}:{line}: {phrase!r}: write {better}"
        for path in (*python_files(), *pages())
        for line, phrase, better in sorted(findings(prose(path)))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "lines"),
    [
        ("The run goes on.", [1]),
        ("a\n# the files are\n# kept", [2]),
        ("There is no file. It is no longer there. It went on to win.", []),
        ("This is no folder.\nIt was told.", [1, 2]),
    ],
)
def test_phrasings_are_found(text: str, lines: list[int]) -> None:
    assert sorted(line for line, _, _ in findings(text)) == lines
