"""Checks of single option values; each error is one sentence that names the key.

Every number has a lower and an upper bound, which its field declares. The upper bounds allow every sensible
use on any machine. They refuse values that would exhaust memory, overflow, or never end.
"""

from __future__ import annotations

import dataclasses
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import reduce
from typing import Any

from nmt.errors import UserError

MANY = 10**9
"""Upper bound of counts that may be large by design, such as updates."""
PROCESSES = 1024
"""Upper bound of processes and threads on one machine."""


@dataclass(frozen=True)
class Bound:
    """A condition on a number, and its description in messages."""

    words: str
    holds: Callable[[float], bool]


def between(low: float, high: float) -> Bound:
    """The value lies in `low`..`high`, both included."""
    return Bound(f"between {low:,} and {high:,}", lambda value: low <= value <= high)


def above(low: float, high: float) -> Bound:
    """The value is more than `low`, and at most `high`."""
    return Bound(f"more than {low:,} and at most {high:,}", lambda value: low < value <= high)


def share() -> Bound:
    """The value is a probability between 0 and 0.99, both included."""
    return Bound("0 or more and at most 0.99", lambda value: 0.0 <= value <= 0.99)


def decay() -> Bound:
    """The value is the decay of a running mean: 0 or more, less than 1."""
    return Bound("0 or more and less than 1", lambda value: 0.0 <= value < 1.0)


_BOUND, _OR_AUTO, _TRUTH = "bound", "or_auto", "truth"


def bounded(default: float | None, bound: Bound) -> Any:
    """Returns the field of an option that is a number within `bound`; None as default makes it optional."""
    return dataclasses.field(default=default, metadata={_BOUND: bound})


def auto_or(default: int | str, bound: Bound, words: str) -> Any:
    """Returns the field of an option that is `auto` or a whole number within `bound`.

    Its type is `Any`: OmegaConf has no union types in an optional section, and `data` is one in `nmt-eval`.
    Messages describe the number by `words`, such as `a number of processes`.
    """
    return dataclasses.field(default=default, metadata={_BOUND: bound, _OR_AUTO: words})


def auto_or_truth(default: bool | str = "auto") -> Any:
    """Returns the field of an option that is `auto`, true or false.

    Its type is `Any`, as with `auto_or`.
    """
    return dataclasses.field(default=default, metadata={_TRUTH: ("auto", "true", "false")})


def truth_choices(field: dataclasses.Field[Any]) -> Sequence[str]:
    """Returns the values of an option that `auto_or_truth` declares; none of another option."""
    choices: Sequence[str] = field.metadata.get(_TRUTH, ())
    return choices


Table = Mapping[str, tuple[Callable[[Any], bool], str]]
"""Options that have no effect while a condition holds: their names in the section, separated by spaces → the
condition, given the section, and the rest of the message after `key=value: `, where `{0.name}` is an
option of the section."""


def _without_effect(section: Any, table: Table) -> Iterator[str]:
    """Yields a sentence for each option of a section that has no effect, and is not the default."""
    for keys, (holds, reason) in table.items():
        if holds(section):
            for key in keys.split():
                value = reduce(getattr, key.split("."), section)
                if value not in ("auto", _default(type(section), key)):
                    yield f"{section.options_prefix}{key}={_written(value)}: {reason.format(section)}"


def _default(kind: type[Any], key: str) -> Any:
    name, *rest = key.split(".")
    field = next(field for field in dataclasses.fields(kind) if field.name == name)
    made = field.default_factory
    return reduce(getattr, rest, field.default if made is dataclasses.MISSING else made())


def _written(value: Any) -> str:
    """Returns a value as on the command line."""
    if isinstance(value, list):
        return f"[{','.join(map(_written, value))}]"
    if isinstance(value, dict):
        return f"{{{','.join(f'{key}:{_written(each)}' for key, each in value.items())}}}"
    if isinstance(value, Enum):
        return str(value.value)
    if value is None:
        return "null"
    return str(value).lower() if isinstance(value, bool) else shortened(value)


_NONE: Table = {}


class Section:
    """A section of options, which is checked: numbers by the bounds that their fields declare.

    A number outside raises `UserError`, and so does an option of the table `refused`. The prefix of the
    options and the tables are given with the class: `class TrainingConfig(Section, key="training.")`.
    """

    options_prefix = ""
    """The prefix of its options in messages, such as `training.`."""
    refused = _NONE
    """Options that are an error while they have no effect."""
    unused = _NONE
    """Options that are a warning while they have no effect."""

    def __init_subclass__(
        cls, key: str = "", refused: Table = _NONE, unused: Table = _NONE, **rest: Any
    ) -> None:
        super().__init_subclass__(**rest)
        cls.options_prefix, cls.refused, cls.unused = key, refused, unused

    def __post_init__(self) -> None:
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            bound, words = field.metadata.get(_BOUND), field.metadata.get(_OR_AUTO)
            key, value = f"{self.options_prefix}{field.name}", getattr(self, field.name)
            if truth_choices(field) and value != "auto" and not isinstance(value, bool):
                raise UserError(f"{key}={_written(value)}: must be auto, true or false.")
            if bound is None or (value is None and words is None):
                continue
            if words is None or type(value) is int:
                check(key, value, bound)
            elif value != "auto":
                raise UserError(f"{key}={shortened(value)}: must be auto or {words}.")
        for message in _without_effect(self, self.refused):
            raise UserError(message)

    def warnings(self) -> Iterator[str]:
        """Yields a sentence for each option that has no effect, of this section and of those in it."""
        yield from _without_effect(self, self.unused)
        for field in dataclasses.fields(self):  # type: ignore[arg-type]
            if isinstance(value := getattr(self, field.name), Section):
                yield from value.warnings()


def check(key: str, value: float, bound: Bound) -> None:
    """Raises `UserError` unless `value` is within `bound`; NaN and the infinities satisfy no bound.

    `key` is the full name of the option, as on the command line.
    """
    if not bound.holds(value):
        raise UserError(f"{key}={shortened(value)}: must be {bound.words}.")


def check_language(key: str, code: str) -> None:
    """Raises `UserError` unless `code` has the form of a language code (BCP 47).

    With a name such as `chinese`, BLEU would split text wrongly.
    """
    if not re.fullmatch(r"[A-Za-z]{2,3}([-_][A-Za-z0-9]{1,8})*", code):
        raise UserError(
            f"{key}={shortened(code)}: is not a language code. Give a code such as en or zh, or any two or "
            "three letters if the language has none."
        )


def check_licence(licence: str | None) -> None:
    """Raises `UserError` unless `licence` has the form of an identifier; None is not stated."""
    if licence is not None and not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9.+-]{0,99}", licence):
        raise UserError(
            f"licence={shortened(licence)}: is not an identifier. Give one such as apache-2.0 or cc-by-4.0."
        )


def shortened(value: Any, limit: int = 60) -> str:
    """Returns a value as text of at most `limit` characters, with `…` in place of its middle."""
    try:
        text = str(value)
    except ValueError:  # Python converts no integer of more than 4,300 digits to text
        return "a number of more than 4,300 digits"
    if len(text) <= limit:
        return text
    return f"{text[: limit // 2]}…{text[-(limit // 2 - 1) :]}"
