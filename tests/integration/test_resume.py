"""A run that is stopped at any point and resumed ends with bit-identical weights."""

from __future__ import annotations

import json
import multiprocessing
import os
import shutil
import signal
from collections.abc import Callable, Iterator
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from toy import toy_config

from nmt.bundle import read_config, read_weights
from nmt.config import (
    Average,
    AveragingConfig,
    OptimizerConfig,
    Precision,
    Resume,
    ScheduleConfig,
    TrainConfig,
)
from nmt.data.batches.stream import Cursor
from nmt.errors import UserError
from nmt.training import batch_size
from nmt.training.figures.memory import MemoryMeter
from nmt.training.run import train
from nmt.training.state import checkpoint
from nmt.training.state.run_folder import RunFolder
from nmt.training.trainer import Trainer

SETTINGS: dict[str, dict[str, Any]] = {
    "averaging the last": {
        "micro_batches": 2,
        "averaging": AveragingConfig(kind=Average.last, count=3),
        "keep_checkpoints": 1,
    },
    "averaging the best, clipped, R-Drop, a running mean": {
        "averaging": AveragingConfig(kind=Average.best, count=2),
        "keep_checkpoints": 1,
        "clip_norm": 1.0,
        "checkpoint_every": 2,
        "rdrop": 5.0,
        "ema": 0.9,
        "max_tokens": 256,
    },
    "the best of them all, between checkpoints": {
        "averaging": AveragingConfig(kind=Average.auto, count=2),
        "keep_checkpoints": 1,
        "validate_every": 3,
        "criterion": "loss",
        "schedule": ScheduleConfig(name="constant", peak=0.02, warmup_updates=0),
        "ema": 0.5,
    },
    "bf16, Muon, SimCut late, pairs augmented, sampled, concatenated, placeholders inserted": {
        "precision": Precision.bf16,
        "optimizer": OptimizerConfig(name="muon"),
        "sampling": 0.3,
        "concatenate": 0.5,
        "typos": 0.4,
        "placeholders": True,
        "max_tokens": 256,
        "simcut": 3.0,
        "simcut_rate": 0.2,
        "consistency_from": 6,
    },
    "the rate falls, with less dropout": {
        "schedule": ScheduleConfig(name="wsd", peak=0.02, warmup_updates=2, decay_share=0.5),
        "dropout": 0.4,
        "final_dropout": 0.1,
    },
    "fp16, its loss scale": {"precision": Precision.fp16, "max_tokens": 128},
    "by epochs, early stop": {
        "validate_every": 0,
        "checkpoint_every": 0,
        "max_updates": 40,
        "max_epochs": 3,
        "patience": 2,
        "micro_batches": 2,
    },
}
LESS_COMMON = "averaging the last", "fp16, its loss scale", "by epochs, early stop"
"""Settings whose stops are slow tests, since faster tests of other files have their parts."""


