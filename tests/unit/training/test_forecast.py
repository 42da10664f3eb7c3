"""The forecast of a training, from literal figures: its lines, its time left, and its warnings."""

from __future__ import annotations

import logging
import shutil
from collections import namedtuple
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from nmt.config import DataConfig, TrainConfig, TrainingConfig
from nmt.data.batches.stream import Cursor
from nmt.data.store import Store
from nmt.training.forecast import Forecast, in_words
from nmt.training.state.progress import Progress


def forecast(
    pairs: int,
    tokens: int,
    progress: Progress,
    *,
    max_tokens: int = 1000,
    parameters: int = 1_000_000,
    valid: int | list[int] = 100,
    decoding: dict[str, Any] | None = None,
    **training: Any,
) -> Forecast:
    """A forecast for `pairs` of 9 pieces and EOS a side.

    Valid and test have `valid` such pairs each, or pairs of these numbers of pieces.
    """
    sizes = [9] * valid if isinstance(valid, int) else valid
    store = SimpleNamespace(
        num_pairs=pairs, sizes=(pairs,), num_target_tokens=tokens - pairs, num_source_tokens=tokens - pairs
    )
    held_out = [[5] * size for size in sizes]
    prepared: Any = SimpleNamespace(
        train=store,
        valid_stores={"": Store.of(held_out, held_out)},
        test={"": SimpleNamespace(sources=["x"] * len(sizes))},
    )
    data = DataConfig(name="x", source_lang="xx", target_lang="yy", max_tokens=max_tokens)
    config = TrainConfig(run_dir="x", data=data, training=TrainingConfig(**training))
    return Forecast(config, prepared, parameters, progress)


def start(forecast: Forecast, progress: Progress, updates: int, seconds: float, tokens: int = 1000) -> None:
    """Counts updates; the first of the run takes 100 times as long."""
    for _ in range(updates):
        progress.advance()
        progress.target_tokens += tokens
        progress.seconds += seconds
        progress.total_seconds += seconds
        forecast.add(seconds * (100 if progress.update == 1 else 1), progress)


@pytest.fixture
def said(caplog: pytest.LogCaptureFixture) -> pytest.LogCaptureFixture:
    caplog.set_level(logging.INFO, "nmt")
    return caplog


@pytest.mark.parametrize(
    ("pairs", "tokens", "options", "line", "warning"),
    [
        (  # the quickstart
            25_000,
            297_000,
            {"max_tokens": 1024, "micro_batches": 2, "max_updates": 550, "validate_every": 275},
            "updates: 550 of about 2,041 target tokens (3.8 epochs); next validation after update 275; "
            "up to 125 MB on disk",
            None,
        ),
        (  # Multi30k with the default length
            29_000,
            435_000,
            {"max_tokens": 4096},
            "updates: 100,000 of about 4,065 target tokens (935 epochs); next validation after update 1,000; "
            "up to 607 MB on disk",
            "training.max_updates=100000: 935 epochs of this corpus, but a model seldom improves after 200. "
            "Give training.max_epochs or fewer training.max_updates, or in another run_dir "
            "training.patience=10, which ends when validations are not better",
        ),
        (  # limits that the user has set
            29_000,
            435_000,
            {"max_tokens": 4096, "patience": 5, "max_minutes": 90.0, "validate_every": 0},
            "updates: 100,000 of about 4,065 target tokens (935 epochs), or 90 minutes, or 5 validations "
            "that are not better; next validation after update 107; "
            "up to 607 MB on disk",
            None,
        ),
        (
            29_000,
            435_000,
            {"max_tokens": 4096, "max_epochs": 300},
            "updates: 32,100 of about 4,065 target tokens (300 epochs); next validation after update 1,000; "
            "up to 607 MB on disk",
            None,
        ),
        (  # a million pairs
            1_000_000,
            30_000_000,
            {"max_tokens": 25_000},
            "updates: 100,000 of about 25,000 target tokens (83 epochs); next validation after update 1,000; "
            "up to 607 MB on disk",
            None,
        ),
    ],
)
def test_the_start_says_what_will_happen(
    pairs: int,
    tokens: int,
    options: dict[str, Any],
    line: str,
    warning: str | None,
    said: pytest.LogCaptureFixture,
    tmp_path: Path,
) -> None:
    progress = Progress()
    forecast(pairs, tokens, progress, parameters=4_466_688, **options).announce(progress, tmp_path)
    start = "training: transformer, 4,466,688 parameters; "
    assert said.messages == [start + line, *([warning] if warning else [])]


