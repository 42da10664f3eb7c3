"""Markdown pages of the repository, taken apart: prose, code blocks, links and anchors."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]


@dataclass(frozen=True)
class Block:
    """A fenced code block.

    Attributes:
        path: its page.
        line: number of its first line of code, from 1.
        language: the word after the fence; empty if there is none.
        text: the code.
    """

    path: Path
    line: int
    language: str
    text: str


def pages() -> list[Path]:
    """The pages: those in the root of the repository and in scripts/, and all in docs/."""
    return [
        *sorted(ROOT.glob("*.md")),
        *sorted(ROOT.glob("scripts/**/*.md")),
        *sorted(ROOT.glob("docs/**/*.md")),
    ]


def name(path: Path) -> str:
    """The path of a file as messages show it."""
    return path.relative_to(ROOT).as_posix()


@cache
def page(path: Path) -> tuple[tuple[tuple[int, str], ...], tuple[Block, ...]]:
    """The prose of a page, as numbered lines, and its code blocks."""
    prose: list[tuple[int, str]] = []
    blocks: list[Block] = []
    code: list[str] | None = None
    language, start = "", 0
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if line.lstrip().startswith("```"):
            if code is None:
                code, language, start = [], line.strip().removeprefix("```").strip(), number + 1
            else:
                blocks.append(Block(path, start, language, "\n".join(code)))
                code = None
        elif code is None:
            prose.append((number, line))
        else:
            code.append(line)
    assert code is None, f"{path}:{start}: the code block has no end"
    return tuple(prose), tuple(blocks)


def links(path: Path) -> Iterator[tuple[int, str]]:
    """The targets of the links and images of a page, with their lines; not those of other sites."""
    for number, line in page(path)[0]:
        for target in re.findall(r"\]\(([^)\s]+)\)", re.sub(r"`[^`]*`", "", line)):
            if not re.match(r"[a-z]+:", target):
                yield number, target


@cache
def anchors(path: Path) -> frozenset[str]:
    """The anchors of the headings of a page, as GitHub makes them."""
    found: set[str] = set()
    for _, line in page(path)[0]:
        if match := re.fullmatch(r"#{1,6} +(.*?)(?: +#+)?", line):
            words = re.sub(r"[^\w\- ]", "", re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", match[1]).lower())
            anchor, times = words.strip().replace(" ", "-"), 0
            while (numbered := f"{anchor}-{times}" if times else anchor) in found:
                times += 1
            found.add(numbered)
    return frozenset(found)
