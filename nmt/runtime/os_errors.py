"""Errors of the file system as messages for users: for each errno the problem and a remedy."""

from __future__ import annotations

import contextlib
import errno
import os
import re
import sysconfig
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

from nmt.errors import UserError

_NETWORK = ("its network file system does not answer", "Check the connection and the mount.")

_OF_NETWORKS = (
    *("ECONNABORTED", "ECONNREFUSED", "ECONNRESET", "EHOSTDOWN", "EHOSTUNREACH", "ENETDOWN"),
    *("ENETUNREACH", "ENOTCONN", "EREMOTEIO", "ESHUTDOWN", "ETIMEDOUT"),
)

_REASONS = {
    errno.EACCES: ("permission is denied", "Change its permissions, or choose another."),
    errno.EAGAIN: ("it is in non-blocking mode and not ready", "Connect it through a pipe, such as | cat."),
    errno.EBUSY: ("it is in use", "End the program that uses it, or choose another."),
    errno.EDQUOT: ("the disk quota is used up", "Free some space, or choose another folder."),
    errno.EEXIST: ("it exists already", "Choose another name, or remove it."),
    errno.EFBIG: (
        "it would become larger than the limit for files",
        "Raise the limit (ulimit -f), or choose another file system.",
    ),
    errno.EINVAL: ("its file system does not accept this name or operation", "Choose another folder."),
    errno.EIO: (
        "its disk reports an error",
        "Check the disk (the system log says more), or choose another folder.",
    ),
    errno.EISDIR: ("it is a folder", "Give the name of a file."),
    errno.ELOOP: ("its symbolic links form a circle", "Name the file itself."),
    errno.EMFILE: ("this process has too many open files", "Raise the limit (ulimit -n)."),
    errno.EMLINK: ("it has too many links", "Choose another folder."),
    errno.ENAMETOOLONG: (
        "its name is too long",
        "Shorten it: most file systems allow 255 bytes a name and 4,095 bytes a path.",
    ),
    errno.ENFILE: ("the machine has too many open files", "End other programs, or try again later."),
    errno.ENODEV: ("its device is not available", "Connect it, or choose another file."),
    errno.ENOLCK: ("its file system has no locks left", "Choose another folder."),
    errno.ENOMEM: ("no memory is left", "End other programs, or choose a machine with more memory."),
    errno.ENOSPC: ("no space is left on its disk", "Free some, or choose another folder."),
    errno.ENOTDIR: ("a part of its path is a file, not a folder", "Correct the path."),
    errno.ENOTEMPTY: ("it is a folder that is not empty", "Choose another name, or empty it."),
    errno.ENOTSUP: ("its file system does not support this", "Choose another folder."),
    errno.ENXIO: ("no process has opened its other end", "Give a regular file, or start the other program."),
    errno.EOVERFLOW: ("it is too large for this system", "Split it."),
    errno.EPERM: ("this is not permitted", "Change its permissions or attributes, or choose another."),
    errno.EROFS: ("its disk is read-only", "Choose another folder."),
    errno.ESPIPE: ("it is a pipe, a socket or a device", "Give a regular file."),
    errno.ESTALE: (
        "it was removed or replaced on its network file system",
        "Check the mount, then give the same command again.",
    ),
    errno.ETXTBSY: ("it is a program that is running", "Choose another name."),
    errno.EXDEV: ("it is on another file system", "Choose another folder."),
    **dict.fromkeys((getattr(errno, name) for name in _OF_NETWORKS if hasattr(errno, name)), _NETWORK),
}
_MISSING = {
    "read": ("it does not exist", "Check the name."),
    "write": ("its folder does not exist", "Create it first."),
    "use": ("it does not exist", "It may have been moved or removed while the command ran."),
}

_BUGS = frozenset({errno.EBADF, errno.EFAULT, errno.ENOTTY, errno.ECHILD, errno.ESRCH, errno.ENOTSOCK})
"""Caused by errors in the program, never by a disk or a user."""

_NEVER_BUGS = frozenset(
    (errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EMFILE, errno.ENFILE, errno.ENOMEM, errno.ENOSPC)
    + (errno.EROFS, errno.ESTALE)
)
"""Caused by the machine, never by errors in the program."""

_PROGRAM_FOLDERS = (
    *(f"{sysconfig.get_path(name)}/" for name in ("stdlib", "platstdlib", "purelib", "platlib")),
    *(f"{Path(__file__).resolve().parents[1]}/", "/proc/", "/sys/"),
)
"""Folders whose files the program reads for itself; the user does not name them."""

_ERRNO_OF_CLASS = {
    FileNotFoundError: errno.ENOENT,
    PermissionError: errno.EACCES,
    IsADirectoryError: errno.EISDIR,
    NotADirectoryError: errno.ENOTDIR,
}

