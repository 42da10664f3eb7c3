"""Parses the `key=value` of a command line into one list of settings for each job of a sweep."""

from __future__ import annotations

import dataclasses
import itertools
import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override, Quote, QuotedString, RangeSweep
from hydra.errors import HydraException, OverrideParseException

from nmt.config.schema import check_truth, schema_keys, text_option
from nmt.errors import UserError
from nmt.options.arguments import GROUPS, Arguments
from nmt.options.hydra_errors import first_line
from nmt.options.literals import read_text, split, unquoted
from nmt.options.numbers import require_short_numbers

_FUNCTION = re.compile(r"(range|interval|glob|sort|shuffle|tag)\(.*\)", re.DOTALL)
"""Sweeps in the function syntax of Hydra's grammar."""

MAX_JOBS = 10_000
"""Largest number of jobs in a sweep. All are parsed, and get their folders, before the first one starts."""


@dataclass(frozen=True)
class Setting:
    """One `key=value` of one job.

    Attributes:
        key: the option or group, such as `data.train.source` or `model/positions`.
        written: the value as on the command line.
        value: the value.
        override: the override for Hydra. None: the value is assigned to the composed options afterwards. This
            is for text, which Hydra's grammar would change, and for sections whose parts have free names,
            which Hydra's grammar of keys would restrict.
        swept: whether other jobs have other values.
    """

    key: str
    written: str
    value: Any
    override: str | None
    swept: bool = False


def settings_of_jobs(schema: type[Any], arguments: Arguments) -> Iterator[list[Setting]]:
    """Yields the settings of each job, in the order of the command line.

    Raises:
        UserError: an argument can't be parsed or has several values without `-m`, or there are too many jobs.
    """
    choices = []
    for text in arguments.overrides:
        found = _read(schema, text, arguments.sweep)
        for one in found:
            check_truth(schema, one.key, one.value)
        choices.append([dataclasses.replace(one, swept=len(found) > 1) for one in found])
    jobs = math.prod(map(len, choices))
    if jobs > MAX_JOBS:
        raise UserError(
            f"-m: {jobs:,} jobs are too many; a sweep has at most {MAX_JOBS:,}. Give fewer values."
        )
    for combination in itertools.product(*choices):
        yield list(combination)


def named_sections(schema: type[Any]) -> list[str]:
    """Returns the sections whose parts have free names and are sections too."""
    keys = list(schema_keys(schema))
    return [key.removesuffix(".*") for key in keys if key.endswith(".*") and key.count("*") == 1]


def quoted(text: str) -> str:
    """Returns `text` quoted for Hydra's grammar."""
    return QuotedString(text, Quote.single).with_quotes()


def _read(schema: type[Any], text: str, sweep: bool) -> list[Setting]:
    """Returns the settings of an argument: one, or one for each value of a sweep."""
    written_key, equals, value = text.partition("=")
    key = written_key.lstrip("+")
    if not key or (not equals and not key.startswith("~")):
        raise UserError(f"{text}: options are written key=value. --help lists them.")
    if not all(key.split(".")):
        raise UserError(f"{key}: a part of the key is empty. Options are written key=value.")
    option = text_option(schema, key)
    if option:
        values = _alternatives(text, value) if sweep else [value]
        return [Setting(key, one, read_text(key, one, option), None) for one in values]
    if any(key == section or key.startswith(f"{section}.") for section in named_sections(schema)):
        values = _swept(text, value, _parsed(text, f"value={value}"), sweep)
        return [Setting(key, one, _parsed(text, f"value={one}").value(), None) for one in values]
    if _is_group(schema, key) and not value.startswith(("{", "[")):
        # With a plus, Hydra would add a second file of a group that already has one.
        return _choices(text, key if key in GROUPS["train"] else written_key, value, sweep)
    if written_key.startswith("+") and key in schema_keys(schema):
        written_key = f"++{key}"  # with a single plus Hydra requires that the key is new
    override = _parsed(text, f"{written_key}{equals}{value}")
    if not override.is_sweep_override():
        return [Setting(override.key_or_group, value, override.value(), override.input_line)]
    return [
        Setting(key, one, _parsed(text, f"{written_key}={one}").value(), f"{written_key}={one}")
        for one in _swept(text, value, override, sweep)
    ]


