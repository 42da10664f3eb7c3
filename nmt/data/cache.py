"""The cache of prepared data: folders that are built once, and are verified and repaired when opened.

A folder is built under a lock and has the name NAME.part until it is complete.
"""

from __future__ import annotations

import contextlib
import hashlib
import inspect
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
from nmt.runtime.checksums import file_sum
from nmt.runtime.files import (
    folder_in_cache,
    fsync_folder,
    locked,
    make_folder,
    parse_json,
    read_bytes,
    replaced,
)
from nmt.runtime.machine import available_cores
from nmt.runtime.os_errors import write_errors
from nmt.runtime.streams import log, progress

_MANIFEST = "manifest.json"
_PART_SUFFIX = ".part"  # suffix of a folder that is being built
_MAX_BYTES = 1 << 28  # of a manifest
_SUM_SUFFIX = ".sum"  # suffix of the file with the size and SHA-256 of another file in such a folder
_FOLDER_NAME = re.compile(r"(text|size|tokenizer|bytes|facts|repeats|ids)-[0-9a-f]{16}(\.part)?")
_FILE_NAME = re.compile(
    r"((\d{5,}|repeats)\.safetensors|(joint|source|target)\.spm|(pieces|manifest)\.json)(\.sum)?|\..+\.tmp"
)


def fingerprint(facts: Any) -> str:
    """Returns the SHA-256 of `facts` (JSON, enums and sets of sortable members), as 64 hexadecimal digits.

    Raises:
        TypeError: another type is among them.
    """
    return hashlib.sha256(json.dumps(facts, sort_keys=True, default=_value).encode()).hexdigest()


def source_of(definition: Any) -> str:
    """Returns the source code of the module that defines a class or function.

    It is empty if there is no file, as for a class that was defined in an interactive session.
    """
    module = inspect.getmodule(definition)
    try:
        return "" if module is None else inspect.getsource(module)
    except OSError:
        return ""


def _value(member: Any) -> Any:
    if isinstance(member, Enum):
        return member.value
    if isinstance(member, set | frozenset):
        return sorted(member)
    raise TypeError(f"JSON can't represent {member!r:.80}")


class Folders:
    """The folders of prepared data in a cache, which other users may share."""

    def __init__(self, cache: Path) -> None:
        self._root = cache / "prepared"
        self._chosen: dict[str, Path] = {}

    def folder(self, stage: str, name: str) -> Path:
        """Returns the same folder in every call, although another user may prepare it in the meantime."""
        name = f"{stage}-{name[:16]}"
        if name not in self._chosen:
            self._chosen[name] = folder_in_cache(self._root, name, _MANIFEST)
        return self._chosen[name]

    def forget_unused(self, days: int) -> None:
        """Deletes prepared data next to these folders that were not opened for `days` days."""
        for root in {folder.parent for folder in self._chosen.values()}:
            forget_unused(root, days)


def cached_or_built(
    folder: Path,
    build: Callable[[Path], Mapping[str, Any]],
    repair: Callable[[str], None] | None = None,
    *,
    checked: bool = False,
) -> dict[str, Any]:
    """Opens a folder; builds it if it is missing, and repairs it if it is damaged.

    Every file is compared with its checksum at writing, with one thread per core. A second process that opens
    the same folder waits for the first.

    Args:
        folder: its name must identify everything that its content depends on.
        build: fills the folder that it is given and returns facts to store. After an interruption it is
            called again with the same folder. The files that are still there are as `write_file` wrote them,
            and `build` continues after them.
        repair: writes one damaged file of `folder` again, given its name. Without it, the whole folder is
            built again.
        checked: skip the comparison, because another process has just done it.

    Returns:
        The facts that `build` returned when the folder was built.

    Raises:
        UserError: the folder can't be written.
    """
    with cache_errors():
        manifest = _manifest(folder)
        if manifest is None or not checked and _damaged(folder, manifest["files"]):
            if manifest is not None and not os.access(folder.parent, os.W_OK | os.X_OK):
                raise UserError(
                    f"{folder}: is damaged, and this user can't repair it. Ask its owner to delete it, or "
                    "give data.cache_dir=FOLDER."
                )
            make_folder(folder.parent)
            waiting = "waiting for another process that is preparing %s"
            with locked(_lock_file(folder), lambda: log.info(waiting, folder)):
                manifest = _manifest(folder)
                if manifest is None or not _repair(folder, manifest["files"], repair):
                    manifest = _build(folder, build)
        with contextlib.suppress(OSError):  # a read-only cache works too
            os.utime(folder)
    facts: dict[str, Any] = manifest["facts"]
    return facts


