"""Goldens of what the commands say: help, resolved options, completion and error messages."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

from golden_parts.corpus import SMALL, as_arguments, files, small
from golden_parts.trainings import learnt_models
from golden_parts.workshop import CASES, Workshop

COMMANDS = ("train", "translate", "eval", "export", "import", "serve")


def record_help(workshop: Workshop) -> None:
    """Records `--help` and completion of all commands."""
    for command in COMMANDS:
        for flag in ("--help", "-h", "--version"):
            workshop.note_run(f"help/{command}/{flag}", command, flag)
        for shell in ("bash", "zsh", "fish"):
            workshop.note_run(f"help/{command}/completion-{shell}", command, "--completion", shell)
    for flag in ("--help", "--version", "--completion=bash"):
        workshop.note_run(f"help/nmt/{flag}", flag)
    workshop.note_run("help/nmt/nothing")
    workshop.note_run("help/train/other-words", "train", "--help", "seed=3")


def record_show(workshop: Workshop) -> None:
    """Records the resolved options of command lines."""
    for name, words in CASES["shown"].items():
        workshop.note_run(f"show/{name}", *words.split(), "--show")


def record_errors(workshop: Workshop) -> None:
    """Records the messages of command lines, YAML files, data files and model folders that are refused."""
    folder = workshop.folder
    (folder / "twice.tsv").write_text("ba\tx\nba\ty\n")
    (folder / "terms.tsv").write_text("ba\tx\n")
    models = {"model": "", "other": ""}
    errors = CASES["errors"]
    if any("{model}" in words and workshop.wants(f"errors/{name}") for name, words in errors.items()):
        models = dict(zip(models, learnt_models(workshop), strict=True))
        workshop.run(*small(run_dir="runs/errors", training__max_updates="2"))
    for name, words in errors.items():
        for key, value in models.items():
            words = words.replace(f"{{{key}}}", value)
        workshop.note_run(f"errors/{name}", *words.split())
    for name, text in CASES["yaml_files"].items():
        (folder / "wrong/experiment").mkdir(parents=True, exist_ok=True)
        (folder / "wrong/experiment/own.yaml").write_text(f"# @package _global_\n{text}")
        options = ("--config-dir", "wrong", "experiment=own", "data=local", *as_arguments(files() | SMALL))
        workshop.note_run(f"errors/yaml-{name}", "train", *options, "--show")
    for name, contents in CASES["data_files"].items():
        for path, content in contents.items():
            (folder / path).unlink(missing_ok=True)
            if content is not None:
                (folder / path).write_text(content, encoding="latin-1")
        first, second = [*contents, ""][:2]
        places = {"data.train.source": first, "data.train.target": second}
        if len(contents) == 1:
            places = {"data.train.source": "null", "data.train.target": "null", "data.train.path": first}
        arguments = as_arguments(files() | SMALL | places)
        workshop.note_run(f"errors/data-{name}", "train", "data=local", *arguments, f"run_dir=runs/{name}")
    if workshop.wants("errors/run-of-other-options"):
        workshop.run(*small(run_dir="runs/errors", training__max_updates="2"))
        changed = small(run_dir="runs/errors", training__max_updates="2", model__d_ff="96", seed="3")
        workshop.note_run("errors/run-of-other-options", *changed)
        workshop.note_run("errors/run-never", *small(run_dir="runs/errors", resume="never"))
        back = small(run_dir="runs/errors", training__max_updates="2", resume_from="update-77")
        workshop.note_run("errors/run-no-checkpoint", *back)
    _damaged_models(workshop)


def _damaged_models(workshop: Workshop) -> None:
    """Records what nmt-translate says of model folders with one damaged file."""

    def cut(path: Path) -> None:
        path.write_bytes(path.read_bytes()[:-9])

    def replaced(path: Path) -> None:
        path.write_text("nonsense: 1\n")

    damages: dict[str, Callable[[Path], None]] = {
        "cut": cut,
        "missing": Path.unlink,
        "text": replaced,
    }
    for file in ("model.safetensors", "config.yaml", "source.spm", "results.json", "SHA256SUMS"):
        for name, damage in damages.items():
            case = f"errors/model-{file}-{name}"
            if workshop.wants(case):
                source = workshop.folder / learnt_models(workshop)[0] / "model"
                for checked in (True, False):
                    target = workshop.folder / "damaged"
                    shutil.rmtree(target, ignore_errors=True)
                    shutil.copytree(source, target)
                    damage(target / file)
                    if not checked:
                        (target / "SHA256SUMS").unlink(missing_ok=True)
                    words = ("translate", "model_dir=damaged", "threads=1")
                    workshop.note_run(case if checked else f"{case}-no-sums", *words, stdin="ba\n")
