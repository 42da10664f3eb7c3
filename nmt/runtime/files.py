"""Files: written whole or not at all, locked, and their failures told in words."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from nmt.errors import UserError


def cache_folder() -> Path:
    """Where downloads and prepared data are kept: `$NMT_CACHE`, or `nmt` in the user's cache folder."""
    own = os.environ.get("NMT_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nmt"


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Writes a file whole or not at all.

    Yields a temporary name in the same folder; afterwards the file is flushed to disk and takes the place of
    `path` in one step. Whatever fails in between, `path` stays as it was and nothing is left behind.

    Raises:
        UserError: the disk is full, or the folder can't be written to.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        with told(path):
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
            fsync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):  # a read-only disk refuses even where nothing is there to remove
            temporary.unlink()


def fsync_folder(path: Path) -> None:
    """Makes the names in a folder last through a power cut."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


@contextlib.contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Opens what a user has named for output: a file is replaced whole, a pipe or device is written to.

    Raises:
        UserError: the disk is full, or the path can't be written to.
    """
    path = path.expanduser()
    # Not resolved before this: what /dev/stdout and /dev/fd/63 lead to has no path of its own.
    if path.exists() and not path.is_file():
        with told(path), open(path, "wb") as out:
            yield out
        return
    with replaced(path.resolve()) as temporary, open(temporary, "wb") as out:  # a link stays one
        yield out


def require_writable(path: Path, key: str) -> None:
    """Finds what would make `written` fail, before hours go into the work.

    Raises:
        UserError: in the words of `key`, the option.
    """
    try:
        path = path.expanduser()
        if path.is_dir():
            raise UserError(f"{key}: is a folder; name a file")
        if path.exists() and not path.is_file():
            return
        folder = path.resolve().parent
        if not folder.is_dir():
            raise UserError(f"{key}: there is no folder {folder}; create it first")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(f"{key}: the folder {folder} can't be written to; choose another")
    except OSError as error:
        raise UserError(f"{key}: {os.strerror(error.errno or 0)}; choose another name") from error


@contextlib.contextmanager
def readable(path: Path) -> Iterator[None]:
    """Turns the failures of looking for and reading `path` into a `UserError`."""
    try:
        yield
    except OSError as error:
        reason = error.strerror or str(error)
        raise UserError(f"can't read {path}: {reason[0].lower()}{reason[1:]}") from error


_REASONS = {
    errno.ENOSPC: "no space is left on its disk; free some, or choose another folder",
    errno.EDQUOT: "the disk quota is used up; free some space, or choose another folder",
    errno.EROFS: "its disk is read-only; choose another folder",
    errno.EACCES: "permission is denied; choose another folder, or change its permissions",
    errno.ENOENT: "its folder does not exist; create it first",
    errno.EISDIR: "it is a folder; give the name of a file",
    errno.ENOTDIR: "a part of its path is a file, not a folder; choose another folder",
}


@contextlib.contextmanager
def told(path: Path) -> Iterator[None]:
    """Turns the failures of writing `path` that the user can mend into a `UserError`."""
    try:
        yield
    except OSError as error:
        reason = _REASONS.get(error.errno or 0)
        if reason is None:
            raise
        raise UserError(f"can't write {path}: {reason}") from error


def make_folder(path: Path) -> Path:
    """Creates a folder and those above it where they are missing.

    Raises:
        UserError: it can't be created.
    """
    with told(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise UserError(f"{path} is a file, and a folder is needed: choose another name") from error
    return path


@contextlib.contextmanager
def locked(path: Path, taken: Callable[[], None]) -> Iterator[None]:
    """Within, this process alone holds the lock on a file; it ends with the process, however that ends.

    Args:
        path: made if it isn't there, and left there. A file and opened for writing, because on network file
            systems neither folders nor files that are only read can be locked for all machines.
        taken: called when another process has the lock; unless it raises, the lock is waited for.

    Raises:
        UserError: the file can't be written, or its file system knows no locks.
    """
    with contextlib.ExitStack() as stack:
        with told(path):
            file = stack.enter_context(open(path, "a"))
        try:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                taken()
                fcntl.flock(file, fcntl.LOCK_EX)
        except OSError as error:
            raise UserError(
                f"{path} can't be locked ({os.strerror(error.errno or 0)}), so two processes might write "
                "there at once: choose a folder on another file system"
            ) from error
        yield