def forget_unused(root: Path, days: int) -> None:
    """Deletes prepared data in `root`, finished or not, that were not opened for `days` days.

    A process that has mapped files of a deleted folder can still read them. A process that opens the folder
    later builds it again. Only folders that look like prepared data in every respect are deleted.
    """
    oldest = time.time() - days * 86_400
    folders: list[Path] = []

    def taken() -> None:
        raise UserError("another process uses it")

    with contextlib.suppress(OSError):  # a folder that can't be listed is skipped
        folders = sorted(root.iterdir())
    for folder in folders:
        with contextlib.suppress(OSError, UserError):  # UserError: it can't be locked
            if not _is_prepared(folder) or folder.stat().st_mtime >= oldest:
                continue
            with locked(_lock_file(folder), taken):
                log.info("deleting %s: not used for %d days", folder, days)
                (folder / _MANIFEST).unlink(missing_ok=True)  # first: without it the folder is incomplete
                for path in folder.iterdir():
                    path.unlink()
                folder.rmdir()


def _is_prepared(folder: Path) -> bool:
    """Whether a folder and all files in it have the names that preparation gives them, and none is a link."""
    return (
        _FOLDER_NAME.fullmatch(folder.name) is not None
        and stat.S_ISDIR(folder.lstat().st_mode)
        and all(
            _FILE_NAME.fullmatch(path.name) and stat.S_ISREG(path.lstat().st_mode)
            for path in folder.iterdir()
        )
    )


@contextlib.contextmanager
def cache_errors() -> Iterator[None]:
    """Adds the option `data.cache_dir` to the message of a failed file operation."""
    try:
        yield
    except UserError as error:
        if not isinstance(error.__cause__, OSError) or "data.cache_dir" in str(error):
            raise
        raise UserError(f"{error} (data.cache_dir=FOLDER)") from error.__cause__


def write_file(path: Path, pieces: Iterable[bytes | memoryview]) -> None:
    """Writes a file atomically.

    In a folder that is being built, it also writes the checksum of the file. With it, `cached_or_built`
    detects damage that occurs before the folder is complete.

    Raises:
        UserError: the file can't be written.
    """
    digest = hashlib.sha256()
    with cache_errors(), replaced(path) as temporary:
        with open(temporary, "wb") as file:
            for piece in pieces:
                digest.update(piece)
                file.write(piece)
            size = file.tell()
        if path.parent.suffix == _PART_SUFFIX:
            _write_sum(path, {"bytes": size, "sha256": digest.hexdigest()})


def _manifest(folder: Path) -> dict[str, Any] | None:
    try:
        manifest: dict[str, Any] = parse_json(read_bytes(folder / _MANIFEST, _MAX_BYTES))
        if manifest.pop("fingerprint") == fingerprint(manifest):
            return manifest
    except (ValueError, KeyError, AttributeError, TypeError) as error:  # UserError is a ValueError
        if isinstance(error.__cause__, FileNotFoundError):
            return None
    log.warning("%s is damaged: building the folder again", folder / _MANIFEST)
    return None


