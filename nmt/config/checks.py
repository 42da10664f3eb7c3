"""Checks of single option values, each failing with one sentence that names the key."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from nmt.errors import UserError


@dataclass(frozen=True)
class Bound:
    """A condition on a number and the words for it."""

    words: str
    holds: Callable[[float], bool]


def at_least(low: float) -> Bound:
    """The value is `low` or more."""
    return Bound(f"{low} or more", lambda value: value >= low)


def above(low: float) -> Bound:
    """The value is more than `low`."""
    return Bound(f"more than {low}", lambda value: value > low)


def between(low: float, high: float) -> Bound:
    """The value lies in `low`..`high`, both included."""
    return Bound(f"between {low} and {high}", lambda value: low <= value <= high)


def share() -> Bound:
    """The value is a probability that leaves something: 0 or more, 0.99 or less."""
    return Bound("0 or more and at most 0.99", lambda value: 0.0 <= value <= 0.99)


def decay() -> Bound:
    """The value is the weight of the past in a running mean: 0 or more, less than 1."""
    return Bound("0 or more and less than 1", lambda value: 0.0 <= value < 1.0)


def check(key: str, value: float, bound: Bound) -> None:
    """Raises `UserError` unless `value` is finite and within `bound`.

    Args:
        key: full name of the option, as it is overridden on the command line.
        value: its value.
        bound: what it must satisfy.
    """
    if not math.isfinite(value) or not bound.holds(value):
        raise UserError(f"{key}={value}: must be {bound.words}")
