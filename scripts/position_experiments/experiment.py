"""An experiment: what is measured, how long it takes, and where its files are."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

Result = Mapping[str, Any]
"""What an experiment yields; any value that JSON can hold."""

Measure = Callable[["Place"], Result]


@dataclass(frozen=True)
class Place:
    """The folders of a study.

    Attributes:
        folder: of the study.
        multi30k: the folder of Multi30k, with the files of `scripts/multi30k.sh`; None: not given.
        name: of the experiment.
    """

    folder: Path
    multi30k: Path | None
    name: str = ""

    @property
    def run(self) -> Path:
        """The run folder of the experiment."""
        return self.folder / "runs" / self.name

    @property
    def result(self) -> Path:
        """The file of the experiment's result; it exists once the experiment is complete."""
        return self.folder / "results" / f"{self.name}.json"

    def data(self, name: str) -> Path:
        """The folder of data that several experiments share."""
        return self.folder / "data" / name


@dataclass(frozen=True)
class Experiment:
    """One measurement.

    Attributes:
        name: unique, and the name of its files.
        part: of the study: a key of `position_study.PARTS`.
        measure: makes the measurement; called in a separate process, and again from the start if the
            process was killed. Trainings resume.
        minutes: estimate for one core, or for all cores if `alone`.
        facts: what distinguishes the experiment; copied into its result.
        alone: whether time is measured, so that nothing else may run.
    """

    name: str
    part: str
    measure: Measure
    minutes: float
    facts: Mapping[str, Any]
    alone: bool = False


def train(run: Path, options: Sequence[str], *, threads: int) -> None:
    """Trains a model with `nmt-train` in a separate process; resumes a run that was stopped.

    Raises:
        RuntimeError: the training failed.
    """
    fixed = [f"run_dir={run}", f"training.threads={threads}"]
    command = [sys.executable, "-m", "nmt", "train", *fixed, *options]
    environment = {**os.environ, "OMP_NUM_THREADS": str(threads)}
    run.parent.mkdir(parents=True, exist_ok=True)
    with open(run.parent / f"{run.name}.log", "a", encoding="utf-8") as log:
        if subprocess.run(command, stdout=log, stderr=log, env=environment).returncode:
            raise RuntimeError(f"{run.parent / run.name}.log: the training failed")
