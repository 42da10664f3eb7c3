"""Files: atomic writes, locks, and failures of the file system as one line with the path and the reason."""

from __future__ import annotations

import errno
import fcntl
import os
import socket
import stat
from pathlib import Path
from typing import Any

import pytest

from nmt.cli.app import _guarded
from nmt.errors import UserError
from nmt.runtime import files
from nmt.runtime.files import (
    fresh_folder,
    locked,
    make_folder,
    read_text,
    remove,
    replaced,
    require_writable,
    stat_or_none,
    written,
)
from nmt.runtime.os_errors import read_errors, write_errors

BOTH = [
    (errno.EACCES, "permission is denied. Change its permissions"),
    (errno.EAGAIN, "it is in non-blocking mode and not ready. Connect it through a pipe"),
    (errno.EBUSY, "it is in use. End the program"),
    (errno.ECONNRESET, "its network file system does not answer. Check the connection"),
    (errno.EDQUOT, "the disk quota is used up. Free some space"),
    (errno.EEXIST, "it exists already. Choose another name"),
    (errno.EFBIG, "it would become larger than the limit for files. Raise the limit (ulimit -f)"),
    (errno.EHOSTDOWN, "its network file system does not answer. Check the connection"),
    (errno.EINVAL, "its file system does not accept this name or operation. Choose another folder"),
    (errno.EIO, "its disk reports an error. Check the disk"),
    (errno.EISDIR, "it is a folder. Give the name of a file"),
    (errno.ELOOP, "its symbolic links form a circle. Name the file itself"),
    (errno.EMFILE, "this process has too many open files. Raise the limit (ulimit -n)"),
    (errno.ENAMETOOLONG, "its name is too long. Shorten it"),
    (errno.ENFILE, "the machine has too many open files. End other programs"),
    (errno.ENODEV, "its device is not available. Connect it"),
    (errno.ENOLCK, "its file system has no locks left. Choose another folder"),
    (errno.ENOMEM, "no memory is left. End other programs"),
    (errno.ENOSPC, "no space is left on its disk. Free some"),
    (errno.ENOTCONN, "its network file system does not answer. Check the connection"),
    (errno.ENOTDIR, "a part of its path is a file, not a folder. Correct the path"),
    (errno.ENOTEMPTY, "it is a folder that is not empty. Choose another name"),
    (errno.ENOTSUP, "its file system does not support this. Choose another folder"),
    (errno.ENXIO, "no process has opened its other end. Give a regular file"),
    (errno.EOVERFLOW, "it is too large for this system. Split it"),
    (errno.EPERM, "this is not permitted. Change its permissions or attributes"),
    (errno.EROFS, "its disk is read-only. Choose another folder"),
    (errno.ESPIPE, "it is a pipe, a socket or a device. Give a regular file"),
    (errno.ESTALE, "it was removed or replaced on its network file system. Check the mount"),
    (errno.ETIMEDOUT, "its network file system does not answer. Check the connection"),
    (errno.ETXTBSY, "it is a program that is running. Choose another name"),
    (errno.EXDEV, "it is on another file system. Choose another folder"),
    (errno.ENOMEDIUM, "no medium found. Choose another file or folder"),  # any other: the system's message
    (errno.EUCLEAN, "structure needs cleaning. Choose another file or folder"),
]


@pytest.mark.parametrize(("number", "words"), [*BOTH, (errno.ENOENT, "it does not exist. Check the name")])
def test_a_failure_of_reading_is_one_line(number: int, words: str) -> None:
    with pytest.raises(UserError) as raised, read_errors(Path("folder/file")):
        raise OSError(number, os.strerror(number), "folder/file")
    assert str(raised.value).startswith(f"can't read folder/file: {words}")
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(("number", "words"), [*BOTH, (errno.ENOENT, "its folder does not exist. Create")])
def test_a_failure_of_writing_is_one_line_and_leaves_nothing(tmp_path: Path, number: int, words: str) -> None:
    path = tmp_path / "file"
    with pytest.raises(UserError) as raised, replaced(path) as temporary:
        temporary.write_text("half")
        raise OSError(number, os.strerror(number))  # as `write` and `fsync` do, without a name
    assert str(raised.value).startswith(f"can't write {path}: {words}")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("number", [errno.EBADF, errno.EFAULT, errno.ENOTTY, errno.EPIPE, None])
def test_a_bug_and_a_broken_pipe_stay_what_they_are(number: int | None) -> None:
    for guard in (read_errors, write_errors):
        error = OSError("strange") if number is None else OSError(number, os.strerror(number))
        with pytest.raises(OSError) as raised, guard(Path("file")):
            raise error
        assert raised.value is error


