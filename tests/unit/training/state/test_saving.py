"""Checkpoints in the background: their content, their order, and the report of failures."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any

import pytest
import torch

from nmt.data.batches.stream import Cursor
from nmt.errors import UserError
from nmt.runtime import log
from nmt.training.state.checkpoint import Checkpoint, CheckpointFolder, saving
from nmt.training.state.progress import Progress, Saved

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


def finished(found: Callable[[], bool]) -> None:
    """Waits for another thread until `found` returns true."""
    pause = threading.Event()
    for _ in range(int(PATIENCE / 0.01)):
        if found():
            return
        pause.wait(0.01)
    raise AssertionError("`found` remained false")


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
    found = folder.load_newest()
    assert found is not None
    assert found.progress == checkpoint(3).progress
    assert torch.equal(found.model["w"], torch.full((3,), 3.0)) and found.optimizer["step"] == 3.0


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

        finished(reported)
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


def test_another_failure_goes_before(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log, "propagate", True)
    caplog.set_level(logging.ERROR, "nmt")
    folder = SlowFolder(tmp_path)
    folder.failure = "no space is left"
    with pytest.raises(ZeroDivisionError), saving(folder) as saver:
        saver.save(checkpoint(1), {})
        folder.go.set()
        raise ZeroDivisionError
    assert "no space is left" in caplog.text