_NO_THREAD = ("can't start new thread", os.strerror(errno.EAGAIN))
"""In the messages of Python, and of libraries in C++ or a failing fork, which name no file."""

_NO_TEMPORARY = "No usable temporary directory"
"""In the message of `tempfile`; its error carries the number of a missing file, and no name."""

NO_TEMPORARY_FOLDER = "/TMPDIR-is-not-set"
"""The name of the folder for temporary files on a machine that has none."""

_HANDLED_ELSEWHERE = frozenset({errno.EPIPE, errno.EINTR})
"""Handled where they are raised: the reader of a pipe has ended, or a signal has arrived."""


def reason_of(error: OSError, action: str = "use") -> str | None:
    """Returns the problem with a file or folder, and the remedy; `action` is `read`, `write` or `use`.

    For example `no space is left on its disk. Free some, or choose another folder.` None if the error is a
    bug, or not an error of the file system.
    """
    number = _errno_of(error)
    if number is None or number in _BUGS or number in _HANDLED_ELSEWHERE:
        return None
    if number == errno.ENOENT:
        problem, remedy = _MISSING[action]
    elif number in _REASONS:
        problem, remedy = _REASONS[number]
    else:
        problem = os.strerror(number)
        problem, remedy = problem[:1].lower() + problem[1:], "Choose another file or folder."
    return f"{problem}. {remedy}"


def file_error(error: OSError, path: Path | None = None, action: str = "use") -> UserError | None:
    """Returns the one-line error message for a failed operation; None if the error is a bug.

    Args:
        error: the error that was raised.
        path: the file or folder as the user named it, if known. If the error carries the name of an unrelated
            file, the message names that file.
        action: the operation on `path`: `read`, `write` or `use`.
    """
    named = _file_name(error)
    if path is None or (named is not None and not _concerns(named, os.fspath(path))):
        path, action = (None if named is None else Path(named)), "use"
    reason = reason_of(error, action)
    if reason is None:
        return None
    if path is None:
        return UserError(f"an operation on a file failed: {reason}")
    return UserError(f"can't {action} {path}: {reason}")


def stray_file_error(error: OSError | RuntimeError) -> UserError | None:
    """Returns the message for an error that no caller has converted; None if it looks like a bug.

    Commands and training processes end with this message. An error without a file name, or on a file of the
    program, is reported only if no error in the program can cause it, such as a full disk. A RuntimeError is
    reported if a thread could not be started.
    """
    named = _file_name(error) if isinstance(error, OSError) else None
    if named is None and any(words in str(error) for words in _NO_THREAD):
        return UserError(
            "this user may start no more threads or processes. End some, or raise the limit (ulimit -u, or "
            "docker run --pids-limit)."
        )
    if not isinstance(error, OSError):
        return None
    if (named or "").startswith(NO_TEMPORARY_FOLDER) or named is None and _NO_TEMPORARY in str(error):
        return UserError(
            "TMPDIR: no folder for temporary files can be written. Mount one (docker run --tmpfs /tmp), or "
            "set TMPDIR to a folder."
        )
    may_be_bug = named is None or named.startswith(_PROGRAM_FOLDERS)
    return None if may_be_bug and _errno_of(error) not in _NEVER_BUGS else file_error(error)


def read_errors(path: Path) -> AbstractContextManager[None]:
    """Turns OSErrors from finding or reading `path` into UserErrors."""
    return _user_errors(path, "read")


def write_errors(path: Path) -> AbstractContextManager[None]:
    """Turns OSErrors from writing `path` into UserErrors."""
    return _user_errors(path, "write")


@contextlib.contextmanager
def _user_errors(path: Path, action: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.EBADF and os.fspath(path) in ("standard input", "standard output"):
            raise UserError(f"{path}: is not open to {action}. Redirect it to a file or a pipe.") from error
        line = file_error(error, path, action)
        if line is None:
            raise
        raise line from error


def _errno_of(error: OSError) -> int | None:
    """Returns the errno. Libraries in other languages give it only in the message or by the class."""
    if error.errno is not None:
        return error.errno
    written = re.search(r"\b(?:os error|errno) (\d+)", str(error), re.IGNORECASE)
    if written is not None:
        return int(written[1])
    return next((number for kind, number in _ERRNO_OF_CLASS.items() if isinstance(error, kind)), None)


def _file_name(error: OSError) -> str | None:
    """Returns the file name that the error carries; None if it carries none, or only a descriptor."""
    name = error.filename
    return os.fsdecode(name) if isinstance(name, str | bytes | os.PathLike) else None


def _concerns(name: str, path: str) -> bool:
    """Returns whether `name` is `path`, within it, above it, or a temporary file next to it."""
    if name.startswith(path) or path.startswith(f"{name.rstrip('/')}/") or name == ".":
        return True
    return os.path.dirname(name) == os.path.dirname(path) and os.path.basename(name).startswith(".")
