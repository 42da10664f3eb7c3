"""Goldens of training: weights, state of the optimizer, reports and logs of short runs."""

from __future__ import annotations

import re
import shutil
import signal
import subprocess
import time
from pathlib import Path
from typing import Any

import yaml

from golden_parts.corpus import as_arguments, files, small
from golden_parts.workshop import CASES, Workshop


def record(workshop: Workshop) -> None:
    """Runs all trainings that are wanted and records them."""
    if any(workshop.wants(f"train/{name}") for name in ("plain", *CASES["sweeps"]["ends"])):
        shutil.rmtree(workshop.folder / "cache", ignore_errors=True)  # the log says what is prepared
        result = workshop.run(*small(run_dir="runs/plain", training__max_updates="8"))
        run = workshop.folder / "runs/plain"
        for name, output in (("stdout", result.stdout), ("stderr", result.stderr)):
            workshop.note(f"train/plain/{name}", output.decode(errors="backslashreplace"))
        for name in ("config.yaml", "train.log", "metrics.jsonl", "data_report.json", "model/README.md"):
            workshop.note_file(f"train/plain/{name}", run / name)
        workshop.note_file("train/plain/model-results", run / "model/results.json")
        note_run(workshop, "plain", run)
    for sweep, runs in CASES["sweeps"].items():
        _sweep(
            workshop, sweep, {name: words for name, words in runs.items() if workshop.wants(f"train/{name}")}
        )
    for name, words in CASES["processes"].items():
        if workshop.wants(f"train/{name}"):
            _train(workshop, f"train/{name}/stderr", f"runs/{name}", words)
            note_run(workshop, name, workshop.folder / "runs" / name)
    _resumed(workshop)


def _sweep(workshop: Workshop, sweep: str, runs: dict[str, str]) -> None:
    """Runs trainings in one process: each is a file of `experiment`."""
    if not runs:
        return
    experiments = workshop.folder / "own/experiment"
    experiments.mkdir(parents=True, exist_ok=True)
    for name, words in runs.items():
        # An option of the command line would replace that of a file, so all options stand in the file.
        own = {"name": name, "run_dir": f"sweeps/{name}"}
        options = dict(word.split("=", 1) for word in [*small()[2:], *words.split()]) | own
        text = "# @package _global_\n" + yaml.safe_dump(_nested(options))
        (experiments / f"{name}.yaml").write_text(text, encoding="utf-8")
    chosen = f"experiment={','.join(runs)}"
    result = workshop.run("train", "-m", "--config-dir", "own", "data=local", chosen)
    errors = result.stderr.decode(errors="backslashreplace")
    workshop.texts[f"train/sweep-{sweep}/stderr"] = errors  # to look at; the runs are compared
    for name in runs:
        folders = [path for path in (workshop.folder / "sweeps" / name).glob("*") if path.is_dir()]
        note_run(workshop, name, folders[0] if folders else workshop.folder / "none")


def _nested(options: dict[str, str]) -> dict[str, Any]:
    """Returns options with dots in their names as nested sections."""
    nested: dict[str, Any] = {}
    for key, value in options.items():
        *sections, last = key.split(".")
        place = nested
        for section in sections:
            place = place.setdefault(section, {})
        # YAML would read 3e-3, without a dot, as a string.
        place[last] = float(value) if re.fullmatch(r"[\d.]+e-\d+", value) else yaml.safe_load(value)
    return nested


def note_run(workshop: Workshop, name: str, run: Path) -> None:
    """Records the last checkpoint, the final model and the results of a run."""
    checkpoints = sorted((run / "checkpoints").glob("update-*"))
    last = checkpoints[-1] if checkpoints else run
    workshop.note(f"train/{name}/checkpoints", " ".join(path.name[7:].lstrip("0") for path in checkpoints))
    workshop.note_tensors(f"train/{name}/model", last / "model.safetensors")
    workshop.note_tensors(f"train/{name}/optimizer", last / "optimizer.safetensors")
    workshop.note_file(f"train/{name}/state", last / "state.json")
    workshop.note_tensors(f"train/{name}/final-model", run / "model/model.safetensors")
    workshop.note_file(f"train/{name}/results", run / "results.json")


def _options(words: str) -> dict[str, str]:
    """Returns options from words, for `small`."""
    return {key.replace(".", "__"): value for key, value in (word.split("=", 1) for word in words.split())}


def _train(workshop: Workshop, note: str, run_dir: str, words: str) -> None:
    """Runs a training in a process of its own; retains its log to look at, without comparing it."""
    result = workshop.run(*small(run_dir=run_dir, **_options(words)))
    workshop.texts[note] = result.stderr.decode(errors="backslashreplace")


def _resumed(workshop: Workshop) -> None:
    """Records runs that are killed, stopped by a signal, or ended early, and then resumed."""
    for name, words in (
        ("killed", "training.max_updates=200"),
        (
            "killed-bf16-two-ranks",
            "training.max_updates=150 training.micro_batches=2 training.devices=2 training.precision=bf16",
        ),
        ("terminated", "training.max_updates=200 training.ema=0.9 data.sampling.alpha=0.2"),
    ):
        if workshop.wants(f"train/{name}"):
            words += " training.checkpoint_every=10 training.validate_every=100 training.criterion=loss"
            run = workshop.folder / "runs" / name
            stop = signal.SIGTERM if name == "terminated" else signal.SIGKILL
            arguments = small(run_dir=f"runs/{name}", **_options(words))
            process = workshop.start(*arguments, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
            while process.poll() is None and not (run / "checkpoints/update-00000010").exists():
                time.sleep(0.01)
            process.send_signal(stop)
            process.wait()
            if stop == signal.SIGTERM:
                workshop.note(f"train/{name}/exit-status", str(process.returncode))
            time.sleep(2.0)  # the ranks end by themselves
            _train(workshop, f"train/{name}/stderr", f"runs/{name}", words)
            note_run(workshop, name, run)
    again = {
        "continued": ("training.max_updates=4", "training.max_updates=9"),
        "gone-back": ("training.max_updates=8", "training.max_updates=8 resume_from=update-4"),
    }
    for name, sessions in again.items():
        if workshop.wants(f"train/{name}"):
            for number, words in enumerate(sessions):
                _train(workshop, f"train/{name}/stderr-{number}", f"runs/{name}", words)
            note_run(workshop, name, workshop.folder / "runs" / name)


def learnt_models(workshop: Workshop) -> list[str]:
    """Trains two models that have learnt the toy language, with placeholders; returns their folders."""
    if workshop._models is None:
        options = dict(word.split("=", 1) for word in small()[2:]) | files("large", "valid test")
        options |= CASES["learnt"]
        result = workshop.run(
            "train", "-m", "data=local", *as_arguments(options), "run_dir=learnt", "seed=1,2"
        )
        folders = sorted(path for path in (workshop.folder / "learnt").glob("*") if path.is_dir())
        assert len(folders) == 2, result.stderr.decode(errors="replace")
        workshop._models = [f"learnt/{path.name}" for path in folders]
    return workshop._models
