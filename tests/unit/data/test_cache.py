"""The cache of prepared data: resumed, repaired, read-only, deleted."""

from __future__ import annotations

import builtins
import errno
import fcntl
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from toy_corpus import SHARD, files, folder, pairs, stamps, write_corpus

from nmt.config import DataConfig
from nmt.data.cache import cached_or_built, forget_unused, write_file
from nmt.data.cleaning import clean_text
from nmt.data.corpora import corpus
from nmt.data.preparation import encoding
from nmt.data.preparation.prepare import prepare
from nmt.errors import UserError

OLD, HALF, BUSY, NEW = (f"ids-{digit * 16}" for digit in "0123")


@pytest.fixture
def config(tmp_path: Path) -> DataConfig:
    return write_corpus(tmp_path)


@pytest.mark.parametrize("stage", ["text", "ids"])
@pytest.mark.parametrize("damage", ["flipped", "cut", "header", "sum"])
def test_what_was_damaged_meanwhile_is_made_again(
    config: DataConfig,
    stage: str,
    damage: str,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """A file of an interrupted preparation changes before the preparation resumes."""
    prepare(config, shard_pairs=SHARD)
    good = files(config)
    shutil.rmtree(str(config.cache_dir))
    kind: Any = {"text": clean_text.Cleaner, "ids": encoding.Encoder}[stage]
    work = kind.__call__

    def stopping(state: Any, task: Any) -> Any:
        if (task[0] if stage == "text" else task).name == "00003.safetensors":
            raise KeyboardInterrupt
        return work(state, task)

    monkeypatch.setattr(kind, "__call__", stopping)
    with pytest.raises(KeyboardInterrupt):
        prepare(config, shard_pairs=SHARD)
    monkeypatch.undo()
    (damaged,) = Path(str(config.cache_dir)).glob(f"prepared/{stage}-*.part/00001.safetensors")
    content = bytearray(damaged.read_bytes())
    content[-3 if damage == "flipped" else 9] ^= 1
    if damage == "cut":
        del content[-9:]
    if damage == "sum":
        damaged.with_name(f"{damaged.name}.sum").write_bytes(b'{"bytes": 1')
    else:
        damaged.write_bytes(content)
    kept = {path: path.stat().st_ino for path in damaged.parent.glob("*.safetensors") if path != damaged}
    prepare(config, shard_pairs=SHARD)
    assert files(config) == good
    assert (f"{damaged} is damaged" in caplog.text) == (damage != "sum")
    for path, inode in kept.items():
        assert (folder(config, stage) / path.name).stat().st_ino == inode


@pytest.mark.parametrize("name", ["manifest.json", "00001.safetensors"])
@pytest.mark.parametrize("kind", ["pipe", "device", "deep"])
def test_a_file_of_another_kind_is_made_again(config: DataConfig, name: str, kind: str) -> None:
    """Reading a pipe would block."""
    prepare(config, shard_pairs=SHARD)
    good = files(config)
    path = folder(config, "ids") / name
    path.unlink()
    if kind == "pipe":
        os.mkfifo(path)
    elif kind == "device":
        path.symlink_to("/dev/zero")
    else:
        path.write_text("[" * 100_000)
    prepare(config, shard_pairs=SHARD)
    assert files(config) == good


def test_a_file_in_the_place_of_a_prepared_folder_is_replaced(config: DataConfig) -> None:
    prepare(config, shard_pairs=SHARD)
    good = files(config)
    place = folder(config, "ids")
    shutil.rmtree(place)
    place.write_text("x")
    prepare(config, shard_pairs=SHARD)
    assert files(config) == good


def test_a_pipe_in_the_place_of_a_lock_is_left_alone(config: DataConfig) -> None:
    prepare(config, shard_pairs=SHARD)
    place = folder(config, "text")
    lock = place.with_name(f"{place.name}.lock")
    lock.unlink()
    os.mkfifo(lock)
    os.utime(place, (0, 0))
    forget_unused(place.parent, 1)
    assert place.is_dir()


@pytest.mark.parametrize(("days", "goes"), [(90, {OLD, f"{HALF}.part"}), (0, set())])
def test_what_was_long_not_used_is_deleted(config: DataConfig, days: int, goes: set[str]) -> None:
    prepare(config, shard_pairs=SHARD)
    good = files(config)
    ids = folder(config, "ids")
    root = ids.parent
    shutil.copytree(ids, root / OLD)
    foreign = [
        root / "xyz",
        root / "my-0123456789abcdef",
        root / f"text-{'4' * 16}",
        root / f"ids-{'5' * 16}",
    ]
    for path in foreign:  # with a foreign manifest
        shutil.copytree(ids, path)
    (foreign[2] / "notes").write_text("mine")
    (foreign[3] / "00099.safetensors").symlink_to(ids / "00000.safetensors")
    (root / f"ids-{'6' * 16}").symlink_to(foreign[0])
    (root / f"ids-{'7' * 16}").write_text("a file")
    for name in (f"{HALF}.part", BUSY, NEW):
        (root / name).mkdir()
    (root / f"{HALF}.part/00000.safetensors.sum").touch()
    for path in root.iterdir():
        os.utime(path, (1e9, time.time() - (89 if path.name == NEW else 91) * 86_400))
    before = {path.name for path in root.iterdir() if path.suffix != ".lock"}
    there = files(config)

    again = replace(config, cache_days=days)
    with open(root / f"{BUSY}.lock", "a") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        prepare(again, shard_pairs=SHARD)
        assert there.items() <= files(config).items()  # nothing was created, so nothing is deleted
        shutil.rmtree(ids)  # so that the text is read too
        prepare(again, shard_pairs=SHARD)
    assert {path.name for path in root.iterdir() if path.suffix != ".lock"} == before - goes
    assert good.items() <= files(config).items()
    gone = [name for name in there if name not in files(config)]
    assert {Path(name).parent.name for name in gone} == goes


class TestMade:
    """`cached_or_built` with simple files."""

    def build(self, part: Path) -> dict[str, Any]:
        self.written = []
        for name in "abc":
            if not (part / name).exists():
                write_file(part / name, [name.encode(), b"!"])
                self.written.append(name)
        return {"names": 3}

    def test_killed_just_before_it_got_its_name(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """The manifest is written before the rename; the next attempt rewrites only a damaged file."""

        def killed(*names: Any) -> None:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(os, "rename", killed)
            with pytest.raises(KeyboardInterrupt):
                cached_or_built(tmp_path / "x", self.build)
        part = tmp_path / "x.part"
        assert sorted(path.name for path in part.iterdir()) == ["a", "b", "c", "manifest.json"]
        (part / "b").write_bytes(b"b?")
        assert cached_or_built(tmp_path / "x", self.build) == {"names": 3}
        assert self.written == ["b"]
        assert not part.exists()
        assert sorted(os.listdir(tmp_path / "x")) == ["a", "b", "c", "manifest.json"]
        assert [(tmp_path / "x" / name).read_bytes() for name in "abc"] == [b"a!", b"b!", b"c!"]
        cached_or_built(tmp_path / "x", lambda part: pytest.fail("the folder is complete"))

    def test_a_file_that_changes_before_the_folder_is_whole_is_found(self, tmp_path: Path) -> None:
        def build(part: Path) -> dict[str, Any]:
            self.build(part)
            if not damaged:
                damaged.append("b")
                (part / "b").write_bytes(b"b?")
            return {}

        damaged: list[str] = []
        cached_or_built(tmp_path / "x", build)
        cached_or_built(tmp_path / "x", build)
        assert (tmp_path / "x/b").read_bytes() == b"b!"

    def test_a_failed_build_leaves_no_half_written_file(self, tmp_path: Path) -> None:
        def build(part: Path) -> dict[str, Any]:
            (part / ".00000.safetensors.x.tmp").touch()  # as a killed worker process leaves it
            raise UserError("a worker was killed")

        with pytest.raises(UserError, match="a worker was killed"):
            cached_or_built(tmp_path / "x", build)
        assert [path.name for path in tmp_path.iterdir()] == ["x.lock"]

    def test_what_nobody_vouches_for_is_made_again(self, tmp_path: Path) -> None:
        (tmp_path / "x.part").mkdir()
        (tmp_path / "x.part/a").write_bytes(b"half")
        cached_or_built(tmp_path / "x", self.build)
        assert (tmp_path / "x/a").read_bytes() == b"a!"

    def test_a_file_elsewhere_has_nothing_beside_it(self, tmp_path: Path) -> None:
        write_file(tmp_path / "a", [b"a"])
        assert os.listdir(tmp_path) == ["a"]


@contextmanager
def unwritable(root: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """Makes writing under `root` fail, even for the superuser; yields the paths of the attempts."""
    tried: list[str] = []

    def refusing(real: Callable[..., Any], writes: Callable[..., bool]) -> Callable[..., Any]:
        def call(path: Any, *rest: Any, **options: Any) -> Any:
            if not isinstance(path, int) and Path(path).is_relative_to(root) and writes(*rest, **options):
                tried.append(os.fspath(path))
                raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), os.fspath(path))
            return real(path, *rest, **options)

        return call

    def for_writing(mode: str = "r", *rest: Any, **options: Any) -> bool:
        return not set(mode).isdisjoint("wax+")

    with monkeypatch.context() as patch:
        patch.setattr(builtins, "open", refusing(builtins.open, for_writing))
        for name in ("utime", "mkdir", "rename", "replace", "unlink", "rmdir", "symlink", "link", "truncate"):
            patch.setattr(os, name, refusing(getattr(os, name), lambda *rest, **options: True))
        yield tried


def test_a_whole_cache_that_cannot_be_written_serves(
    config: DataConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = prepare(config, shard_pairs=SHARD)
    before = stamps(config)
    with unwritable(Path(str(config.cache_dir)), monkeypatch) as tried:
        second = prepare(config, shard_pairs=SHARD)
        assert (pairs(second), second.fingerprint) == (pairs(first), first.fingerprint)
        # Only the time of last use is written.
        assert [Path(path).name.split("-")[0] for path in tried] == ["tokenizer", "ids"]
        with pytest.raises(UserError, match=r"^can't write .*permission is denied.*data\.cache_dir=FOLDER"):
            prepare(replace(config, cleaning=replace(config.cleaning, max_pieces=50)), shard_pairs=SHARD)
        with pytest.raises(UserError, match=r"^can't write .*permission is denied.*data\.cache_dir=FOLDER"):
            prepare(replace(config, cache_dir=f"{config.cache_dir}/new"), shard_pairs=SHARD)
    assert stamps(config) == before


@pytest.mark.skipif(os.geteuid() == 0, reason="permissions do not bind the superuser")
def test_a_whole_cache_without_permission_to_write_serves(config: DataConfig) -> None:
    first = prepare(config, shard_pairs=SHARD)
    root = Path(str(config.cache_dir))
    folders = [root, *(path for path in root.rglob("*") if path.is_dir())]
    for path in folders:
        path.chmod(0o555)
    try:
        assert pairs(prepare(config, shard_pairs=SHARD)) == pairs(first)
        with pytest.raises(UserError, match=r"permission is denied.*data\.cache_dir=FOLDER"):
            prepare(replace(config, cleaning=replace(config.cleaning, max_pieces=50)), shard_pairs=SHARD)
    finally:
        for path in folders:
            path.chmod(0o755)


def test_long_pairs_make_more_shards(config: DataConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged shard is rebuilt from the same lines."""
    plain = prepare(config, shard_pairs=SHARD)
    monkeypatch.setattr(corpus, "_BLOCK_CHARACTERS", 2000)
    shutil.rmtree(str(config.cache_dir))
    assert pairs(prepare(config, shard_pairs=SHARD)) == pairs(plain)
    good = files(config)
    shards = sorted(folder(config, "text").glob("0*.safetensors"))
    assert len(shards) == 8  # instead of 5
    shards[6].write_bytes(b"damaged")
    shutil.rmtree(folder(config, "ids"))
    prepare(config, shard_pairs=SHARD)
    assert files(config) == good
