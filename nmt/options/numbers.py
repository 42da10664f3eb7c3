"""Refuses numbers on the command line that are too long for Python or for a float."""

from __future__ import annotations

import re

from nmt.config.checks import shortened
from nmt.errors import UserError

LONGEST = 100
"""Digits; longer than any valid option value. Python converts at most 4,300 digits, a float holds 308."""

# Matches a whole value or an element of a list or mapping. Digits inside a longer word are not a number.
_NUMBER = re.compile(rf"(?<![^=,\[{{(:\s])[-+]?\d[\d_]{{{LONGEST},}}(?![^,\]}})\s])")


def require_short_numbers(override: str) -> None:
    """Refuses an override `key=value` with an integer of more than `LONGEST` digits.

    Raises:
        UserError: the message names the key.
    """
    key, _, value = override.partition("=")
    if len(value) <= LONGEST:
        return
    found = _NUMBER.search(f"={value}")
    if found:
        digits = sum(character.isdigit() for character in found[0])
        raise UserError(f"{key}={shortened(value)}: a number of {digits:,} digits is too long.")
