"""JSON files of sentence pairs: a record per line (JSON Lines), or one list of records."""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

from nmt.config import DataConfig
from nmt.data.corpora.columns import Pair, TextBlock, choose_keys, listed
from nmt.data.corpora.malformed import BROKEN, NOT_UTF8, Malformed, MalformedRow
from nmt.data.corpora.opening import CHUNK, DataFile, Place, head_of, opened
from nmt.data.corpora.tables import blocks_of
from nmt.data.corpora.text import one_line, read_lines
from nmt.errors import UserError

MISSING = object()
"""The value of a member that a record does not have."""
_MAX_LEVELS = 8  # levels of a nested record whose keys a message lists
_MAX_DIGITS = 4000  # of an integer; Python refuses to convert more than 4,300
_LONGEST_RECORD = 1 << 26  # characters
_SPACE = re.compile(r"[ \t\r\n]*")

_Value = tuple[str, Any]  # its place, and the value, or `MalformedRow`


def read_json(file: DataFile, data: DataConfig, malformed: Malformed) -> Iterator[TextBlock]:
    """Reads records with the text of both sides: one per line, or the members of one list.

    A record is an object with keys, or a list with positions that are counted from 1.
    """
    values = _members(file) if _is_list(file) else _lines(file, malformed)
    return blocks_of(_pairs(values, data, malformed))


def _pairs(values: Iterator[_Value], data: DataConfig, malformed: Malformed) -> Iterator[Pair]:
    keys: Pair | None = None
    for where, value in values:
        try:
            if isinstance(value, MalformedRow):
                raise value
            record = {str(place): one for place, one in enumerate(value, 1)} if _is_row(value) else value
            if not isinstance(record, Mapping):
                raise MalformedRow(f"{where}: must be a JSON object with the keys of both sides.")
            if keys is None:
                keys = choose_keys(data, partial(_has, record), _names(record), where)
            pair = _json_text(record, keys[0], where), _json_text(record, keys[1], where)
        except MalformedRow as error:
            malformed.drop(str(error))
        else:
            yield pair


def _is_row(value: Any) -> bool:
    """Whether a value is a list of texts, which is a row."""
    return (
        isinstance(value, list) and bool(value) and not any(isinstance(one, list | Mapping) for one in value)
    )


def _is_list(file: DataFile) -> bool:
    """Whether a file is one list of records, rather than a record per line."""
    head = head_of(file).removeprefix(codecs.BOM_UTF8).lstrip()
    if not head.startswith(b"["):
        return False
    with suppress(ValueError, RecursionError):
        return not _is_row(json.loads(head.partition(b"\n")[0]))
    return True


def _lines(file: DataFile, malformed: Malformed) -> Iterator[_Value]:
    blank: list[int] = []
    for number, line in enumerate(read_lines(file, malformed), start=1):
        where = f"{file}:{number}"
        if not line.strip(" "):
            blank.append(number)
            continue
        for before in blank:
            problem = "a blank line before lines with text. Delete it; JSONL has one object per line."
            yield "", MalformedRow(f"{file}:{before}: {problem}")
        blank.clear()
        if line is BROKEN:
            yield where, MalformedRow(f"{where}: {NOT_UTF8}.")
            continue
        try:
            value = json.loads(line, parse_int=_integer_or_float)
        except (ValueError, RecursionError) as error:
            value = MalformedRow(f"{where}: not valid JSON ({error}). JSONL has one object per line.")
        yield where, value


def _members(file: DataFile) -> Iterator[_Value]:
    """Yields the members of one list."""
    with opened(file) as (stream, place):

        def damaged(problem: object) -> UserError:
            return UserError(
                f"{file}:{place.lines + 1}: not valid JSON ({problem}). Nothing shows where the next record "
                "begins, so data.max_malformed can't drop this one. Correct it, or write one record per line."
            )

        content = iter(partial(stream.read1, CHUNK), b"")
        chunks = codecs.iterdecode(content, "utf-8-sig", "surrogateescape")
        decoder = json.JSONDecoder(parse_int=_integer_or_float)
        for _, value in members_of_list(chunks, decoder, place, damaged):
            yield f"{file}:{place.lines + 1}", value


def members_of_list(
    chunks: Iterable[str], decoder: json.JSONDecoder, place: Place, damaged: Callable[[object], UserError]
) -> Iterator[tuple[str, Any]]:
    """Yields the text and the value of each member of a JSON list, whose text is in `chunks`.

    They are parsed one by one, so that memory is that of the longest. `place` gets the number of lines before
    each. `damaged` returns the error for a problem at that place.
    """
    rest, buffer, at = iter(chunks), "", 0

    def more() -> bool:
        nonlocal buffer, at
        chunk = next(rest, None)
        buffer, at = buffer[at:] + (chunk or ""), 0
        return chunk is not None

    def character(step: int = 0) -> str:
        """Moves by `step`, and on to a character that is not a space; returns it, or an empty text."""
        nonlocal at
        while True:
            found = _SPACE.match(buffer, at + step)
            assert found is not None
            place.lines += buffer.count("\n", at, found.end())
            at, step = found.end(), 0
            if at < len(buffer) or not more():
                return buffer[at : at + 1]

    if character() != "[":
        raise damaged("it must be a list")
    follows = character(1)
    while follows != "]":
        try:
            value, end = decoder.raw_decode(buffer, at)
        except (ValueError, RecursionError) as error:
            is_cut = isinstance(error, json.JSONDecodeError) and len(buffer) - at < _LONGEST_RECORD
            if is_cut and more():
                continue
            raise damaged(getattr(error, "msg", error)) from None
        yield buffer[at:end], value
        follows = character(end - at)
        if follows not in (",", "]"):
            raise damaged("a comma is missing" if follows else "the list has no end")
        if follows == ",":
            character(1)
    if character(1):
        raise damaged("text follows the list")


def _integer_or_float(digits: str) -> int | float:
    """Converts an integer. One with too many digits becomes a float.

    Such a number is in another field than the text, and must not stop the reader.
    """
    return int(digits) if len(digits) <= _MAX_DIGITS else float(digits)


def _json_text(record: Mapping[str, Any], key: str, where: str) -> str:
    value = member_of(record, key)
    if value is MISSING:
        raise MalformedRow(f"{where}: lacks the key {key!r}. Its keys are {listed(_names(record))}.")
    if value is None:
        return ""
    if not isinstance(value, str):
        raise MalformedRow(f"{where}: {key!r} must be text, not {value!r:.40}.")
    if not value.isascii():
        try:
            value.encode("utf-8")
        except UnicodeEncodeError:
            raise MalformedRow(
                f"{where}: {key!r} is not valid UTF-8, or contains half a surrogate pair. Correct it."
            ) from None
    return one_line(value)


def member_of(record: Any, key: str) -> Any:
    """Returns the member with a key, or the nested one whose keys a dot separates; else `MISSING`."""
    if not isinstance(record, Mapping):
        return MISSING
    if key in record:
        return record[key]
    outer, dot, inner = key.partition(".")
    return member_of(record.get(outer), inner) if dot else MISSING


def _has(record: Any, key: str) -> bool:
    return member_of(record, key) is not MISSING


def _names(record: Mapping[str, Any], prefix: str = "", levels: int = _MAX_LEVELS) -> list[str]:
    names = []
    for key, value in record.items():
        nested = levels > 1 and isinstance(value, Mapping)
        names += _names(value, f"{prefix}{key}.", levels - 1) if nested else [prefix + key]
    return names
