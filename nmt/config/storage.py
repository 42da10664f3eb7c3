"""Options as plain values and back: the stored configuration of models and runs, and the options of parts.

The processes of a run also pass their options in this form. Interpolations are not resolved: `${oc.env:HOME}`
stays text. A value that does not have the type of its option is refused.
"""

from __future__ import annotations

import dataclasses
import difflib
import types
import typing
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from enum import Enum
from pathlib import Path
from typing import Any, TypeVar, cast

from nmt.config.plain_yaml import LONGEST_NUMBER, parse_yaml, plain_value, write_yaml
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
    # A number of NumPy may be a subclass of float, which OmegaConf refuses.
    kind = next((kind for kind in (bool, int, float, str) if isinstance(value, kind)), str)
    return None if value is None else kind(value)


def flat_options(options: Any) -> dict[str, Any]:
    """Returns all options of a dataclass as plain values: full name → value; empty sections have none."""
    return dict(_flat(to_plain(options), ""))


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def with_values(config: C, values: Mapping[str, Any]) -> C:
    """Returns a copy of options with other values: full name → value. Each section is checked once."""
    changes: dict[str, Any] = {key: value for key, value in values.items() if "." not in key}
    sections: dict[str, dict[str, Any]] = {}
    for key, value in values.items():
        name, _, rest = key.partition(".")
        if rest:
            sections.setdefault(name, {})[rest] = value
    for name, inner in sections.items():
        changes[name] = with_values(getattr(config, name), inner)
    return dataclasses.replace(config, **changes)  # type: ignore[type-var]


def from_plain(schema: type[C], values: Any, key: str = "") -> C:
    """Reverses `to_plain` for the section `key`. An option that is not given has its default.

    Raises:
        UserError: `schema` does not have an option, or a value is wrong; the message names the option.
    """
    if not isinstance(values, Mapping):
        raise UserError(f"{key}={_shown(values)}: must be a section of options.")
    kinds = typing.get_type_hints(schema)
    start = f"{key}." if key else ""
    values = {name: value for name, value in values.items() if f"{start}{name}" not in _REMOVED}
    for name in values:
        if name not in kinds:
            raise UserError(f"{start}{_bare(name)}: this version of nmt has no such option.")
    for name in kinds:
        if name not in values and getattr(schema, name, None) == "???":
            raise UserError(f"{start}{name}: is missing.")
    return schema(**{name: _typed(kinds[name], value, f"{start}{name}") for name, value in values.items()})


def to_yaml(config: Any) -> str:
    """Returns all options as YAML. Raises `UserError` if a value is text that YAML can't hold."""
    try:
        return write_yaml(to_plain(config))
    except ValueError as error:
        raise UserError(
            f"the options can't be stored: a value {error}. Rename the file or folder, or give many files as "
            f"one quoted glob."
        ) from error


