"""Options as plain values and back: the stored configuration of models and runs.

The processes of a run also pass their options in this form. Interpolations are not resolved: `${oc.env:HOME}`
stays text. A value that does not have the type of its option is refused.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar, cast

from nmt.config.plain_yaml import parse_yaml, plain_value, write_yaml
from nmt.errors import UserError

C = TypeVar("C")


def to_plain(value: Any) -> Any:
    """Returns options as lists, mappings and scalars; an enum member becomes its name."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        return {field.name: to_plain(getattr(value, field.name)) for field in dataclasses.fields(value)}
    if isinstance(value, Mapping):
        return {str(key): to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    if isinstance(value, Enum):
        return value.name
    return value if value is None or isinstance(value, bool | int | float | str) else str(value)


def from_plain(schema: type[C], values: Any, key: str = "") -> C:
    """Reverses `to_plain`. An option that is not given has its default.

    Args:
        schema: the dataclass of the options.
        values: the result of `to_plain`.
        key: name of the section, for messages.

    Raises:
        UserError: `schema` does not have an option, or a value is wrong; the message names the option.
    """
    return cast(C, _section(schema, values, key))


def to_yaml(config: Any) -> str:
    """Returns all options as YAML.

    Raises:
        UserError: a value is text that YAML can't hold.
    """
    try:
        return write_yaml(to_plain(config))
    except ValueError as error:
        raise UserError(
            f"the options can't be stored: a value {error}. Rename the file or folder, or give many files as "
            f"one quoted glob."
        ) from error


def from_yaml(schema: type[C], text: str, where: str) -> C:
    """Returns the options in `text`; `where` names it in messages.

    Raises:
        UserError: it is not YAML, or has a value or an option that is unknown to this version.
    """
    return section_from_yaml(schema, text, where, "")


def section_from_yaml(schema: type[C], text: str, where: str, section: str) -> C:
    """Returns the options of one section in `text`; the other sections are not checked.

    Raises:
        UserError: as `from_yaml`.
    """
    try:
        values = parse_yaml(text)
    except ValueError as error:
        raise UserError(f"{where}: is damaged: {error}.") from error
    if not isinstance(values, Mapping):
        raise UserError(f"{where}: is damaged: it contains no options.")
    try:
        return from_plain(schema, (values.get(section) or {}) if section else values, section)
    except UserError as error:
        raise UserError(f"{where}: {error}") from error


def _section(schema: Any, values: Any, key: str) -> Any:
    if not isinstance(values, Mapping):
        raise UserError(f"{key}={_shown(values)}: must be a section of options.")
    kinds = typing.get_type_hints(schema)
    start = f"{key}." if key else ""
    values = {name: value for name, value in values.items() if _REMOVED.get(f"{start}{name}", ()) != value}
    for name in values:
        if name not in kinds:
            raise UserError(f"{start}{_bare(name)}: this version of nmt has no such option.")
    for name in kinds:
        if name not in values and getattr(schema, name, None) == "???":
            raise UserError(f"{start}{name}: is missing.")
    return schema(**{name: _typed(kinds[name], value, f"{start}{name}") for name, value in values.items()})


_REMOVED = {"training.compile": False}
"""Options of earlier versions → the value without an effect, which the files of old runs may have."""


def _typed(kind: Any, value: Any, key: str) -> Any:
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any:
        return value
    if origin in (typing.Union, types.UnionType):
        if value is None and type(None) in parts:
            return None
        (kind,) = (part for part in parts if part is not type(None))
        return _typed(kind, value, key)
    if dataclasses.is_dataclass(kind):
        return _section(kind, value, key)
    if origin is list and isinstance(value, list):
        return [_typed(parts[0], item, f"{key}[{number}]") for number, item in enumerate(value)]
    if origin is dict and isinstance(value, Mapping):
        return {name: _typed(parts[1], item, f"{key}.{_bare(name)}") for name, item in value.items()}
    if origin is None and issubclass(kind, Enum):
        return _choice(kind, value, key)
    return _scalar(origin or kind, value, key)


def _choice(kind: type[Enum], value: Any, key: str) -> Enum:
    if isinstance(value, str) and value in kind.__members__:
        return kind[value]
    raise UserError(f"{key}={_shown(value)}: must be one of {', '.join(kind.__members__)}.")


def _scalar(kind: type[Any], value: Any, key: str) -> Any:
    """Returns a value of type `kind`. A quoted number is converted to a number, and a number to text."""
    if kind is str and isinstance(value, str | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if kind is not str and isinstance(value, str):
        value = plain_value(value) if len(value) < 100 else value
    if kind is bool and isinstance(value, bool):
        return value
    if kind is int and isinstance(value, int) and not isinstance(value, bool):
        return value
    if kind is float and isinstance(value, int | float) and not isinstance(value, bool):
        try:
            return float(value)
        except OverflowError:
            pass
    raise UserError(f"{key}={_shown(value)}: must be {_KINDS[kind]}.")


_KINDS = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a mapping",
}


def _shown(value: Any) -> str:
    """Returns a value for a message: shortened, and without terminal control characters."""
    return _bare(str(value) if isinstance(value, str | int | float) else repr(value))


def _bare(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:60])
