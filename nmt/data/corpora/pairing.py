"""Checks by file names that two lists of files are in the same order."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

_SIDES = {"src", "source", "tgt", "trg", "target", "ref", "in", "out"}
_ENDINGS = {"gz", "xz", "zst", "bz2", "txt"}


def mispaired(
    sources: Sequence[Path], targets: Sequence[Path], languages: Sequence[str]
) -> tuple[Path, Path] | None:
    """Finds a source whose name matches a target at another position.

    Names are compared without the words that distinguish the sides: the languages, words such as `src` and
    `tgt`, and words that all names of one side have and no name of the other has. A source is reported only
    if its remaining words equal those of exactly one target at another position. Freely named files therefore
    cause no report.

    Args:
        sources: files of the source side.
        targets: files of the target side, as many as `sources`.
        languages: language codes of both sides.

    Returns:
        The first such source, and the target that matches it; None if there is no such source.
    """
    keys = _keys(sources, targets, languages, whole=False)
    if any(len(set(side)) < len(side) for side in keys):  # such as a/train.en and b/train.en
        keys = _keys(sources, targets, languages, whole=True)
    source_keys, target_keys = keys
    for source, key, paired in zip(sources, source_keys, target_keys, strict=True):
        if key != paired and target_keys.count(key) == 1 and source_keys.count(key) == 1:
            return source, targets[target_keys.index(key)]
    return None


def _keys(
    sources: Sequence[Path], targets: Sequence[Path], languages: Sequence[str], whole: bool
) -> tuple[list[tuple[str, ...]], list[tuple[str, ...]]]:
    source_words, target_words = ([_words(path, whole) for path in side] for side in (sources, targets))
    known = _SIDES | _ENDINGS | {word for code in languages for word in _split(code)}
    return (
        [_without(words, known | _side_words(source_words, target_words)) for words in source_words],
        [_without(words, known | _side_words(target_words, source_words)) for words in target_words],
    )


def _words(path: Path, whole: bool) -> list[str]:
    return _split(str(path) if whole else path.name)


def _split(name: str) -> list[str]:
    return [word for word in re.split(r"[^\w]|_", name.lower()) if word]


def _side_words(side: Sequence[list[str]], other: Sequence[list[str]]) -> set[str]:
    """Returns the words that all names of a side have and no name of the other has, such as `english`."""
    return set.intersection(*map(set, side)) - set().union(*other)


def _without(words: list[str], dropped: set[str]) -> tuple[str, ...]:
    return tuple(word for word in words if word not in dropped)
