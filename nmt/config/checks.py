"""Checks of single option values; each error is one sentence that names the key.

Every number has a lower and an upper bound. The upper bounds allow every sensible use on any machine. They
refuse values that would exhaust memory, overflow, or never end.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
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


def check(key: str, value: float, bound: Bound) -> None:
    """Raises `UserError` unless `value` is within `bound`.

    Args:
        key: full name of the option, as on the command line.
        value: its value; NaN and the infinities satisfy no bound.
        bound: the condition.
    """
    if not bound.holds(value):
        raise UserError(f"{key}={shortened(value)}: must be {bound.words}.")


def check_language(key: str, code: str) -> None:
    """Raises `UserError` unless `code` has the form of a language code (BCP 47).

    With a name such as `chinese`, BLEU would split text wrongly.

    Args:
        key: full name of the option.
        code: its value.
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