@pytest.mark.parametrize(
    ("error", "words"),
    [
        (FileNotFoundError("No such file or directory: w"), "it does not exist"),  # safetensors when it reads
        (OSError("I/O error: No space left on device (os error 28)"), "no space is left"),
        (OSError("Could not read: [errno 5] Input/output error"), "its disk reports an error"),  # Arrow
    ],
)
def test_libraries_that_give_no_errno(error: OSError, words: str) -> None:
    with pytest.raises(UserError, match=f"^can't read file: {words}"), read_errors(Path("file")):
        raise error


@pytest.mark.parametrize(
    ("path", "name", "subject"),
    [
        ("out/file", "out/.file.77.tmp", "can't write out/file: "),
        ("out/file", "out", "can't write out/file: "),
        ("out/cache", "out/cache/ids/0.safetensors", "can't write out/cache: "),
        ("out/cache", "out/cache.lock", "can't write out/cache: "),
        ("file", ".", "can't write file: "),
        ("out/file", "in/other", "can't use in/other: "),
        ("file", "other", "can't use other: "),
    ],
)
def test_an_error_about_another_file_names_that_file(path: str, name: str, subject: str) -> None:
    with pytest.raises(UserError, match=f"^{subject}permission is denied"), write_errors(Path(path)):
        raise PermissionError(errno.EACCES, "Permission denied", name)


def test_what_nobody_put_into_words_ends_a_command_in_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    def ended(error: OSError) -> str:
        def work() -> None:
            raise error

        assert _guarded("nmt-x", work) == 2
        return capsys.readouterr().err

    assert ended(FileNotFoundError(2, "", "gone/file")).startswith("nmt-x: can't use gone/file: it does not")
    assert ended(OSError(errno.ENOSPC, "")).startswith("nmt-x: an operation on a file failed: no space is")
    for bug in (FileNotFoundError(2, ""), OSError(errno.EBADF, "", "file"), OSError("strange")):
        with pytest.raises(OSError):
            ended(bug)
    with pytest.raises(FileNotFoundError):  # a file of the program
        ended(FileNotFoundError(2, "", f"{Path(files.__file__).parent}/missing.yaml"))


def test_a_name_of_250_bytes_is_written(tmp_path: Path) -> None:
    path = tmp_path / ("é" * 125)
    with written(path) as out:
        out.write(b"text")
    assert path.read_bytes() == b"text"
    assert list(tmp_path.iterdir()) == [path]


@pytest.mark.parametrize("name", ["x" * 256, "é" * 128, "y/" * 3000 + "z"])
def test_a_name_that_is_too_long(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError, match="^output=NAME: its name is too long. Shorten it"):
        require_writable(tmp_path / name, "output=NAME")
    with pytest.raises(UserError, match="its name is too long"), written(tmp_path / name):
        pass
    with pytest.raises(UserError, match="its name is too long"):
        make_folder(tmp_path / name)
    with pytest.raises(OSError, match="too long"):
        stat_or_none(tmp_path / name)


