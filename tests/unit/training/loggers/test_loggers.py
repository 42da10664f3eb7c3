"""Loggers: the curves of metrics.jsonl in each tool, read by the tool itself; resumes and failures."""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
from tensorboard.plugins.hparams import metadata

from nmt.config import TrainConfig, TrainingConfig
from nmt.errors import UserError
from nmt.training.figures.monitor import Monitor
from nmt.training.loggers import LOGGERS, LoggedRun, Logger, check_loggers, loggers_of, sending
from nmt.training.state.progress import Progress
from nmt.training.state.run_folder import RunFolder

Curves = dict[str, list[tuple[int, float]]]

RESULTS = {"training": {"updates": 30}, "test": {"bleu": 27.5, "signatures": {}}, "valid": {"bleu": 30.25}}
SAMPLES = [{"source": "a", "reference": "b", "hypothesis": "c <b>"}]


def session(
    folder: Path, name: str, begin: int, end: int, *, finish: bool = False, loss: float = 1.0
) -> None:
    """Records the updates from `begin` + 10 to `end` in a session of a run."""
    config = TrainConfig(run_dir=str(folder), name="mine", training=TrainingConfig(loggers=[name]))
    loggers = loggers_of(config)
    monitor = Monitor(RunFolder(folder), Progress(update=begin), 30, loggers)
    for update in range(begin + 10, end + 10, 10):
        monitor.record("train", update, {"loss": loss / update, "ppl": float("inf"), "epoch": 1})
        monitor.record("valid", update, {"bleu": update + 0.5, "fr/bleu": 3.0, "samples": SAMPLES})
    monitor.record("skipped", end, {"batches": [{"epoch": 1}]})
    monitor.close()
    if finish:
        loggers.finish(RESULTS)
    loggers.close()


def recorded(folder: Path) -> Curves:
    """Returns the curves of metrics.jsonl."""
    curves: Curves = defaultdict(list)
    for record in map(json.loads, (folder / "metrics.jsonl").read_text().splitlines()):
        for name, value in record.items():
            if name not in ("kind", "update", "time") and isinstance(value, int | float):
                curves[f"{record['kind']}/{name}"].append((record["update"], value))
    return dict(curves)


def rounded(curves: Curves) -> Curves:
    """Returns curves in six digits: TensorBoard has fp32."""
    return {tag: [(update, round(value, 6)) for update, value in curve] for tag, curve in curves.items()}


def in_tensorboard(folder: Path) -> Curves:
    board = EventAccumulator(str(folder / "tensorboard"))
    board.Reload()
    curves = {tag: [(e.step, e.value) for e in board.Scalars(tag)] for tag in board.Tags()["scalars"]}
    return {tag: [point for point in curve if point[1] == point[1]] for tag, curve in curves.items()}


def in_wandb(folder: Path) -> Curves:
    """Returns the curves of all offline sessions, by the command with which wandb prints its files."""
    curves: Curves = defaultdict(list)
    for file in sorted(folder.glob("wandb/offline-run-*/*.wandb")):
        command = [sys.executable, "-m", "wandb", "leet", "inspect", "--json", str(file)]
        lines = subprocess.run(command, capture_output=True, text=True, check=True).stdout.splitlines()
        for record in map(json.loads, lines):
            values = record.get("history", {}).get("item", {})
            for tag, value in values.items():
                if not tag.startswith("_") and isinstance(value, int | float):
                    curves[tag].append((values["_step"], value))
    return dict(curves)


def in_mlflow(folder: Path) -> Curves:
    from mlflow import MlflowClient

    client = MlflowClient()
    run = json.loads((folder / "loggers/mlflow.json").read_text())["id"]
    return {
        tag: [(metric.step, metric.value) for metric in client.get_metric_history(run, tag)]
        for tag in client.get_run(run).data.metrics
    }


