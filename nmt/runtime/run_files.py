"""The files of a run folder, and their names."""

from __future__ import annotations

from pathlib import Path

from nmt.runtime.files import expanded
from nmt.runtime.model_files import CONFIG, RESULTS


class RunFiles:
    """The paths of the files and folders of a run; `path` is `run_dir`."""

    def __init__(self, path: Path) -> None:
        path = expanded(path)
        self.path = path
        self.config = path / CONFIG
        self.results = path / RESULTS
        self.metrics = path / "metrics.jsonl"
        self.data_report = path / "data_report.json"
        self.data_page = path / "data_report.html"
        self.report = path / "report.html"
        self.finish = path / "finish"
        self.log = path / "train.log"
        self.tensorboard = path / "tensorboard"
        self.profile = path / "profile"
        self.checkpoints = path / "checkpoints"
        self.model = path / "model"
        self.stages = path / "stages"
        self.held_out = path / "held_out"

    def hypotheses(self, split: str) -> Path:
        """Returns the file of the translations of `valid`, `test` or a set of these, such as `test.news`."""
        return self.path / f"{split}.hypotheses.txt"
