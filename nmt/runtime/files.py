"""Files and folders: look-up, atomic writes, removal, locks, and strict reading of untrusted files."""

from __future__ import annotations

import contextlib
import errno
import hashlib
import json
import os
import secrets
import shutil
import stat
import tempfile
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any, BinaryIO

from nmt.errors import UserError
from nmt.runtime.model_files import is_of_model
from nmt.runtime.os_errors import NO_TEMPORARY_FOLDER, read_errors, reason_of, write_errors
from nmt.runtime.streams import log

_LONGEST_NAME = 140
"""Bytes of a file name that every file system accepts; the limit of eCryptfs is 143, of most others 255."""


def cache_folder() -> Path:
    """Returns the folder of downloads and prepared data: `$NMT_CACHE`, or `nmt` in the user's cache.

    Raises:
        UserError: the user has no home folder, as an arbitrary user id of a container.
    """
    chosen = os.environ.get("NMT_CACHE")
    if chosen:
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or home_folder("NMT_CACHE") / ".cache") / "nmt"


def home_folder(variable: str) -> Path:
    """Returns the home folder of the user.

    Raises:
        UserError: there is none; the message names `variable`, the environment variable of another folder.
    """
    try:
        return Path.home()
    except RuntimeError:
        raise UserError(
            f"{variable}: this user has no home folder, where prepared data and downloads are stored. Set "
            f"{variable} to a folder, or HOME."
        ) from None


def folder_in_cache(root: Path, name: str, done: str) -> Path:
    """Returns the folder `root/name` of a cache, or one next to `root` if this user can't use that.

    Users may share a cache, such as a folder of mode 1777. The umask of the first user decides whether
    others may read what is there, or continue it. Those who may not build a copy in `root-UID`. Call this
    once for each folder, because another user may change the answer.

    Args:
        root: the folder for this kind of data; others may have created it.
        name: the name of the folder, which identifies its content.
        done: a file in the folder that exists when it is complete.
    """
    folder = root / name
    if os.access(folder / done, os.R_OK) or not os.access(root.parent, os.W_OK | os.X_OK):
        return folder
    if _usable(root) and all(_removable(path) for path in root.glob(f"*{name}*")):
        return folder
    own = root.with_name(f"{root.name}-{os.geteuid()}")
    _log_once(root, own)
    return own / name


def _usable(root: Path) -> bool:
    return os.access(root, os.W_OK | os.X_OK) or not os.path.lexists(root)


def _removable(path: Path) -> bool:
    """Whether this user may change and remove a file or folder; in a sticky folder its owner removes it."""
    try:
        status, parent = path.lstat(), path.parent.stat()
    except OSError:
        return False
    owners = (0, status.st_uid, parent.st_uid)
    return os.access(path, os.W_OK) and (not parent.st_mode & stat.S_ISVTX or os.geteuid() in owners)


@cache
def _log_once(root: Path, own: Path) -> None:
    log.info("%s: has data of another user that this user can't read or change; using %s", root, own)


def choose_temporary_folder() -> None:
    """Chooses the folder of temporary files on a machine that has none, as a read-only container.

    It is `/dev/shm`, which is in memory, for child processes too. Without that, it is a name that does not
    exist: packages that torch imports only ask for the name, so translating works.
    """
    try:
        tempfile.gettempdir()
    except FileNotFoundError:
        tempfile.tempdir = NO_TEMPORARY_FOLDER
        if os.access("/dev/shm", os.W_OK | os.X_OK):
            tempfile.tempdir = os.environ["TMPDIR"] = "/dev/shm"


def expanded(path: str | Path) -> Path:
    """Replaces `~` or `~user` at the beginning of a path by that home folder.

    If the user does not exist, the path is unchanged, as in a shell; `Path.expanduser` raises an error.
    """
    return Path(os.path.expanduser(path))


def stat_or_none(path: Path) -> os.stat_result | None:
    """Returns the status of the file that `path` leads to; None if it does not exist or is a broken link.

    Raises:
        OSError: the look-up fails, for example because the name is too long or a folder can't be read.
    """
    try:
        return os.stat(path)
    except (FileNotFoundError, NotADirectoryError, ValueError):  # ValueError: a NUL in the name
        return None