def _build(folder: Path, build: Callable[[Path], Mapping[str, Any]]) -> dict[str, Any]:
    part = folder.with_name(f"{folder.name}{_PART_SUFFIX}")
    with write_errors(folder):
        if folder.is_dir():
            shutil.rmtree(folder)
        else:
            folder.unlink(missing_ok=True)
        make_folder(part)
        _drop_damaged(part)
    try:
        facts = dict(build(part))
        manifest: dict[str, Any] = {"facts": facts, "files": _recorded_sums(part)}
        manifest["fingerprint"] = fingerprint(manifest)
        write_file(part / _MANIFEST, [json.dumps(manifest, indent=1, sort_keys=True).encode()])
        with write_errors(folder):
            for path in part.glob(f"*{_SUM_SUFFIX}"):
                path.unlink()
            fsync_folder(part)
            os.rename(part, folder)
            fsync_folder(folder.parent)
    except BaseException:
        with contextlib.suppress(OSError):
            for leftover in part.glob(".*.tmp"):  # of killed worker processes
                leftover.unlink()
            part.rmdir()  # fails unless it is empty
        raise
    return manifest


def _drop_damaged(part: Path) -> None:
    """Deletes the files of an unfinished folder that differ from their checksums or have none."""
    manifest = _manifest(part)
    if manifest is not None:  # interrupted before the rename: the sum files may be deleted
        for name, checksum in manifest["files"].items():
            _write_sum(part / name, checksum)
    for leftover in (*part.glob(".*.tmp"), part / _MANIFEST):
        leftover.unlink(missing_ok=True)
    for name, checksum in _checksums(part, _names(part)).items():
        recorded = _read_sum(part / name)
        if recorded and checksum != recorded:
            log.warning("%s is damaged: creating it again", part / name)
        if checksum != recorded or not recorded:
            (part / name).unlink()


def _recorded_sums(part: Path) -> dict[str, Any]:
    """Returns size and SHA-256 of each file as recorded at writing, or else as computed from the file."""
    sums = {name: _read_sum(part / name) for name in _names(part)}
    return sums | _checksums(part, [name for name, recorded in sums.items() if not recorded])


def _names(part: Path) -> list[str]:
    return sorted(name for name in os.listdir(part) if not name.endswith(_SUM_SUFFIX))


def _write_sum(path: Path, checksum: dict[str, Any]) -> None:
    """Writes a checksum next to its file. A checksum cut short by a power failure is ignored when read."""
    sum_file = path.with_name(f"{path.name}{_SUM_SUFFIX}")
    sum_file.unlink(missing_ok=True)  # writing to a pipe would block
    sum_file.write_text(json.dumps(checksum))


def _read_sum(path: Path) -> dict[str, Any]:
    try:
        recorded: dict[str, Any] = parse_json(
            read_bytes(path.with_name(f"{path.name}{_SUM_SUFFIX}"), _MAX_BYTES)
        )
        return {"bytes": recorded["bytes"], "sha256": recorded["sha256"]}
    except (ValueError, KeyError, TypeError):
        return {}


def _repair(folder: Path, files: dict[str, Any], repair: Callable[[str], None] | None) -> bool:
    """Repairs damaged files; returns False if a file can't be repaired or gets a different content."""
    for name in _damaged(folder, files):
        log.warning("%s is damaged: creating it again", folder / name)
        if repair is None:
            return False
        repair(name)
        if _damaged(folder, {name: files[name]}):
            log.warning("%s differs from before: building the whole folder again", folder / name)
            return False
    return True


def _damaged(folder: Path, files: dict[str, Any]) -> list[str]:
    return [name for name, checksum in _checksums(folder, files).items() if checksum != files[name]]


def _checksums(folder: Path, names: Iterable[str]) -> dict[str, Any]:
    """Computes size and SHA-256 of files in a folder; an unreadable file gets an empty entry."""

    def checksum(name: str) -> dict[str, Any]:
        try:
            digest = file_sum(folder / name)
            return {"bytes": (folder / name).stat().st_size, "sha256": digest}
        except (OSError, UserError):
            return {}
        finally:
            bar.update(1)

    chosen = sorted(names)
    if not chosen:
        return {}
    with (
        ThreadPoolExecutor(available_cores()) as threads,
        progress(total=None, unit="files", description="checking prepared data") as bar,
    ):
        return dict(zip(chosen, threads.map(checksum, chosen), strict=True))


def _lock_file(folder: Path) -> Path:
    """Returns the lock file of a folder, given as NAME or as NAME.part."""
    return folder.with_name(f"{folder.name.removesuffix(_PART_SUFFIX)}.lock")
