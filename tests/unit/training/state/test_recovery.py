"""The choice of the checkpoint for a rollback, and the state of the run after it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import torch

from nmt.config import DataConfig, ScheduleConfig, TrainConfig, TrainingConfig
from nmt.data.batches.stream import Cursor
from nmt.errors import UserError
from nmt.training.state.checkpoint import Checkpoint, CheckpointFolder
from nmt.training.state.progress import Progress, Saved, SkippedBatches
from nmt.training.state.recovery import (
    good_checkpoint,
    good_updates,
    in_words,
    last_applied_update,
    load_resume_checkpoint,
    must_roll_back,
    note_skip,
    rolled_back,
)
from nmt.training.state.run_folder import RunFolder
from nmt.training.update.schedule import Decay


def skipping(first: int, last: int, saved: list[int]) -> Progress:
    """Returns a run that skips the updates `first` to `last`, with checkpoints after the updates `saved`."""
    progress = Progress(checkpoints=[Saved(update) for update in saved])
    for update in range(1, last + 1):
        start, progress.cursor = progress.cursor, Cursor(0, 0, update)
        progress.update = update
        if update >= first:
            note_skip(progress, start)
    return progress


@pytest.mark.parametrize(
    ("first", "last", "saved", "good"),
    [
        (9, 18, [4, 8, 12, 16], [4]),  # only skipped updates follow 8
        (10, 19, [4, 8, 12, 16], [4, 8]),
        (2, 11, [1, 2], []),
        (99, 12, [4, 8, 12], [4, 8]),  # nothing is skipped, but no update follows 12
        (99, 13, [4, 8, 12], [4, 8, 12]),
    ],
)
def test_a_good_checkpoint_has_led_to_an_update(
    first: int, last: int, saved: list[int], good: list[int]
) -> None:
    progress = skipping(first, last, saved)
    assert last_applied_update(progress) == min(first - 1, last)
    assert good_updates(progress) == good


def test_stuck_after_ten_and_once_only() -> None:
    assert not must_roll_back(skipping(5, 13, []))
    progress = skipping(5, 14, [])
    assert must_roll_back(progress)
    progress.went_back = SkippedBatches(1, Cursor(), Cursor(0, 0, 3))
    with pytest.raises(UserError, match="a rollback to a checkpoint did not help. Try"):
        must_roll_back(progress)
    with pytest.raises(UserError, match="up to update 10. Try"):
        must_roll_back(skipping(1, 10, []))


def test_what_remains_after_the_way_back() -> None:
    now = skipping(10, 19, [4, 8, 12, 16])
    now.seconds, now.target_tokens, now.skipped_updates, now.made = 50.0, 1900, 13, 6
    saved = [Saved(4), Saved(8)]
    then = Progress(8, Cursor(0, 0, 8), target_tokens=800, seconds=20.0, made=5, checkpoints=saved)
    after = rolled_back(now, then)
    assert after == Progress(
        8,
        Cursor(0, 0, 19),
        target_tokens=800,
        seconds=50.0,
        made=5,
        skipped_updates=13,
        skipped=[SkippedBatches(n, Cursor(0, 0, n - 1), Cursor(0, 0, n)) for n in range(10, 20)],
        went_back=SkippedBatches(9, Cursor(0, 0, 8), Cursor(0, 0, 19)),
        checkpoints=saved,
    )
    assert last_applied_update(after) == 8
    assert Progress.from_dict(json.loads(json.dumps(after.as_dict()))) == after


def test_a_damaged_checkpoint_is_passed_over(tmp_path: Path) -> None:
    folder = CheckpointFolder(tmp_path, {})
    for update in (4, 8):
        weights = {"w": torch.full((2,), float(update))}
        folder.save(Checkpoint(Progress(update=update), weights, weights), {})
    progress = skipping(10, 19, [4, 8])
    for good in (8, 4):
        checkpoint = good_checkpoint(folder, progress)
        assert checkpoint is not None and checkpoint.progress.update == good
        (tmp_path / "update-00000008/model.safetensors").write_bytes(b"half")
    folder.keep([])
    assert good_checkpoint(folder, progress) is None


def test_a_batch_in_words() -> None:
    record = {"epoch": 0, "block": 2, "batch": 6, "rows": [5, 9], "target": "ein Satz"}
    assert in_words(record) == "epoch 1, block 3, batch 7 (2 pairs, the first target: ein Satz)"


def test_a_longer_training_resumes_before_the_fall_and_its_time_counts(tmp_path: Path) -> None:
    run, weights = RunFolder(tmp_path), {"w": torch.zeros(2)}
    fall = [Decay(80, 100, 1.0, "budget", 3.0)]
    before = Progress(80, seconds=70.0, total_seconds=80.0, flat_seconds=79.0, prepared_seconds=20.0)
    end = Progress(100, seconds=90.0, total_seconds=120.0, flat_seconds=79.0, prepared_seconds=30.0)
    before.decays, end.decays = fall, fall
    folder = CheckpointFolder(run.checkpoints, {})
    for progress in (before, end):
        folder.save(Checkpoint(progress, weights, weights), {})
    data = DataConfig(name="x", source_lang="xx", target_lang="yy")
    options = TrainingConfig(schedule=ScheduleConfig(name="wsd"), budget="3.7m")
    found = load_resume_checkpoint(TrainConfig(run_dir="x", data=data, training=options), run, folder)
    assert found is not None and folder.updates() == [80]
    assert found.progress == Progress(
        80, seconds=70.0, total_seconds=120.0, undone_seconds=40.0, prepared_seconds=30.0
    )
