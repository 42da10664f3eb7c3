"""`training.fit_micro_batches`: an update in few micro-batches on GPUs, found once for each run."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from nmt.config import DataConfig, Sharding, TrainConfig, TrainingConfig
from nmt.errors import UserError
from nmt.training import batch_size
from nmt.training.batch_size import with_fitted_split, with_former_split
from nmt.training.processes.launcher import log_idle_gpus, num_processes, require_work
from nmt.training.state.run_folder import RunFolder


def config(max_tokens: int | str = 6250, micro_batches: int = 4, **training: Any) -> TrainConfig:
    training = {"fit_micro_batches": True, "devices": "1", **training}
    data = DataConfig(source_lang="de", target_lang="en", max_tokens=max_tokens)
    return TrainConfig(data=data, training=TrainingConfig(micro_batches=micro_batches, **training))


def split(options: TrainConfig) -> tuple[int | str, int, bool]:
    return options.data.max_tokens, options.training.micro_batches, options.training.fit_micro_batches


def pretend(monkeypatch: pytest.MonkeyPatch, gpus: int) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: gpus > 0)
    monkeypatch.setattr(torch.cuda, "device_count", lambda: gpus)


def room_for(monkeypatch: pytest.MonkeyPatch, tokens: int) -> None:
    """Makes batches of up to this size fit into memory."""
    monkeypatch.setattr(batch_size, "_found", lambda *arguments: min(tokens, arguments[-1]))


@pytest.mark.parametrize(
    ("gpus", "fitting", "expected"),
    [
        (1, 40_000, (25_000, 1)),
        (1, 25_000, (25_000, 1)),
        (1, 24_000, (12_500, 2)),
        (1, 7_000, (6_250, 4)),
        (1, 5_000, (5_000, 5)),
        (4, 40_000, (6_250, 4)),
        (4, 6_000, (3_125, 8)),
        (8, 40_000, (3_125, 8)),
        (3, 40_000, (8_333, 3)),
    ],
)
def test_every_process_has_as_few_micro_batches_as_fit(
    gpus: int, fitting: int, expected: tuple[int, int], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    room_for(monkeypatch, fitting)
    found = with_fitted_split(config(devices=str(gpus)), None, RunFolder(tmp_path), gpus)  # type: ignore[arg-type]
    assert split(found) == (*expected, False)


def test_a_sharded_model_has_a_micro_batch_per_process(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    for gpus, expected in (("8", (3_125, 8)), ("2", (6_250, 4))):
        options = config(sharding=Sharding.full, devices=gpus)
        assert split(with_fitted_split(options, None, folder, 8)) == (*expected, False)  # type: ignore[arg-type]


def test_without_the_option_nothing_is_tried(tmp_path: Path) -> None:
    options = config(fit_micro_batches=False)
    assert with_former_split(options, RunFolder(tmp_path)) is options
    assert with_fitted_split(options, None, RunFolder(tmp_path), 1) is options  # type: ignore[arg-type]


@pytest.mark.parametrize(("gpus", "max_tokens"), [(0, 6250), (2, "auto"), (0, "auto")])
def test_on_a_cpu_and_with_auto_batches_are_as_given(
    gpus: int, max_tokens: int | str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, gpus)
    assert split(with_former_split(config(max_tokens), RunFolder(tmp_path))) == (max_tokens, 4, False)


def test_all_gpus_are_used_while_the_split_is_to_be_found(monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 8)
    warned: list[object] = []
    monkeypatch.setattr("nmt.training.processes.launcher.log", SimpleNamespace(warning=warned.append))
    options = config(devices="auto").training
    assert num_processes(options) == 8
    require_work(options, 6250, 8)
    log_idle_gpus(options, 6250)
    assert not warned
    assert num_processes(replace(options, fit_micro_batches=False)) == 4


def started(path: Path, options: TrainConfig, *, checkpoint: bool) -> RunFolder:
    folder = RunFolder(path)
    with folder.claimed(options):
        if checkpoint:
            (folder.checkpoints / "update-00000010").mkdir(parents=True)
    return folder


FOUND = config(25_000, 1, fit_micro_batches=False)


@pytest.mark.parametrize("gpus", [0, 1, 8])
def test_a_run_is_resumed_with_its_split(gpus: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, gpus)
    folder = started(tmp_path, FOUND, checkpoint=True)
    given = with_former_split(config(devices="auto"), folder)
    assert split(given) == (25_000, 1, False)
    folder.check(given)
    assert num_processes(given.training) == 1


def test_a_run_that_began_without_the_option_is_resumed(tmp_path: Path) -> None:
    folder = started(tmp_path, config(fit_micro_batches=False), checkpoint=True)
    folder.check(with_former_split(config(), folder))


def test_another_size_of_an_update_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, 1)
    folder = started(tmp_path, FOUND, checkpoint=True)
    with pytest.raises(UserError, match="started with data.max_tokens=25000, not 3125, training.micro_batch"):
        folder.check(with_former_split(config(3125), folder))


def test_a_start_without_a_checkpoint_is_repeated_alike(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pretend(monkeypatch, 1)
    folder = started(tmp_path, FOUND, checkpoint=False)
    assert split(with_former_split(config(), folder)) == (25_000, 1, False)
    assert split(with_former_split(config(clip_norm=1.0), folder)) == (6250, 4, True)
    assert split(with_former_split(config(3125), folder)) == (3125, 4, True)
    pretend(monkeypatch, 2)
    assert split(with_former_split(config(devices="2"), folder)) == (6250, 4, True)
