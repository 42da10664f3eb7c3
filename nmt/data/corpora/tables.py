"""Tables of sentence pairs: readers of TSV, JSONL and Parquet files, and the choice of columns."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

from nmt.config import DataConfig
from nmt.data.corpora.text import COMPRESSED, one_line, read_lines
from nmt.errors import UserError
from nmt.languages import distance
from nmt.runtime.os_errors import file_error

if TYPE_CHECKING:
    import pyarrow as pa

Pair = tuple[str, str]
"""A source sentence and its target sentence."""

TextBlock = tuple[list[str], list[str]]
"""A block of pairs: their sources and their targets."""

_BLOCK_ROWS = 1024  # rows per block; a row may be a whole document
_MAX_LEVELS = 8  # levels of a nested record whose keys a message lists
_MAX_LISTED = 30  # keys in a message
_MAX_DIGITS = 4000  # of an integer; Python refuses to convert more than 4,300


def table_reader(path: Path) -> Callable[[Path, DataConfig], Iterator[TextBlock]]:
    """Returns the reader for a TSV, JSONL or Parquet file, chosen by its name.

    The reader takes the file, which may be compressed like text files unless it is Parquet, and the options
    that name the columns. It yields the pairs in order, block by block. It raises `UserError` if a column is
    missing, or a row is malformed (with its line).

    Raises:
        UserError: the name does not have the suffix of a supported format.
    """
    suffixes = [suffix.lower() for suffix in path.suffixes]
    packed = bool(suffixes) and suffixes[-1] in COMPRESSED
    suffix = suffixes[-2] if packed and len(suffixes) > 1 else suffixes[-1] if suffixes else ""
    reader = READERS.get(suffix)
    if reader is None or (packed and reader is _read_parquet):
        raise UserError(
            f"{path}: a table must be named .tsv, .jsonl (either also .gz, .xz or .zst) or .parquet. "
            "Give two plain text files as source= and target="
        )
    return reader


def _read_tsv(path: Path, data: DataConfig) -> Iterator[TextBlock]:
    return _blocks(_tsv_pairs(path, data))


def _tsv_pairs(path: Path, data: DataConfig) -> Iterator[Pair]:
    rows = enumerate(read_lines(path), start=1)
    numbered = [key.isdecimal() and len(key) < 10 for key in (data.source_key, data.target_key)]
    if any(numbered) and not all(numbered):
        raise UserError(
            f"data.source_key={data.source_key} data.target_key={data.target_key}: a name and a number. Give "
            "two column names (if the file has a header) or two column numbers (if it has none)."
        )
    num_columns = None
    source = target = 0
    if all(numbered):
        source, target = int(data.source_key), int(data.target_key)
    else:
        header = next(rows, (0, ""))[1].split("\t")
        num_columns = len(header)
        try:
            keys = choose_keys(data, header.__contains__, header, f"{path}:1")
        except UserError as error:
            numbers = "data.source_key=0 data.target_key=1"
            raise UserError(
                f"{error}. If the file has no header, give numbers, such as {numbers}."
            ) from error
        for key in keys:
            _require_one(header, key, f"{path}:1")
        source, target = header.index(keys[0]), header.index(keys[1])
    for number, line in rows:
        row = line.split("\t")
        if _is_blank(line) and (num_columns or 2) > 1 and _rest_is_blank(rows):
            return
        if num_columns is None:
            num_columns = len(row)
            if max(source, target) >= num_columns:
                raise UserError(
                    f"{path}:{number}: has {num_columns} columns, so there is no column "
                    f"{max(source, target)} (counted from 0). Set data.source_key and data.target_key."
                )
        if len(row) != num_columns:
            raise UserError(f"{path}:{number}: has {len(row)} columns, but the first line has {num_columns}")
        yield row[source], row[target]


def _read_jsonl(path: Path, data: DataConfig) -> Iterator[TextBlock]:
    return _blocks(_jsonl_pairs(path, data))


def _jsonl_pairs(path: Path, data: DataConfig) -> Iterator[Pair]:
    keys: Pair | None = None
    lines = enumerate(read_lines(path), start=1)
    for number, line in lines:
        where = f"{path}:{number}"
        if _is_blank(line):
            if _rest_is_blank(lines):
                return
            raise UserError(
                f"{where}: a blank line before lines with text. Delete it; JSONL has one object per line."
            )
        try:
            record = json.loads(line, parse_int=_integer_or_float)
        except (ValueError, RecursionError) as error:
            raise UserError(f"{where}: not valid JSON ({error}). JSONL has one object per line.") from None
        if not isinstance(record, dict):
            raise UserError(f"{where}: must be a JSON object with the keys of both sides")
        if keys is None:
            keys = choose_keys(data, partial(_has, record), _names(record), where)
        yield _json_text(record, keys[0], where), _json_text(record, keys[1], where)


def _rest_is_blank(rows: Iterator[tuple[int, str]]) -> bool:
    """Whether only blank lines are left. Blank lines at the end of a file are not rows."""
    return all(_is_blank(line) for _, line in rows)


def _is_blank(line: str) -> bool:
    """Whether a line is blank. A line with tabs is not: in a TSV file it is a row of empty cells."""
    return not line.strip(" ")


def _integer_or_float(digits: str) -> int | float:
    """Converts an integer. One with too many digits becomes a float.

    Such a number is in another field than the text, and must not stop the reader.
    """
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def _json_text(record: Mapping[str, Any], key: str, where: str) -> str:
    if not _has(record, key):
        raise UserError(f"{where}: lacks the key {key!r}. Its keys are {_listed(_names(record))}.")
    value = _at(record, key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise UserError(f"{where}: {key!r} must be text, not {value!r:.40}")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise UserError(f"{where}: {key!r} contains half a surrogate pair. Correct the escape.") from None
    return one_line(value)


def _at(record: Mapping[str, Any], key: str) -> Any:
    if key in record:
        return record[key]
    outer, _, inner = key.partition(".")
    return _at(record[outer], inner)


def _has(record: Any, key: str) -> bool:
    if not isinstance(record, Mapping):
        return False
    outer, dot, inner = key.partition(".")
    return key in record or (bool(dot) and outer in record and _has(record[outer], inner))


def _names(record: Mapping[str, Any], prefix: str = "", levels: int = _MAX_LEVELS) -> list[str]:
    names = []
    for key, value in record.items():
        nested = levels > 1 and isinstance(value, Mapping)
        names += _names(value, f"{prefix}{key}.", levels - 1) if nested else [prefix + key]
    return names


def _listed(names: Sequence[str]) -> str:
    """Returns a list of names for a message: the first ones, each shortened."""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return (", ".join(f"{name:.80}" for name in names[:_MAX_LISTED]) or "(none)") + more


def _blocks(pairs: Iterator[Pair]) -> Iterator[TextBlock]:
    while block := list(islice(pairs, _BLOCK_ROWS)):
        yield [pair[0] for pair in block], [pair[1] for pair in block]


def _read_parquet(path: Path, data: DataConfig) -> Iterator[TextBlock]:
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with pq.ParquetFile(path) as file:
            schema = file.schema_arrow
            keys = choose_keys(
                data,
                lambda key: arrow_type(schema, key, str(path)) is not None,
                arrow_names(schema),
                str(path),
            )
            columns = sorted({key if key in schema.names else key.partition(".")[0] for key in keys})
            batches = (
                pa.Table.from_batches([batch]) for batch in file.iter_batches(_BLOCK_ROWS, columns=columns)
            )
            yield from arrow_blocks(batches, keys, str(path))
    except (pa.ArrowException, OSError) as error:
        if isinstance(error, OSError) and (line := file_error(error, path, "read")) is not None:
            raise line from error
        first, *_ = [*str(error).strip().splitlines(), type(error).__name__]
        raise UserError(f"{path}: not a valid Parquet file ({first})") from None


READERS: dict[str, Callable[[Path, DataConfig], Iterator[TextBlock]]] = {
    ".tsv": _read_tsv,
    ".jsonl": _read_jsonl,
    ".ndjson": _read_jsonl,
    ".parquet": _read_parquet,
}
"""Readers by file suffix."""


def choose_keys(data: DataConfig, has: Callable[[str], bool], names: Sequence[str], where: str) -> Pair:
    """Chooses the columns of the two sides.

    `data.source_key` and `data.target_key` name them. If an option has its default value and there is no such
    column, `translation.<language>` is tried, the layout of the WMT data sets. Then a column with the name of
    the language is tried, the layout of Multi30k. Last, a name with the nearest language is tried, such as
    `zh` for `zho_Hans`. A dot separates the names of nested columns.

    Raises:
        UserError: a side has no column; the message begins with `where` and lists the existing `names`.
    """
    keys = []
    for side, key, lang in (
        ("source", data.source_key, data.source_lang),
        ("target", data.target_key, data.target_lang),
    ):
        tried = [key, f"translation.{lang}", lang] if key == side else [key]
        column = next(filter(has, tried), None)
        if column is None and key == side:
            column = _nearest_column([name for name in names if name not in keys], lang)
        if column is None:
            raise UserError(
                f"{where}: no column {' or '.join(tried)} for the {side} side. "
                f"Set data.{side}_key to one of {_listed(names)}"
            )
        keys.append(column)
    return keys[0], keys[1]


def _nearest_column(names: Sequence[str], lang: str) -> str | None:
    """Returns the column of the language that is nearest to `lang`; None if there is none."""
    codes = {name: name.removeprefix("translation.") for name in names}
    distances = {name: far for name, code in codes.items() if (far := distance(lang, code)) is not None}
    return min(distances, key=distances.__getitem__, default=None)


def arrow_names(schema: pa.Schema) -> list[str]:
    """Returns the columns of an Arrow schema, with nested names separated by dots."""
    return [name for field in schema for name in _field_names(field, "")]


def _field_names(field: pa.Field, prefix: str) -> list[str]:
    import pyarrow as pa

    if pa.types.is_struct(field.type):
        return [name for inner in field.type for name in _field_names(inner, f"{prefix}{field.name}.")]
    return [prefix + field.name]


def arrow_type(schema: pa.Schema, key: str, where: str) -> pa.DataType | None:
    """Returns the type of a column, or None if there is no such column.

    Raises:
        UserError: several columns have this name; the message begins with `where`.
    """
    import pyarrow as pa

    if key in schema.names:
        _require_one(schema.names, key, where)
        return schema.field(key).type
    outer, dot, inner = key.partition(".")
    if not dot or outer not in schema.names:
        return None
    _require_one(schema.names, outer, where)
    kind = schema.field(outer).type
    return arrow_type(pa.schema(list(kind)), inner, where) if pa.types.is_struct(kind) else None


def _require_one(names: Sequence[str], key: str, where: str) -> None:
    if (count := names.count(key)) > 1:
        raise UserError(f"{where}: {count} columns are named {key!r}. Rename all but one.")


def arrow_blocks(tables: Iterable[pa.Table], keys: Pair, where: str) -> Iterator[TextBlock]:
    """Yields the pairs of each Arrow table, parts of a larger one in order. Null becomes an empty sentence.

    Raises:
        UserError: a column does not contain text, or a text is not UTF-8. The message begins with `where`;
            rows are counted from 0.
    """
    first = 0
    for table in tables:
        yield _arrow_texts(table, keys[0], where, first), _arrow_texts(table, keys[1], where, first)
        first += len(table)


def _arrow_texts(table: pa.Table, key: str, where: str, first: int) -> list[str]:
    """Returns the texts of a column; `first` is the number of the first row of the table."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = arrow_type(table.schema, key, where)
    decoded = kind.value_type if kind is not None and pa.types.is_dictionary(kind) else kind
    if not _is_text(decoded):
        raise UserError(f"{where}: column {key!r} must contain text, not {kind}")
    if key in table.schema.names:
        column = table.column(key)
    else:
        outer, *inner = key.split(".")
        column = pc.struct_field(table.column(outer), inner)
    if decoded != kind:
        column = column.cast(decoded)
    try:
        return [one_line(text or "") for text in column.to_pylist()]
    except UnicodeDecodeError:
        row = next(number for number, text in enumerate(column, first) if not _is_utf8(text))
        raise UserError(
            f"{where}: row {row} of column {key!r} is not valid UTF-8. Correct or drop it."
        ) from None


def _is_text(kind: pa.DataType | None) -> bool:
    """Whether an Arrow type is text. Null counts too: it may be the type of a column without values."""
    import pyarrow as pa

    return kind is not None and any(
        is_kind(kind)
        for is_kind in (
            pa.types.is_string,
            pa.types.is_large_string,
            pa.types.is_string_view,
            pa.types.is_null,
        )
    )


def _is_utf8(text: pa.StringScalar) -> bool:
    try:
        text.as_py()
    except UnicodeDecodeError:
        return False
    return True
