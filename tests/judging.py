"""What the rules say of one pair."""

from __future__ import annotations

from collections.abc import Sequence

from nmt.data.cleaning.cleaner import Rule


def first_rule(rules: Sequence[Rule], source: str, target: str) -> Rule | None:
    """The first rule that drops the pair, or None where it stays."""
    return next((rule for rule in rules if rule.drops(source, target)), None)
