"""Checkpoints that are damaged or edited: the previous one is used, for damage to any byte or counter."""

from __future__ import annotations

import errno
import json
import os
import random
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import save_file

from nmt.data.batches.stream import Cursor
from nmt.errors import UserError
from nmt.runtime import tensors
from nmt.training.state.checkpoint import Checkpoint, CheckpointFolder, DamagedCheckpoint
from nmt.training.state.progress import Progress, Saved, SkippedBatches

FILES = ["model.safetensors", "optimizer.safetensors", "state.json", "SHA256SUMS"]


def save(folder: Path, update: int) -> Path:
    progress = Progress(
        update=update,
        cursor=Cursor(2, 1, 6),
        target_tokens=12345,
        skipped=[SkippedBatches(3, Cursor(0, 0, 1), Cursor(0, 0, 2))],
        best=Saved(5, 31.25),
        checkpoints=[Saved(5, 31.25)],
    )
    tensors = {"w": torch.randn(3, 2)}, {"step": torch.tensor(5.0), "m": torch.randn(4)}
    return CheckpointFolder(folder, {"data": "d"}, {"seed": 1}).save(Checkpoint(progress, *tensors), {})


def load(folder: Path, update: int) -> Checkpoint:
    return CheckpointFolder(folder, {"data": "d"}, {"seed": 1}).load(update)


@pytest.mark.parametrize("name", FILES)
def test_every_flipped_byte_is_noticed(name: str, tmp_path: Path) -> None:
    save(tmp_path, 10)
    path = save(tmp_path, 20) / name
    content, chance = path.read_bytes(), random.Random(0)
    for _ in range(100):
        changed = bytearray(content)
        changed[chance.randrange(len(content))] ^= chance.randrange(1, 256)
        path.write_bytes(changed)
        with pytest.raises(DamagedCheckpoint, match="update-00000020"):
            load(tmp_path, 20)
    newest = CheckpointFolder(tmp_path, {"data": "d"}, {"seed": 1}).load_newest()
    assert newest is not None and newest.progress.update == 10


def test_checkpoints_without_sums_load(tmp_path: Path) -> None:
    (save(tmp_path, 10) / "SHA256SUMS").unlink()  # as in earlier versions
    assert load(tmp_path, 10).progress.cursor.batch == 6


def test_a_changed_counter_is_noticed_where_its_value_is_possible(tmp_path: Path) -> None:
    path = save(tmp_path, 10) / "state.json"
    text = path.read_text()
    assert '"batch": 6' in text
    path.write_text(text.replace('"batch": 6', '"batch": 2'))
    with pytest.raises(DamagedCheckpoint, match="state.json: is damaged"):
        load(tmp_path, 10)
    assert CheckpointFolder(tmp_path, {}).newest_progress() is None


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *(
            (key, value)
            for key in ("update", "target_tokens", "made")
            for value in (-1, 10**40, "5", 5.5, True, None, [5])
        ),
        *(
            ("cursor", value)
            for value in ([], None, 7, {}, {"epoch": 1}, {"epoch": 0, "block": -1, "batch": 0})
        ),
        ("cursor", {"epoch": 0, "block": 0, "batch": 10**40}),
        ("cursor", {"epoch": 0, "block": 0, "batch": 0, "more": 0}),
        *(("seconds", value) for value in (-0.5, float("nan"), float("inf"), "1", None, [], 10**400)),
        *(("loss_scale", value) for value in (0.0, -1.0, float("nan"))),
        *(("settled", value) for value in (1, "true", None)),
        *(("best", value) for value in ([], 7, {}, {"update": -1}, {"update": 1, "quality": "x"})),
        ("best", {"update": 1, "quality": float("nan")}),
        *(("checkpoints", value) for value in (None, {}, [7], [{"quality": 1.0}], "x")),
        *(("skipped", value) for value in (None, {}, [{}], [{"update": 1, "start": 1, "end": 2}])),
        ("went_back", []),
        ("unknown", 1),
    ],
)
def test_counters_of_another_type_or_range(key: str, value: Any, tmp_path: Path) -> None:
    folder = save(tmp_path, 10)
    (folder / "SHA256SUMS").unlink()
    state = json.loads((folder / "state.json").read_text())
    state["progress"][key] = value
    (folder / "state.json").write_text(json.dumps(state))
    with pytest.raises(DamagedCheckpoint, match="state.json: is damaged"):
        load(tmp_path, 10)
    assert CheckpointFolder(tmp_path, {}).newest_progress() is None


@pytest.mark.parametrize("key", ["update", "cursor", "target_tokens", "best", "checkpoints"])
def test_missing_counters(key: str) -> None:
    values = Progress().as_dict()
    del values[key]
    with pytest.raises(ValueError, match=f"progress lacks {key}"):
        Progress.from_dict(values)