def in_trackio(folder: Path) -> Curves:
    from trackio.sqlite_storage import SQLiteStorage

    curves: Curves = defaultdict(list)
    name = json.loads((folder / "loggers/trackio.json").read_text())["id"]
    assert [record["name"] for record in SQLiteStorage.get_run_records("nmt")].count(name) == 1
    for record in SQLiteStorage.get_logs("nmt", name):
        for tag, value in record.items():
            if tag not in ("step", "timestamp") and isinstance(value, int | float):
                curves[tag].append((record["step"], value))
    return dict(curves)


READERS: Mapping[str, Callable[[Path], Curves]] = {
    "tensorboard": in_tensorboard,
    "wandb": in_wandb,
    "mlflow": in_mlflow,
    "trackio": in_trackio,
}


@pytest.fixture
def stores(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Gives the tools stores in the temporary folder, and no account."""
    monkeypatch.setattr(sending, "_PATIENCE", 600.0)
    for variable, value in {
        "WANDB_MODE": "offline",
        "WANDB_CACHE_DIR": str(tmp_path / "cache"),
        "WANDB_CONFIG_DIR": str(tmp_path / "cache"),
        "WANDB_DATA_DIR": str(tmp_path / "cache"),
        "MLFLOW_TRACKING_URI": f"sqlite:///{tmp_path}/mlflow.db",
        "TRACKIO_DIR": str(tmp_path / "trackio"),
    }.items():
        monkeypatch.setenv(variable, value)
    monkeypatch.chdir(tmp_path)  # mlflow writes samples to mlruns


@pytest.mark.parametrize(
    "name",
    ["tensorboard", "trackio", *(pytest.param(name, marks=pytest.mark.slow) for name in ("wandb", "mlflow"))],
)
def test_each_tool_has_the_curves_of_metrics_jsonl(
    name: str, stores: None, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    if module := LOGGERS[name].requires:
        pytest.importorskip(module, reason="the extra loggers is not installed")
    folder = tmp_path / "run"
    folder.mkdir()
    session(folder, name, 0, 20)
    session(folder, name, 10, 30, finish=True)  # killed after update 20, resumed from update 10
    curves = READERS[name](folder)
    if name != "wandb":  # in its summary
        assert curves.pop("final/test/bleu") == [(30, 27.5)]
        assert curves.pop("final/valid/bleu") == [(30, 30.25)]
    curves.pop("train/ppl", None)  # not finite
    curves = {tag: curve for tag, curve in curves.items() if "/samples." not in tag}
    expected = recorded(folder)
    assert expected["valid/bleu"] == [(10, 10.5), (20, 20.5), (30, 30.5)]
    assert rounded(curves) == rounded(expected)
    assert not [record for record in caplog.records if record.name == "nmt" and record.levelno > logging.INFO]


@pytest.mark.parametrize("name", ["tensorboard", "trackio"])  # others can't remove figures
def test_figures_of_undone_updates_are_removed(name: str, stores: None, tmp_path: Path) -> None:
    if module := LOGGERS[name].requires:
        pytest.importorskip(module, reason="the extra loggers is not installed")
    folder = tmp_path / "run"
    folder.mkdir()
    session(folder, name, 0, 20)
    session(folder, name, 10, 30, loss=3.0)
    assert rounded(READERS[name](folder))["train/loss"] == [(10, 0.1), (20, 0.15), (30, 0.1)]


def test_tensorboard_has_samples_and_hyperparameters(tmp_path: Path) -> None:
    session(tmp_path, "tensorboard", 0, 10, finish=True)
    board = EventAccumulator(str(tmp_path / "tensorboard"))
    board.Reload()
    (samples,) = board.Tensors("valid/samples/text_summary")
    assert (
        samples.tensor_proto.string_val[0].decode()
        == "**source** a\n\n**reference** b\n\n**hypothesis** c <b>"
    )
    plugin = board.summary_metadata
    start = metadata.parse_session_start_info_plugin_data(
        plugin[metadata.SESSION_START_INFO_TAG].plugin_data.content
    )
    assert start.hparams["model.d_model"].number_value == 512
    assert start.hparams["training.loggers"].string_value == "['tensorboard']"
    experiment = metadata.parse_experiment_plugin_data(plugin[metadata.EXPERIMENT_TAG].plugin_data.content)
    assert [info.name.tag for info in experiment.metric_infos] == ["final/test/bleu", "final/valid/bleu"]


class Recorder(Logger):
    """Remembers what it gets; `problem` happens at a record of update 20."""

    gets: list[str] = []
    problem: Callable[[], Any] = staticmethod(lambda: None)

    def __init__(self, run: LoggedRun) -> None:
        super().__init__(run)
        self.id = run.id or "first"
        self.gets.append(f"open {run.id}")

    def log(self, record: Mapping[str, Any]) -> None:
        if record["update"] == 20:
            self.problem()
        self.gets.append(f"{record['kind']} {record['update']}")

    def finish(self, update: int, scores: Mapping[str, float]) -> None:
        self.gets.append(f"finish {update} {dict(scores)}")

    def close(self) -> None:
        self.gets.append("close")


@pytest.fixture
def recorder(monkeypatch: pytest.MonkeyPatch) -> type[Recorder]:
    monkeypatch.setitem(LOGGERS, "recorder", Recorder)
    monkeypatch.setattr(Recorder, "gets", [])
    return Recorder


def raising(error: BaseException) -> Callable[[], Any]:
    def problem() -> None:
        raise error

    return staticmethod(problem)


def test_records_are_sent_once(recorder: type[Recorder], tmp_path: Path) -> None:
    session(tmp_path, "tensorboard", 0, 10)  # the logger is added later
    session(tmp_path, "recorder", 10, 20)
    session(tmp_path, "recorder", 10, 30, finish=True)
    assert recorder.gets == [
        *("open None", "train 10", "valid 10", "train 20", "valid 20", "close"),
        *("open first", "train 30", "valid 30"),
        *("finish 30 {'final/test/bleu': 27.5, 'final/valid/bleu': 30.25}", "close"),
    ]


@pytest.mark.parametrize("error", [OSError("no route"), SystemExit(0)], ids=["error", "exit"])
def test_a_logger_that_fails_is_warned_of_once_and_catches_up(
    error: BaseException,
    recorder: type[Recorder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(recorder, "problem", raising(error))
        session(tmp_path, "recorder", 0, 30, finish=True)
    (warning,) = [record.getMessage() for record in caplog.records if record.name == "nmt"]
    assert warning.startswith("training.loggers: recorder has failed, and training continues without it.")
    assert recorder.gets == ["open None", "train 10", "valid 10"]
    session(tmp_path, "recorder", 30, 30)
    assert recorder.gets[3:] == ["open first", "train 20", "valid 20", "train 30", "valid 30", "close"]


def test_a_logger_that_hangs_delays_nothing_but_the_end(
    recorder: type[Recorder],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(sending, "_PATIENCE", 0.5)
    monkeypatch.setattr(recorder, "problem", staticmethod(lambda: time.sleep(30)))
    started = time.monotonic()
    session(tmp_path, "recorder", 0, 30)
    assert time.monotonic() - started < 10
    assert "training.loggers: recorder did not end in" in caplog.text


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (
            ["tensorboard", "neptune"],
            r"training.loggers=\[tensorboard,neptune\]: there is no logger neptune. Choose",
        ),
        (
            ["wandb"],
            r"\[wandb\]: the package wandb is not installed. Run pip install 'nmt\[loggers\]', or remove",
        ),
    ],
)
def test_names_are_checked_at_the_start(
    names: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    check_loggers([])
    monkeypatch.setattr("nmt.training.loggers.base.find_spec", lambda name: None)
    with pytest.raises(UserError, match=message):
        check_loggers(names)
