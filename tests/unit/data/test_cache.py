"""The cache of prepared data: resumed, repaired, read-only, deleted."""

from __future__ import annotations

import builtins
import errno
import fcntl
import itertools
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
MARIAN, BYTES = f"tokenizer-{'8' * 16}", f"bytes-{'9' * 16}"


def flipped(path: Path) -> None:
    """Damage by the disk leaves the time."""
    content, stat = bytearray(path.read_bytes()), path.stat()
    content[-3] ^= 16
    path.write_bytes(content)
    os.utime(path, ns=(stat.st_atime_ns, stat.st_mtime_ns))


def replaced(content: bytes) -> Callable[[Path], None]:
    def damage(path: Path) -> None:
        shutil.rmtree(path) if path.is_dir() else path.unlink()
        path.write_bytes(content)

    return damage


def piped(path: Path) -> None:
    """Reading a pipe would block."""
    path.unlink()
    os.mkfifo(path)


def linked(path: Path) -> None:
    path.unlink()
    path.symlink_to("/dev/zero")


def test_what_another_user_must_repair(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / NEW

    def build(part: Path) -> dict[str, int]:
        write_file(part / "00000.safetensors", [b"four"])
        return {"pairs": 1}

    assert cached_or_built(folder, build) == {"pairs": 1}
    monkeypatch.setattr(os, "access", lambda path, mode: False)
    assert cached_or_built(folder, build) == {"pairs": 1}
    flipped(folder / "00000.safetensors")
    with pytest.raises(UserError) as refusal:
        cached_or_built(folder, build)
    assert str(refusal.value) == (
        f"{folder}: is damaged, and this user can't repair it. Ask its owner to delete it, or give "
        "data.cache_dir=FOLDER."
    )


@pytest.mark.parametrize(
    ("stage", "name", "damage"),
    [
        ("text", "00002.safetensors", flipped),
        ("tokenizer", "source.spm", flipped),
        ("ids", "00001.safetensors", flipped),
        ("ids", "00003.safetensors", Path.unlink),
        ("ids", ".", replaced(b"x")),
        *(("ids", "manifest.json", replaced(content))
          for content in (b"", b"{", b'{"facts": {}, "files": {}, "fingerprint": "0"}')),
        *(("ids", name, damage) for name in ("manifest.json", "00001.safetensors")
          for damage in (piped, linked, replaced(b"[" * 100_000))),
    ],
)  # fmt: skip
def test_what_is_damaged_is_made_again(
    stage: str,
    name: str,
    damage: Callable[[Path], None],
    prepared_config: DataConfig,
    caplog: pytest.LogCaptureFixture,
) -> None:
    config, path = prepared_config, folder(prepared_config, stage) / name
    good, before = files(config), stamps(config)
    damage(path)
    if stage == "text":
        shutil.rmtree(folder(config, "ids"))  # otherwise the text is not read
    prepare(config, shard_pairs=SHARD)
    assert files(config) == good
    assert (f"{path} is damaged" in caplog.text) or damage is not flipped
    if stage == "ids" and damage is flipped:
        assert {key for key, stamp in stamps(config).items() if stamp != before[key]} == {
            str(path.relative_to(str(config.cache_dir)))
        }


@pytest.mark.parametrize(
    ("shards_done", "damage"),
    [(0, None), (1, None), (3, None), (3, "flipped"), (3, "cut"), (3, "header"), (3, "sum")],
)
@pytest.mark.parametrize("stage", ["text", "ids"])
def test_an_interrupted_preparation_goes_on(
    stage: str,
    shards_done: int,
    damage: str | None,
    config: DataConfig,
    prepared_folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Every shard is written once, but for one that changes before the preparation resumes."""
    kind: Any = {"text": clean_text.Cleaner, "ids": encoding.Encoder}[stage]
    work, calls = kind.__call__, itertools.count(1)

    def stopping(state: Any, task: Any) -> Any:
        if next(calls) == shards_done + 1:
            raise KeyboardInterrupt
        return work(state, task)

    monkeypatch.setattr(kind, "__call__", stopping)
    with pytest.raises(KeyboardInterrupt):
        prepare(config, shard_pairs=SHARD)
    monkeypatch.undo()
    shards = list(Path(str(config.cache_dir)).glob(f"prepared/{stage}-*.part/*.safetensors"))
    assert len(shards) == shards_done
    inodes = {path.name: path.stat().st_ino for path in shards}
    if damage is not None:
        (damaged,) = (path for path in shards if path.name == "00001.safetensors")
        content = bytearray(damaged.read_bytes())
        content[-3 if damage == "flipped" else 9] ^= 1
        if damage == "sum":
            damaged.with_name(f"{damaged.name}.sum").write_bytes(b'{"bytes": 1')
        else:
            damaged.write_bytes(content[:-9] if damage == "cut" else content)
        del inodes[damaged.name]
        wanted = f"{damaged} is damaged"
    prepare(config, shard_pairs=SHARD)
    assert files(config) == files(write_corpus(prepared_folder))
    assert (
        inodes.items() <= {path.name: path.stat().st_ino for path in folder(config, stage).iterdir()}.items()
    )
    assert damage is None or (wanted in caplog.text) == (damage != "sum")


def test_a_pipe_in_the_place_of_a_lock_is_left_alone(prepared_config: DataConfig) -> None:
    place = folder(prepared_config, "text")
    lock = place.with_name(f"{place.name}.lock")
    lock.unlink()
    os.mkfifo(lock)
    os.utime(place, (0, 0))
    forget_unused(place.parent, 1)
    assert place.is_dir()


@pytest.mark.parametrize(("days", "goes"), [(90, {OLD, f"{HALF}.part", MARIAN, BYTES}), (0, set())])
def test_what_was_long_not_used_is_deleted(prepared_config: DataConfig, days: int, goes: set[str]) -> None:
    config = prepared_config
    good = files(config)
    ids = folder(config, "ids")
    root = ids.parent
    shutil.copytree(ids, root / OLD)
    foreign = [root / name for name in ("xyz", "my-0123456789abcdef", f"text-{'4' * 16}", f"ids-{'5' * 16}")]
    for path in foreign:  # with a foreign manifest
        shutil.copytree(ids, path)
    (foreign[2] / "notes").write_text("mine")
    (foreign[3] / "00099.safetensors").symlink_to(ids / "00000.safetensors")
    (root / f"ids-{'6' * 16}").symlink_to(foreign[0])
    (root / f"ids-{'7' * 16}").write_text("a file")
    for name in (f"{HALF}.part", BUSY, NEW, MARIAN, BYTES):
        (root / name).mkdir()
    for name in ("source.spm", "target.spm", "pieces.json", "pieces.json.sum"):
        (root / MARIAN / name).touch()
    (root / BYTES / "manifest.json").touch()
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
    prepared_config: DataConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = prepared_config
    first = prepare(config, shard_pairs=SHARD)
    before = stamps(config)
    with unwritable(Path(str(config.cache_dir)), monkeypatch) as tried:
        second = prepare(config, shard_pairs=SHARD)
        assert (pairs(second), second.fingerprint) == (pairs(first), first.fingerprint)
        # Only the time of last use is written.
        assert [Path(path).name.split("-")[0] for path in tried] == ["tokenizer", "facts", "ids"]
        with pytest.raises(UserError, match=r"^can't write .*permission is denied.*data\.cache_dir=FOLDER"):
            prepare(replace(config, cleaning=replace(config.cleaning, max_pieces=50)), shard_pairs=SHARD)
        with pytest.raises(UserError, match=r"^can't write .*permission is denied.*data\.cache_dir=FOLDER"):
            prepare(replace(config, cache_dir=f"{config.cache_dir}/new"), shard_pairs=SHARD)
    assert stamps(config) == before


def test_long_pairs_make_more_shards(prepared_config: DataConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    """A damaged shard is rebuilt from the same lines."""
    config = prepared_config
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
