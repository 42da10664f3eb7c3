"""Parses the `key=value` of a command line into one list of settings for each job of a sweep.

Values are in Hydra's grammar, except for text. Text is taken literally, apart from quotes, lists, `null` and
sweeps: Hydra's grammar would change it, or refuse it.
"""

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
from hydra.core.override_parser.types import Override, RangeSweep
from hydra.errors import HydraException, OverrideParseException

from nmt.config.checks import shortened
from nmt.config.plain_yaml import LONGEST_NUMBER
from nmt.config.schema import TextOption, check_truth, schema_keys, text_option
from nmt.errors import UserError
from nmt.options.arguments import GROUPS, Arguments, quoted
from nmt.options.messages import first_line

_FUNCTION = re.compile(r"(range|interval|glob|sort|shuffle|tag)\(.*\)", re.DOTALL)
"""Sweeps in the function syntax of Hydra's grammar."""
_WORD = re.compile("(?!(null|true|false|nan|inf)$)[A-Za-z_][A-Za-z0-9_]*", re.IGNORECASE)
_QUOTED = re.compile(r"""'(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*\"""", re.DOTALL)
# A whole value, or an element of a list or mapping. Digits inside a longer word are not a number.
_LONG_NUMBER = re.compile(rf"(?<![^=,\[{{(:\s])[-+]?\d[\d_]{{{LONGEST_NUMBER},}}(?![^,\]}})\s])")

MAX_JOBS = 10_000
"""Largest number of jobs in a sweep. All are parsed, and get their folders, before the first one starts."""


@dataclass(frozen=True)
class Setting:
    """One `key=value` of one job.

    Attributes:
        key: the option or group, such as `data.train.source` or `model/positions`.
        written: the value as on the command line.
        value: the value, which is assigned to the composed options.
        choice: the override with which Hydra chooses a file of a group; None for the value of an option.
        adds: whether the key may be new, as the name of a corpus and the options of a part may be.
        swept: whether other jobs have other values.
    """

    key: str
    written: str
    value: Any
    choice: str | None = None
    adds: bool = False
    swept: bool = False


def settings_of_jobs(schema: type[Any], arguments: Arguments) -> Iterator[list[Setting]]:
    """Yields the settings of each job, in the order of the command line.

    Raises:
        UserError: an argument can't be parsed or has several values without `-m`, or there are too many jobs.
    """
    choices = []
    for text in arguments.overrides:
        settings = settings_of(schema, text, arguments.sweep)
        for setting in settings:
            check_truth(schema, setting.key, setting.value)
        choices.append([dataclasses.replace(setting, swept=len(settings) > 1) for setting in settings])
    jobs = math.prod(map(len, choices))
    if jobs > MAX_JOBS:
        raise UserError(
            f"-m: {jobs:,} jobs are too many; a sweep has at most {MAX_JOBS:,}. Give fewer values."
        )
    for combination in itertools.product(*choices):
        yield list(combination)


def named_sections(schema: type[Any]) -> list[str]:
    """Returns the sections whose parts have free names and are sections too."""
    keys = schema_keys(schema)
    return [key.removesuffix(".*") for key in keys if key.endswith(".*") and key.count("*") == 1]


def written(schema: type[Any], key: str, value: Any) -> str:
    """Returns `key=value` as on a command line; `value` is as in a stored configuration.

    The shell may need quotes around the whole.
    """
    option = text_option(schema, key)
    if option is None:
        return f"{key}={_in_grammar(value)}"
    if value is None:
        return f"{key}=null"
    if isinstance(value, list):
        plain = f"[{','.join(value)}]"
        return f"{key}={plain if read_text(key, plain, option) == value else _in_grammar(value)}"
    is_plain = not value.startswith("[") and read_text(key, value, option) == value
    return f"{key}={value if is_plain else quoted(value)}"


def _in_grammar(value: Any) -> str:
    """Returns a value in Hydra's grammar."""
    if isinstance(value, dict):
        return f"{{{','.join(f'{name}: {_in_grammar(item)}' for name, item in value.items())}}}"
    if isinstance(value, list):
        return f"[{','.join(map(_in_grammar, value))}]"
    if isinstance(value, str):
        return value if _WORD.fullmatch(value) else quoted(value)
    return "null" if value is None else str(value).lower()


def settings_of(schema: type[Any], text: str, sweep: bool) -> list[Setting]:
    """Returns the settings of an argument: one, or one for each value of a sweep.

    Raises:
        UserError: it can't be parsed, or has several values and `sweep` is false.
    """
    written_key, equals, value = text.partition("=")
    key = written_key.lstrip("+")
    if not key or not equals:
        raise UserError(f"{text}: options are written key=value. --help lists them.")
    if not all(key.split(".")):
        raise UserError(f"{key}: a part of the key is empty. Options are written key=value.")
    if option := text_option(schema, key):
        texts = _alternatives(text, value) if sweep else [value]
        return [Setting(key, item, read_text(key, item, option), adds=True) for item in texts]
    if any(key == section or key.startswith(f"{section}.") for section in named_sections(schema)):
        values = _swept(text, value, parsed(text, f"value={value}"), sweep)
        return [Setting(key, item, parsed(text, f"value={item}").value(), adds=True) for item in values]
    # A group of YAML files, or a section, which may be a group of --config-dir.
    is_group = "/" in key or key == "experiment" or any(k.startswith(f"{key}.") for k in schema_keys(schema))
    if is_group and not value.startswith(("{", "[")):
        # With a plus, Hydra would add a second file of a group that already has one.
        return _choices(text, key if key in GROUPS["train"] else written_key, value, sweep)
    override = parsed(text, f"{written_key}{equals}{value}")
    return [
        Setting(
            key,
            item,
            parsed(text, f"{written_key}={item}").value(),
            choice=f"{written_key}={item}" if is_group and item.startswith("[") else None,
            adds=written_key != key,
        )
        for item in _swept(text, value, override, sweep)
    ]


