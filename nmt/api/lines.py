"""Lines, pairs and phrases that a program gives: checked, without line ends."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from nmt.errors import UserError


def pairs_of(pairs: Iterable[tuple[str, str]]) -> list[tuple[str, str]]:
    """Returns pairs of lines without line ends. The errors are those of `line_of`."""
    return [
        (line_of(source, f"source {number}"), line_of(target, f"target {number}"))
        for number, (source, target) in enumerate(pairs, 1)
    ]


def line_of(text: str, name: str) -> str:
    """Returns the text of a line without its line end.

    Raises:
        TypeError: the line is not a string.
        UserError: the line contains a line break, or is not valid Unicode.
    """
    if not isinstance(text, str):
        raise TypeError(f"{name}: must be a str, not {type(text).__name__}")
    line = text.removesuffix("\n").removesuffix("\r")
    if "\n" in line:
        raise UserError(f"{name}: contains a line break. Give each line as a separate string.")
    try:
        line.encode()
    except UnicodeEncodeError as error:
        code = ord(line[error.start])
        raise UserError(f"{name}: not valid Unicode (surrogate U+{code:04X}). Decode it as UTF-8.") from None
    return line


def phrases_of(lines: Sequence[str], constraints: Sequence[Sequence[str]] | None) -> list[list[str]] | None:
    """Returns the constraints of each line; None if there are none.

    Raises:
        TypeError: a phrase is not a string, or the phrases of a line are a string.
        UserError: there is not one list per line, or a phrase contains a line break.
    """
    if constraints is None:
        return None
    lists = list(constraints)
    if len(lists) != len(lines):
        raise UserError(
            f"constraints: {len(lists):,} lists for {len(lines):,} lines. Give one list per line; it may be "
            "empty."
        )
    phrases: list[list[str]] = []
    for number, line in enumerate(lists, 1):
        if isinstance(line, str):
            raise TypeError(f"constraints of line {number}: must be a list of phrases, not str")
        phrases.append([line_of(phrase, f"constraints of line {number}") for phrase in line])
    return phrases
