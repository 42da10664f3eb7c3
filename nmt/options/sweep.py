"""The jobs of a sweep (`-m`): all different, each with a run folder whose name can be typed."""

from __future__ import annotations

import dataclasses
import hashlib
import os
import re
import unicodedata
from collections import Counter
from collections.abc import Sequence
from typing import Any, TypeVar

from nmt.errors import UserError
from nmt.options.overrides import Setting
from nmt.runtime.files import expanded

C = TypeVar("C")

_OTHER = "[^A-Za-z0-9._-]+"
"""Includes all characters that are special in a shell or in Hydra's grammar."""
_LONGEST_VALUE = 48
_LONGEST_NAME = 120
"""Characters. File systems allow 255 bytes."""


def with_distinct_folders(jobs: Sequence[C], settings: Sequence[Sequence[Setting]]) -> list[C]:
    """Returns the jobs of a sweep with distinct run folders, if they have run folders.

    Each run folder is a sub-folder of `run_dir`; its name lists the options that differ.

    Raises:
        UserError: two jobs are the same, or would share a run folder.
    """
    if (same := _first_same(jobs)) is not None:
        first, second = (words_of(settings[number]) for number in same)
        raise UserError(f"{second}: is the same job as {first}. Remove one of them.")
    if len(jobs) == 1 or not all(hasattr(job, "run_dir") for job in jobs):
        return list(jobs)
    names = folder_names(settings, [_run_dir(job) for job in jobs])
    named = [
        dataclasses.replace(job, run_dir=os.path.join(_run_dir(job), name)) if name else job  # type: ignore[type-var]
        for job, name in zip(jobs, names, strict=True)
    ]
    counts = Counter(_identity(_run_dir(job)) for job in named)
    for job in named:
        if counts[_identity(_run_dir(job))] > 1:
            raise UserError(f"run_dir={_run_dir(job)}: two jobs of the sweep share it. Give two folders.")
    return named


def _first_same(jobs: Sequence[object]) -> tuple[int, int] | None:
    """Returns the numbers of two equal jobs; None if all differ. Equal jobs have equal texts."""
    numbers: dict[str, int] = {}
    for number, job in enumerate(jobs):
        if (first := numbers.setdefault(repr(job), number)) < number:
            return first, number
    return None


def folder_names(settings: Sequence[Sequence[Setting]], parents: Sequence[str]) -> list[str]:
    """Returns folder names of the options that differ between jobs, such as `model.norm-pre_seed-1`.

    The names consist of letters without accents, digits, dots, hyphens and underscores. Within a parent, they
    differ in more than case. They do not depend on the order of the options, and leave out `run_dir`.
    """
    swept = [
        sorted((item for item in job if item.swept and item.key != "run_dir"), key=lambda item: item.key)
        for job in settings
    ]
    names = [_shortened("_".join(f"{_plain(item.key)}-{_value(item)}" for item in job)) for job in swept]
    places = [(_identity(parent), name.casefold()) for parent, name in zip(parents, names, strict=True)]
    counts = Counter(places)
    return [
        f"{name}-{_hash(words_of(job))}" if job and counts[place] > 1 else name
        for name, place, job in zip(names, places, swept, strict=True)
    ]


def _value(setting: Setting) -> str:
    value = setting.value
    words = value if isinstance(value, list) else [value if isinstance(value, str) else setting.written]
    plain = "-".join(filter(None, (_plain(str(word)) for word in words)))
    if len(plain) > _LONGEST_VALUE:  # the end of a path is more informative than its beginning
        plain = f"{plain[-_LONGEST_VALUE + 9 :].lstrip('-.')}-{_hash(setting.written)}"
    return plain or _hash(setting.written)


def _plain(text: str) -> str:
    """Returns text in characters that can be typed, without accents and without leading `../` of a path."""
    decomposed = unicodedata.normalize("NFKD", text)
    text = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    text = re.sub(rf"^(\.*/)+|^{_OTHER}|{_OTHER}$", "", text)
    return re.sub(_OTHER, "-", text)


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST_NAME else f"{name[: _LONGEST_NAME - 9]}-{_hash(name)}"


def _hash(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:8]


def words_of(settings: Sequence[Setting]) -> str:
    """Returns the options of a job that differ between the jobs, as on the command line."""
    return " ".join(f"{item.key}={item.written}" for item in settings if item.swept)


def _run_dir(job: Any) -> str:
    return str(job.run_dir)


def _identity(folder: str) -> str:
    """Returns the same text for two names of a folder, including names that differ only in case."""
    return os.path.realpath(expanded(folder)).casefold()
