"""Files: found, read, written whole or not at all, and locked."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import hashlib
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import BinaryIO

from nmt.errors import UserError
from nmt.runtime.os_errors import reason_of, write_errors

_LONGEST_NAME = 140
"""Bytes of a name that every file system accepts; eCryptfs has 143, most others 255."""


def cache_folder() -> Path:
    """Where downloads and prepared data are kept: `$NMT_CACHE`, or `nmt` in the user's cache folder."""
    own = os.environ.get("NMT_CACHE")
    if own:
        return Path(own)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "nmt"


def expanded(path: str | Path) -> Path:
    """The path with `~` or `~user` at its beginning replaced by that home folder, where there is one.

    `Path.expanduser` fails for a user that there is not; here the name stays as it is, as in a shell.
    """
    return Path(os.path.expanduser(path))


def stat_or_none(path: Path) -> os.stat_result | None:
    """What `path` leads to; None if nothing is there, be it because a link leads nowhere.

    Raises:
        OSError: the name can't be looked up, such as one that is too long, or in a folder that can't be read.
    """
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # the last: a NUL in the name
        return None


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Writes a file whole or not at all.

    Yields a temporary name in the same folder; afterwards the file is flushed to disk and takes the place of
    `path` in one step. Whatever fails in between, `path` stays as it was and nothing is left behind.

    Raises:
        UserError: the disk is full, or the folder can't be written to.
    """
    temporary = path.with_name(_temporary_name(path.name))
    try:
        with write_errors(path):
            yield temporary
            with open(temporary, "rb") as file:
                os.fsync(file.fileno())
            os.replace(temporary, path)
            fsync_folder(path.parent)
    finally:
        with contextlib.suppress(OSError):  # a read-only disk refuses even where nothing is there to remove
            temporary.unlink()


def _temporary_name(name: str) -> str:
    """A name for the same folder that is never too long, and no other process's."""
    own = f".{name}.{os.getpid()}.tmp"
    if len(os.fsencode(own)) <= _LONGEST_NAME:
        return own
    return f".{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}.{os.getpid()}.tmp"


def fsync_folder(path: Path) -> None:
    """Makes the names in a folder last through a power cut, where its file system can do that."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        # Not every file system can, and a folder may be one to write to and not to read.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
            raise


@contextlib.contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Opens what a user has named for output: a file is replaced whole, a pipe or device is written to.

    Raises:
        UserError: the disk is full, or the path can't be written to.
    """
    path = expanded(path)
    with write_errors(path):
        there = stat_or_none(path)
    # Not resolved before this: what /dev/stdout and /dev/fd/63 lead to has no path of its own.
    if there is not None and not stat.S_ISREG(there.st_mode):
        with write_errors(path), open(path, "wb") as out:
            yield out
        return
    # A link stays one.
    with replaced(Path(os.path.realpath(path))) as temporary, open(temporary, "wb") as out:
        yield out


def require_writable(path: Path, key: str) -> None:
    """Finds what would make `written` fail, before hours go into the work.

    Raises:
        UserError: in the words of `key`, the option.
    """
    try:
        path = expanded(path)
        there = stat_or_none(path)
        if there is not None and stat.S_ISDIR(there.st_mode):
            raise UserError(f"{key}: is a folder; name a file")
        if there is not None and stat.S_ISSOCK(there.st_mode):
            raise UserError(f"{key}: is a socket; name a file")
        if there is not None and not stat.S_ISREG(there.st_mode):
            return
        folder = Path(os.path.realpath(path)).parent
        beside = stat_or_none(folder)
        if beside is None or not stat.S_ISDIR(beside.st_mode):
            raise UserError(f"{key}: there is no folder {folder}; create it first")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise UserError(f"{key}: the folder {folder} can't be written to; choose another")
    except OSError as error:
        raise _under(key, error) from error


def _under(key: str, error: OSError) -> BaseException:
    """The error in the words of the option `key`, unless it is a bug."""
    reason = reason_of(error)
    return error if reason is None else UserError(f"{key}: {reason}")


def make_folder(path: Path) -> Path:
    """Creates a folder and those above it where they are missing.

    Raises:
        UserError: it can't be created.
    """
    with write_errors(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise UserError(
                f"{path} is {_kind(path)}, and a folder is needed: choose another name"
            ) from error
    return path


def _kind(path: Path) -> str:
    there = stat_or_none(path)
    if there is None:
        return "a link that leads nowhere"
    return "a file" if stat.S_ISREG(there.st_mode) else "a pipe, a socket or a device"


def remove(path: Path) -> None:
    """Removes a file, or a folder with all that is in it, as far as the file system lets it."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


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
        with write_errors(path):
            # A named pipe under this name is an error, not a wait for its reader.
            flags = os.O_WRONLY | os.O_CREAT | os.O_NONBLOCK | os.O_CLOEXEC
            file = stack.enter_context(open(os.open(path, flags, 0o666), "w"))
            if not stat.S_ISREG(os.fstat(file.fileno()).st_mode):
                raise UserError(f"{path}: is not a regular file. Remove it.")
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


def require_current_folder() -> None:
    """Names that don't begin with / are looked for there.

    Raises:
        UserError: it was removed, or can't be read.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise UserError(
            "the current folder was removed, or can't be read: change to one that exists, such as with cd ~"
        ) from error