@pytest.fixture(scope="module", autouse=True)
def large_first_loss_scale() -> Iterator[None]:
    """A loss scale with which the first updates in fp16 overflow."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("nmt.training.state.progress._FIRST_SCALE", 65536.0)
        yield


@pytest.fixture(scope="module")
def whole(
    data: Path, large_first_loss_scale: None, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """Returns an uninterrupted run with some settings."""
    folder = tmp_path_factory.mktemp("whole")

    @cache
    def run(name: str) -> Path:
        train(toy_config(data, folder / name, **SETTINGS[name]))
        return folder / name

    return run


def stop_after(monkeypatch: pytest.MonkeyPatch, updates: int) -> None:
    """Raises SIGINT once, in the middle of update number `updates` from now."""
    original = Trainer._micro_batch
    seen: set[int] = set()

    def with_interrupt(self: Trainer, *args: Any) -> None:
        original(self, *args)
        seen.add(self.progress.update)
        if len(seen) == updates:
            seen.update(range(10_000))  # once only
            signal.raise_signal(signal.SIGINT)

    monkeypatch.setattr(Trainer, "_micro_batch", with_interrupt)


def interrupted(monkeypatch: pytest.MonkeyPatch, config: TrainConfig, stops: list[int]) -> str:
    """Trains with a Ctrl-C after each number of further updates in `stops`, then to the end."""
    for updates in stops:
        with monkeypatch.context() as patch:
            stop_after(patch, updates)
            with pytest.raises(SystemExit) as stopped:
                train(config)
        assert stopped.value.code == 130
        assert not (Path(config.run_dir) / "results.json").exists()
    return train(config)


def assert_same_run(run: Path, reference: Path) -> None:
    names = ["model/model.safetensors", "test.hypotheses.txt", "valid.hypotheses.txt"]
    names += [f"checkpoints/{p.name}/model.safetensors" for p in (reference / "checkpoints").iterdir()]
    assert {p.name for p in (run / "checkpoints").iterdir()} == {
        p.name for p in (reference / "checkpoints").iterdir()
    }
    for name in names:
        assert (run / name).read_bytes() == (reference / name).read_bytes(), name
    assert validations(run) == validations(reference)
    assert all(
        progress(run, p.name) == progress(reference, p.name) for p in (reference / "checkpoints").iterdir()
    )
    keys = ("updates", "target_tokens", "best", "averaged_updates", "ended", "delivered", "candidates")
    results = [json.loads((folder / "results.json").read_text()) for folder in (run, reference)]
    assert [results[0]["training"][key] for key in keys] == [results[1]["training"][key] for key in keys]
    assert results[0]["test"] == results[1]["test"]


def progress(run: Path, checkpoint: str = "update-00000012") -> dict[str, Any]:
    """Returns the counters of a checkpoint, without durations."""
    state = json.loads((run / "checkpoints" / checkpoint / "state.json").read_text())
    return {key: value for key, value in state["progress"].items() if "seconds" not in key}


def validations(run: Path) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in (run / "metrics.jsonl").read_text().splitlines()]
    updates = [(record["kind"], record["update"]) for record in records]
    assert len(updates) == len(set(updates)), "metrics.jsonl was not cut back"
    return [
        {k: v for k, v in record.items() if k != "time"} for record in records if record["kind"] == "valid"
    ]


@pytest.mark.parametrize(
    "name", [pytest.param(name, marks=[pytest.mark.slow] if name in LESS_COMMON else []) for name in SETTINGS]
)
@pytest.mark.parametrize(
    "stops",
    [pytest.param([1], marks=pytest.mark.slow), pytest.param([4], marks=pytest.mark.slow), [2, 3, 2]],
)
def test_stopped_run_ends_in_the_same_weights(
    name: str,
    stops: list[int],
    data: Path,
    whole: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    interrupted(monkeypatch, toy_config(data, tmp_path / "run", **SETTINGS[name]), stops)
    assert_same_run(tmp_path / "run", whole(name))


def test_processes_that_make_batches_come_and_go(
    data: Path, whole: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Loader processes do not change the result, and a run that started with them resumes without them."""
    name = "bf16, Muon, SimCut late, pairs augmented, sampled, concatenated, placeholders inserted"
    alone = toy_config(data, tmp_path / "run", **SETTINGS[name])
    helped = replace(alone, data=replace(alone.data, loaders=2))
    with monkeypatch.context() as patch:
        stop_after(patch, 5)
        with pytest.raises(SystemExit):
            train(helped)
    assert multiprocessing.active_children() == []
    train(alone)
    assert_same_run(tmp_path / "run", whole(name))


def test_the_loss_scale_of_fp16_is_in_play(whole: Callable[[str], Path]) -> None:
    found = progress(whole("fp16, its loss scale"))
    assert 1.0 <= found["loss_scale"] < 65536.0
    assert found["skipped_updates"] > 0 and found["skipped"] == [] and found["finite_in_a_row"] > 0


