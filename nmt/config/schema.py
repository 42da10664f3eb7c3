"""What the dataclasses declare about an option: its key, text, paths, booleans and choices.

Text is taken literally: `2026_11_23`, `1.10`, `1e3` and `true` are not converted. `literal_keys` lists the
options that hold text; `text_option` looks up one of them.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, cast

from nmt.config.checks import shortened, truth_choices
from nmt.errors import UserError

_PATH, _BUILT_IN, _SIDES = "nmt_path", "built_in", "sides"
R = TypeVar("R")
_TRUTH_VALUES = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0"})


def _cached(function: Callable[[type[Any]], R]) -> Callable[[type[Any]], R]:
    return cast(Callable[[type[Any]], R], cache(function))  # to mypy, a dataclass is not hashable


@dataclass(frozen=True)
class TextOption:
    """An option whose value is text.

    Attributes:
        names: the kind of name that the text is: `file`, `folder`, `name` (a part of a path) or `command`;
            empty for other text.
        several: whether a list of texts is allowed.
        optional: whether it may be null.
        alternative: what to do with several, where a list is not allowed; empty: nothing.
    """

    names: str = ""
    several: bool = False
    optional: bool = False
    alternative: str = ""


def path_field(names: str, default: str | None, *, several: bool = False, alternative: str = "") -> Any:
    """Returns the field of an option that names a file or a folder, or is a part of such a name.

    The arguments are those of `TextOption`. The default None makes the option optional.
    """
    return dataclasses.field(default=default, metadata={_PATH: (names, several, alternative)})


def registered_name(default: str | None, *built_in: str) -> Any:
    """Returns the field of an option that selects a registered class by its name.

    The names of the built-in classes are written down because the registries are in modules that import
    torch. A plugin may add more. The default None makes the option optional.
    """
    return dataclasses.field(default=default, metadata={_BUILT_IN: built_in})


def by_side(source: str, target: str) -> Any:
    """Returns the field of an option that has a value for each side, or one value in place of the two.

    Its type is `Any`: OmegaConf has no unions of a value and a section. The sides are keys of their own, such
    as `data.tokenizer.normalization.target`.
    """
    sides = {"source": source, "target": target}
    return dataclasses.field(default_factory=lambda: dict(sides), metadata={_SIDES: sides})


def sides_of(field: dataclasses.Field[Any]) -> Mapping[str, str]:
    """Returns the defaults of an option by side; empty if it has one value."""
    sides: Mapping[str, str] = field.metadata.get(_SIDES, {})
    return sides


def choices_of(field: dataclasses.Field[Any], kind: Any) -> Sequence[str]:
    """Returns the values that an option offers in help and completion; empty if they can't be listed."""
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind.__members__)
    built_in: Sequence[str] = field.metadata.get(_BUILT_IN, ())
    return built_in or truth_choices(field)


def walk(schema: type[Any], prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any], Any]]:
    """Yields every field of a dataclass of options and of its sections: full key, field, and type.

    If the parts of a section have free names, `*` stands for them.
    """
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        key, hint = f"{prefix}{field.name}", hints[field.name]
        yield key, field, hint
        if typing.get_origin(hint) is dict:
            key += ".*"
        for kind in alternatives(hint):
            if dataclasses.is_dataclass(kind):
                yield from walk(cast(type[Any], kind), f"{key}.")


def alternatives(hint: Any) -> Sequence[Any]:
    """Returns the parts of a type such as `int | None` or `dict[str, int]`; of another type, the type."""
    return typing.get_args(hint) or (hint,)


@_cached
def schema_keys(schema: type[Any]) -> Sequence[str]:
    """Returns every key of a dataclass of options, parents first, including those of optional sections.

    `*` stands for free names, as in `walk`. The parts of a section without types are not listed.
    """
    keys = []
    for key, field, hint in walk(schema):
        keys += [key, *(f"{key}.{side}" for side in sides_of(field))]
        while (hint := _mapping(hint)) is not None:
            key += ".*"
            keys.append(key)
            hint = typing.get_args(hint)[1]
    return keys


