"""Checks of boolean options: OmegaConf also accepts every number and single letters, such as 2 and y."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from nmt.config.checks import shortened
from nmt.config.paths import walk
from nmt.errors import UserError

_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0"})


def truth_keys(schema: type[Any]) -> frozenset[str]:
    """Returns the full names of the boolean options of a dataclass."""
    return frozenset(key for key, _, hint in walk(schema) if hint is bool)


def check_truth(keys: Collection[str], key: str, value: Any) -> None:
    """Checks that the value of a boolean option is true or false.

    Interpolations, and values of a type that OmegaConf refuses, such as lists, are not checked here.

    Args:
        keys: the boolean options.
        key: full name of the option or section.
        value: its value, before OmegaConf has converted it.

    Raises:
        UserError: a boolean option has another number or text; the message names the option.
    """
    for name, leaf in _leaves(key, value):
        if name in keys and not _means_truth(leaf):
            raise UserError(f"{name}={shortened(leaf)}: must be true or false.")


def _leaves(key: str, value: Any) -> Iterator[tuple[str, Any]]:
    if isinstance(value, Mapping):
        for name, item in value.items():
            yield from _leaves(f"{key}.{name}" if key else str(name), item)
    else:
        yield key, value


def _means_truth(value: Any) -> bool:
    if not isinstance(value, int | float | str):
        return True
    text = str(value).lower()
    return text in _WORDS or text.startswith("${")