def test_a_resume_says_what_is_left(said: pytest.LogCaptureFixture, tmp_path: Path) -> None:
    progress = Progress(update=300, target_tokens=600 * 300, seconds=1.0, total_seconds=1.0)
    forecast(1000, 10_000, progress, max_updates=400, validate_every=50).announce(progress, tmp_path)
    assert (
        "; updates 301 to 400 of about 600 target tokens (24 epochs); next validation after update 350;"
        in (said.text)
    )


def test_a_full_disk_is_a_warning(
    said: pytest.LogCaptureFixture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A resumed run has written a part of its bytes already."""
    usage = namedtuple("usage", "free")
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage(130_000_000))
    progress = Progress()
    one = forecast(10_000_000, 100_000_000, progress)
    one.announce(progress, tmp_path)
    assert said.messages[1:] == [
        f"run_dir={tmp_path}: up to 136 MB will be written, but 130 MB are free on the disk. Free some, or "
        "retain fewer checkpoints (training.keep_checkpoints=1 training.averaging.count=1)"
    ]
    (tmp_path / "checkpoints/update-00000001").mkdir(parents=True)
    (tmp_path / "checkpoints/update-00000001/model.safetensors").write_bytes(bytes(6_000_000))
    said.clear()
    one.announce(progress, tmp_path)
    assert len(said.messages) == 1


def test_ten_updates_give_the_time_to_the_end(said: pytest.LogCaptureFixture) -> None:
    """Ten validations of 1,000 tokens, each as long as 6.4 updates; six candidates, and a test."""
    progress = Progress()
    one = forecast(10_000, 100_000, progress, max_updates=1000, validate_every=100, checkpoint_every=1000)
    start(one, progress, 9, 2.0)
    assert said.messages == []
    start(one, progress, 1, 2.0)
    assert one.seconds_left(progress) == pytest.approx(990 * 2 + 10 * 12.8 + 0.012)
    assert said.messages == [
        "update 10: 2 seconds an update; next validation in about 3 minutes; end of the run in about 36 "
        "minutes, of which 6 % are validations and checkpoints and 3 % choice and test of the final model"
    ]


def test_updates_with_two_passes_take_twice_as_long(said: pytest.LogCaptureFixture) -> None:
    """The last 400 of 1,000 updates have two passes; validations are those of the test above."""
    progress = Progress()
    options = {"max_updates": 1000, "validate_every": 100, "checkpoint_every": 1000}
    one = forecast(10_000, 100_000, progress, **options, simcut=3.0, consistency_from=601)
    start(one, progress, 10, 2.0)
    assert one.seconds_left(progress) == pytest.approx(590 * 2 + 400 * 4 + 10 * 12.8 + 0.012)
    assert said.messages[0].startswith("update 10: 2 seconds an update; next validation in about 3 minutes;")
    progress = Progress(update=800, target_tokens=800_000, seconds=2000.0, total_seconds=2000.0)
    one = forecast(10_000, 100_000, progress, **options, simcut=3.0, consistency_from=601)
    assert one.seconds_left(progress) == pytest.approx(200 * 4 + 0.012)


def test_a_length_penalty_that_is_chosen_takes_time_of_a_budget() -> None:
    """Two searches of 300 of the 1,000 validation sentences, and one of all: a token takes 0.0128 s."""
    ends = []
    for tunes in (False, True):
        progress, options = Progress(), {"validate_every": 10_000, "report": False, "budget": "30m"}
        one = forecast(10_000, 100_000, progress, valid=1000, tune_length_penalty=tunes, **options)
        start(one, progress, 10, 2.0)
        ends.append(one.ends(progress)["budget"])
    assert ends[0] - ends[1] == pytest.approx((2 * 3000 + 10_000) * 0.0128 / 2.0, abs=2.0)


def test_the_first_validation_corrects_the_time(said: pytest.LogCaptureFixture) -> None:
    progress = Progress()
    one = forecast(10_000, 100_000, progress, max_updates=200, validate_every=20, checkpoint_every=200)
    start(one, progress, 20, 1.0)
    one.add_validation(20.0, progress)
    one.add_checkpoint(5.0)
    progress.total_seconds += 25.0
    assert one.seconds_left(progress) == 180 * 1.0 + 9 * 20.0 + 5.0
    assert [message.partition(":")[0] for message in said.messages] == ["update 10", "update 20"]
    one.add_validation(8.0, progress)  # shorter translations
    assert len(said.messages) == 2
    assert one.seconds_left(progress) == 180 * 1.0 + 9 * 8.0 + 5.0


def test_a_validation_of_long_sentences_is_no_reason_to_end_early() -> None:
    """Both sets have 16,000 tokens, in 0.005 seconds each; only the first 200 sentences differ."""
    ends = []
    for sizes, seconds in (([39] * 200 + [9] * 800, 40.0), ([15] * 1000, 16.0)):
        progress, options = Progress(), {"validate_every": 10_000, "report": False, "budget": "30m"}
        one = forecast(10_000, 100_000, progress, valid=sizes, validate_sentences=200, **options)
        start(one, progress, 10, 2.0)
        one.add_validation(seconds, progress)
        ends.append(one.ends(progress)["budget"])
    assert ends[1] - ends[0] == pytest.approx((40 - 16) / 2, abs=1)  # the last validation


def test_a_resume_knows_the_time_of_validations(said: pytest.LogCaptureFixture) -> None:
    """In updates, since the machine may be another one, which is ten times as fast here."""
    progress = Progress(40, target_tokens=40_000, seconds=400.0, total_seconds=1360.0, undone_seconds=900.0)
    one = forecast(10_000, 100_000, progress, max_updates=100, validate_every=20, checkpoint_every=0)
    start(one, progress, 10, 1.0)
    # Two validations took 60 s, 6 updates; 50 updates and 3 validations are left.
    assert one.seconds_left(progress) == pytest.approx(50 * 1.0 + 3 * 3.0 + 3 * 0.012)
    assert said.messages[0].startswith("update 50: 1 second an update; next validation in about 10 seconds;")


def test_slow_updates_are_enough_before_the_tenth(said: pytest.LogCaptureFixture) -> None:
    progress = Progress()
    one = forecast(1_000_000, 30_000_000, progress, max_tokens=25_000)
    start(one, progress, 2, 150.0, tokens=25_000)
    assert said.messages == []
    start(one, progress, 1, 150.0, tokens=25_000)
    assert [record.levelname for record in said.records] == ["INFO", "WARNING"]
    assert said.messages[0].startswith(
        "update 3: 2.5 minutes an update; next validation in about 42 hours; end of the run in about 25 "
    )
    assert said.messages[1] == (
        "training.max_updates=100000: the training takes about 25 weeks on this machine. Stop it and give "
        "training.max_minutes (1440 is a day) or fewer training.max_updates (576 take a day). A smaller "
        "model (model=small, model=tiny) and training.patience=10 need another run_dir"
    )


@pytest.mark.parametrize(
    ("update", "seconds", "expected"), [(1, 1.0, 49.0), (10, 60.0, 40.0), (40, 119.0, 1.0), (41, 130.0, 0.0)]
)
def test_time_left_ends_with_the_minutes(update: int, seconds: float, expected: float) -> None:
    progress = Progress()
    one = forecast(100, 1000, progress, max_updates=50, max_minutes=2.0, valid=1)
    one.add(1.0, progress)
    progress.update, progress.total_seconds, progress.target_tokens = update, seconds, 1000 * update
    # The validation of ten tokens takes 0.064 s, the checkpoint 0.012 s.
    stops = 0.076 if expected > 1.0 else 0.0
    assert one.seconds_left(progress) == pytest.approx(expected + stops)


@pytest.mark.parametrize(
    ("epoch", "update", "left"),
    [(0, 10, 40), (2, 25, 25), (4, 49, 1), (4, 51, 0)],
)
def test_epochs_end_the_training(epoch: int, update: int, left: int) -> None:
    """Five epochs of ten updates; a validation after each epoch."""
    progress = Progress()
    one = forecast(1000, 10_000, progress, max_epochs=5, validate_every=0, valid=1)
    one.add(1.0, progress)
    progress.update, progress.target_tokens, progress.cursor = update, 1000 * update, Cursor(epoch)
    assert round(one.seconds_left(progress), 0) == left


@pytest.mark.parametrize(
    ("seconds", "words"),
    [
        (0.123, "0.12 seconds"),
        (89.0, "89 seconds"),
        (90.0, "1.5 minutes"),
        (3000.0, "50 minutes"),
        (5400.0, "1.5 hours"),
        (172_800.0, "2 days"),
        (1_209_600.0, "2 weeks"),
        (60_480_000.0, "100 weeks"),
    ],
)
def test_durations(seconds: float, words: str) -> None:
    assert in_words(seconds) == words