def test_crash_goes_back_to_the_last_checkpoint(
    data: Path, whole: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Simulates kill -9: the run saves nothing at its end, and leaves a half-written checkpoint."""
    name = "averaging the best, clipped, R-Drop, a running mean"
    config = toy_config(data, tmp_path / "run", **SETTINGS[name])

    class PowerCut(BaseException):
        pass

    original = Trainer._update

    def with_crash(self: Trainer) -> None:
        original(self)
        if self.progress.update == 7:
            raise PowerCut

    with monkeypatch.context() as patch:
        patch.setattr(Trainer, "_update", with_crash)
        with pytest.raises(PowerCut):
            train(config)
    half = tmp_path / "run/checkpoints/.update-00000008.tmp"
    half.mkdir()
    (half / "model.safetensors").write_bytes(b"half")
    with open(tmp_path / "run/metrics.jsonl", "a") as file:
        file.write('{"kind": "train", "upd')
    train(config)
    assert_same_run(tmp_path / "run", whole(name))


def test_the_split_of_an_update_is_found_once(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As on a GPU: the second session could have larger micro-batches, and does not use them."""
    monkeypatch.setattr(batch_size, "choose_device", lambda name: torch.device("cuda"))
    monkeypatch.setattr(MemoryMeter, "free", lambda meter: 10**12)

    def run(name: str, max_updates: int, fitting: int) -> RunFolder:
        monkeypatch.setattr(batch_size, "_largest_fitting", lambda *arguments: fitting)
        options = {"micro_batches": 4, "max_tokens": 128, "fit_micro_batches": True}
        train(toy_config(data, tmp_path / name, max_updates=max_updates, **options))
        return RunFolder(tmp_path / name)

    whole, parts = run("whole", 8, 300), run("parts", 4, 300)
    run("parts", 8, 512)
    for folder in (whole, parts):
        there = read_config(folder.config)
        assert (there.data.max_tokens, there.training.micro_batches) == (256, 2)
    a, b = (read_weights(f.checkpoints / "update-00000008/model.safetensors") for f in (whole, parts))
    assert all(torch.equal(weight, b[name]) for name, weight in a.items())


def nan_between(monkeypatch: pytest.MonkeyPatch, first: Cursor, last: Cursor) -> None:
    """Makes the gradient of the updates that start between two cursors NaN."""
    original = Trainer._micro_batch

    def poisoned(self: Trainer, *args: Any) -> None:
        original(self, *args)
        if first <= self.progress.cursor < last:
            self.parallel.gradients.gradients[0] = float("nan")

    monkeypatch.setattr(Trainer, "_micro_batch", poisoned)


@pytest.mark.parametrize(
    "last", [pytest.param(9, marks=pytest.mark.slow), 16]
)  # skips three updates in a row, or ten, which cause a rollback to update 4
def test_skipped_updates_and_the_way_back_are_repeated(
    last: int, data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    options: dict[str, Any] = {"max_updates": 24, "max_tokens": 64, "sampling": 0.3, "keep_checkpoints": 1}
    nan_between(monkeypatch, Cursor(0, 0, 6), Cursor(0, 0, last))
    train(toy_config(data, tmp_path / "whole", **options))
    state = progress(tmp_path / "whole", "update-00000024")
    assert [skipped["update"] for skipped in state["skipped"]] == list(range(7, last + 1))
    if last == 16:
        assert state["went_back"] == {
            "update": 5,
            "start": asdict(Cursor(0, 0, 4)),
            "end": asdict(Cursor(0, 0, 16)),
        }
    for stops in ([6, 5], [18]):
        run = tmp_path / str(stops)
        interrupted(monkeypatch, toy_config(data, run, **options), stops)
        assert_same_run(run, tmp_path / "whole")


def test_damaged_checkpoints_are_named_and_passed_over(
    data: Path,
    whole: Callable[[str], Path],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    said: pytest.LogCaptureFixture,
) -> None:
    name = "averaging the last"
    config = toy_config(data, tmp_path / "run", **SETTINGS[name])
    with monkeypatch.context() as patch:
        stop_after(patch, 10)
        with pytest.raises(SystemExit):
            train(config)
    folder = tmp_path / "run/checkpoints"
    assert sorted(p.name for p in folder.iterdir()) == [f"update-{u:08d}" for u in (4, 8, 10)]
    model = folder / "update-00000010/model.safetensors"
    content = bytearray(model.read_bytes())
    content[-100] ^= 1  # one bit: the file still opens
    model.write_bytes(content)
    (folder / "update-00000008/state.json").write_text('{"format_ver')
    train(config)
    for update in (8, 10):
        assert f"update-{update:08d}" in said.text
    assert_same_run(tmp_path / "run", whole(name))

    for path in folder.glob("*/optimizer.safetensors"):
        os.truncate(path, 1000)
    with pytest.raises(UserError, match="none of the .* checkpoints can be read"):
        train(toy_config(data, tmp_path / "run", **{**SETTINGS[name], "max_updates": 99}))


@pytest.mark.parametrize(
    "options",
    [
        {"averaging": AveragingConfig(kind=Average.last)},
        {
            "checkpoint_every": 2,
            "keep_checkpoints": 1,
            "criterion": "loss",
            "averaging": AveragingConfig(kind=Average.best, count=2),
        },
    ],
)
def test_more_updates_go_on_as_if_there_had_been_no_end(
    options: dict[str, Any], data: Path, tmp_path: Path
) -> None:
    """The end at update 6 adds a validation and an average, which do not affect the resumed run."""
    first = train(toy_config(data, tmp_path / "run", max_updates=6, **options))
    again = train(toy_config(data, tmp_path / "run", max_updates=6, **options))
    assert again == first
    results = json.loads((tmp_path / "run/results.json").read_text())
    assert results["training"]["averaged_updates"] == [4, 6]
    train(toy_config(data, tmp_path / "run", max_updates=12, **options))
    train(toy_config(data, tmp_path / "whole", max_updates=12, **options))
    metrics = tmp_path / "run/metrics.jsonl"
    lines = metrics.read_text().splitlines(keepends=True)
    others = [line for line in lines if '"kind": "valid", "update": 6,' not in line]
    assert len(others) == len(lines) - 1
    metrics.write_text("".join(others))
    assert_same_run(tmp_path / "run", tmp_path / "whole")


def test_a_run_that_moves_with_its_data_ends_in_the_same_weights(
    data: Path, whole: Callable[[str], Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another folder, a relative path and an empty cache; other contents under the same names are refused."""
    name = "averaging the last"
    first, second = tmp_path / "first", tmp_path / "second"
    shutil.copytree(data, first / "data")
    with monkeypatch.context() as patch:
        stop_after(patch, 7)
        with pytest.raises(SystemExit):
            train(toy_config(first / "data", first / "run", **SETTINGS[name]))
    first.rename(second)
    monkeypatch.setenv("NMT_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(second)
    for file in ("train.src", "valid.src"):
        text = Path("data", file).read_text()
        Path("data", file).write_text(f"{text[:-2]}x\n")
        with pytest.raises(UserError, match="update-00000007: the data changed since"):
            train(toy_config(Path("data"), Path("run"), **SETTINGS[name]))
        Path("data", file).write_text(text)
    train(toy_config(Path("data"), Path("run"), **SETTINGS[name]))
    assert_same_run(second / "run", whole(name))
    assert read_config(second / "run/config.yaml").data.train.source == "data/train.src"


def test_other_options_are_refused_and_named(data: Path, tmp_path: Path) -> None:
    run = tmp_path / "run"
    train(toy_config(data, run))
    config = toy_config(data, run, dropout=0.3, label_smoothing=0.2)
    with pytest.raises(
        UserError,
        match=r"run: started with model.dropout=0.1, not 0.3, training.label_smoothing=0.1, not 0.2",
    ):
        train(config)
    config = toy_config(data, run)
    config.resume = Resume.never
    with pytest.raises(UserError, match="resume=never"):
        train(config)
    config = toy_config(data, tmp_path / "other")
    config.resume = Resume.must
    with pytest.raises(UserError, match="resume=must"):
        train(config)
    assert not (tmp_path / "other").exists()


def test_disk_full_leaves_what_there_was(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, whole: Callable[[str], Path]
) -> None:
    name = "averaging the last"
    config = toy_config(data, tmp_path / "run", **SETTINGS[name])
    original, calls = checkpoint.write_tensors, iter(range(100))

    def full(*args: Any) -> None:
        if next(calls) == 3:  # the optimizer of the second checkpoint
            Path(args[0]).write_bytes(b"part")
            raise OSError(28, "No space left on device")
        original(*args)

    with monkeypatch.context() as patch:
        patch.setattr(checkpoint, "write_tensors", full)
        with pytest.raises(UserError, match="update-00000008: no space is left"):
            train(config)
    assert [p.name for p in (tmp_path / "run/checkpoints").iterdir()] == ["update-00000004"]
    train(config)
    assert_same_run(tmp_path / "run", whole(name))


def test_two_at_a_time_are_refused(data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    config = toy_config(data, tmp_path / "run")

    def second(self: Trainer) -> None:
        raise AssertionError(str(pytest.raises(UserError, train, config).value))

    monkeypatch.setattr(Trainer, "_update", second)
    with pytest.raises(AssertionError, match="in use by another nmt-train"):
        train(config)
