"""The options that hold text, and among them those that name files and folders.

Text is taken literally: `2026_11_23`, `1.10`, `1e3` and `true` are not converted. `literal_keys` lists these
options; `text_option` looks up one of them.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, cast

from nmt.errors import UserError

_MARK = "nmt_path"


@dataclass(frozen=True)
class TextOption:
    """An option whose value is text.

    Attributes:
        names: the kind of name that the text is: `file`, `folder`, `name` (a part of a path) or `command`;
            empty for other text.
        several: whether a list of texts is allowed.
        optional: whether it may be null.
    """

    names: str = ""
    several: bool = False
    optional: bool = False


def path_field(names: str, default: str | None, *, several: bool = False) -> Any:
    """Returns the field of an option that names a file or a folder, or is a part of such a name.

    Args:
        names: `file`, `folder`, `name` or `command`, as in `TextOption`; error messages use the word.
        default: the default; None makes the option optional.
        several: whether a list of paths is allowed.
    """
    return dataclasses.field(default=default, metadata={_MARK: (names, several)})


def literal_keys(schema: type[Any]) -> Mapping[str, TextOption]:
    """Returns the options of a dataclass that hold text, by full key; `*` stands for a free name.

    They are the fields declared with `path_field`, and those of type `str`, `str | None` or `list[str]`.
    """
    found = ((key, _declared(field, hint)) for key, field, hint in walk(schema))
    return {key: option for key, option in found if option}


def text_option(schema: type[Any], key: str) -> TextOption | None:
    """Looks up an option such as `data.train.corpora.news.source`; returns None if it does not hold text."""
    found = literal_keys(schema)
    if key in found:
        return found[key]
    parts = key.split(".")
    for pattern, option in found.items():
        names = pattern.split(".")
        if len(names) == len(parts) and all(n in ("*", p) for n, p in zip(names, parts, strict=True)):
            return option
    return None


def check_texts(config: Any, prefix: str = "") -> None:
    """Checks the text in finished options, with the checks that all paths share.

    Args:
        config: an instance of a dataclass of options.
        prefix: prefix of its keys in messages.

    Raises:
        UserError: a path is empty, not text, or has a character that a file name or a stored configuration
            can't contain.
    """
    hints = typing.get_type_hints(type(config))
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


def _check_text(key: str, text: Any, option: TextOption) -> None:
    one = option.names or "text"
    if not isinstance(text, str):
        raise UserError(f"{key}={text}: is not text. Give a {one}; in YAML, put it in quotes.")
    if option.names and not text:
        raise UserError(f"{key}: is empty. Give a {one}{', or null for none' if option.optional else ''}.")
    if option.names and ("\n" in text or "\0" in text):
        what = "a line break" if "\n" in text else "a NUL character"
        raise UserError(f"{key}: contains {what}. Give a {one} without it.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        shown = text.encode("utf-8", "replace").decode()
        raise UserError(f"{key}={shown}: is not valid UTF-8. Rename the {one}.")
    if "${" in text:
        raise UserError(f"{key}={text}: ${{ begins an interpolation. Give a {one} without it.")


def schema_keys(schema: type[Any]) -> Iterator[str]:
    """Yields every key of a dataclass of options, including those of optional sections.

    If the parts of a section have free names, `*` stands for them. The parts of a section without types are
    not listed.
    """
    for key, _, hint in walk(schema):
        yield key
        while (hint := _mapping(hint)) is not None:
            key += ".*"
            yield key
            hint = typing.get_args(hint)[1]


def _mapping(hint: Any) -> Any:
    """Returns the mapping in a type such as `dict[str, int] | None`; None if there is none."""
    alternatives = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return next((kind for kind in alternatives if typing.get_origin(kind) is dict), None)


def _declared(field: dataclasses.Field[Any], hint: Any) -> TextOption | None:
    """Returns the text option that a field declares; None if the field does not hold text."""
    if _MARK in field.metadata:
        names, several = field.metadata[_MARK]
        return TextOption(names, several, field.default is None)
    optional = types.NoneType in typing.get_args(hint)
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not types.NoneType]
    return TextOption("", typing.get_origin(hint) is list, optional) if kinds == [str] else None


def walk(schema: type[Any], prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any], Any]]:
    """Yields every field of a dataclass of options and of its sections: full key, field, and type."""
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        key, hint = f"{prefix}{field.name}", hints[field.name]
        yield key, field, hint
        if typing.get_origin(hint) is dict:
            key += ".*"
        for kind in typing.get_args(hint) or (hint,):
            if dataclasses.is_dataclass(kind):
                yield from walk(cast(type[Any], kind), f"{key}.")
