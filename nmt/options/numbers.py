"""Numbers on the command line that are too long for Python or for a float."""

from __future__ import annotations

import re

from nmt.config.checks import shortened
from nmt.errors import UserError

LONGEST = 100
"""Digits; no option takes a number of as many. Python converts 4,300 at most, a float holds 308."""

# A whole value, or an element of a list or mapping: digits inside a longer word are not a number.
_NUMBER = re.compile(rf"(?<![^=,\[{{(:\s])[-+]?\d[\d_]{{{LONGEST},}}(?![^,\]}})\s])")


def require_short_numbers(override: str) -> None:
    """Refuses an override `key=value` with an integer of more than `LONGEST` digits.

    Raises:
        UserError: naming the key.
    """
    key, _, value = override.partition("=")
    if len(value) <= LONGEST:
        return
    found = _NUMBER.search(f"={value}")
    if found:
        digits = sum(character.isdigit() for character in found[0])
        raise UserError(f"{key}={shortened(value)}: a number of {digits:,} digits is too long")
