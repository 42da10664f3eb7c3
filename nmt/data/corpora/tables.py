"""Tables of sentence pairs with one row per line: tab-separated (TSV) and comma-separated (CSV) values."""

from __future__ import annotations

import csv
import re
from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from contextlib import suppress
from itertools import islice

from nmt.config import DataConfig
from nmt.data.corpora.columns import Pair, TextBlock, choose_keys, column_numbers, first_number, require_one
from nmt.data.corpora.malformed import BROKEN, NOT_UTF8, Malformed
from nmt.data.corpora.opening import DataFile
from nmt.data.corpora.text import one_line, read_lines
from nmt.errors import UserError

_BLOCK_ROWS = 1024  # rows per block; a row may be a whole document
_DELIMITERS = ",;\t|"
_SEPARATOR = re.compile(rf'"?sep=([{_DELIMITERS}])"?')  # a first line of Excel's
MOST_LINES = 1000
"""Largest number of lines of a row of CSV; with more, nothing closes a quotation mark."""
_CR = "has a carriage return outside of quotation marks. Lines end with LF or CR LF"
FIRST_LINES = 20
"""Number of the lines that show the delimiter."""

_Row = tuple[int, list[str]]  # the number of its line, and its cells


def blocks_of(pairs: Iterator[Pair]) -> Iterator[TextBlock]:
    """Yields pairs in blocks."""
    while block := list(islice(pairs, _BLOCK_ROWS)):
        yield [pair[0] for pair in block], [pair[1] for pair in block]


def read_tsv(file: DataFile, data: DataConfig, malformed: Malformed) -> Iterator[TextBlock]:
    """Reads tab-separated values. Quotes have no special meaning in them."""
    rows = ((number, line.split("\t")) for number, line in enumerate(read_lines(file, malformed), start=1))
    return blocks_of(_pairs(rows, file, data, malformed))


def read_csv(file: DataFile, data: DataConfig, malformed: Malformed) -> Iterator[TextBlock]:
    """Reads comma-separated values (RFC 4180), or such values with another delimiter.

    The delimiter is that of `delimiter_of`, or of a first line `sep=;`. If a row is
    malformed, its first line is dropped, and the next row begins with the next line. A quotation mark that
    nothing closes thus costs one line.
    """
    pairs = _pairs(_csv_rows(file, malformed), file, data, malformed)
    return blocks_of((one_line(source), one_line(target)) for source, target in pairs)


def _pairs(rows: Iterator[_Row], file: DataFile, data: DataConfig, malformed: Malformed) -> Iterator[Pair]:
    """Yields the two columns of the rows. Blank lines at the end of a file are not rows."""
    numbers, width = column_numbers(data), None
    if numbers is None:
        number, header = next(rows, (1, [""]))
        source, target = _named(header, f"{file}:{number}", data)
        width = len(header)
    else:
        source, target = numbers
    blank: list[int] = []
    for number, row in rows:
        if len(row) == 1 and width != 1 and not row[0].strip(" "):
            blank.append(number)
            continue
        for before in blank:
            malformed.drop(f"{file}:{before}: is blank, but rows follow. Delete it.")
        blank.clear()
        if row[0] is BROKEN:
            malformed.drop(f"{file}:{number}: {NOT_UTF8}")
            continue
        if width is None:
            width = len(row)
            if max(source, target) >= width:
                first = first_number(data)
                raise UserError(
                    f"{file}:{number}: has {width} columns, so there is no column "
                    f"{max(source, target) + first} (counted from {first}). Set data.source_key and "
                    "data.target_key."
                )
        if len(row) != width:
            malformed.drop(
                f"{file}:{number}: has {len(row)} columns, but the first line has {width}. Correct it."
            )
            continue
        yield row[source], row[target]


def _named(header: list[str], where: str, data: DataConfig) -> tuple[int, int]:
    """Returns the places of the two columns by the names in the first line."""
    try:
        keys = choose_keys(data, header.__contains__, header, where)
    except UserError as error:
        numbers = "data.source_key=1 data.target_key=2"
        raise UserError(f"{error}. If the file has no header, give numbers, such as {numbers}.") from error
    for key in keys:
        require_one(header, key, where)
    return header.index(keys[0]), header.index(keys[1])


def _csv_rows(file: DataFile, malformed: Malformed) -> Iterator[_Row]:
    """Yields the rows with the number of their first line."""
    lines = enumerate(read_lines(file, malformed), start=1)
    again: deque[tuple[int, str]] = deque(islice(lines, FIRST_LINES))  # lines to read before the others
    delimiter = ","
    if again:
        delimiter, is_row = delimiter_of([line for _, line in again])
        if not is_row:
            again.popleft()
    used: list[tuple[int, str]] = []  # the lines of the row

    def fed() -> Iterator[str]:
        while (line := again.popleft() if again else next(lines, None)) is not None:
            used.append(line)
            if line[1] is BROKEN:
                raise csv.Error(NOT_UTF8)
            if len(used) > MOST_LINES:
                raise csv.Error(f"has a quotation mark that is not closed within {MOST_LINES:,} lines")
            yield f"{line[1]}\n"

    width = None
    reader = csv_reader(fed(), delimiter)
    while True:
        used.clear()
        problem = ""
        try:
            row = next(reader, None)
        except csv.Error as error:
            row, problem = [], csv_problem(error)
        if row is None:
            return
        width = width or len(row)
        if not problem and len(used) > 1 and len(row) != width:
            problem = (
                f"has {len(row)} columns in {len(used)} lines, but the first line has {width}. Correct it"
            )
        if problem:
            malformed.drop(f"{file}:{used[0][0]}: {problem}.")
            again.extendleft(reversed(used[1:]))
            reader = csv_reader(fed(), delimiter)
        else:
            yield used[0][0], row or [""]


def csv_reader(lines: Iterable[str], delimiter: str) -> Iterator[list[str]]:
    """Returns a reader of the rows of CSV, which raises `csv.Error`."""
    csv.field_size_limit(1 << 26)
    return csv.reader(lines, delimiter=delimiter, strict=True)


def csv_problem(error: csv.Error) -> str:
    """Returns what is wrong with a row of CSV."""
    return _CR if "new-line character" in str(error) else str(error)


def delimiter_of(first_lines: Sequence[str]) -> tuple[str, bool]:
    """Returns the delimiter that the first lines of a CSV file show, and whether the first one is a row.

    It is the most frequent one of the first line, unless the rows have different numbers of cells with it and
    not with another one: sentences contain commas.
    """
    if separator := _SEPARATOR.fullmatch(first_lines[0]):
        return separator[1], False
    unquoted = re.sub(r'"[^"]*+"', "", first_lines[0])
    delimiters = sorted(_DELIMITERS, key=unquoted.count, reverse=True)
    fitting = (one for one in delimiters if one in unquoted and _has_equal_rows(first_lines, one))
    return next(fitting, delimiters[0]), True


def _has_equal_rows(lines: Sequence[str], delimiter: str) -> bool:
    """Whether all rows have equal numbers of cells; the last row may not be complete."""
    widths = set()
    with suppress(csv.Error):
        for row in csv_reader((f"{line}\n" for line in lines), delimiter):
            widths |= {len(row)} if row else set()
    return len(widths) == 1