@contextlib.contextmanager
def replaced(path: Path) -> Iterator[Path]:
    """Writes a file atomically.

    Yields a temporary path in the same folder. After the body the file is flushed to disk and renamed to
    `path`. If anything fails, `path` is unchanged and the temporary file is removed.

    Raises:
        UserError: the disk is full, or the folder is not writable.
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
        with contextlib.suppress(OSError):  # a read-only disk raises an error even if there is no such file
            temporary.unlink()


def write_text(path: Path, text: str) -> None:
    """Writes a text file atomically, in UTF-8; see `replaced`."""
    with replaced(path) as temporary:
        temporary.write_text(text, encoding="utf-8", newline="\n")


@contextlib.contextmanager
def fresh_folder(folder: Path) -> Iterator[Path]:
    """Writes a folder atomically. At the end of the body, the folder must not exist or must be empty.

    Yields an empty temporary folder next to it, which is then renamed to `folder`. If anything fails, the
    temporary folder is removed. So is that of a killed process. A link is followed: its target is replaced.

    Raises:
        UserError: the disk is full, the parent folder is not writable, or another process writes the folder.
    """

    def taken() -> None:
        raise UserError(f"{folder}: another process is writing it. Wait for it, or give another name.")

    folder = Path(os.path.realpath(folder))
    fresh, lock = (folder.with_name(f".{folder.name}.{ending}") for ending in ("tmp", "lck"))
    make_folder(folder.parent)
    with locked(lock, taken):
        remove(fresh)
        try:
            make_folder(fresh)
            with write_errors(folder):
                yield fresh
                fresh.rename(folder)
                fsync_folder(folder.parent)
        finally:
            remove(fresh)
            remove(lock)


def _temporary_name(name: str) -> str:
    """Returns a name that is never too long and that no other process uses, on any machine."""
    ending = f"{secrets.token_hex(8)}.tmp"
    readable = f".{name}.{ending}"
    if len(os.fsencode(readable)) <= _LONGEST_NAME:
        return readable
    return f".{hashlib.sha256(os.fsencode(name)).hexdigest()[:16]}.{ending}"


def fsync_folder(path: Path) -> None:
    """Makes the names in a folder survive a power failure, if its file system supports that."""
    try:
        handle = os.open(path, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)
    except OSError as error:
        # Some file systems do not support it, and a folder may be writable but not readable.
        if error.errno not in (errno.EINVAL, errno.ENOTSUP, errno.EACCES):
            raise


@contextlib.contextmanager
def written(path: Path) -> Iterator[BinaryIO]:
    """Opens an output path of the user: a file is replaced atomically, a pipe or device is written directly.

    A file that is replaced keeps its permissions.

    Raises:
        UserError: the disk is full, or the path is not writable.
    """
    path = expanded(path)
    with write_errors(path):
        status = stat_or_none(path)
    # The path is not resolved before this point: the targets of /dev/stdout and /dev/fd/63 have no path.
    if status is not None and not stat.S_ISREG(status.st_mode):
        with write_errors(path), open(path, "wb") as out:
            yield out
        return
    # The target of a link is replaced, not the link.
    with replaced(Path(os.path.realpath(path))) as temporary, open(temporary, "wb") as out:
        if status is not None:
            with contextlib.suppress(OSError):  # some file systems have no permissions
                os.fchmod(out.fileno(), stat.S_IMODE(status.st_mode))
        yield out


def require_writable(path: Path, key: str) -> None:
    """Checks in advance whether `written` would fail, before hours of work.

    Raises:
        UserError: the path is a folder, a socket or a file of a model, or its folder does not exist or is not
            writable. The message begins with `key`, the option and its value.
    """
    try:
        path = expanded(path)
        status = stat_or_none(path)
        if status is not None and stat.S_ISDIR(status.st_mode):
            raise UserError(f"{key}: is a folder. Name a file.")
        if status is not None and stat.S_ISSOCK(status.st_mode):
            raise UserError(f"{key}: is a socket. Name a file.")
        if status is not None and not stat.S_ISREG(status.st_mode):
            return
        if is_of_model(path):
            raise UserError(f"{key}: is a file of a model. Give another name.")
        folder = Path(os.path.realpath(path)).parent
        parent_status = stat_or_none(folder)
        if parent_status is None or not stat.S_ISDIR(parent_status.st_mode):
            raise UserError(f"{key}: there is no folder {folder}. Create it first.")
        require_takes_files(folder, key)
    except OSError as error:
        reason = reason_of(error)
        if reason is None:
            raise
        raise UserError(f"{key}: {reason}") from error


def require_takes_files(folder: Path, key: str) -> None:
    """Requires that files can be created in a folder, by creating one and removing it.

    Its permissions are not enough: they allow root to write to /proc, and a disk may be full.

    Raises:
        UserError: it is not writable.
        OSError: another reason, such as a full disk.
    """
    probe = folder / _temporary_name("probe")
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
        os.unlink(probe)
    except OSError as error:
        if error.errno not in (errno.EACCES, errno.EINVAL, errno.ENOENT, errno.EPERM, errno.EROFS):
            raise
        raise UserError(f"{key}: the folder {folder} is not writable. Choose another.") from error


def make_folder(path: Path) -> Path:
    """Creates a folder and its missing parents. Raises `UserError` if the folder can't be created."""
    with write_errors(path):
        try:
            path.mkdir(parents=True, exist_ok=True)
        except FileExistsError as error:
            raise UserError(
                f"{path}: must be a folder, but is {_file_type(path)}. Choose another name."
            ) from error
    return path


