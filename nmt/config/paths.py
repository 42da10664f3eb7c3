"""Which options hold text, and which of them name files and folders.

Text is taken as it stands: `2026_11_23`, `1.10`, `1e3` and `true` are neither numbers nor truth values.
`literal_keys` lists these options; `text_option` looks one up.
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
        names: what the text names: `file`, `folder`, `name` (a part of a path) or `command`; empty for other
            text.
        several: whether a list of texts is allowed.
        optional: whether it may be null.
    """

    names: str = ""
    several: bool = False
    optional: bool = False


def path_field(names: str, default: str | None, *, several: bool = False) -> Any:
    """The field of an option that names a file or a folder, or is a part of such a name.

    Args:
        names: `file`, `folder`, `name` or `command`; errors use the word.
        default: the default; with None the option is optional.
        several: whether a list of paths is allowed.
    """
    return dataclasses.field(default=default, metadata={_MARK: (names, several)})


def literal_keys(schema: type[Any]) -> Mapping[str, TextOption]:
    """The options of a dataclass that hold text, by full key; `*` stands for a free name.

    These are the fields declared with `path_field`, and those of type `str`, `str | None` or `list[str]`.
    """
    found = ((key, _declared(field, hint)) for key, field, hint in walk(schema))
    return {key: option for key, option in found if option}


def text_option(schema: type[Any], key: str) -> TextOption | None:
    """The option `key` of a dataclass, such as `data.train.corpora.news.source`; None if it holds no text."""
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
    """Checks the text in finished options; what holds for all paths is checked here once.

    Args:
        config: an instance of a dataclass of options.
        prefix: what comes before its keys in messages.

    Raises:
        UserError: a path is empty, not text, or has a character that no file or no configuration can hold.
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
        raise UserError(f"{key}={text}: is not text. Give a {one}; in YAML, put quotes around it.")
    if option.names and not text:
        raise UserError(f"{key}: is empty. Give a {one}{', or null for none' if option.optional else ''}.")
    if option.names and ("\n" in text or "\0" in text):
        what = "a line break" if "\n" in text else "a NUL character"
        raise UserError(f"{key}: has {what} in it. Give a {one} without.")
    if any("\ud800" <= character <= "\udfff" for character in text):
        shown = text.encode("utf-8", "replace").decode()
        raise UserError(f"{key}={shown}: is not valid UTF-8. Rename the {one}.")
    if "${" in text:
        raise UserError(f"{key}={text}: ${{ begins an interpolation. Give a {one} without it.")


def schema_keys(schema: type[Any]) -> Iterator[str]:
    """Every key that a dataclass of options has, in sections that are optional too.

    Where the parts of a section have free names, `*` stands for them; the parts of a section without types
    are not listed.
    """
    for key, _, hint in walk(schema):
        yield key
        while (hint := _mapping(hint)) is not None:
            key += ".*"
            yield key
            hint = typing.get_args(hint)[1]


def _mapping(hint: Any) -> Any:
    """The mapping that a type such as `dict[str, int] | None` allows; None if it allows none."""
    alternatives = typing.get_args(hint) if isinstance(hint, types.UnionType) else (hint,)
    return next((kind for kind in alternatives if typing.get_origin(kind) is dict), None)


def _declared(field: dataclasses.Field[Any], hint: Any) -> TextOption | None:
    """What a field says of its text; None if it holds none."""
    if _MARK in field.metadata:
        names, several = field.metadata[_MARK]
        return TextOption(names, several, field.default is None)
    optional = types.NoneType in typing.get_args(hint)
    kinds = [kind for kind in typing.get_args(hint) or (hint,) if kind is not types.NoneType]
    return TextOption("", typing.get_origin(hint) is list, optional) if kinds == [str] else None


def walk(schema: type[Any], prefix: str = "") -> Iterator[tuple[str, dataclasses.Field[Any], Any]]:
    """Every field of a dataclass of options and of its sections: full key, field, and type."""
    hints = typing.get_type_hints(schema)
    for field in dataclasses.fields(schema):
        key, hint = f"{prefix}{field.name}", hints[field.name]
        yield key, field, hint
        if typing.get_origin(hint) is dict:
            key += ".*"
        for kind in typing.get_args(hint) or (hint,):
            if dataclasses.is_dataclass(kind):
                yield from walk(cast(type[Any], kind), f"{key}.")
