"""Truth values: what counts as one. OmegaConf takes every number and single letters too, such as 2 and y."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import Any

from nmt.config.checks import shortened
from nmt.config.paths import walk
from nmt.errors import UserError

_WORDS = frozenset({"true", "false", "yes", "no", "on", "off", "1", "0"})


def truth_keys(schema: type[Any]) -> frozenset[str]:
    """The options of a dataclass that take a truth value, by full name."""
    return frozenset(key for key, _, hint in walk(schema) if hint is bool)


def check_truth(keys: Collection[str], key: str, value: Any) -> None:
    """Makes sure that what an option is given is a truth value, if it takes one.

    A value of a type that OmegaConf refuses by itself, such as a list, is left to it; so is an interpolation.

    Args:
        keys: the options that take one.
        key: full name of the option or section.
        value: its value, before it has been given a type.

    Raises:
        UserError: it is another number or text; in a section it names the option.
    """
    for name, leaf in _leaves(key, value):
        if name in keys and not _means_truth(leaf):
            raise UserError(f"{name}={shortened(leaf)}: is neither true nor false. Give one of the two.")


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
