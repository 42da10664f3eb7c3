"""Folders that are made once: locked meanwhile, written as NAME.part, checked and mended when opened."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import re
import shutil
import stat
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from enum import Enum
from pathlib import Path
from typing import Any

from nmt.errors import UserError
from nmt.runtime import (
    available_cores,
    fsync_folder,
    locked,
    log,
    make_folder,
    parse_json,
    progress,
    read_bytes,
    replaced,
    require_regular,
    write_errors,
)

_MANIFEST = "manifest.json"
_PART = ".part"  # ends the name of a folder that is being made
_MOST = 1 << 28  # bytes of a manifest
_SUM = ".sum"  # ends the name of what tells size and SHA-256 of a file in such a folder
_FOLDERS = re.compile(r"(text|size|tokenizer|repeats|ids)-[0-9a-f]{16}(\.part)?")
_FILES = re.compile(
    r"((\d{5,}|repeats)\.safetensors|(joint|source|target)\.spm|manifest\.json)(\.sum)?|\..+\.tmp"
)


def fingerprint(facts: Any) -> str:
    """64 hexadecimal digits that stand for `facts` (anything JSON holds, enums, and sets that can be sorted).

    Raises:
        TypeError: something else is among them.
    """
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=_value).encode()).hexdigest()


def _value(member: Any) -> Any:
    if isinstance(member, Enum):
        return member.value
    if isinstance(member, set | frozenset):
        return sorted(member)
    raise TypeError(f"JSON can't hold {member!r:.80}")


def made(
    folder: Path,
    build: Callable[[Path], Mapping[str, Any]],
    repair: Callable[[str], None] | None = None,
    *,
    checked: bool = False,
) -> dict[str, Any]:
    """Opens a folder, making what is missing or damaged.

    Every file is compared with the checksum it was written with, by as many threads as there are cores. A
    second process that wants the same folder waits for the first.

    Args:
        folder: its name has to stand for all that its content depends on.
        build: fills the folder given to it and returns facts to keep. Called again in the same folder after
            an interruption, it goes on with the files it finds there, which are as `write_file` wrote them.
        repair: makes one file of `folder` again, of which it gets the name; without it, all is made again.
        checked: another process has just compared the files, so this one need not.

    Returns:
        The facts that `build` returned when the folder was made.

    Raises:
        UserError: the folder can't be written.
    """
    with cache_errors():
        found = _manifest(folder)
        if found is None or not checked and _damaged(folder, found["files"]):
            make_folder(folder.parent)
            with locked(_lock_file(folder), lambda: _say_waiting(folder)):
                found = _manifest(folder)
                if found is not None and not _mended(folder, found["files"], repair):
                    found = None
                if found is None:
                    found = _built(folder, build)
        with contextlib.suppress(OSError):  # a cache that can only be read serves as well
            os.utime(folder)
    facts: dict[str, Any] = found["facts"]
    return facts


def forget_unused(root: Path, days: int) -> None:
    """Deletes prepared data in `root`, unfinished ones too, that `made` has not opened for so many days.

    A process that has files of such a folder mapped keeps them; one that wants it later makes it anew. What
    does not look in every way like prepared data is somebody else's and stays.
    """
    oldest = time.time() - days * 86_400
    folders: list[Path] = []
    with contextlib.suppress(OSError):  # what can't be listed can't be tidied up
        folders = sorted(root.iterdir())
    for folder in folders:
        with contextlib.suppress(OSError), contextlib.ExitStack() as stack:
            if not _is_prepared(folder) or folder.stat().st_mtime >= oldest:
                continue
            flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC  # a pipe is not waited for
            lock = stack.enter_context(open(os.open(_lock_file(folder), flags, 0o666), "w"))
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)  # fails where somebody is at it just now
            log.info("%s: not used for %d days, so it is deleted", folder, days)
            (folder / _MANIFEST).unlink(missing_ok=True)  # first: from here on it is not whole
            for path in folder.iterdir():
                path.unlink()
            folder.rmdir()


def _is_prepared(folder: Path) -> bool:
    """Whether a folder and all that is in it are called what preparation calls them, and no links."""
    return (
        _FOLDERS.fullmatch(folder.name) is not None
        and stat.S_ISDIR(folder.lstat().st_mode)
        and all(
            _FILES.fullmatch(path.name) and stat.S_ISREG(path.lstat().st_mode) for path in folder.iterdir()
        )
    )


@contextlib.contextmanager
def cache_errors() -> Iterator[None]:
    """Adds to the message about a file that can't be written how to have it elsewhere."""
    try:
        yield
    except UserError as error:
        if not isinstance(error.__cause__, OSError) or "data.cache_dir" in str(error):
            raise
        raise UserError(f"{error} (data.cache_dir=FOLDER)") from error.__cause__


