"""Checkpoints: exact round trips, power cuts, refusal of foreign files; and saving in the background."""

from __future__ import annotations

import errno
import json
import os
import re
import shutil
import threading
from collections.abc import Collection, Mapping
from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import Any

import pytest
import torch
from waiting import wait_until

from nmt.data.batches.stream import Cursor
from nmt.errors import UserError
from nmt.training.state.checkpoint import HELD_OUT, Checkpoint, CheckpointFolder, DamagedCheckpoint, saving
from nmt.training.state.progress import Progress, Saved
from nmt.training.state.run_folder import RunFolder

PRINTS = {"vocabulary": "v", "data": "d"}


def progress(update: int) -> Progress:
    return Progress(
        update=update,
        cursor=Cursor(2, 1, 7),
        epoch_ended=True,
        settled=False,
        target_tokens=12345,
        seconds=1.5,
        total_seconds=2.5,
        skipped_updates=3,
        skipped_in_a_row=1,
        loss_scale=1024.0,
        finite_in_a_row=17,
        best=Saved(20, 31.25),
        worse_validations=2,
        checkpoints=[Saved(10), Saved(20, 31.25)],
    )


def save(folder: Path, update: int) -> Checkpoint:
    torch.manual_seed(update)
    saved = Checkpoint(
        progress(update), {"w": torch.randn(3, 2)}, {"step": torch.tensor(5.0), "m": torch.randn(4)}
    )
    CheckpointFolder(folder, PRINTS).save(saved, {"learning_rate": 0.1})
    return saved


def test_what_is_saved_is_loaded(tmp_path: Path) -> None:
    saved = save(tmp_path, 30)
    loaded = CheckpointFolder(tmp_path, PRINTS).load_newest()
    assert loaded is not None
    assert loaded.progress == saved.progress
    assert loaded.model.keys() == {"w"} and torch.equal(loaded.model["w"], saved.model["w"])
    assert loaded.optimizer.keys() == {"step", "m"} and torch.equal(
        loaded.optimizer["m"], saved.optimizer["m"]
    )
    state = json.loads((tmp_path / "update-00000030/state.json").read_text())
    assert state["format_version"] == 1 and state["learning_rate"] == 0.1
    assert state["progress"]["cursor"] == {"epoch": 2, "block": 1, "batch": 7}


def test_no_checkpoint_is_none(tmp_path: Path) -> None:
    assert CheckpointFolder(tmp_path / "none", PRINTS).load_newest() is None
    assert CheckpointFolder(tmp_path / "none", PRINTS).newest_progress() is None


