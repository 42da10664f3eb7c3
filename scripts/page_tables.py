"""Tables of the guides whose rows a script writes; the pages of all languages share the rows.

A table is between `<!-- table: NAME -->` and `<!-- end of table -->`. Its first line, the head, is in the
language of the page and remains.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass

Row = Sequence[str]
"""The cells of a row of a table."""


@dataclass(frozen=True)
class Table:
    """The rows of a table.

    Attributes:
        rows: all rows after the head.
        columns: the last cells of the head, if they are the same in every language; the first ones remain.
    """

    rows: Sequence[Row]
    columns: Row = ()


def with_tables(text: str, table_of: Callable[[str], Table]) -> str:
    """Returns the text of a page with the tables that `table_of` returns for their names."""

    def replaced(match: re.Match[str]) -> str:
        table = table_of(match["name"])
        head = [cell.strip() for cell in match["head"].strip("|").split("|")]
        if table.columns:
            head = [*head[: len(table.rows[0]) - len(table.columns)], *table.columns]
        different = "rows of another width than the head"
        assert all(len(row) == len(head) for row in table.rows), f"{match['name']}: {different}"
        lines = [_line(head), "|" + "---|" * len(head), *map(_line, table.rows)]
        return f"{match['start']}\n{chr(10).join(lines)}\n\n{match['end']}"

    return re.sub(_TABLE, replaced, text)


def without_tables(text: str) -> str:
    """Returns the text of a page without the tables between two marks."""
    return re.sub(_TABLE, "", text)


_TABLE = (
    r"(?P<start><!-- table: (?P<name>[\w-]+) -->\n)\n(?P<head>\|[^\n]*\|)\n(?:\|[^\n]*\n)*\n"
    r"(?P<end><!-- end of table -->)"
)


def _line(cells: Row) -> str:
    return f"| {' | '.join(cells)} |"