def write_file(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Writes a file whole or not at all.

    In a folder that is being made, it also keeps what was written in mind: should the file come to differ
    before the folder is whole, `made` finds out.

    Raises:
        UserError: it can't be written.
    """
    digest = hashlib.sha256()
    with cache_errors(), replaced(path) as temporary:
        with open(temporary, "wb") as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
            size = file.tell()
        if path.parent.suffix == _PART:
            _keep_sum(path, {"bytes": size, "sha256": digest.hexdigest()})


def _manifest(folder: Path) -> dict[str, Any] | None:
    """What is written about a whole folder; None if it is not whole."""
    try:
        manifest: dict[str, Any] = parse_json(read_bytes(folder / _MANIFEST, _MOST))
        if manifest.pop("fingerprint") == fingerprint(manifest):
            return manifest
    except (ValueError, KeyError, AttributeError, TypeError) as error:  # a UserError is the first of them
        if isinstance(error.__cause__, FileNotFoundError):
            return None
    log.warning("%s is damaged: the folder is made again", folder / _MANIFEST)
    return None


def _built(folder: Path, build: Callable[[Path], Mapping[str, Any]]) -> dict[str, Any]:
    part = folder.with_name(f"{folder.name}{_PART}")
    with write_errors(folder):
        if folder.is_dir():
            shutil.rmtree(folder)
        else:
            folder.unlink(missing_ok=True)
        make_folder(part)
        _drop_damaged(part)
    try:
        facts = dict(build(part))
        manifest: dict[str, Any] = {"facts": facts, "files": _written(part)}
        manifest["fingerprint"] = fingerprint(manifest)
        write_file(part / _MANIFEST, [json.dumps(manifest, indent=1, sort_keys=True).encode()])
        with write_errors(folder):
            for path in part.glob(f"*{_SUM}"):
                path.unlink()
            fsync_folder(part)
            os.rename(part, folder)
            fsync_folder(folder.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            part.rmdir()  # only if nothing is in it
        raise
    return manifest


def _drop_damaged(part: Path) -> None:
    """Deletes from a folder whose making was interrupted what is not as it was written."""
    manifest = _manifest(part)
    if manifest is not None:  # it was about to get its name, and the sums may be gone
        for name, checksum in manifest["files"].items():
            _keep_sum(part / name, checksum)
    for leftover in (*part.glob(".*.tmp"), part / _MANIFEST):
        leftover.unlink(missing_ok=True)
    for name, found in _checksums(part, _names(part)).items():
        written = _kept_sum(part / name)
        if written and found != written:
            log.warning("%s is damaged: it is made again", part / name)
        if found != written or not written:
            (part / name).unlink()


def _written(part: Path) -> dict[str, Any]:
    """Size and SHA-256 that the files of a folder had when they were written; else those they have."""
    sums = {name: _kept_sum(part / name) for name in _names(part)}
    return sums | _checksums(part, [name for name, kept in sums.items() if not kept])


def _names(part: Path) -> list[str]:
    return sorted(name for name in os.listdir(part) if not name.endswith(_SUM))


def _keep_sum(path: Path, checksum: dict[str, Any]) -> None:
    """Keeps it beside a file; half a sum, after a power cut, is none."""
    place = path.with_name(f"{path.name}{_SUM}")
    place.unlink(missing_ok=True)  # a pipe in its place would be waited for
    place.write_text(json.dumps(checksum))


def _kept_sum(path: Path) -> dict[str, Any]:
    try:
        kept: dict[str, Any] = parse_json(read_bytes(path.with_name(f"{path.name}{_SUM}"), _MOST))
        return {"bytes": kept["bytes"], "sha256": kept["sha256"]}
    except (ValueError, KeyError, TypeError):
        return {}


def _mended(folder: Path, files: dict[str, Any], repair: Callable[[str], None] | None) -> bool:
    """Makes the damaged files again; False if that does not bring back what they were."""
    for name in _damaged(folder, files):
        log.warning("%s is damaged: it is made again", folder / name)
        if repair is None:
            return False
        repair(name)
        if _damaged(folder, {name: files[name]}):
            log.warning("%s comes out otherwise than before: the whole folder is made again", folder / name)
            return False
    return True


def _damaged(folder: Path, files: dict[str, Any]) -> list[str]:
    """Names of the files that are not what they were when they were written."""
    return [name for name, found in _checksums(folder, files).items() if found != files[name]]


def _checksums(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    """Size and SHA-256 of files in a folder, an empty entry for a file that can't be read."""
    chosen = sorted(names)
    checksums: dict[str, Any] = {}
    if not chosen:
        return checksums
    with (
        ThreadPoolExecutor(available_cores()) as threads,
        progress(total=None, unit="files", description="checking prepared data") as bar,
    ):
        for name, checksum in zip(chosen, threads.map(lambda n: _checksum(folder / n), chosen), strict=True):
            checksums[name] = checksum
            bar.update(1)
    return checksums


def _checksum(path: Path) -> dict[str, Any]:
    try:
        require_regular(path)
        with open(path, "rb") as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            return {"bytes": file.tell(), "sha256": digest}
    except (OSError, UserError):
        return {}


def _say_waiting(folder: Path) -> None:
    log.info("another process is preparing %s: waiting for it", folder)


def _lock_file(folder: Path) -> Path:
    """What is locked while a folder is made, under its own name or as NAME.part."""
    return folder.with_name(f"{folder.name.removesuffix(_PART)}.lock")
