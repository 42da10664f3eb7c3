"""The names of the two systems of an evaluation: short, different, and from their paths."""

from __future__ import annotations

from pathlib import Path
from typing import Any

SYSTEMS = ("hypotheses", "baseline")
"""The names of systems whose paths give none."""


def the(name: str) -> str:
    """Returns a name for a sentence: the words of `SYSTEMS` have an article."""
    return f"the {name}" if name in SYSTEMS else name


def system_names(hypotheses: Any, baseline: Any) -> tuple[str, str]:
    """Returns the names of two systems by the paths of their folders or lines.

    Folders and endings that both have are left out, as are the names that a run gives its files. A system
    has its word of `SYSTEMS` if it has no path or several, and both have if their paths are equal.
    """
    ours, theirs = _folders(hypotheses), _folders(baseline)
    while ours and theirs and ours[-1] == theirs[-1]:
        del ours[-1], theirs[-1]
    names = [path[-1].split(".") if path else [] for path in (ours, theirs)]
    for end in (-1, 0):
        while min(map(len, names)) > 1 and names[0][end] == names[1][end]:
            del names[0][end], names[1][end]
    first, second = (".".join(name) or word for name, word in zip(names, SYSTEMS, strict=True))
    return (first, second) if first != second else SYSTEMS


def _folders(path: Any) -> list[str]:
    if not isinstance(path, str):
        return []
    *folders, name = Path(path).absolute().parts
    of_run = name == "model" or (name.startswith(("test.", "valid.")) and name.endswith(".hypotheses.txt"))
    return folders if of_run else [*folders, name]
