"""Sweeps and searches end in a table of all runs; killed and started again, they go on where they were."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

import pytest
from commands import Toy, command_line, environment

LONGER = "training.max_updates=9", "training.criterion=loss", "training.log_every=1"
SEARCH = (
    *("-m", "hydra/sweeper=optuna", "hydra.sweeper.n_trials=3", "hydra.sweeper.pruner.n_startup_trials=1"),
    *("training.schedule.peak=tag(log,interval(0.00001,0.1))", "model.dropout=choice(0.1,0.2)"),
    *(
        "training.schedule.name=constant",
        "training.schedule.warmup_updates=1",
        "hydra.sweeper.sampler.seed=2",
    ),
)


def kill_in(toy: Toy, run: str, *words: str) -> None:
    """Starts a training and kills it when a run has a checkpoint."""
    process = subprocess.Popen(
        command_line("nmt-train", *words), cwd=toy.folder, env=environment(toy.cache),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    deadline = time.monotonic() + 300
    while not any((toy.folder / run).glob("checkpoints/update-*")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()


def table(output: bytes, title: str) -> list[str]:
    """Returns the lines of the table of all runs, with single spaces."""
    return [" ".join(line.split()) for line in output.decode().rpartition(title)[2].split("\n")]


def test_a_sweep_ends_in_a_table(toy: Toy) -> None:
    words = "-m", *toy.small("run_dir=sweep", "seed=1,2", *LONGER)
    kill_in(toy, "sweep/seed-2", *words)
    first = (toy.folder / "sweep/seed-1/results.json").stat().st_mtime_ns
    lines = table(toy.done("nmt-train", *words).stdout, "2 runs, scored on valid\n")
    assert (toy.folder / "sweep/seed-1/results.json").stat().st_mtime_ns == first
    assert [line.split(" ")[0] for line in lines[2:6]] == ["seed-1", "seed=1", "seed-2", "seed=2"]
    assert [line.split(" ")[-3] for line in (lines[2], lines[4])] == ["9", "9"]  # updates
    best = next(line for line in lines if line.startswith("Best loss on the validation set: seed-"))
    assert best.count("seed-") == 2 and lines[-2].startswith("page: ")
    page = (toy.folder / "sweep/sweep.html").read_text()
    assert '"name": "seed-1"' in page and '"curves": {"Validation loss": {"seed-1": [[3, ' in page


def trials(folder: Path) -> list[tuple[str, object, object, object]]:
    optuna = pytest.importorskip("optuna")
    journal = optuna.storages.journal.JournalFileBackend(str(folder / "optuna.journal"))
    study = optuna.load_study(study_name="nmt", storage=optuna.storages.JournalStorage(journal))
    return [
        (trial.state.name, trial.params, trial.intermediate_values, trial.value) for trial in study.trials
    ]


@pytest.mark.slow
def test_a_search_that_is_killed_ends_as_one_that_is_not(toy: Toy) -> None:
    pytest.importorskip("optuna")
    toy.done("nmt-train", *SEARCH, *toy.small("run_dir=whole", *LONGER))
    words = *SEARCH, *toy.small("run_dir=killed", *LONGER)
    kill_in(toy, "killed/trial-1", *words)
    lines = table(toy.done("nmt-train", *words).stdout, "3 runs, scored on valid\n")
    whole = trials(toy.folder / "whole")
    assert trials(toy.folder / "killed") == whole
    assert [state for state, *_ in whole] == ["COMPLETE", "PRUNED", "PRUNED"]
    logs = [path.read_text() for path in (toy.folder / "whole").glob("trial-*/train.log")]
    assert sum("stopped early, other trials were better" in log for log in logs) == 2
    assert not any("resumes from here" in log for log in logs)
    assert "(pruned after update " in " ".join(lines)
    assert lines[-2].startswith("nmt-train training.schedule.peak=") and "run_dir" not in lines[-2]


def test_wrong_searches_are_one_line(toy: Toy) -> None:
    pytest.importorskip("optuna")
    for word, message in (
        ("hydra.sweeper.n_trails=3", "hydra.sweeper.n_trails: not an option of hydra/sweeper=optuna."),
        ("hydra.sweeper.sampler.sed=3", "hydra.sweeper.sampler.sed=3"),
        ("model.nrom=1", "model.nrom: there is no such option"),
        ("model.norm=pre,pots", "model.norm: "),
        ("hydra.sweeper.direction=minimize", "=minimize: training.criterion=bleu is to be maximized."),
        ("training.optimizer.name=choice(adam,sgd)", "training.optimizer.name=sgd: there is no optimizer"),
    ):
        assert message in toy.refused("nmt-train", *SEARCH, *toy.small("run_dir=wrong", word)), word
    assert not (toy.folder / "wrong").exists()
    alone = toy.refused("nmt-train", *SEARCH[1:], *toy.small("run_dir=wrong"))
    assert alone.startswith("hydra/sweeper=optuna: is a sweep. Add -m.")
    plain = toy.refused("nmt-train", "-m", "model.dropout=interval(0.1,0.3)", *toy.small("run_dir=wrong"))
    assert plain.startswith("model.dropout=interval(0.1,0.3): needs hydra/sweeper=optuna.")
    other = toy.refused("nmt-eval", "hydra/sweeper=optuna", "model_dir=x")
    assert other.startswith("hydra/sweeper=optuna: only nmt-train searches options.")
