"""The values that an option offers in help and completion: of an enumeration or of a registry."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from enum import Enum
from typing import Any

_BUILT_IN = "built_in"


def registered_name(default: str | None, *built_in: str) -> Any:
    """Returns the field of an option that selects a registered class by its name.

    The names are written down because the registries are in modules that import torch. A plugin may add more.

    Args:
        default: the default; None makes the option optional.
        built_in: the names of the classes that are part of nmt.
    """
    return dataclasses.field(default=default, metadata={_BUILT_IN: built_in})


def choices_of(field: dataclasses.Field[Any], kind: Any) -> Sequence[str]:
    """Returns the values that an option offers; empty if they can't be listed.

    Args:
        field: the field of the option.
        kind: its type.
    """
    if isinstance(kind, type) and issubclass(kind, Enum):
        return list(kind.__members__)
    built_in: Sequence[str] = field.metadata.get(_BUILT_IN, ())
    return built_in