def _is_group(schema: type[Any], key: str) -> bool:
    """Whether the key names a group of YAML files, or a section, which may be a group too."""
    if "@" in key or key.startswith("~"):
        return False
    return "/" in key or key == "experiment" or any(one.startswith(f"{key}.") for one in schema_keys(schema))


def _choices(text: str, key: str, value: str, sweep: bool) -> list[Setting]:
    """Returns the settings that choose files from a group. File names are text; null chooses no file."""
    written = _alternatives(text, value)
    if len(written) > 1 and not sweep:
        raise _lacks_sweep(text)
    names = [None if one == "null" else unquoted(one) for one in written]
    if "" in names:
        raise UserError(f"{text}: is empty. Give a name.")
    return [
        Setting(key.lstrip("+"), one, name, f"{key}={'null' if name is None else quoted(name)}")
        for one, name in zip(written, names, strict=True)
    ]


def _alternatives(text: str, value: str) -> list[str]:
    """Returns the values of a sweep over text."""
    if value.startswith("choice(") and value.endswith(")"):
        return split(value.removeprefix("choice(")[:-1])
    if _FUNCTION.fullmatch(value):
        return _swept(text, value, _parsed(text, f"value={value}"), sweep=True)
    return split(value)


def _swept(text: str, value: str, override: Override, sweep: bool) -> list[str]:
    """Returns the values of an override, each in Hydra's grammar."""
    if not override.is_sweep_override():
        return [value]
    if not sweep:
        raise _lacks_sweep(text)
    swept = override.value()
    if isinstance(swept, RangeSweep):
        _check_range(text, swept)
    try:
        values = list(override.sweep_string_iterator())
    except HydraException as error:  # a glob or an interval, which only Hydra's launchers support
        raise UserError(f"{text}: is not supported. Give the values, separated by commas.") from error
    if not values:
        raise UserError(f"{text}: has no values. Give them, separated by commas.")
    return values


def _check_range(text: str, swept: RangeSweep) -> None:
    """Refuses ranges that are infinite, are empty, or have more values than a sweep may have jobs."""
    start, stop, step = (float(number or 0) for number in (swept.start, swept.stop, swept.step))
    if not all(map(math.isfinite, (start, stop, step))) or step == 0:
        raise UserError(
            f"{text}: the range is infinite. Write range(first,end,step) with a step other than 0."
        )
    if (stop - start) * math.copysign(1.0, step) <= 0:
        raise UserError(f"{text}: the range is empty. Give an end beyond the first value.")
    if (stop - start) / step > MAX_JOBS:
        raise UserError(f"{text}: has more than {MAX_JOBS:,} values. Give fewer.")


def _lacks_sweep(text: str) -> UserError:
    return UserError(f"{text}: has several values. Add -m for a sweep, or quote a list: key=[a,b].")


@cache  # creating a parser takes as long as parsing a value, and a sweep has many values
def _parser() -> OverridesParser:
    return OverridesParser.create()


def _parsed(argument: str, text: str) -> Override:
    """Parses text in Hydra's grammar of overrides; errors name the argument that contains it."""
    require_short_numbers(argument)
    try:
        (override,) = _parser().parse_overrides([text])
    except OverrideParseException as error:
        raise UserError(
            f"{argument}: can't be parsed ({first_line(error)}). Values with spaces, commas, brackets or = "
            f"need quotes inside quotes, such as \"key='a, b.txt'\"."
        ) from error
    except HydraException as error:
        raise UserError(f"{argument}: {first_line(error)}") from error
    return override
