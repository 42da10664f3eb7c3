"""The cases of all families, and their selection by patterns."""

from __future__ import annotations

import fnmatch
import pkgutil
from collections.abc import Collection, Sequence
from importlib import import_module

from attack import families
from attack.case import Case


def all_cases() -> list[Case]:
    """Returns the cases of every family; their names are unique."""
    found = []
    for module in pkgutil.iter_modules(families.__path__):
        found += list(import_module(f"attack.families.{module.name}").cases())
    names = [case.name for case in found]
    twice = sorted({name for name in names if names.count(name) > 1})
    assert not twice, f"names of several cases: {', '.join(twice)}"
    return found


def chosen(patterns: Sequence[str]) -> list[Case]:
    """Returns the cases that match a pattern; without patterns, all of them."""
    return [
        case
        for case in all_cases()
        if not patterns or any(fnmatch.fnmatch(case.name, pattern) for pattern in patterns)
    ]


def part(cases: Sequence[Case], every: int, firsts: Collection[int]) -> list[Case]:
    """Returns every `every`th case, counted from each index in `firsts`; these are less than `every`."""
    return [case for index, case in enumerate(cases) if index % every in firsts]