def test_links_in_a_circle(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(UserError, match="^output=a: its symbolic links form a circle"):
        require_writable(tmp_path / "a", "output=a")
    with pytest.raises(UserError, match="circle"), written(tmp_path / "a"):
        pass
    with pytest.raises(UserError, match="circle"), locked(tmp_path / "a", lambda: None):
        pass


def test_a_link_that_leads_nowhere(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to("target")
    assert stat_or_none(tmp_path / "link") is None
    with pytest.raises(UserError, match="must be a folder, but is a broken link"):
        make_folder(tmp_path / "link")
    with written(tmp_path / "link") as out:
        out.write(b"text")
    assert (tmp_path / "target").read_bytes() == b"text"
    assert stat.S_ISLNK((tmp_path / "link").lstat().st_mode)


def test_only_regular_files_are_read(tmp_path: Path) -> None:
    """Reading a named pipe without a writer would block for ever."""
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "folder").mkdir()
    with socket.socket(socket.AF_UNIX) as unix:
        unix.bind(str(tmp_path / "socket"))
    (tmp_path / "file").write_bytes(b"text")
    assert read_text(tmp_path / "file", 4) == "text"
    for name in ("pipe", "folder", "socket", "/dev/null"):
        with pytest.raises(UserError, match=f"{name}: is not a regular file"):
            read_text(tmp_path / name, 4)


def test_replaced_takes_the_old_files_place(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with replaced(path) as temporary:
        temporary.write_text("new")
        assert path.read_text() == "old"
    assert path.read_text() == "new"
    assert list(tmp_path.iterdir()) == [path]


def test_replaced_leaves_nothing_after_a_failure(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_text("old")
    with pytest.raises(RuntimeError, match="broke"), replaced(path) as temporary:
        temporary.write_text("half")
        raise RuntimeError("broke")
    assert path.read_text() == "old"
    assert list(tmp_path.iterdir()) == [path]


def test_a_disk_that_has_become_read_only_is_told_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On such a disk, `unlink` fails even for a missing file."""

    def refuse(self: Path, missing_ok: bool = False) -> None:
        raise OSError(errno.EROFS, "Read-only file system")

    monkeypatch.setattr(Path, "unlink", refuse)
    with pytest.raises(UserError, match="read-only"), replaced(tmp_path / "file"):
        raise OSError(errno.EROFS, "Read-only file system")


def test_a_replaced_output_keeps_its_permissions(tmp_path: Path) -> None:
    path = tmp_path / "private"
    path.touch(mode=0o600)
    with written(path) as out:
        out.write(b"new")
    assert path.read_bytes() == b"new" and path.stat().st_mode & 0o777 == 0o600


def test_two_files_of_a_name_have_temporary_files_of_their_own(tmp_path: Path) -> None:
    """Two containers may both have the process number 1."""
    path = tmp_path / "out"
    with replaced(path) as one, replaced(path) as other:
        assert one != other
        one.write_text("one")
        other.write_text("other")
    assert path.read_text() == "one" and list(tmp_path.iterdir()) == [path]


def test_only_one_process_writes_a_folder(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    with fresh_folder(folder) as fresh:
        (fresh / "file").write_text("first")
        with pytest.raises(UserError, match="model: another process is writing it"), fresh_folder(folder):
            raise AssertionError("two at once")
    assert (folder / "file").read_text() == "first" and list(tmp_path.iterdir()) == [folder]


def test_the_files_of_a_model_are_not_overwritten(tmp_path: Path) -> None:
    for name in ("model.safetensors", "results.json", "notes.json"):
        (tmp_path / name).touch()
    (tmp_path / "link").symlink_to("model.safetensors")
    for name in ("model.safetensors", "results.json", "link"):
        with pytest.raises(UserError, match=f"^output={name}: is a file of a model. Give another name.$"):
            require_writable(tmp_path / name, f"output={name}")
    for name in ("notes.json", "config.yaml"):
        require_writable(tmp_path / name, f"output={name}")


@pytest.mark.parametrize(("action", "errors"), [("read", read_errors), ("write", write_errors)])
def test_a_standard_stream_that_is_open_for_the_other_direction(action: str, errors: Any) -> None:
    line = rf"^standard output: is not open to {action}\. Redirect it to a file or a pipe\.$"
    with pytest.raises(UserError, match=line), errors(Path("standard output")):
        raise OSError(errno.EBADF, "Bad file descriptor")


@pytest.mark.parametrize("exists", [True, False])
def test_a_link_to_a_folder_is_followed(exists: bool, tmp_path: Path) -> None:
    target, link = tmp_path / "target", tmp_path / "link"
    link.symlink_to("target")
    if exists:
        target.mkdir()
    with fresh_folder(link) as fresh:
        (fresh / "file").touch()
    assert link.is_symlink() and sorted(tmp_path.rglob("*")) == [link, target, target / "file"]


def test_a_folder_may_have_a_long_name(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 250)  # a file system allows 255, and temporary names have a dot and an ending
    with fresh_folder(folder) as fresh:
        (fresh / "file").touch()
    assert list(tmp_path.iterdir()) == [folder]


def test_a_lock_keeps_others_out(tmp_path: Path) -> None:
    def taken() -> None:
        raise UserError("taken")

    with locked(tmp_path / ".lock", taken):
        with pytest.raises(UserError, match="taken"), locked(tmp_path / ".lock", taken):
            raise AssertionError("the lock was acquired")
    with locked(tmp_path / ".lock", taken):
        pass


def test_only_a_file_is_locked(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "null").symlink_to(os.devnull)
    (tmp_path / "folder").mkdir()
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        for name in ("pipe", "null", "folder"):
            with pytest.raises(UserError, match=name), locked(tmp_path / name, lambda: None):
                raise AssertionError("the lock was acquired")
    finally:
        os.close(reader)
    with pytest.raises(UserError, match="pipe"), locked(tmp_path / "pipe", lambda: None):
        raise AssertionError("the lock was acquired")


def test_remove(tmp_path: Path) -> None:
    (tmp_path / "folder" / "inner").mkdir(parents=True)
    (tmp_path / "link").symlink_to(tmp_path / "folder")
    remove(tmp_path / "link")
    assert (tmp_path / "folder" / "inner").is_dir()
    (tmp_path / "file").write_text("x")
    os.mkfifo(tmp_path / "pipe")
    for name in ("folder", "file", "pipe", "nothing"):
        remove(tmp_path / name)
    assert not any(tmp_path.iterdir())


def test_a_file_system_without_locks_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def flock(file: object, how: int) -> None:
        raise OSError(errno.ENOLCK, "no locks")

    monkeypatch.setattr(fcntl, "flock", flock)
    with pytest.raises(UserError, match=r"\.lock can't be locked \(No locks available\)"):
        with locked(tmp_path / ".lock", lambda: None):
            raise AssertionError("the lock was acquired")


def test_make_folder_where_a_file_stands(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match="taken"):
        make_folder(tmp_path / "taken")
    with pytest.raises(UserError, match="taken"):
        make_folder(tmp_path / "taken" / "below")
