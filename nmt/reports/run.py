"""The record of a run: what the files of its folder say, for pages and comparisons."""

from __future__ import annotations

import math
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nmt.bundle import MOST_RESULTS, checked_results, read_config
from nmt.config import EvalConfig, Recipe, Resume, TrainConfig
from nmt.config.storage import flat_options
from nmt.errors import UserError
from nmt.runtime.files import parse_json, read_text
from nmt.runtime.run_files import RunFiles

_MOST_RECORDS = 1 << 28  # bytes
_MOST_DATA = 1 << 26


@dataclass(frozen=True)
class RunRecord:
    """A run, finished or not, as its folder records it.

    Attributes:
        files: the paths of the folder.
        config: the options; each `auto` is replaced by the chosen value.
        records: the records of `metrics.jsonl`: `kind`, `update`, `time` and figures; empty before the first.
        results: the content of `results.json`; empty if the run has not ended.
        data: the content of `data_report.json`; empty if the data are not prepared.
    """

    files: RunFiles
    config: TrainConfig
    records: Sequence[Mapping[str, Any]] = field(repr=False)
    results: Mapping[str, Any] = field(repr=False)
    data: Mapping[str, Any] = field(repr=False)

    @classmethod
    def read(cls, folder: str | Path) -> RunRecord:
        """Reads the files of a run folder. Plugins of the run are not imported.

        Raises:
            UserError: `folder` is not a run folder, or one of the files is damaged.
        """
        files = RunFiles(Path(folder))
        if not files.config.is_file():
            raise UserError(f"{folder}: not a run folder: it has no {files.config.name}. Check the name.")
        return cls(
            files,
            read_config(files.config),
            _records(files.metrics) if files.metrics.exists() else [],
            _sections(files.results, MOST_RESULTS),
            _sections(files.data_report, _MOST_DATA),
        )

    @property
    def folder(self) -> Path:
        """The run folder."""
        return self.files.path

    @property
    def name(self) -> str:
        """The name of the folder."""
        return self.files.path.resolve().name

    @property
    def joules(self) -> float | None:
        """The energy of the training, without the updates that a resumed run repeated; None: unknown."""
        measured = [joules for _, joules in self.series("train", "joules")]
        return sum(measured) if measured else None

    @property
    def changed(self) -> dict[str, Any]:
        """The options that differ from the defaults of `nmt-train`: full name → value.

        Those that only say how this folder was started are omitted: `run_dir`, `resume` and the like.
        """
        defaults, options = flat_options(TrainConfig()), flat_options(_started_anew(self.config))
        for name, values in self.config.decoding.processors.items():
            if values == {}:  # a processor without options
                options[f"decoding.processors.{name}"] = {}
        return {key: value for key, value in options.items() if defaults.get(key) != value}

    @property
    def training(self) -> Mapping[str, Any]:
        """The facts of the training in `results.json`; empty if the run has not ended."""
        facts: Mapping[str, Any] = self.results.get("training", {})
        return facts

    @property
    def diagnosis(self) -> Sequence[Mapping[str, str]]:
        """The findings about the run: `name`, `finding`, `evidence` and `option`; empty for a sound run."""
        return self.results.get("diagnosis") or []

    def facts(self, split: str) -> Mapping[str, Any]:
        """Returns the recorded facts of the text of a split, `valid` or `test`; empty if there are none."""
        facts: Mapping[str, Any] = self.results.get("data", {}).get(split, {})
        return facts

    @property
    def validated_sentences(self) -> int | None:
        """The number of first sentences in validations during the training; None: all."""
        limit = self.config.training.validate_sentences
        return limit if 0 < limit < self.facts("valid").get("sentences", limit + 1) else None

    def series(self, kind: str, key: str) -> list[tuple[int, float]]:
        """Returns a figure of the records of a kind, `train` or `valid`, as points (update, value).

        Records without the figure are skipped, as are values that are not finite.
        """
        points = [(record["update"], record.get(key)) for record in self.records if record["kind"] == kind]
        return [(x, y) for x, y in points if isinstance(y, int | float) and math.isfinite(y)]

    def commands(self) -> list[str]:
        """Returns the commands that train this model, evaluate it and translate with it.

        The first one gives each option that a new run would not have by default, and chooses nothing itself.
        """
        from nmt.options.overrides import written  # imports Hydra

        options = self.changed | {"run_dir": self.config.run_dir}
        if self.config.data.tokenizer.path is None:
            options["data.tokenizer.vocab_size"] = self.config.data.tokenizer.vocab_size
        if self.config.name != self.config.data.name:
            options["name"] = self.config.name
        if options.get("data.name") == "local":
            del options["data.name"]
        words = [written(TrainConfig, key, value) for key, value in options.items()]
        model = shlex.quote(written(EvalConfig, "model_dir", self.config.run_dir))
        train = f"nmt-train data=local recipe=none {shlex.join(words)}"
        return [train, f"nmt-eval {model}", f"nmt-translate {model}"]


def _started_anew(config: TrainConfig) -> TrainConfig:
    """Returns the options of a new run in which the recipe chooses nothing."""
    defaults = TrainConfig()
    training = config.training
    if not training.half_residual:  # a new run has none, unless it is given
        training = replace(training, half_residual=None)
    return replace(
        config,
        run_dir=defaults.run_dir,
        name=defaults.name,
        resume=Resume.auto,
        resume_from=None,
        recipe=Recipe.none,
        recipe_keeps=[],
        training=training,
    )


def _sections(path: Path, most: int) -> dict[str, Any]:
    """Returns the content of a JSON file with sections; empty if it does not exist."""
    if not path.exists():
        return {}
    try:
        return checked_results(parse_json(read_text(path, most)))
    except UserError:
        raise
    except ValueError as error:
        raise UserError(f"{path}: is damaged: {error}. Copy the file again.") from error


def _records(path: Path) -> list[dict[str, Any]]:
    """Returns the records of `metrics.jsonl`, without a last line that is incomplete."""
    lines = read_text(path, _MOST_RECORDS).split("\n")
    records = []
    for number, line in enumerate(lines[:-1], 1):
        try:
            record = parse_json(line)
            if not (isinstance(record["kind"], str) and type(record["update"]) is int):
                raise ValueError("it is not a record")
        except (ValueError, TypeError, KeyError) as error:
            raise UserError(f"{path}:{number}: is damaged: {error}. Remove the line.") from error
        records.append(record)
    return records
