"""What becomes of a run whose folder is strange, is moved, or fills its disk: one line, or it goes on."""

from __future__ import annotations

import json
import logging
import os
import shutil
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nmt.errors import UserError
from nmt.runtime import log
from nmt.training.figures.monitor import Monitor
from nmt.training.state.checkpoint import Checkpoint, CheckpointFolder
from nmt.training.state.progress import Progress
from nmt.training.state.run_folder import RunFolder, _RunLog

FILES, FOLDERS = (
    ("config.yaml", "results.json", "metrics.jsonl", "train.log"),
    ("checkpoints", "tensorboard", "model"),
)


@pytest.mark.parametrize("kind", ["folder", "pipe", "nowhere", "circle"])
@pytest.mark.parametrize("name", FILES)
def test_something_else_in_the_place_of_a_file(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    if kind == "folder":
        path.mkdir()
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("gone" if kind == "nowhere" else name)
    with pytest.raises(UserError, match=f"{name}: not a file. Remove it|circle"):
        RunFolder(tmp_path).require_sound()


@pytest.mark.parametrize("kind", ["file", "pipe", "nowhere"])
@pytest.mark.parametrize("name", FOLDERS)
def test_something_else_in_the_place_of_a_folder(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    if kind == "file":
        path.write_text("")
    elif kind == "pipe":
        os.mkfifo(path)
    else:
        path.symlink_to("gone")
    with pytest.raises(UserError, match=f"{name}: not a folder. Remove it, or give another"):
        RunFolder(tmp_path).require_sound()


def test_a_run_folder_that_cannot_be(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    (tmp_path / "link").symlink_to("gone")
    for name, words in [
        ("file", "file: not a folder"),
        ("file/below/it", "file: not a folder|a part of its path is a file"),
        ("link", "link: not a folder"),
        ("x" * 256, "its name is too long"),
        ("x/" * 3000, "its name is too long"),
    ]:
        with pytest.raises(UserError, match=words):
            RunFolder(tmp_path / name).require_sound()
    RunFolder(tmp_path / "fresh" / "run").require_sound()
    assert not (tmp_path / "fresh").exists()


def test_figures_follow_a_folder_that_is_moved(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    monitor = Monitor(folder, Progress(), 10)
    with closing(monitor):
        monitor.record("train", 1, {"loss": 2.0})
        folder.path.rename(tmp_path / "moved")
        monitor.record("train", 2, {"loss": 1.0})
        with pytest.raises(UserError, match="run: was moved or removed while the run was writing to it"):
            monitor.go_back(Progress())
    moved = RunFolder(tmp_path / "moved")
    assert len(moved.metrics.read_text().splitlines()) == 2
    board = EventAccumulator(str(moved.tensorboard))
    board.Reload()
    assert [event.value for event in board.Scalars("train/loss")] == [2.0, 1.0]
    assert "Traceback" not in capfd.readouterr().err
    assert not folder.path.exists()


def test_a_folder_that_is_removed_gets_no_checkpoint(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    with closing(Monitor(folder, Progress(), 10)) as monitor:
        shutil.rmtree(folder.path)
        monitor.record("train", 1, {"loss": 2.0})
    with pytest.raises(UserError, match="run: was moved or removed while .* Move it back, and"):
        CheckpointFolder(folder.checkpoints, {}).save(Checkpoint(Progress(update=1), {}, {}), {})
    assert not folder.path.exists()


def test_a_full_disk_behind_the_log_is_said_once(
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(log, "propagate", True)
    caplog.set_level(logging.INFO, "nmt")
    (tmp_path / "train.log").symlink_to("/dev/full")
    with RunFolder(tmp_path).logging():
        log.info("one")
        log.info("two")
    [failure] = set(caplog.messages) - {"one", "two"}
    assert len(caplog.messages) == 3 and "train.log: no space is left on its disk" in failure
    assert capfd.readouterr().err.count("Traceback") == 0


def test_a_name_that_is_not_utf8_is_logged(tmp_path: Path) -> None:
    handler = _RunLog(tmp_path / "train.log", encoding="utf-8", errors="backslashreplace")
    handler.emit(logging.LogRecord("nmt", logging.INFO, "", 0, os.fsdecode(b"run-\xff"), None, None))
    handler.close()
    assert (tmp_path / "train.log").read_text() == "run-\\udcff\n"


@pytest.mark.parametrize(
    "line",
    [
        "[]",
        "7",
        "null",
        '"text"',
        "[" * 5000,
        '{"kind": "train", "update": "1", "time": 1.0}',
        '{"kind": "train", "update": 1}',
        '{"kind": "train", "update": 1, "time": "now"}',
        '{"kind": "train", "update": 1, "time": null}',
        '{"kind": "train", "update": 1, "time": NaN}',
        '{"kind": "train", "update": 1, "time": 1e400}',
        '{"kind": ["train"], "update": 1, "time": 1.0}',
        '{"kind": "train", "update": 1, "time": 1.0, "loss": "low"}',
        '{"kind": "train", "update": 1, "time": 1.0, "loss": 1' + "0" * 400 + "}",
        '{"kind": "train", "update": 1, "time": 1.0, "loss": 1' + "0" * 5000 + "}",
        '{"kind": "valid", "update": 1, "time": 1.0, "samples": {"a": "b"}}',
        '{"kind": "valid", "update": 1, "time": 1.0, "samples": ["a"]}',
        '{"kind": "valid", "update": 1, "time": 1.0, "samples": [{"source": "\\ud800"}]}',
        '{"kind": "train", "update": 1, "time": 1.0, "los',
        "\0\0\0",
    ],
    ids=range(20),
)
def test_a_strange_line_of_metrics_is_dropped(tmp_path: Path, line: str) -> None:
    sound = '{"kind": "train", "update": 1, "time": 1.0, "loss": null, "bleu": 3}'
    folder = RunFolder(tmp_path)
    folder.metrics.write_text(f"{line}\n{sound}\n")
    Monitor(folder, Progress(update=5), 10).close()
    assert folder.metrics.read_text() == f"{sound}\n"


@pytest.mark.parametrize(
    "results",
    [
        [],
        7,
        None,
        "text",
        {"test": []},
        {"training": [1]},
        {"data": 5},
        {"valid": "high"},
        {"data": {"valid": []}},
    ],
    ids=str,
)
def test_strange_results_are_none(tmp_path: Path, results: Any) -> None:
    folder = RunFolder(tmp_path)
    folder.results.write_text(json.dumps(results))
    assert folder.read_results() is None
