"""The `key=value` of a command line, as Hydra takes them: one list for every job of a sweep."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException, OverrideParseException

from nmt.cli.arguments import Arguments
from nmt.cli.complaints import first_line
from nmt.cli.numbers import require_short_numbers
from nmt.config.paths import schema_keys
from nmt.errors import UserError


def override_lists(arguments: Arguments) -> Iterator[tuple[list[str], str]]:
    """The overrides of each job, and what is added to its run folder."""
    parsed = parse(arguments.overrides)
    choices: list[list[str]] = []
    for text, override in zip(arguments.overrides, parsed, strict=True):
        if not override.is_sweep_override():
            choices.append([text])
        elif not arguments.sweep:
            raise UserError(f"{text}: several values run as a sweep; add -m, or quote a list: key=[a,b]")
        else:
            key = override.get_key_element()
            try:
                choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
            except HydraException as error:  # a glob or an interval: Hydra's own launchers know them
                raise UserError(f"{text}: name the values, separated by commas") from error
    swept = [len(texts) > 1 for texts in choices]
    for combination in itertools.product(*choices):
        named = [text for text, is_swept in zip(combination, swept, strict=True) if is_swept]
        yield list(combination), ",".join(text.lstrip("+").replace("/", "-") for text in named)


def parse(overrides: Sequence[str]) -> list[Override]:
    """Reads overrides in Hydra's grammar.

    Raises:
        UserError: one is not in it.
    """
    parser = OverridesParser.create()
    parsed = []
    for text in overrides:
        if "=" not in text and not text.startswith("~"):
            raise UserError(f"{text}: options are written key=value; --help lists them")
        try:
            require_short_numbers(text)
            parsed += parser.parse_overrides([text])
        except OverrideParseException as error:
            raise UserError(
                f"{text}: can't be read ({first_line(error)}); values with spaces, commas, brackets or = "
                f"need quotes inside quotes, such as \"key='a, b.txt'\""
            ) from error
        except HydraException as error:
            raise UserError(f"{text}: {first_line(error)}") from error
    return parsed


def into_named(text: str, sections: Sequence[str]) -> str:
    """An override inside a section whose parts have free names, written so that the part need not exist yet.

    OmegaConf makes a part of the right type only where the section is given a whole: `a.b.name.key=value`
    becomes `++a.b={name:{key:value}}`, which is merged into what is there.
    """
    key, _, value = text.partition("=")
    for section in sections:
        start = f"{section}."
        if key.lstrip("+").startswith(start):
            for name in reversed(key.lstrip("+").removeprefix(start).split(".")):
                value = f"{{{name}:{value or repr('')}}}"
            return f"++{section}={value}"
        if key.lstrip("+") == section:
            return f"++{section}={value}"
    return text


def named_sections(schema: type[Any]) -> list[str]:
    """The sections whose parts have free names and are sections themselves."""
    keys = list(schema_keys(schema))
    return [key.removesuffix(".*") for key in keys if key.endswith(".*") and key.count("*") == 1]