def _file_type(path: Path) -> str:
    status = stat_or_none(path)
    if status is None:
        return "a broken link"
    return "a file" if stat.S_ISREG(status.st_mode) else "a pipe, a socket or a device"


def remove(path: Path) -> None:
    """Removes a file, or a folder with its content; ignores errors."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path, ignore_errors=True)
    else:
        with contextlib.suppress(OSError):
            path.unlink()


@contextlib.contextmanager
def locked(path: Path, taken: Callable[[], None]) -> Iterator[None]:
    """Holds an exclusive lock on a file; the system releases it when the process ends for any reason.

    The file is created if it does not exist, and not removed. It is opened for writing because network file
    systems can lock neither folders nor read-only files across machines. If another process holds the lock,
    `taken` is called; unless it raises, this process then waits.

    Raises:
        UserError: the file can't be written, or its file system does not support locks.
    """
    import fcntl  # Windows does not have it; `require_unix` refuses to run there

    with contextlib.ExitStack() as stack:
        with write_errors(path):
            # O_NONBLOCK: a named pipe with this name raises an error and does not wait for a reader.
            file = stack.enter_context(open(_opened_lock(path), "w"))
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
                f"{path} can't be locked ({os.strerror(error.errno or 0)}), so two processes could write "
                "there at the same time. Choose a folder on another file system."
            ) from error
        yield


def _opened_lock(path: Path) -> int:
    flags = os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC
    try:
        return os.open(path, flags)
    except FileNotFoundError:
        # Not at once: in a sticky folder Linux lets nobody create a file that another user has created
        # (fs.protected_regular), not even root.
        return os.open(path, flags | os.O_CREAT, 0o666)


def require_current_folder() -> None:
    """Checks that the current folder exists, because relative paths need it.

    Raises:
        UserError: the current folder was removed, or can't be read.
    """
    try:
        os.getcwd()
    except OSError as error:
        raise UserError(
            "the current folder was removed, or can't be read. Change to another one, for example with cd ~."
        ) from error


def read_bytes(path: Path, most: int) -> bytes:
    """Returns the content of a regular file; pipes and devices are not opened.

    Raises:
        UserError: the file can't be read, is not a regular file, or has more than `most` bytes.
    """
    with read_errors(path):
        require_regular(path)
        with open(path, "rb") as file:
            content = file.read(most + 1)
    if len(content) > most:
        raise UserError(f"{path}: is damaged: it has more than {most:,} bytes")
    return content


def read_text(path: Path, most: int) -> str:
    """Returns the text of a regular file in UTF-8.

    Raises:
        UserError: as for `read_bytes`, or the content is not UTF-8.
    """
    return decoded(read_bytes(path, most), path)


def decoded(content: bytes, path: Path) -> str:
    """Decodes `content`, which was read from `path`, as UTF-8.

    Raises:
        UserError: the content is not UTF-8.
    """
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path}: is damaged: it is not UTF-8 text") from error


def require_regular(path: Path) -> os.stat_result:
    """Returns the status of a regular file, which can be read without waiting and without side effects.

    Raises:
        OSError: the file does not exist.
        UserError: the path is a folder, a pipe or a device.
    """
    status = os.stat(path)
    if not stat.S_ISREG(status.st_mode):
        raise UserError(f"{path}: is not a regular file")
    return status


def parse_json(text: str | bytes) -> Any:
    """Parses JSON.

    Raises:
        ValueError: the text is not JSON, has a duplicate key, is nested too deeply, or has too long a number.
    """
    try:
        return json.loads(text, object_pairs_hook=_distinct)
    except RecursionError:
        raise ValueError("it is nested too deeply") from None


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    values = dict(pairs)
    if len(values) < len(pairs):
        raise ValueError("it has a duplicate key")
    return values
