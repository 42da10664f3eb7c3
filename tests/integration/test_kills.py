"""kill -9 at random moments, each followed by a resume: the weights equal those of an undisturbed run.

`NMT_KILLS=20` sets the number of kills; the default is lower.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

import pytest
from test_resume import assert_same_run
from toy import toy_config, write_toy

from nmt.config import (
    Average,
    AveragingConfig,
    Precision,
    ScheduleConfig,
    TrainConfig,
)
from nmt.training.run import train

KILLS = int(os.environ.get("NMT_KILLS", "6"))
PATIENCE = 300.0  # seconds; on an idle machine a few suffice
PAUSE = 0.3  # seconds; enough for several updates


def config(data: Path, run: Path, precision: str) -> TrainConfig:
    """A run with every kind of state, long enough for all kills; early stopping ends it."""
    return toy_config(
        data,
        run,
        precision=Precision[precision],
        sampling=0.3,
        max_tokens=256,
        micro_batches=2,
        max_updates=10_000,
        schedule=ScheduleConfig(name="constant", peak=0.1, warmup_updates=0),  # never improves
        checkpoint_every=4,
        validate_every=8,
        criterion="loss",
        patience=8 + KILLS,
        averaging=AveragingConfig(kind=Average.best, count=3),
        keep_checkpoints=1,
    )


START = """
import sys; sys.path.insert(0, {here!r})
from pathlib import Path
from test_kills import config
from nmt.training.run import train
train(config(Path({data!r}), Path({run!r}), {precision!r}))
"""


def kill_one_session(data: Path, run: Path, precision: str, *, in_a_checkpoint: bool, pause: float) -> bool:
    """Resumes the run and kills it while it writes a checkpoint, or `pause` seconds after one.

    Returns:
        Whether a half-written checkpoint was left behind.
    """
    folder = run / "checkpoints"
    pattern = ".update-*.tmp" if in_a_checkpoint else "update-*"
    there = found(folder, pattern)
    code = START.format(here=str(Path(__file__).parent), data=str(data), run=str(run), precision=precision)
    process = subprocess.Popen([sys.executable, "-c", code], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + PATIENCE
    try:
        while not found(folder, pattern) - there:
            assert process.poll() is None, "the run ended before it was killed"
            assert time.monotonic() < deadline
            time.sleep(0.001)
        if not in_a_checkpoint:
            time.sleep(pause)
    finally:
        process.kill()
    assert process.wait() == -signal.SIGKILL, "the run ended before it was killed"
    return any(folder.glob(".update-*.tmp"))


def found(folder: Path, pattern: str) -> set[tuple[str, int]]:
    """Returns names with times of last change: half-written checkpoints of earlier sessions may be left."""
    things = set()
    for path in folder.glob(pattern):
        with contextlib.suppress(FileNotFoundError):
            things.add((path.name, path.stat().st_ctime_ns))
    return things


@pytest.mark.slow
@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_killed_at_random_moments(precision: str, tmp_path: Path) -> None:
    data, run, whole = (
        write_toy(tmp_path / "data", train=500, held_out=8),
        tmp_path / "run",
        tmp_path / "whole",
    )
    train(config(data, whole, precision))
    assert "patience" in json.loads((whole / "results.json").read_text())["training"]["ended"]
    chance = Random(precision)
    halves = 0
    for number in range(KILLS):
        inside, pause = number % 2 == 1, PAUSE * chance.random()
        halves += kill_one_session(data, run, precision, in_a_checkpoint=inside, pause=pause)
    assert halves
    train(config(data, run, precision))
    assert_same_run(run, whole)
