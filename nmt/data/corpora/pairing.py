"""Whether two lists of files stand pair by pair, as far as their names tell."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_SIDES = {"src", "source", "tgt", "trg", "target", "ref", "in", "out"}
_ENDINGS = {"gz", "xz", "zst", "bz2", "txt"}


def mispaired(
    sources: Sequence[Path], targets: Sequence[Path], languages: Sequence[str]
) -> tuple[Path, Path] | None:
    """Finds a source whose name belongs to another target than the one at its place.

    Names are compared without what tells the sides apart: the languages, words such as `src` and `tgt`, and
    words that all names of one side have and none of the other. A source counts only if the name of another
    target is the same then, so files that are named freely raise no alarm.

    Args:
        sources: files of one side.
        targets: as many of the other.
        languages: language codes of both sides.

    Returns:
        The first such source, and the target that seems to be its own; None if there is none.
    """
    keys = _keys(sources, targets, languages, whole=False)
    if any(len(set(side)) < len(side) for side in keys):  # such as a/train.en and b/train.en
        keys = _keys(sources, targets, languages, whole=True)
    ours, theirs = keys
    for source, own, there in zip(sources, ours, theirs, strict=True):
        if own != there and theirs.count(own) == 1 and ours.count(own) == 1:
            return source, targets[theirs.index(own)]
    return None


def _keys(
    sources: Sequence[Path], targets: Sequence[Path], languages: Sequence[str], whole: bool
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    ours, theirs = ([_words(path, whole) for path in side] for side in (sources, targets))
    known = _SIDES | _ENDINGS | {word for code in languages for word in _split(code)}
    return (
        [_without(words, known | _marks(ours, theirs)) for words in ours],
        [_without(words, known | _marks(theirs, ours)) for words in theirs],
    )


def _words(path: Path, whole: bool) -> list[str]:
    return _split(str(path) if whole else path.name)


def _split(name: str) -> list[str]:
    return [word for word in re.split(r"[^\w]|_", name.lower()) if word]


def _marks(side: Sequence[list[str]], other: Sequence[list[str]]) -> set[str]:
    """The words that all names of a side have and none of the other: `english`, `german`."""
    return set.intersection(*map(set, side)) - set().union(*other)


def _without(words: list[str], dropped: set[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in dropped)
