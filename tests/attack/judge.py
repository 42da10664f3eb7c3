"""The rules that judge every case."""

from __future__ import annotations

import fnmatch
import json
import os
import re
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path

from attack.case import USER_ERROR, Case
from attack.room import SECRET, Room

_UNFINISHED = ("*.tmp", "*.part", "*.incomplete", "*.replaced", "*.removed")
_TRACES = ("Traceback (most recent call last)", "Exception ignored", "harness:", "Segmentation fault")
_WARNING = re.compile(r"\.py:\d+: \w*Warning")
_CONTROL = re.compile(r"[\x00-\x08\x0b\x0c\x0e-\x1f\x7f\x80-\x9f]")
_LONG = 3000  # characters of a refusal


def complaints(case: Case, room: Room, status: int, before: Mapping[str, str]) -> list[str]:
    """Returns the faults of the outcome of a case; empty if it is correct.

    Args:
        case: the case.
        room: its scratch folder.
        status: the exit status of its process, -N after signal N.
        before: the snapshot of the working directory before the case ran.
    """
    return list(_complaints(case, room, status, before))


def _complaints(case: Case, room: Room, status: int, before: Mapping[str, str]) -> Iterator[str]:
    stdout = room.stdout.read_bytes() if room.stdout.exists() else b""
    stderr = room.stderr.read_bytes().decode(errors="replace") if room.stderr.exists() else ""
    expected = case.expected
    for words in _TRACES:
        if words in stderr:
            yield f"standard error has {words!r}"
    if _WARNING.search(stderr):
        yield "standard error has a warning of Python's"
    if found := _CONTROL.search(stderr):
        yield f"standard error has the control character {found[0]!r}"
    if status not in expected.statuses:
        yield f"exit status {status}, expected {' or '.join(map(str, sorted(expected.statuses)))}"
    if status == USER_ERROR:
        yield from _refusal(case, stdout, stderr)
        yield from _changes(before, room.snapshot(), expected.leaves)
    if status == 0:
        count = stdout.count(b"\n")
        if expected.lines is not None and count != expected.lines:
            yield f"{count} lines on standard output, expected {expected.lines}"
        for name in expected.files:
            if not os.path.lexists(room.work / name):
                yield f"{name} is not there"
        if expected.check is not None and (complaint := expected.check(room)):
            yield complaint
    yield from _half_written(room, before, ended=status == 0)
    yield from _secrets(room)


def _refusal(case: Case, stdout: bytes, stderr: str) -> Iterator[str]:
    if stdout and case.expected.silent:
        yield f"standard output is not empty: {stdout[:80]!r}"
    if case.machine.stderr is not None:
        return
    lines = [line.rpartition("\r")[2] for line in stderr.splitlines()]
    start = f"{case.command}: "
    if not lines or not lines[-1].startswith(start):
        yield f"the last line does not begin with {start!r}"
        return
    if sum(line.startswith(start) for line in lines) > 1:
        yield "more than one line of error"
    line = lines[-1].removeprefix(start)
    if len(line) > _LONG:
        yield f"the line has {len(line)} characters"
    if line.startswith((":", " ")) or len(line) < 10:
        yield "the line does not begin with a key or a subject"
    for word in case.expected.words:
        if word.lower() not in line.lower():
            yield f"the line lacks {word!r}"


def _changes(before: Mapping[str, str], after: Mapping[str, str], leaves: tuple[str, ...]) -> Iterator[str]:
    for path in sorted(before.keys() | after.keys()):
        if before.get(path) != after.get(path) and not any(fnmatch.fnmatch(path, name) for name in leaves):
            yield f"after the refusal {path} {'is gone' if path not in after else 'was written'}"
            return


def _half_written(room: Room, before: Mapping[str, str], *, ended: bool) -> Iterator[str]:
    """Yields a complaint for each incomplete file. A failed preparation may leave `.part` files."""
    for folder in (room.work, room.cache):
        for path in _files(folder):
            name = str(path.relative_to(folder)) if folder == room.work else ""
            if path.suffix == ".part" and folder == room.cache and not ended:
                continue
            if any(fnmatch.fnmatch(path.name, pattern) for pattern in _UNFINISHED) and name not in before:
                yield f"{path.relative_to(room.folder)} was left behind"
            elif folder == room.work and name not in before and (fault := _incomplete(path)):
                yield f"{name} is half-written: {fault}"


def _files(folder: Path) -> Iterator[Path]:
    for parent, folders, files in os.walk(folder):
        for name in [*folders, *files]:
            yield Path(parent) / name


def _incomplete(path: Path) -> str | None:
    if path.is_symlink() or not path.is_file():
        return None
    try:
        if path.suffix == ".json":
            json.loads(path.read_bytes())
        if path.suffix == ".jsonl":
            for line in path.read_bytes().splitlines():
                json.loads(line)
        if path.suffix == ".safetensors":
            return _incomplete_tensors(path.read_bytes())
    except ValueError as error:
        return str(error)
    return None


def _incomplete_tensors(content: bytes) -> str | None:
    (length,) = struct.unpack("<Q", content[:8])
    header = json.loads(content[8 : 8 + length])
    ends = [entry["data_offsets"][1] for name, entry in header.items() if name != "__metadata__"]
    expected = 8 + length + max(ends, default=0)
    return None if len(content) == expected else f"{len(content)} bytes of {expected}"


def _secrets(room: Room) -> Iterator[str]:
    for path in _files(room.folder):
        if SECRET in path.name or (
            path.is_file() and not path.is_symlink() and SECRET.encode() in path.read_bytes()
        ):
            yield f"{path.relative_to(room.folder)} has the secret of the environment"
