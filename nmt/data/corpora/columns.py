"""The choice of the two columns of a table, by their names, by the languages, or by their numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from nmt.config import DataConfig
from nmt.errors import UserError
from nmt.languages import distance
from nmt.runtime.streams import visible

Pair = tuple[str, str]
"""A source sentence and its target sentence."""

TextBlock = tuple[list[str], list[str]]
"""A block of pairs: their sources and their targets."""


class NoPairs(UserError):
    """A file has no pair of the two languages."""


_MAX_LISTED = 30  # keys in a message


def column_numbers(data: DataConfig) -> tuple[int, int] | None:
    """Returns the places of the columns, counted from 0, if the options are numbers; else None.

    The options count from 1, as `column` of `nmt-translate` does. If one of them is 0, both count from 0, as
    they did in earlier versions.

    Raises:
        UserError: one option is a number and the other a name, or both are the same number.
    """
    keys = data.source_key, data.target_key
    numbered = [key.isdecimal() and len(key) < 10 for key in keys]
    if not any(numbered):
        return None
    if not all(numbered):
        raise UserError(
            f"data.source_key={keys[0]} data.target_key={keys[1]}: a name and a number. Give two column "
            "names (if the file has a header) or two column numbers (if it has none)."
        )
    if int(keys[0]) == int(keys[1]):
        raise UserError(f"data.source_key={keys[0]} data.target_key={keys[1]}: the same column. Give two.")
    first = first_number(data)
    return int(keys[0]) - first, int(keys[1]) - first


def first_number(data: DataConfig) -> int:
    """Returns the number of the first column: 1, or 0 if one of the options is that number."""
    return int(all(key.strip("0") for key in (data.source_key, data.target_key)))


def column_facts(data: DataConfig, *, has_numbers: bool) -> list[str]:
    """Returns facts that identify the choice of the columns, for a fingerprint.

    `has_numbers`: the options may be numbers of columns. Earlier versions counted all numbers from 0.
    """
    facts = [data.source_key, data.target_key, data.source_lang, data.target_lang]
    if has_numbers and all(key.isdecimal() for key in facts[:2]) and first_number(data):
        facts.append("columns are counted from 1")
    return facts


def choose_keys(data: DataConfig, has: Callable[[str], bool], names: Sequence[str], where: str) -> Pair:
    """Chooses the columns of the two sides.

    `data.source_key` and `data.target_key` name them. If an option has its default value and there is no such
    column, `translation.<language>` is tried, the layout of the WMT data sets. Then a column with the name of
    the language is tried, the layout of Multi30k. Last, a name with the nearest language is tried, such as
    `zh` for `zho_Hans`. A dot separates the names of nested columns.

    Raises:
        UserError: a side has no column, or both have the same one; the message begins with `where` and lists
            the existing `names`.
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
                f"Set data.{side}_key to one of {listed(names)}"
            )
        keys.append(column)
    if keys[0] == keys[1]:
        raise UserError(
            f"{where}: {visible(keys[0])} would be the column of both sides. Set data.source_key and "
            f"data.target_key to two of {listed(names)}"
        )
    return keys[0], keys[1]


def _nearest_column(names: Sequence[str], lang: str) -> str | None:
    """Returns the column of the language that is nearest to `lang`; None if there is none."""
    codes = {name.removeprefix("translation."): name for name in reversed(names)}
    code = nearest(lang, reversed(codes))
    return None if code is None else codes[code]


def nearest(lang: str, codes: Iterable[str]) -> str | None:
    """Returns the code of the language that is nearest to `lang`; None if all are other languages."""
    distances = {code: far for code in codes if (far := distance(lang, code)) is not None}
    return min(distances, key=distances.__getitem__, default=None)


def listed(names: Sequence[str]) -> str:
    """Returns a list of names for a message: the first ones, each shortened."""
    more = f" and {len(names) - _MAX_LISTED} more" if len(names) > _MAX_LISTED else ""
    return (", ".join(f"{visible(name):.80}" for name in names[:_MAX_LISTED]) or "(none)") + more


def require_one(names: Sequence[str], key: str, where: str) -> None:
    """Checks that only one column has a name. Raises `UserError`, which begins with `where`."""
    if (count := names.count(key)) > 1:
        raise UserError(f"{where}: {count} columns are named {key!r}. Rename all but one.")
