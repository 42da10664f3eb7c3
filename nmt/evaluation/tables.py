"""Tables of a report as plain text, Markdown and LaTeX."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from nmt.evaluation.metrics import METRICS
from nmt.runtime.streams import visible

WIDTH = 80
"""Width of a table of plain text in characters."""

_WIDTHS = 11, 9  # least widths of the first column of numbers, and of the others
_LABEL, _LABELS = 16, 20  # least width of the labels, and the width to which long ones are cut at most
_INDENT = "  "
_LATEX = {
    **{character: rf"\{character}" for character in "&%$#_{}"},
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "±": r"$\pm$",
    "≤": r"$\leq$",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
}


@dataclass(frozen=True)
class Table:
    """A table whose first column has labels, and whose other columns have numbers.

    Attributes:
        header: the titles of the columns.
        rows: the cells of each row. Labels may be indented. A row of one cell is a heading.
        notes: paragraphs below it.
    """

    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()

    def lines(self, width: int = WIDTH) -> Iterator[str]:
        """Yields the header and the rows as lines; labels that do not fit into a width are cut.

        Headings are not cut.
        """
        cells = [[visible(cell) for cell in row] for row in (self.header, *self.rows)]
        columns = [[row[place] for row in cells if len(row) > 1] for place in range(1, len(self.header))]
        widths = [
            max(_WIDTHS[place > 0], *(len(cell) + 2 for cell in column))
            for place, column in enumerate(columns)
        ]
        label_width = max(_LABEL, *(len(row[0]) + 2 for row in cells))
        label_width = min(label_width, max(width - sum(widths), _LABELS))
        for label, *numbers in cells:
            if numbers and len(label) > label_width:
                label = label[: label_width - 3] + "..."
            padded = (f"{number:>{width}}" for number, width in zip(numbers, widths, strict=False))
            yield f"{label:<{label_width}}{''.join(padded)}".rstrip()

    def markdown(self) -> str:
        """Returns the table in Markdown; indented labels remain indented."""
        lines = [self._markdown_row(self.header), "|" + " --- |" + " ---: |" * (len(self.header) - 1)]
        lines += map(self._markdown_row, self.rows)
        return "".join(f"{line}\n" for line in [*lines, *(f"\n{_in_markdown(note)}" for note in self.notes)])

    def _markdown_row(self, row: Sequence[str]) -> str:
        return "".join(f"| {cell} " for cell in map(_in_markdown, self._filled(row))) + "|"

    def latex(self) -> str:
        """Returns the table in LaTeX, without packages."""
        rows = [" & ".join(map(_in_latex, self._filled(row))) + r" \\" for row in (self.header, *self.rows)]
        lines = [rf"\begin{{tabular}}{{l{'r' * (len(self.header) - 1)}}}", r"\hline", rows[0], r"\hline"]
        lines += [*rows[1:], r"\hline", r"\end{tabular}", *(f"\n{_in_latex(note)}" for note in self.notes)]
        return "".join(f"{line}\n" for line in lines)

    def _filled(self, row: Sequence[str]) -> list[str]:
        return [*row, *[""] * (len(self.header) - len(row))]


def rendered(title: str, tables: Iterable[Table], path: str) -> str:
    """Returns tables with their title in LaTeX if the path ends in `.tex`, else in Markdown."""
    if path.endswith(".tex"):
        return f"% {visible(title)}\n" + "".join(f"\n{table.latex()}" for table in tables)
    return f"# {_in_markdown(title)}\n" + "".join(f"\n{table.markdown()}" for table in tables)


def metric_name(key: str) -> str:
    """Returns the name of a metric; its key if the metric is not registered."""
    return METRICS[key].name if key in METRICS else key


def metric_digits(key: str) -> int:
    """Returns the decimal places of a metric in tables."""
    return METRICS[key].digits if key in METRICS else 2


def shown_score(key: str, value: float | None) -> str:
    """Returns a score of a metric as a cell; None is `-`."""
    return "-" if value is None else f"{value:.{metric_digits(key)}f}"


def _in_markdown(text: str) -> str:
    text = visible(text)
    inner = re.sub(r"([\\`*_{}\[\]|#])", r"\\\1", text.lstrip()).replace("&", "&amp;").replace("<", "&lt;")
    return "&nbsp;" * (len(text) - len(text.lstrip())) + inner


def _in_latex(text: str) -> str:
    text = visible(text)
    inner = "".join(_LATEX.get(character, character) for character in text.lstrip())
    inner = re.sub(r"(?<!\S)(\(?)-(?=\d)", r"\1$-$", inner)
    return r"\quad " * (text.startswith(_INDENT)) + inner