@pytest.mark.parametrize("name", ["model.safetensors", "optimizer.safetensors", "state.json"])
@pytest.mark.parametrize("damage", ["missing", "cut", "changed"])
def test_the_one_before_a_damaged_one_is_used(
    name: str, damage: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    save(tmp_path, 10)
    save(tmp_path, 20)
    path = tmp_path / "update-00000020" / name
    if damage == "missing":
        path.unlink()
    elif damage == "cut":
        os.truncate(path, path.stat().st_size // 2)
    else:
        path.write_bytes(path.read_bytes().replace(b"0", b"Q"))
    loaded = CheckpointFolder(tmp_path, PRINTS).load_newest()
    assert loaded is not None and loaded.progress.update == 10
    assert "update-00000020" in caplog.text and name in caplog.text and "warning" in caplog.text.lower()


def test_another_run_s_checkpoint_is_refused(tmp_path: Path) -> None:
    save(tmp_path, 10)
    with pytest.raises(UserError, match="the data changed since"):
        CheckpointFolder(tmp_path, PRINTS | {"data": "other"}).load_newest()


def test_other_held_out_data_are_refused_if_the_checkpoint_knows_them(tmp_path: Path) -> None:
    save(tmp_path, 10)  # as in earlier versions
    first = CheckpointFolder(tmp_path, PRINTS | {HELD_OUT: "a"})
    assert first.load(10).progress.update == 10
    first.save(Checkpoint(progress(20), {}, {}), {})
    assert first.load(20).progress.update == 20
    with pytest.raises(UserError, match="20: the validation or test data changed since"):
        CheckpointFolder(tmp_path, PRINTS | {HELD_OUT: "b"}).load(20)


def test_options_of_files_from_an_earlier_version_have_folders(tmp_path: Path) -> None:
    options = {"data.train.source": "/a/train.en", "start_from": "/a/run", "data.train.target": ["/a/x", "y"]}
    CheckpointFolder(tmp_path, PRINTS, options).save(Checkpoint(progress(20), {}, {}), {})
    moved = {"data.train.source": "train.en", "start_from": "a model", "data.train.target": ["x", "y"]}
    assert CheckpointFolder(tmp_path, PRINTS, moved).load(20).progress.update == 20
    with pytest.raises(UserError, match="started with start_from=a model, not null"):
        CheckpointFolder(tmp_path, PRINTS, moved | {"start_from": None}).load(20)


def test_options_are_compared_where_both_sides_know_them(tmp_path: Path) -> None:
    """A checkpoint may be read by another version, which may have other options."""

    def folder(**options: Any) -> CheckpointFolder:
        return CheckpointFolder(tmp_path, PRINTS, options)

    save(tmp_path, 10)  # without options, as in earlier versions
    assert folder(kept=1, new=2).load(10).progress.update == 10
    folder(kept=1, old=[0.1, None]).save(Checkpoint(progress(20), {}, {}), {})
    assert folder(kept=1, new=2).load(20).progress.update == 20
    words = "update-00000020: started with kept=1, not 3, old=[0.1, null], not x. Give the same options"
    with pytest.raises(UserError, match=re.escape(words)):
        folder(kept=3, old="x").load(20)


def test_rotation_removes_all_but_the_named_and_leaves_strangers(tmp_path: Path) -> None:
    for update in (5, 10, 20, 30):
        save(tmp_path, update)
    (tmp_path / "notes").mkdir()
    folder = CheckpointFolder(tmp_path, PRINTS)
    folder.keep({10, 30, 99})
    assert folder.updates() == [10, 30]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes", "update-00000010", "update-00000030"]


@pytest.mark.parametrize("name", ["update-9", "update-" + "9" * 20, "update-٠٠٠٠٠٠٠٩", "update--0000001"])
def test_folders_with_other_names_are_no_checkpoints(name: str, tmp_path: Path) -> None:
    """`int` accepts digits of other scripts, but names of checkpoints never contain them."""
    save(tmp_path, 5)
    (tmp_path / name).mkdir()
    folder = CheckpointFolder(tmp_path, PRINTS)
    assert folder.updates() == [5]
    folder.keep({5})
    assert (tmp_path / name).is_dir()


def test_weights_of_a_damaged_checkpoint(tmp_path: Path) -> None:
    saved = save(tmp_path, 10)
    folder = CheckpointFolder(tmp_path, PRINTS)
    assert torch.equal(folder.weights(10)["w"], saved.model["w"])
    with pytest.raises(DamagedCheckpoint, match="update-00000011"):
        folder.weights(11)


def test_a_failed_save_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = save(tmp_path, 10)
    import nmt.runtime.tensors as module

    def full(*args: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(module, "file_parts", full)
    with pytest.raises(UserError, match="no space is left"):
        save(tmp_path, 10)
    loaded = CheckpointFolder(tmp_path, PRINTS).load_newest()
    assert loaded is not None and torch.equal(loaded.model["w"], before.model["w"])
    assert [path.name for path in tmp_path.iterdir()] == ["update-00000010"]


class PowerCut(BaseException):
    pass


def cut_power(patch: pytest.MonkeyPatch, step: int) -> None:
    """Allows `step` renames and removals, then fails; a removal fails half-way."""
    left = iter(range(step))
    rename, rmtree = os.rename, shutil.rmtree

    def cut_rename(*args: Any) -> None:
        if next(left, None) is None:
            raise PowerCut
        rename(*args)

    def cut_rmtree(path: Path, ignore_errors: bool = False) -> None:
        if next(left, None) is None:
            (path / "state.json").unlink(missing_ok=True)
            raise PowerCut
        rmtree(path, ignore_errors)

    patch.setattr(os, "rename", cut_rename)
    patch.setattr(shutil, "rmtree", cut_rmtree)


def test_a_process_may_die_whenever_it_replaces_its_only_checkpoint(tmp_path: Path) -> None:
    found = []
    for step in count():
        run = RunFolder(tmp_path / str(step))
        path = run.checkpoints
        run.path.mkdir()
        old = save(path, 10)
        new = Checkpoint(replace(old.progress, settled=True), {"w": old.model["w"] + 1}, old.optimizer)
        with pytest.MonkeyPatch.context() as patch:
            cut_power(patch, step)
            try:
                CheckpointFolder(path, PRINTS).save(new, {})
                whole = True
            except PowerCut:
                whole = False
        assert run.holds_checkpoints()
        loaded = CheckpointFolder(path, PRINTS).load_newest()
        assert loaded is not None
        assert loaded.progress in (old.progress, new.progress)
        found.append(loaded.progress.settled)
        assert torch.equal(loaded.model["w"], (new if found[-1] else old).model["w"])
        assert [child.name for child in path.iterdir()] == ["update-00000010"]
        if whole:
            break
    assert found == sorted(found) and found.count(False) >= 2 and found.count(True) >= 2


PATIENCE = 60.0


class SlowFolder(CheckpointFolder):
    """Writes only after `go` is set; fails if `failure` is set."""

    def __init__(self, folder: Path) -> None:
        super().__init__(folder, {})
        self.go, self.failure = threading.Event(), ""
        self.calls: list[str] = []

    def save(self, checkpoint: Checkpoint, facts: Mapping[str, Any]) -> Path:
        assert self.go.wait(PATIENCE)
        if self.failure:
            raise UserError(self.failure)
        path = super().save(checkpoint, facts)
        self.calls.append(f"saved {checkpoint.progress.update}")
        return path

    def keep(self, updates: Collection[int]) -> None:
        self.calls.append(f"kept {sorted(updates)} of {self.updates()}")
        super().keep(updates)


def checkpoint(update: int) -> Checkpoint:
    progress = Progress(update, Cursor(0, 0, update), checkpoints=[Saved(update)])
    return Checkpoint(progress, {"w": torch.full((3,), 1.0 * update)}, {"step": torch.tensor(1.0 * update)})


def test_the_state_of_the_moment_is_written(tmp_path: Path) -> None:
    folder, state = SlowFolder(tmp_path / "checkpoints"), checkpoint(3)
    with saving(folder) as saver:
        saver.save(state, {"learning_rate": 0.5})
        state.model["w"].fill_(-1.0)
        state.optimizer["step"].fill_(-1.0)
        state.progress.update = 4
        state.progress.checkpoints.append(Saved(4))
        saver.check()
        assert folder.updates() == []
        folder.go.set()
        saver.wait()
        assert folder.updates() == [3]
    loaded = folder.load_newest()
    assert loaded is not None
    assert loaded.progress == checkpoint(3).progress
    assert torch.equal(loaded.model["w"], torch.full((3,), 3.0)) and loaded.optimizer["step"] == 3.0


def test_one_at_a_time_and_old_ones_go_last(tmp_path: Path) -> None:
    folder = SlowFolder(tmp_path)
    folder.go.set()
    with saving(folder) as saver:
        for update in (1, 2, 3):
            saver.save(checkpoint(update), {}, keep={update})
    assert folder.calls == [
        *("saved 1", "kept [1] of [1]"),
        *("saved 2", "kept [2] of [1, 2]"),
        *("saved 3", "kept [3] of [2, 3]"),
    ]
    assert folder.updates() == [3]


def test_a_failure_is_told_once_and_leaves_what_there_was(tmp_path: Path) -> None:
    folder = SlowFolder(tmp_path)
    folder.go.set()
    with saving(folder) as saver:
        saver.save(checkpoint(1), {}, keep={1})
        saver.wait()
        folder.failure = "no space is left"
        saver.save(checkpoint(2), {}, keep={2})

        def reported() -> bool:
            try:
                saver.check()
            except UserError as error:
                assert str(error) == "no space is left"
                return True
            return False

        wait_until(reported)
        saver.check()
        saver.save(checkpoint(3), {}, keep={3})
        with pytest.raises(UserError, match="no space is left"):
            saver.save(checkpoint(4), {}, keep={4})
        assert folder.updates() == [1]


def test_the_end_waits_and_tells(tmp_path: Path) -> None:
    folder = SlowFolder(tmp_path)
    folder.failure = "no space is left"
    with pytest.raises(UserError, match="no space is left"), saving(folder) as saver:
        saver.save(checkpoint(1), {})
        folder.go.set()


def test_another_failure_goes_before(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = SlowFolder(tmp_path)
    folder.failure = "no space is left"
    with pytest.raises(ZeroDivisionError), saving(folder) as saver:
        saver.save(checkpoint(1), {})
        folder.go.set()
        raise ZeroDivisionError
    assert "no space is left" in caplog.text
