"""Parses a command line into overrides, `key=value`, and flags."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from nmt.config.checks import shortened
from nmt.errors import UserError
from nmt.options.arguments import Arguments
from nmt.options.malformed_words import require_option, require_text

FLAGS = ("--help", "--show", "--multirun", "--config-dir", "--version", "--completion")
"""The flags, for completion."""

_WITH_VALUE = {
    "-cd": ("config_dir", "the name of a folder"),
    "--config-dir": ("config_dir", "the name of a folder"),
    "--completion": ("completion", "the name of a shell: bash or zsh"),
    "--complete": ("complete", "a word"),
}


def read_arguments(arguments: Sequence[str], schema: type[Any] | None = None) -> Arguments:
    """Parses a command line.

    Args:
        arguments: its words.
        schema: the dataclass of the command's options, for suggestions.

    Raises:
        UserError: a flag is unknown or has no value, or a word can't be an option.
    """
    overrides: list[str] = []
    found: dict[str, bool] = {}
    values: dict[str, str | None] = dict.fromkeys(field for field, _ in _WITH_VALUE.values())
    rest = list(arguments)
    while rest:
        argument = rest.pop(0)
        require_text(argument)
        name, equals, value = argument.partition("=")
        if argument in ("-h", "--help"):
            found["help"] = True
        elif argument == "--version":
            found["version"] = True
        elif argument in ("--show", "-c", "--cfg", "--cfg=job"):
            found["show"] = True
            if argument in ("-c", "--cfg") and rest[:1] == ["job"]:
                rest.pop(0)
        elif argument in ("-m", "--multirun"):
            found["sweep"] = True
        elif name in _WITH_VALUE:
            field, words = _WITH_VALUE[name]
            if not equals and not rest:
                raise UserError(f"{name}: has no value. Give {words}.")
            values[field] = value if equals else rest.pop(0)
            require_text(values[field] or "")
        elif argument.startswith("-"):
            given = value if equals else rest[0] if rest and rest[0][:1] != "-" else None
            raise UserError(_unknown_flag(name, given, schema))
        else:
            require_option(argument)
            overrides.append(argument)
    return Arguments(
        tuple(overrides),
        config_dir=values["config_dir"],
        completion=values["completion"],
        complete=values["complete"],
        **found,
    )


def _unknown_flag(name: str, value: str | None, schema: type[Any] | None) -> str:
    message = f"{shortened(name)}: is not a flag. Options are written key=value"
    if schema is None:
        return message
    from nmt.config.paths import schema_keys
    from nmt.options.suggestions import corrected_flag

    found = corrected_flag(name, None if value is None else shortened(value), list(schema_keys(schema)))
    return f"{message}{found or '. --help lists them.'}"
