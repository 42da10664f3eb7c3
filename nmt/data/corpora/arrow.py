"""Parquet files and Arrow tables of sentence pairs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from nmt.config import DataConfig
from nmt.data.corpora.columns import Pair, TextBlock, choose_keys, require_one
from nmt.data.corpora.malformed import Malformed
from nmt.data.corpora.opening import DataFile
from nmt.data.corpora.text import one_line
from nmt.errors import UserError
from nmt.runtime.os_errors import file_error

if TYPE_CHECKING:
    import pyarrow as pa

_BLOCK_ROWS = 1024  # rows per block; a row may be a whole document


def read_parquet(path: DataFile, data: DataConfig, malformed: Malformed) -> Iterator[TextBlock]:
    """Reads the two columns of a Parquet file, nested ones too. A file that is damaged is an error."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    assert isinstance(path, Path)
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
        require_one(schema.names, key, where)
        return schema.field(key).type
    outer, dot, inner = key.partition(".")
    if not dot or outer not in schema.names:
        return None
    require_one(schema.names, outer, where)
    kind = schema.field(outer).type
    return arrow_type(pa.schema(list(kind)), inner, where) if pa.types.is_struct(kind) else None


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
