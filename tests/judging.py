"""Applies cleaning rules to one pair."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.data.cleaning.cleaner import Rule


def first_rule(rules: Sequence[Rule], source: str, target: str) -> Rule | None:
    """Returns the first rule that drops the pair, or None if no rule does."""
    return next((rule for rule in rules if rule.drops(source, target)), None)
