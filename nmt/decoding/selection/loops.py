"""Loops in translations: the same tokens again and again, which a model writes when it loses the source."""

from __future__ import annotations

from collections.abc import Sequence

TIMES = 4
"""A loop is a sequence of tokens that occurs this often in a row,"""
TOKENS = 8
"""and that has this many tokens in all, or more."""


def has_loop(ids: Sequence[int]) -> bool:
    """Returns whether a sequence has a loop: the same tokens at least `TIMES` times in a row.

    Args:
        ids: the tokens of a sentence.
    """
    if len(set(ids)) > len(ids) - (TIMES - 1):
        return False  # too few tokens occur twice
    for period in range(1, len(ids) // TIMES + 1):
        needed = max(TIMES * period, TOKENS) - period
        run = 0
        for first, second in zip(ids, ids[period:], strict=False):
            run = run + 1 if first == second else 0
            if run == needed:
                return True
    return False