def from_yaml(schema: type[C], text: str, where: str, section: str = "") -> C:
    """Returns the options in `text`, or those of one of its sections; the other sections are not checked.

    Raises:
        UserError: it is not YAML, or has a value or an option that is unknown to this version. The message
            begins with `where`.
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


def typed_options(kind: type[C], given: Mapping[str, Any], key: str, owner: str) -> C:
    """Returns the options of a part that is chosen by name, such as `model.positions.options` of an encoding.

    The schema of the section is open, since the class that reads it may come from a plugin. That class has a
    dataclass, `Options`, with types, defaults and checks.

    Args:
        kind: the dataclass.
        given: values by name; the other options have their defaults.
        key: the section of the options, such as `model.positions.options`, for messages.
        owner: the part that has the options, such as `model.positions.name=sinusoidal`, for messages.

    Raises:
        UserError: there is no such option, a value has the wrong type, or the dataclass refuses it by a
            `ValueError` (or `UserError`) with a message that begins with the name of the option.
    """
    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(cast(Any, kind))]
    values = {}
    for name, value in given.items():
        if name not in names:
            known = f"It has {', '.join(names)}." if names else "It has none."
            close = difflib.get_close_matches(str(name), names, n=1)
            hint = f" Did you mean {key}.{close[0]}?" if close else ""
            raise UserError(f"{key}.{name}: not an option of {owner}. {known}{hint}")
        try:
            values[name] = _option(hints[name], value)
        except ValueError as error:
            words = " or ".join(word for part in _parts(hints[name]) for word in _words(part))
            raise UserError(f"{key}.{name}={value}: must be {words}.") from error
    try:
        return kind(**values)
    except ValueError as error:  # or `UserError`, a subclass
        raise UserError(f"{key}.{error}") from error


def _option(hint: Any, value: Any) -> Any:
    """Returns the value of an option of a part, from the command line or a file."""
    if isinstance(value, str) and "${" in value:
        raise ValueError("an interpolation")
    if bool in _parts(hint) and str(value) in ("0", "1"):
        return str(value) == "1"
    if isinstance(value, bool) and bool not in _parts(hint):
        raise ValueError("neither text nor a number")
    return _typed(hint, value, "")


_REMOVED = frozenset({"training.compile"})
"""Options of earlier versions, which the files of old runs and models may have. They change speed alone."""


def _typed(kind: Any, value: Any, key: str) -> Any:
    """Returns a value of type `kind`. A quoted number is converted to a number, and a number to text."""
    origin, parts = typing.get_origin(kind), typing.get_args(kind)
    if kind is Any or type(value) is kind or type(value) in _parts(kind):
        return value
    if origin in _UNIONS:
        kinds = [part for part in parts if part is not types.NoneType]
        return _typed(kinds[0] if len(kinds) == 1 else origin, value, key)
    if dataclasses.is_dataclass(kind):
        return from_plain(cast(type[Any], kind), value, key)
    if origin in (list, tuple) and isinstance(value, list | tuple):
        fixed = origin is tuple and parts[-1] is not Ellipsis
        if not fixed or len(value) == len(parts):
            hints = parts if fixed else parts[:1] * len(value)
            items = zip(hints, value, strict=True)
            return origin(_typed(part, item, f"{key}[{place}]") for place, (part, item) in enumerate(items))
    if origin is dict and isinstance(value, Mapping) and all(isinstance(name, parts[0]) for name in value):
        return {name: _typed(parts[1], item, f"{key}.{_bare(name)}") for name, item in value.items()}
    if isinstance(kind, type) and issubclass(kind, Enum):
        if isinstance(value, str) and value in kind.__members__:
            return kind[value]
        raise UserError(f"{key}={_shown(value)}: must be one of {', '.join(kind.__members__)}.")
    if kind is Path and isinstance(value, str):
        return Path(value)
    if kind is str and isinstance(value, bool | int | float):
        return str(value).lower() if isinstance(value, bool) else str(value)
    if kind is not str and isinstance(value, str) and len(value) < LONGEST_NUMBER:
        value = plain_value(value)
    if kind in (bool, int) and type(value) is kind:
        return value
    if kind is float and type(value) in (int, float):
        with suppress(OverflowError):
            return float(value)
    raise UserError(f"{key}={_shown(value)}: must be {_words(origin or kind)[0]}.")


def _parts(hint: Any) -> Sequence[Any]:
    """Returns the alternatives of a type such as `int | None`."""
    return typing.get_args(hint) if typing.get_origin(hint) in _UNIONS else (hint,)


def _words(kind: Any) -> Sequence[str]:
    """Returns the description of a type in messages, or the values of an enumeration."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind.__members__)
    return [_KINDS.get(kind, f"of type {kind}")]


_UNIONS = (typing.Union, types.UnionType)
_KINDS = {
    str: "text",
    bool: "true or false",
    int: "a whole number",
    float: "a number",
    list: "a list",
    dict: "a mapping",
    types.NoneType: "null",
}


def _shown(value: Any) -> str:
    """Returns a value for a message: shortened, and without terminal control characters."""
    return _bare(str(value) if isinstance(value, str | int | float) else repr(value))


def _bare(text: str) -> str:
    return "".join(letter if letter.isprintable() else "?" for letter in text[:60])
