"""Failures of the file system in words: what each errno means to the user, and what to do about it."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sysconfig
from collections.abc import Iterator
from pathlib import Path

from nmt.errors import UserError

_NETWORK = ("its network file system does not answer", "check the connection and the mount")

_REASONS = {
    errno.EACCES: ("permission is denied", "change its permissions, or choose another"),
    errno.EAGAIN: ("it is in non-blocking mode and not ready", "connect it through a pipe, such as | cat"),
    errno.EBUSY: ("it is in use", "end the program that uses it, or choose another"),
    errno.EDQUOT: ("the disk quota is used up", "free some space, or choose another folder"),
    errno.EEXIST: ("it exists already", "choose another name, or remove it"),
    errno.EFBIG: (
        "it would become larger than the limit for files",
        "raise the limit (ulimit -f), or choose another file system",
    ),
    errno.EINVAL: ("its file system does not accept this name or operation", "choose another folder"),
    errno.EIO: (
        "its disk reports an error",
        "check the disk (the system log says more), or choose another folder",
    ),
    errno.EISDIR: ("it is a folder", "give the name of a file"),
    errno.ELOOP: ("its links lead in a circle", "name the file itself"),
    errno.EMFILE: ("this process has too many open files", "raise the limit (ulimit -n)"),
    errno.EMLINK: ("it has too many links", "choose another folder"),
    errno.ENAMETOOLONG: (
        "its name is too long",
        "shorten it: most file systems allow 255 bytes a name and 4,095 bytes a path",
    ),
    errno.ENFILE: ("the machine has too many open files", "end other programs, or try again later"),
    errno.ENODEV: ("its device is not there", "connect it, or choose another file"),
    errno.ENOLCK: ("its file system has no locks left", "choose another folder"),
    errno.ENOMEM: ("no memory is left", "end other programs, or choose a machine with more memory"),
    errno.ENOSPC: ("no space is left on its disk", "free some, or choose another folder"),
    errno.ENOTDIR: ("a part of its path is a file, not a folder", "correct the path"),
    errno.ENOTEMPTY: ("it is a folder that is not empty", "choose another name, or empty it"),
    errno.ENOTSUP: ("its file system does not support this", "choose another folder"),
    errno.ENXIO: ("nothing answers at the other end", "give a regular file, or start the other program"),
    errno.EOVERFLOW: ("it is too large for this system", "split it"),
    errno.EPERM: ("this is not permitted", "change its permissions or attributes, or choose another"),
    errno.EROFS: ("its disk is read-only", "choose another folder"),
    errno.ESPIPE: ("it is a pipe, a socket or a device", "give a regular file"),
    errno.ESTALE: (
        "it was removed or replaced on its network file system",
        "check the mount, then give the same command again",
    ),
    errno.ETXTBSY: ("it is a program that is running", "choose another name"),
    errno.EXDEV: ("it is on another file system", "choose another folder"),
    **dict.fromkeys(
        (
            errno.ECONNABORTED,
            errno.ECONNREFUSED,
            errno.ECONNRESET,
            errno.EHOSTDOWN,
            errno.EHOSTUNREACH,
            errno.ENETDOWN,
            errno.ENETUNREACH,
            errno.ENOTCONN,
            errno.EREMOTEIO,
            errno.ESHUTDOWN,
            errno.ETIMEDOUT,
        ),
        _NETWORK,
    ),
}
_MISSING = {
    "read": ("it does not exist", "check the name"),
    "write": ("its folder does not exist", "create it first"),
    "use": ("it does not exist", "it may have been moved or removed while the command ran"),
}

_BUGS = frozenset({errno.EBADF, errno.EFAULT, errno.ENOTTY, errno.ECHILD, errno.ESRCH, errno.ENOTSOCK})
"""A wrong program causes these, never a disk or a user."""

_ENVIRONMENT = frozenset(
    {
        errno.EDQUOT,
        errno.EFBIG,
        errno.EIO,
        errno.EMFILE,
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENOSPC,
        errno.EROFS,
        errno.ESTALE,
    }
)
_OWN_FOLDERS = tuple(
    f"{folder}/"
    for folder in (
        *(sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")),
        Path(__file__).resolve().parents[1],
        "/proc",
        "/sys",
    )
)

_CLASSES = {
    FileNotFoundError: errno.ENOENT,
    PermissionError: errno.EACCES,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
}

_NOT_FAULTS = frozenset({errno.EPIPE, errno.EINTR})
"""Handled where they arise: the reader of a pipe has ended, or a signal has come."""


def reason_of(error: OSError, action: str = "use") -> str | None:
    """Says what is wrong with a file or folder, and the remedy.

    Args:
        error: what an operation on it raised.
        action: `read`, `write` or `use`.

    Returns:
        Such as `no space is left on its disk; free some, or choose another folder`. None where the error is
        a bug, or not a failure of the file system at all.
    """
    number = _number(error)
    if number is None or number in _BUGS or number in _NOT_FAULTS:
        return None
    if number == errno.ENOENT:
        problem, remedy = _MISSING[action]
    elif number in _REASONS:
        problem, remedy = _REASONS[number]
    else:
        problem = os.strerror(number)
        problem, remedy = problem[:1].lower() + problem[1:], "choose another file or folder"
    return f"{problem}; {remedy}"


def file_error(error: OSError, path: Path | None = None, action: str = "use") -> UserError | None:
    """The line that a user gets for a failure; None where the error is a bug.

    Args:
        error: what was raised.
        path: the file or folder in the user's words, if it is known. An error that carries the name of an
            unrelated file is reported for that file.
        action: what was being done with `path`: `read`, `write` or `use`.
    """
    named = _named(error)
    if path is None or (named is not None and not _belongs(named, os.fspath(path))):
        path, action = (None if named is None else Path(named)), "use"
    reason = reason_of(error, action)
    if reason is None:
        return None
    if path is None:
        return UserError(f"an operation on a file failed: {reason}")
    return UserError(f"can't {action} {path}: {reason}")


def stray_file_error(error: OSError) -> UserError | None:
    """The line for a failure that nothing on its way has put into words; None where it looks like a bug.

    A command ends with it, and so does every process of a training. Without a file's name only those count
    that no program can cause by itself, such as a full disk. A file of the program itself is its own matter.
    """
    named = _named(error)
    if named is None:
        return file_error(error) if _number(error) in _ENVIRONMENT else None
    return None if named.startswith(_OWN_FOLDERS) else file_error(error)


@contextlib.contextmanager
def read_errors(path: Path) -> Iterator[None]:
    """Turns the failures of looking for and reading `path` into a `UserError`."""
    with _explained(path, "read"):
        yield


@contextlib.contextmanager
def write_errors(path: Path) -> Iterator[None]:
    """Turns the failures of writing `path` into a `UserError`."""
    with _explained(path, "write"):
        yield


@contextlib.contextmanager
def _explained(path: Path, action: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        line = file_error(error, path, action)
        if line is None:
            raise
        raise line from error


def _number(error: OSError) -> int | None:
    """The errno; libraries written in other languages give it only in their message, or by the class."""
    if error.errno is not None:
        return error.errno
    written = re.search(r"\b(?:os error|errno) (\d+)", str(error), re.IGNORECASE)
    if written is not None:
        return int(written[1])
    return next((number for kind, number in _CLASSES.items() if isinstance(error, kind)), None)


def _named(error: OSError) -> str | None:
    """The file that the error carries; None for none, or only a descriptor."""
    name = error.filename
    return os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else None


def _belongs(name: str, path: str) -> bool:
    """Whether a failure of `name` is one of `path`: itself, within, above, or temporary beside it."""
    if name.startswith(path) or path.startswith(f"{name.rstrip('/')}/") or name == ".":
        return True
    return os.path.dirname(name) == os.path.dirname(path) and os.path.basename(name).startswith(".")