@pytest.mark.parametrize(
    "text",
    [
        *("", "[]", "7", "null", "[" * 100_000, '{"a": 1, "a": 2}', "9" * 5000, '{"format_version": 1}'),
        '{"format_version": 2, "progress": {}, "fingerprints": {"data": "d"}, "sha256": {}}',
        "\x00\xff",
    ]
    + ['{"format_version": 1, "progress": [], "fingerprints": {}, "sha256": {}}']
    + ['{"format_version": 1, "progress": {}, "fingerprints": [], "sha256": {}}']
    + ['{"format_version": 1, "progress": {}, "fingerprints": {"data": "d"}, "sha256": "x"}']
    + ['{"format_version": 1, "progress": {}, "fingerprints": {"data": "d"}, "sha256": {}, "options": []}'],
    ids=range(14),
)
def test_states_that_are_none(text: str, tmp_path: Path) -> None:
    folder = save(tmp_path, 10)
    (folder / "SHA256SUMS").unlink()
    (folder / "state.json").write_text(text)
    with pytest.raises(DamagedCheckpoint, match="update-00000010"):
        load(tmp_path, 10)
    with pytest.raises(UserError, match="none of the 1 checkpoints can be read"):
        CheckpointFolder(tmp_path, {}).load_newest()


@pytest.mark.parametrize("name", FILES[:2])
def test_tensors_that_are_no_weights(name: str, tmp_path: Path) -> None:
    tensors = {"w": torch.randn(3, 2)}, {"step": torch.tensor(5.0)}
    tensors[FILES.index(name)]["w"] = torch.tensor([1.0, float("nan")])
    CheckpointFolder(tmp_path, {"data": "d"}, {"seed": 1}).save(Checkpoint(Progress(update=10), *tensors), {})
    with pytest.raises(DamagedCheckpoint, match="holds NaN or infinite numbers"):
        load(tmp_path, 10)


def test_a_file_in_the_place_of_another_is_noticed(tmp_path: Path) -> None:
    folder = save(tmp_path, 10)
    save_file({"w": torch.ones(3, 2)}, folder / "model.safetensors")
    with pytest.raises(DamagedCheckpoint, match=r"model\.safetensors: is damaged: its content"):
        CheckpointFolder(tmp_path, {}).weights(10)
    (folder / "SHA256SUMS").unlink()
    with pytest.raises(DamagedCheckpoint, match=r"model\.safetensors: is damaged: its content"):
        CheckpointFolder(tmp_path, {}).weights(10)


@pytest.mark.parametrize("mask", [0o022, 0o002, 0o077])
def test_all_files_follow_the_umask(mask: int, tmp_path: Path) -> None:
    before = os.umask(mask)
    try:
        folder = save(tmp_path, 10)
    finally:
        os.umask(before)
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()}
    assert modes == dict.fromkeys(FILES, 0o666 & ~mask)


def replaced_by_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("x")


def replaced_by_pipe(path: Path) -> None:
    shutil.rmtree(path)
    os.mkfifo(path)


@pytest.mark.parametrize("put", [replaced_by_file, replaced_by_pipe])
def test_something_else_in_the_place_of_a_checkpoint_is_passed_over_and_replaced(
    put: Callable[[Path], None], tmp_path: Path
) -> None:
    tmp_path = tmp_path / "checkpoints"
    save(tmp_path, 10)
    path = save(tmp_path, 20)
    put(path)
    newest = CheckpointFolder(tmp_path, {"data": "d"}, {"seed": 1}).load_newest()
    assert newest is not None and newest.progress.update == 10
    assert save(tmp_path, 20) == path and load(tmp_path, 20).progress.update == 20
    put(path)
    CheckpointFolder(tmp_path, {}).keep([10])
    assert [left.name for left in tmp_path.iterdir()] == ["update-00000010"]


@pytest.mark.parametrize("name", FILES)
def test_a_pipe_in_the_place_of_a_file_is_noticed(name: str, tmp_path: Path) -> None:
    path = save(tmp_path, 10) / name
    path.unlink()
    os.mkfifo(path)
    with pytest.raises(DamagedCheckpoint, match="not a regular file"):
        load(tmp_path, 10)


def test_too_many_open_files_are_a_failure_of_the_system(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The library that maps the file reports this only in the text of its error."""

    def from_file(path: str, **options: object) -> None:
        raise RuntimeError(f"unable to open file <{path}> in read-only mode: Too many open files (24)")

    path = save(tmp_path, 10) / FILES[0]
    monkeypatch.setattr(torch.UntypedStorage, "from_file", from_file)
    with pytest.raises(OSError, match="Too many open files") as caught:
        tensors.read_tensors(path)
    assert (caught.value.errno, caught.value.filename) == (errno.EMFILE, str(path))


@pytest.mark.parametrize("put", [Path.touch, os.mkfifo])
def test_leftovers_of_another_kind_are_cleared(put: Callable[[Path], None], tmp_path: Path) -> None:
    save(tmp_path, 10)
    for name in (".update-00000020.tmp", ".update-00000010.replaced", ".update-00000010.removed"):
        put(tmp_path / name)
    assert load(tmp_path, 10).progress.update == 10
    save(tmp_path, 20)
    assert sorted(left.name for left in tmp_path.iterdir()) == ["update-00000010", "update-00000020"]
