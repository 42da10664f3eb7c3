"""The counters of a run: when actions are due, and when the run ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

from nmt.config import Precision, ScheduleConfig, TrainingConfig
from nmt.data.batches.stream import Cursor
from nmt.training.state.progress import Progress, Saved
from nmt.training.update.schedule import Decay


@pytest.mark.parametrize("quality", [-float("inf"), -1e300, 1e300])  # a metric may return any number
def test_counters_survive_json(quality: float) -> None:
    progress = Progress(update=3, cursor=Cursor(1, 2, 3), best=Saved(2, quality), checkpoints=[Saved(2)])
    assert Progress.from_dict(json.loads(json.dumps(progress.as_dict()))) == progress
    assert Progress.from_dict(json.loads(json.dumps(Progress().as_dict()))) == Progress()
    values = progress.as_dict()
    del values["extras"]  # as in earlier versions
    assert Progress.from_dict(values) == progress


@pytest.mark.parametrize(
    ("every", "checkpoint_every", "update", "epoch_ended", "validation", "checkpoint"),
    [
        (4, 6, 12, False, True, True),
        (4, 6, 4, True, True, False),
        (4, 6, 6, True, False, True),
        (4, 0, 8, False, True, True),
        (4, 0, 6, False, False, False),
        (0, 0, 5, True, True, True),
        (0, 0, 5, False, False, False),
        (0, 5, 5, False, False, True),
        (4, 6, 13, False, True, False),  # the last update
        (4, 0, 13, False, True, False),
    ],
)
def test_what_is_due(
    every: int, checkpoint_every: int, update: int, epoch_ended: bool, validation: bool, checkpoint: bool
) -> None:
    options = TrainingConfig(validate_every=every, checkpoint_every=checkpoint_every, max_updates=13)
    progress = Progress(update=update, epoch_ended=epoch_ended)
    assert progress.validation_due(options) is validation
    assert progress.checkpoint_due(options) is checkpoint


@pytest.mark.parametrize(
    ("progress", "reason"),
    [
        (Progress(update=99), None),
        (Progress(update=100), "max_updates=100"),
        (Progress(cursor=Cursor(3, 0, 0)), "max_epochs=3"),
        (Progress(cursor=Cursor(2, 9, 9)), None),
        (Progress(total_seconds=29.9), None),
        (Progress(total_seconds=30.0), "max_minutes=0.5"),
        (Progress(worse_validations=2), "patience=2"),
        (Progress(worse_validations=1), None),
    ],
)
def test_when_it_is_over(progress: Progress, reason: str | None) -> None:
    options = TrainingConfig(max_updates=100, max_epochs=3, max_minutes=0.5, patience=2)
    assert reason in (progress.ended(options) or "") if reason else progress.ended(options) is None


def test_best_and_patience() -> None:
    progress, verdicts = Progress(), []
    for quality in [1.0, 3.0, 3.0, 2.0, 4.0]:
        progress.advance()
        found = progress.note_validation(quality, TrainingConfig(validate_every=1))
        verdicts.append((found, progress.worse_validations))
    assert verdicts == [(True, 0), (True, 0), (False, 1), (False, 2), (True, 0)]
    assert progress.best == progress.validated == progress.best_of_all == Saved(5, 4.0)
    assert progress.quality_now() == 4.0


@pytest.mark.parametrize("quality", [1.0, 9.0])
def test_a_validation_at_the_end_is_forgotten_when_the_run_goes_on(quality: float) -> None:
    options = TrainingConfig(validate_every=4, max_updates=6)
    progress, straight = Progress(), Progress()
    for update in range(1, 8):
        for run in (progress, straight):
            run.advance()
            if update == 4:
                run.note_validation(5.0, options)
        if update == 6:
            assert progress.note_validation(quality, options) is (quality == 9.0)
            assert progress.best_of_all == (Saved(6, 9.0) if quality == 9.0 else Saved(4, 5.0))
            assert (progress.quality_now(), progress.best) == (quality, Saved(4, 5.0))
    assert progress == straight
    assert progress.quality_now() is None


def test_loss_scale_halves_and_grows_back() -> None:
    progress = Progress.start(Precision.fp16)
    assert progress.loss_scale == 128.0
    assert progress.adapt_loss_scale(Precision.fp16, finite=False)
    assert progress.loss_scale == 64.0
    for _ in range(1999):
        assert not progress.adapt_loss_scale(Precision.fp16, finite=True)
    assert progress.loss_scale == 64.0
    progress.adapt_loss_scale(Precision.fp16, finite=True)
    assert (progress.loss_scale, progress.finite_in_a_row) == (128.0, 0)
    progress.loss_scale, progress.finite_in_a_row = 65536.0, 1999
    progress.adapt_loss_scale(Precision.fp16, finite=True)
    progress.adapt_loss_scale(Precision.fp16, finite=True)
    assert (progress.loss_scale, progress.finite_in_a_row) == (65536.0, 1)
    progress.loss_scale = 1.0
    assert not progress.adapt_loss_scale(Precision.fp16, finite=False)  # the scale cannot become smaller


def test_other_precisions_have_no_loss_scale() -> None:
    progress = Progress.start(Precision.bf16)
    assert not progress.adapt_loss_scale(Precision.bf16, finite=False)
    assert progress == Progress()


def test_an_extra_checkpoint_has_what_its_validation_said() -> None:
    options, progress = TrainingConfig(validate_every=1), Progress()
    for quality in (5.0, 7.0):
        progress.advance()
        progress.note_validation(quality, options)
        progress.note_extra()
    assert (progress.checkpoints, progress.extras) == ([], [Saved(1, 5.0), Saved(2, 7.0)])
    assert Progress.from_dict(json.loads(json.dumps(progress.as_dict()))) == progress


def test_a_checkpoint_has_what_scheduled_validations_said() -> None:
    """The validation at update 3 is due only because training ends; it does not count if training resumes."""
    options, progress = TrainingConfig(validate_every=2, max_updates=3), Progress()
    for quality in (None, 5.0, 7.0):
        progress.advance()
        if quality is not None:
            progress.note_validation(quality, options)
        progress.note_checkpoint()
    assert progress.checkpoints == [Saved(1), Saved(2, 5.0), Saved(3)]
    assert progress.quality_now() == 7.0


@pytest.mark.parametrize(
    ("limit", "before", "longer", "resumes"),
    [
        ("budget", 3.0, "3m", False),
        ("budget", 3.0, "3.6m", False),
        ("budget", 3.0, "3.7m", True),
        ("budget", 2.0, "3.1m", False),  # 2.5 minutes were used
        ("budget", 2.0, "3.2m", True),
        ("max_minutes", 2.0, 2.6, False),
        ("max_minutes", 2.0, 2.7, True),
        ("max_updates", 100.0, 101, True),
    ],
)
def test_a_finished_run_is_longer_only_if_more_time_is_added_than_its_fall_took(
    limit: str, before: float, longer: Any, resumes: bool
) -> None:
    """The rate fell for 40 seconds, and preparation took 30."""
    progress = Progress(100, total_seconds=120.0, flat_seconds=80.0, prepared_seconds=30.0)
    progress.decays = [Decay(80, 100, 1.0, limit, before)]
    options = TrainingConfig(schedule=ScheduleConfig(name="wsd"), **{limit: longer})
    assert progress.must_undo_decay(options) is resumes
    assert (progress.ended(options) is None) is resumes
    progress.update = 99  # stopped in the fall
    assert progress.must_undo_decay(options) is (longer != "3m")
