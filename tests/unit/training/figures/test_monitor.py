"""The monitor: the bar, records that are cut back or damaged, full disks; and the profile."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path

import pytest
import torch
from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

from nmt.config import TrainConfig
from nmt.errors import UserError
from nmt.training.figures.monitor import Monitor
from nmt.training.figures.profiling import TABLE, TRACE, profiling
from nmt.training.loggers import Loggers, loggers_of, tensorboard
from nmt.training.state.progress import Progress
from nmt.training.state.run_folder import RunFolder

FIGURES: dict[str, float | None] = {
    "loss": 1.23456,
    "ppl": None,
    "gradient_norm": float("inf"),
    "tokens_per_second": 12345.6,
    "mfu": 0.414,
    "filling": 0.996,
    "data_wait": 0.0,
    "peak_memory_gb": 1.26,
    "eta_minutes": 5.0,
}


def test_the_bar_shows_the_figures(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    monitor = Monitor(RunFolder(tmp_path), Progress(), 100, Loggers())
    monitor._bar.delay = 0.0
    monitor.advance(FIGURES)
    monitor._bar.refresh()
    monitor.close()
    shown = "loss 1.235, norm inf, 12,346 tokens/s, MFU 41%, 100% full, 0% waiting, 1.3 GB"
    assert shown in capsys.readouterr().err


def test_records_are_cut_back(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    monitor = Monitor(folder, Progress(), 100, loggers := board(folder))
    for update in (10, 20, 30):
        monitor.advance(FIGURES)
        monitor.record("train", update, {"loss": update / 10, "ppl": float("inf")})
        samples = [{"source": "a\u2028\x85", "hypothesis": "b"}]  # line ends for some programs
        monitor.record("valid", update, {"bleu": 5.0, "samples": samples})
    monitor.close()
    loggers.close()
    with open(folder.metrics, "a") as file:
        file.write('{"kind": "train", "upda')  # a crash
    Monitor(folder, Progress(update=20), 100, board(folder)).close()

    records = list(map(json.loads, folder.metrics.read_text().removesuffix("\n").split("\n")))
    kinds = [(record["kind"], record["update"]) for record in records]
    assert kinds == [("train", 10), ("valid", 10), ("train", 20), ("valid", 20)]
    assert records[0]["loss"] == 1.0 and records[0]["ppl"] is None
    assert curve(folder) == [(10, 1.0), (20, 2.0)]
    assert len(list(folder.tensorboard.iterdir())) == 1


def board(folder: RunFolder) -> Loggers:
    """Returns the loggers of a run with the default options."""
    return loggers_of(TrainConfig(run_dir=str(folder.path)))


def curve(folder: RunFolder) -> list[tuple[int, float]]:
    """Returns the curve of the loss in TensorBoard: updates and values."""
    board = EventAccumulator(str(folder.tensorboard))
    board.Reload()
    return [(event.step, event.value) for event in board.Scalars("train/loss")]


def test_figures_follow_a_folder_that_is_moved(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    folder = RunFolder(tmp_path / "run")
    folder.path.mkdir()
    monitor = Monitor(folder, Progress(), 10, board(folder))
    with closing(monitor):
        monitor.record("train", 1, {"loss": 2.0})
        folder.path.rename(tmp_path / "moved")
        monitor.record("train", 2, {"loss": 1.0})
        with pytest.raises(UserError, match="run: was moved or removed while the run was writing to it"):
            monitor.go_back(Progress())
    moved = RunFolder(tmp_path / "moved")
    assert len(moved.metrics.read_text().splitlines()) == 2
    assert curve(moved) == [(1, 2.0), (2, 1.0)]
    assert "Traceback" not in capfd.readouterr().err
    assert not folder.path.exists()


@pytest.mark.parametrize(
    "line",
    [
        *("[]", "7", "null", '"text"', "[" * 5000),
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
    Monitor(folder, Progress(update=5), 10, Loggers()).close()
    assert folder.metrics.read_text() == f"{sound}\n"


@pytest.mark.parametrize(
    ("settled", "kept"), [(True, ["valid", "train", "valid"]), (False, ["valid", "train"])]
)
def test_a_validation_that_is_done_again_is_recorded_once(
    settled: bool, kept: list[str], tmp_path: Path
) -> None:
    folder = RunFolder(tmp_path)
    monitor = Monitor(folder, Progress(), 100, Loggers())
    for kind, update in (("valid", 10), ("train", 20), ("valid", 20)):
        monitor.record(kind, update, {"loss": 1.0})
    monitor.close()
    Monitor(folder, Progress(update=20, settled=settled), 100, Loggers()).close()
    assert [json.loads(line)["kind"] for line in folder.metrics.read_text().splitlines()] == kept


def test_a_full_disk_is_told(tmp_path: Path) -> None:
    monitor = Monitor(RunFolder(tmp_path), Progress(), 100, Loggers())
    monitor._file.close()
    monitor._file = open("/dev/full", "w")
    with pytest.raises(UserError, match=r"can't write .*metrics.jsonl: no space is left"), closing(monitor):
        monitor.record("train", 1, {"loss": 1.0})
    assert monitor._file.closed


def test_a_disk_that_is_full_from_the_start_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(file: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tensorboard, "RecordWriter", full)
    with pytest.raises(UserError, match=r"can't write .*tensorboard: no space is left"):
        Monitor(RunFolder(tmp_path), Progress(), 100, board(RunFolder(tmp_path)))


def test_the_sixth_to_the_eighth_update_are_traced(tmp_path: Path) -> None:
    folder = tmp_path / "profile"
    a = torch.ones(3, 3)
    with profiling(folder, wanted=True) as updated:
        for update in range(1, 12):
            with torch.profiler.record_function(f"update {update}"):
                a @ a
            assert folder.exists() == (update > 8)
            updated()
    events = json.loads((folder / TRACE).read_text())["traceEvents"]
    names = {event.get("name") for event in events}
    assert {f"update {n}" for n in range(1, 12)} & names == {"update 6", "update 7", "update 8"}
    assert "aten::mm" in names
    assert "aten::mm" in (folder / TABLE).read_text()


def test_unless_it_is_not_wanted(tmp_path: Path) -> None:
    with profiling(tmp_path / "profile", wanted=False) as updated:
        updated()
    assert not list(tmp_path.iterdir())
