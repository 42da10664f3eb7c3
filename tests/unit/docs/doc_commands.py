"""Commands in the `bash` blocks of the pages, taken apart as a shell does it."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from dataclasses import dataclass

from doc_pages import name, page, pages

ELLIPSIS = "..."
"""Stands for the reader's other options."""
_REDIRECTIONS = {"<", ">", ">>", "<<<"}
_VARIABLE = re.compile(r"[A-Z_]+=.*")


@dataclass(frozen=True)
class Command:
    """One simple command.

    Attributes:
        where: page and line.
        words: its words, without variables before it and without redirections.
    """

    where: str
    words: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.where}: {shlex.join(self.words)}"


def commands() -> Iterator[Command]:
    """The commands of all pages."""
    for path in pages():
        for block in page(path)[1]:
            if block.language == "bash":
                for number, line in _logical_lines(block.text, block.line):
                    for words in simple_commands(line):
                        yield Command(f"{name(path)}:{number}", tuple(words))


def simple_commands(line: str) -> Iterator[list[str]]:
    """The simple commands of a line: between `|`, `&&`, `;` and the like."""
    lexer = shlex.shlex(line, posix=True, punctuation_chars="|&;<>")
    lexer.whitespace_split = True
    found: list[str] = []
    skipped = False
    for word in [*lexer, ";"]:
        if word in _REDIRECTIONS:
            skipped = True
        elif set(word) <= set("|&;"):
            while found and _VARIABLE.fullmatch(found[0]):
                del found[0]
            if found:
                yield found
            found = []
        elif skipped:
            skipped = False
        else:
            found.append(word)


def _logical_lines(text: str, first: int) -> Iterator[tuple[int, str]]:
    """Lines with their continuations, and the numbers of their first lines."""
    joined, start = "", first
    for number, line in enumerate(text.splitlines(), first):
        if not joined:
            start = number
        joined += line.removesuffix("\\")
        if not line.endswith("\\"):
            yield start, joined
            joined = ""
    assert not joined, f"a command ends with a backslash: {joined}"
