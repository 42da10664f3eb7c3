"""Typed options of a part that is chosen by name, such as `model.positions.options` of a positional encoding.

The schema of the section is open, since the class that reads it may come from a plugin. That class has a
dataclass, `Options`, with types, defaults and checks. `typed_options` builds an instance of it.
"""

from __future__ import annotations

import dataclasses
import types
import typing
from collections.abc import Mapping
from enum import Enum
from typing import Any, TypeVar, cast

from nmt.errors import UserError

T = TypeVar("T")

_WORDS = {bool: "true or false", int: "a whole number", float: "a number", str: "text"}


def typed_options(kind: type[T], given: Mapping[str, Any], key: str, owner: str) -> T:
    """Returns an instance of a dataclass of options.

    Args:
        kind: the dataclass.
        given: values by name; the other options have their defaults.
        key: the section of the options, such as `model.positions.options`, for messages.
        owner: the part that has the options, such as `model.positions.name=sinusoidal`, for messages.

    Raises:
        UserError: there is no such option, a value has the wrong type, or the dataclass refuses it. To refuse
            a value, the dataclass raises `ValueError` (or `UserError`) with a message that begins with the
            name of the option.
    """
    from difflib import get_close_matches

    from omegaconf import OmegaConf  # here: `--help` does not need it, and would take twice as long
    from omegaconf.errors import OmegaConfBaseException

    hints = typing.get_type_hints(kind)
    names = [field.name for field in dataclasses.fields(cast(Any, kind))]
    values = OmegaConf.structured(kind)
    OmegaConf.set_readonly(values, False)  # it is read-only if the dataclass is frozen
    for name, value in given.items():
        if name not in names:
            known = f"It has {', '.join(names)}." if names else "It has none."
            close = get_close_matches(str(name), names, n=1)
            hint = f" Did you mean {key}.{close[0]}?" if close else ""
            raise UserError(f"{key}.{name}: not an option of {owner}. {known}{hint}")
        try:
            if isinstance(value, bool) and bool not in _parts(hints[name]):
                raise ValueError  # OmegaConf would convert it to a number
            if isinstance(value, str) and "${" in value:
                raise ValueError  # an interpolation
            OmegaConf.update(values, name, value, merge=False)
        except (OmegaConfBaseException, ValueError, TypeError) as error:
            raise UserError(f"{key}.{name}={value}: must be {_words(hints[name])}.") from error
    try:
        built = OmegaConf.to_object(values)
    except ValueError as error:  # or `UserError`, a subclass
        raise UserError(f"{key}.{error}") from error
    assert isinstance(built, kind)
    return built


def _parts(hint: Any) -> list[Any]:
    """Returns the alternatives of a type such as `int | None`."""
    return list(typing.get_args(hint)) if isinstance(hint, types.UnionType) else [hint]


def _words(hint: Any) -> str:
    words = []
    for part in _parts(hint):
        if isinstance(part, type) and issubclass(part, Enum):
            words += list(part.__members__)
        else:
            words.append("null" if part is types.NoneType else _WORDS.get(part, f"of type {part}"))
    return " or ".join(words)
