"""A table of attention weights for a terminal: target tokens in rows, source tokens in columns."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterator, Sequence

from nmt.runtime import printable

MAX_TOKENS = 60
"""Tokens of each side that are shown."""

_MAX_LABEL = 14  # terminal columns of a token; longer tokens are cut
_MIN_CELL = 3  # terminal columns of "100"


def attention_table(
    source: Sequence[str], target: Sequence[str], weights: Sequence[Sequence[float]], width: int
) -> str:
    """Returns the weights in percent; a dot is less than half a percent.

    Columns that exceed the width of the terminal continue in further blocks, each with all rows.

    Args:
        source: the source tokens.
        target: the target tokens.
        weights: for each target token the weight of each source token, from 0 to 1.
        width: columns of the terminal. A very narrow terminal gets one source token per block.

    Returns:
        Lines with their line breaks.
    """
    columns = [_cut(_visible(token)) for token in source[:MAX_TOKENS]]
    rows = [_cut(_visible(token)) for token in target[:MAX_TOKENS]]
    label = max(map(_width, rows), default=0)
    sizes = [max(_MIN_CELL, _width(column)) for column in columns]
    lines = ["attention in percent: translation in rows, source in columns"]
    for number, (start, end) in enumerate(_blocks(sizes, width - label)):
        lines += [""] if number else []
        lines.append(_row("", label, columns[start:end], sizes[start:end]))
        for row, values in zip(rows, weights, strict=False):
            lines.append(_row(row, label, map(_percent, values[start:end]), sizes[start:end]))
    for name, tokens in (("source", source), ("target", target)):
        if len(tokens) > MAX_TOKENS:
            lines.append(f"The first {MAX_TOKENS} of {len(tokens):,} {name} tokens are shown.")
    return "".join(f"{line}\n" for line in lines)


def _blocks(sizes: Sequence[int], width: int) -> Iterator[tuple[int, int]]:
    """Yields the start and the end of each block of columns that fits the width, one column at least."""
    start, used = 0, 0
    for place, size in enumerate(sizes):
        if place > start and used + 1 + size > width:
            yield start, place
            start, used = place, 0
        used += 1 + size
    if start < len(sizes):
        yield start, len(sizes)


def _row(label: str, label_size: int, cells: Sequence[str] | Iterator[str], sizes: Sequence[int]) -> str:
    padded = (" " * (size - _width(cell)) + cell for cell, size in zip(cells, sizes, strict=True))
    return " ".join([label + " " * (label_size - _width(label)), *padded])


def _percent(weight: float) -> str:
    number = round(100 * weight)
    return str(number) if number else "."


def _visible(token: str) -> str:
    """Returns a token without control characters, tabs and line breaks."""
    return printable(token).replace("\t", r"\t").replace("\n", r"\n")


def _cut(token: str) -> str:
    if _width(token) <= _MAX_LABEL:
        return token
    while _width(token) > _MAX_LABEL - 1:
        token = token[:-1]
    return f"{token}…"


def _width(text: str) -> int:
    """Returns the number of terminal columns: two for a wide character of East Asia, none for an accent."""
    return sum(
        0 if unicodedata.combining(one) else 2 if unicodedata.east_asian_width(one) in "WF" else 1
        for one in text
    )