def declared_key(schema: type[Any], key: str) -> str | None:
    """Returns the key in `schema_keys` of an option, with `*` for free names; None if there is none."""
    keys, parts = schema_keys(schema), key.split(".")
    if key in keys:
        return key
    for declared in keys:
        names = declared.split(".")
        if len(names) == len(parts) and all(n in ("*", p) for n, p in zip(names, parts, strict=True)):
            return declared
    return None


def _mapping(hint: Any) -> Any:
    """Returns the mapping in a type such as `dict[str, int] | None`; None if there is none."""
    kinds = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return next((kind for kind in kinds if typing.get_origin(kind) is dict), None)


@_cached
def literal_keys(schema: type[Any]) -> Mapping[str, TextOption]:
    """Returns the options of a dataclass that hold text, by full key.

    They are the fields declared with `path_field`, and those of type `str`, `str | None` or `list[str]`.
    """
    options = ((key, _declared(field, hint)) for key, field, hint in walk(schema))
    return {key: option for key, option in options if option}


def text_option(schema: type[Any], key: str) -> TextOption | None:
    """Looks up an option such as `data.train.corpora.news.source`; returns None if it does not hold text."""
    return literal_keys(schema).get(declared_key(schema, key) or "")


def _declared(field: dataclasses.Field[Any], hint: Any) -> TextOption | None:
    if _PATH in field.metadata:
        names, several, alternative = field.metadata[_PATH]
        return TextOption(names, several, field.default is None, alternative)
    optional = types.NoneType in typing.get_args(hint)
    kinds = [kind for kind in alternatives(hint) if kind is not types.NoneType]
    return TextOption("", typing.get_origin(hint) is list, optional) if kinds == [str] else None


def check_texts(config: Any, prefix: str = "") -> None:
    """Checks the text in finished options; the keys in messages begin with `prefix`.

    Raises:
        UserError: a path is empty, not text, or has a character that a file name or a stored configuration
            can't contain.
    """
    hints = _hints(type(config))
    for field in dataclasses.fields(config):
        key, value = f"{prefix}{field.name}", getattr(config, field.name)
        option = _declared(field, hints[field.name])
        if dataclasses.is_dataclass(value):
            check_texts(value, f"{key}.")
        elif option and value is not None:
            for text in value if isinstance(value, list) else [value]:
                _check_text(key, text, option)
        elif isinstance(value, dict):
            for name, part in value.items():
                if dataclasses.is_dataclass(part):
                    check_texts(part, f"{key}.{name}.")


@_cached
def _hints(schema: type[Any]) -> Mapping[str, Any]:
    return typing.get_type_hints(schema)


def _check_text(key: str, text: Any, option: TextOption) -> None:
    kind = option.names or "text"
    if not isinstance(text, str):
        raise UserError(f"{key}={text}: is not text. Give a {kind}; in YAML, put it in quotes.")
    if option.names and not text:
        raise UserError(f"{key}: is empty. Give a {kind}{', or null for none' if option.optional else ''}.")
    if option.names and ("\n" in text or "\0" in text):
        character = "a line break" if "\n" in text else "a NUL character"
        raise UserError(f"{key}: contains {character}. Give a {kind} without it.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        shown = text.encode("utf-8", "replace").decode()
        raise UserError(f"{key}={shown}: is not valid UTF-8. Rename the {kind}.")
    if "${" in text:
        raise UserError(f"{key}={text}: ${{ begins an interpolation. Give a {kind} without it.")


def check_truth(schema: type[Any], key: str, value: Any) -> None:
    """Checks the values of boolean options: OmegaConf also accepts every number, and letters such as y.

    Interpolations, and values of a type that OmegaConf refuses, such as lists, are not checked here.

    Raises:
        UserError: a boolean option has another number or text; the message names the option.
    """
    if isinstance(value, Mapping):
        for name, item in value.items():
            check_truth(schema, f"{key}.{name}" if key else str(name), item)
    elif key in _truth_keys(schema) and isinstance(value, int | float | str):
        if (text := str(value).lower()) not in _TRUTH_VALUES and not text.startswith("${"):
            raise UserError(f"{key}={shortened(value)}: must be true or false.")


@_cached
def _truth_keys(schema: type[Any]) -> frozenset[str]:
    return frozenset(key for key, _, hint in walk(schema) if hint in (bool, bool | None))