def _choices(text: str, key: str, value: str, sweep: bool) -> list[Setting]:
    """Returns the settings that choose files from a group. File names are text; null chooses no file."""
    written = _alternatives(text, value)
    if len(written) > 1 and not sweep:
        raise _lacks_sweep(text)
    names = [None if item == "null" else _unquoted(item) for item in written]
    if "" in names:
        raise UserError(f"{text}: is empty. Give a name.")
    return [
        Setting(key.lstrip("+"), item, name, choice=f"{key}={'null' if name is None else quoted(name)}")
        for item, name in zip(written, names, strict=True)
    ]


def _alternatives(text: str, value: str) -> list[str]:
    """Returns the values of a sweep over text."""
    if value.startswith("choice(") and value.endswith(")"):
        return split(value.removeprefix("choice(")[:-1])
    if _FUNCTION.fullmatch(value):
        return _swept(text, value, parsed(text, f"value={value}"), sweep=True)
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
        problem = "needs hydra/sweeper=optuna" if "interval(" in value else "is not supported"
        raise UserError(f"{text}: {problem}. Give the values, separated by commas.") from error
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


def parsed(argument: str, text: str) -> Override:
    """Parses text in Hydra's grammar of overrides; errors name the argument that contains it.

    Raises:
        UserError: it can't be parsed.
    """
    key, _, value = argument.partition("=")
    if number := _LONG_NUMBER.search(f"={value}"):
        digits = sum(character.isdigit() for character in number[0])
        raise UserError(f"{key}={shortened(value)}: a number of {digits:,} digits is too long.")
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


def read_text(key: str, written: str, option: TextOption) -> str | list[str] | None:
    """Returns the value of an option that holds text.

    `null` is None if the option is optional, `[a,b]` is a list if the option takes several, and quotes around
    a whole value or item are removed. Anything else is taken literally.

    Raises:
        UserError: the value is a list of several texts, and the option takes one.
    """
    if option.optional and written == "null":
        return None
    if written.startswith("[") and _closing(written, 0) == len(written) - 1:
        items = split(written[1:-1]) if written[1:-1].strip() else []
        if option.several:
            return [_unquoted(item) for item in items]
        if len(items) > 1:
            kind = option.names or "text"
            quotes = f"Put the name of a single {kind} in quotes: \"{key}='{written}'\"."
            raise UserError(
                f"{key}={written}: must be one {kind}, not a list. {option.alternative or quotes}"
            )
    return _unquoted(written)


def split(text: str) -> list[str]:
    """Splits text at commas outside quoted and bracketed items; strips spaces around items."""
    items, start = [], 0
    while True:
        end = _end(text, start)
        items.append(text[start:end].strip())
        if end == len(text):
            return items
        start = end + 1


def _end(text: str, start: int, closer: str = "") -> int:
    """Returns the end of the item at `start`: a comma, `closer` (a bracket or empty) or the end of text."""
    start = _behind_spaces(text, start)
    if string := _QUOTED.match(text, start):
        end = _behind_spaces(text, string.end())
        if _ends(text, end, closer):
            return end
    if text.startswith("[", start) and (bracket := _closing(text, start)) is not None:
        end = _behind_spaces(text, bracket + 1)
        if _ends(text, end, closer):
            return end
    depth = 0  # of brackets inside the item, as in the glob part[1,2].en
    for place in range(start, len(text)):
        if not depth and (text[place] == "," or text[place] == closer):
            return place
        depth += (text[place] == "[") - (text[place] == "]" and depth > 0)
    comma = text.find(",", start) if depth else -1  # an unclosed bracket groups nothing
    return len(text) if comma < 0 else comma


def _closing(text: str, start: int) -> int | None:
    """Returns the place of the bracket that closes the list opened at `start`; None if there is none."""
    place = start
    while True:
        place = _end(text, place + 1, "]")
        if place == len(text):
            return None
        if text[place] == "]":
            return place


def _ends(text: str, place: int, closer: str) -> bool:
    return place == len(text) or text[place] == "," or text[place] == closer


def _behind_spaces(text: str, place: int) -> int:
    while place < len(text) and text[place].isspace():
        place += 1
    return place


def _unquoted(text: str) -> str:
    """Removes the quotes around text; returns other text unchanged.

    As in Hydra's grammar, a backslash is an escape only before the quote character that encloses the text.
    """
    if not _QUOTED.fullmatch(text):
        return text
    quote, inside = text[0], text[1:-1]
    inside = re.sub(rf"(\\*)\\{quote}", lambda found: found[1][::2] + quote, inside)
    return re.sub(r"\\+$", lambda found: found[0][::2], inside)
