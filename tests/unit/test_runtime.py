"""Facts about the machine, seeds, and atomic writing of files."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from nmt.config import Precision
from nmt.errors import UserError
from nmt.runtime import (
    available_cores,
    choose_device,
    choose_precision,
    control_groups,
    expandable_segments,
    files,
    fresh_folder,
    locked,
    machine,
    make_folder,
    mix,
    remove,
    replaced,
    short_spins,
    written,
)


def test_mix_is_what_it_always_was() -> None:
    """Runs on disk depend on these numbers to resume: they must never change."""
    assert mix(1) == 8567619917541546768
    assert mix(1, 2) == 7199479353940798044
    assert mix(2, 1) == 347512167633396807


@given(st.lists(st.integers(0, 2**32), min_size=1, max_size=4))
def test_mix_fits_every_generator(values: list[int]) -> None:
    assert 0 <= mix(*values) < 2**63
    assert mix(*values) == mix(*values)


def test_mix_tells_neighbours_apart() -> None:
    assert len({mix(1, update, micro) for update in range(100) for micro in range(20)}) == 2000


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


@pytest.mark.parametrize(
    ("number", "words"),
    [
        (errno.ENOSPC, "no space is left"),
        (errno.EROFS, "read-only"),
        (errno.EACCES, "permission is denied"),
    ],
)
def test_a_disk_that_refuses_is_told_in_words(tmp_path: Path, number: int, words: str) -> None:
    with pytest.raises(UserError, match=words), replaced(tmp_path / "file") as temporary:
        temporary.write_text("half")
        raise OSError(number, "no")
    assert list(tmp_path.iterdir()) == []


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


def test_a_folder_may_have_a_long_name(tmp_path: Path) -> None:
    folder = tmp_path / ("x" * 250)  # a file system allows 255, and temporary names have a dot and an ending
    with fresh_folder(folder) as fresh:
        (fresh / "file").touch()
    assert list(tmp_path.iterdir()) == [folder]


def test_replaced_into_a_folder_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="does not exist"), replaced(tmp_path / "none" / "file") as temporary:
        temporary.write_text("text")


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

    monkeypatch.setattr(files.fcntl, "flock", flock)
    with pytest.raises(UserError, match=r"\.lock can't be locked \(No locks available\)"):
        with locked(tmp_path / ".lock", lambda: None):
            raise AssertionError("the lock was acquired")


def test_make_folder_where_a_file_stands(tmp_path: Path) -> None:
    (tmp_path / "taken").write_text("")
    with pytest.raises(UserError, match="taken"):
        make_folder(tmp_path / "taken")
    with pytest.raises(UserError, match="taken"):
        make_folder(tmp_path / "taken" / "below")


@pytest.mark.parametrize("name", ["tpu", "cuda:x", "cpu:x", "", "meta", "cuda:99", "mps:1"])
def test_devices_that_are_not_there(name: str) -> None:
    with pytest.raises(UserError, match=f"device={name}: "):
        choose_device(name)


def test_devices_that_are() -> None:
    assert choose_device("cpu") == torch.device("cpu")
    assert choose_device("auto").type == ("cuda" if torch.cuda.is_available() else "cpu")


def test_mps_where_torch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: False)
    with pytest.raises(UserError, match=r"^device=mps: torch finds no such Apple GPU .* Use device=cpu\.$"):
        choose_device("mps")
    monkeypatch.setattr(torch.backends.mps, "is_available", lambda: True)
    assert choose_device("mps") == torch.device("mps")
    assert choose_device("auto").type != "mps"  # untested, so only on request
    assert choose_precision(Precision.auto, torch.device("mps")) is Precision.fp32
    with pytest.raises(UserError, match="device=mps:1: "):
        choose_device("mps:1")


@pytest.mark.parametrize(
    ("there", "after"),
    [
        ({}, {"GOMP_SPINCOUNT": "1000"}),
        ({"OMP_WAIT_POLICY": "active"}, {"OMP_WAIT_POLICY": "active"}),
        ({"GOMP_SPINCOUNT": "7"}, {"GOMP_SPINCOUNT": "7"}),
        ({"OMP_NUM_THREADS": "2"}, {"OMP_NUM_THREADS": "2", "GOMP_SPINCOUNT": "1000"}),
    ],
)
def test_threads_spin_for_a_short_time_unless_the_user_has_chosen(
    there: dict[str, str], after: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(there))
    short_spins()
    assert os.environ == after


def test_commands_choose_it_before_they_import_torch() -> None:
    code = (
        "import os, sys\n"
        "from nmt.cli.app import end_with\n"
        "end_with('nmt-x', lambda: print(os.environ['GOMP_SPINCOUNT'], 'torch' in sys.modules))"
    )
    environment = {key: value for key, value in os.environ.items() if key != "OMP_WAIT_POLICY"}
    environment.pop("GOMP_SPINCOUNT", None)
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert result.stdout == "1000 False\n"


GROWING = {"PYTORCH_ALLOC_CONF": "expandable_segments:True"}


@pytest.mark.parametrize(
    ("platform", "there", "after"),
    [
        ("linux", {}, GROWING),
        ("linux", {"HOME": "/x"}, {"HOME": "/x", **GROWING}),
        ("darwin", {}, {}),
        ("win32", {}, {}),
        *(
            ("linux", {name: "max_split_size_mb:128"}, {name: "max_split_size_mb:128"})
            for name in ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_HIP_ALLOC_CONF")
        ),
    ],
)
def test_gpu_memory_grows_in_place_unless_the_user_has_chosen(
    platform: str, there: dict[str, str], after: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "environ", dict(there))
    monkeypatch.setattr("sys.platform", platform)
    expandable_segments()
    assert os.environ == after


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux supports it")
def test_commands_choose_it_before_torch_uses_a_gpu() -> None:
    code = (
        "import os, sys\n"
        "from nmt.cli.app import end_with\n"
        "end_with('nmt-x', lambda: print(os.environ['PYTORCH_ALLOC_CONF'], 'torch' in sys.modules))"
    )
    environment = {key: value for key, value in os.environ.items() if "ALLOC_CONF" not in key}
    result = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True)
    assert result.stdout == "expandable_segments:True False\n"


def test_the_tightest_quota_of_the_control_groups_counts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, own = tmp_path / "root", tmp_path / "cgroup"
    inner = root / "outer/inner"
    inner.mkdir(parents=True)
    own.write_text("1:cpu:/x\n0::/outer/inner\n")
    assert control_groups(root, own) == [inner, inner.parent, root]
    assert control_groups(root, tmp_path / "none") == [root]
    (inner / "cpu.max").write_text("max 100000\n")
    (inner.parent / "cpu.max").write_text("250000 100000\n")
    monkeypatch.setattr(machine, "control_groups", lambda: [inner, inner.parent, root])
    monkeypatch.setattr(machine.os, "sched_getaffinity", lambda pid: set(range(64)), raising=False)
    assert available_cores() == 2


@pytest.mark.parametrize(
    ("flags", "chosen"),
    [
        ({"avx2"}, Precision.fp32),
        ({"avx2", "avx512_bf16"}, Precision.bf16),
        ({"amx_bf16", "amx_tile"}, Precision.bf16),
    ],
)
def test_precision_follows_the_processor(
    flags: set[str], chosen: Precision, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(machine, "_cpu_flags", lambda: flags)
    assert choose_precision(Precision.auto, torch.device("cpu")) is chosen
    assert choose_precision(Precision.fp32, torch.device("cpu")) is Precision.fp32
