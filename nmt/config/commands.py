"""What each command takes: the sections above put together."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from nmt.config.checks import PROCESSES, between, check
from nmt.config.data import DataConfig
from nmt.config.decoding import DecodingConfig
from nmt.config.evaluation import EvaluationConfig
from nmt.config.model import ModelConfig
from nmt.config.paths import path_field
from nmt.config.training import TrainingConfig
from nmt.errors import UserError


class Resume(Enum):
    """What `nmt-train` does with a run folder that holds checkpoints, or none."""

    auto = "auto"
    never = "never"
    must = "must"


@dataclass
class TrainConfig:
    """`nmt-train`: the data, the model, the training and the decoding of validation and test."""

    run_dir: str = path_field("folder", "runs/${name}")
    """Folder of the run; relative to where the command was started."""
    name: str = path_field("name", "quickstart")
    """Name of the experiment."""
    seed: int = 1
    resume: Resume = Resume.auto
    """`auto`: go on if the folder holds a checkpoint; `never`: start anew only in an empty folder;
    `must`: fail if there is none."""
    resume_from: str | None = None
    """A checkpoint of the run, such as `update-300`, to go back to. The later ones are removed when training
    begins. The same command again goes on and does not go back again."""
    start_from: str | None = path_field("folder", None)
    """A trained model, the run that made it, or a checkpoint of a run, whose weights and vocabulary training
    begins with."""
    plugins: list[str] = field(default_factory=list)
    """Python modules to import before anything is built, such as `[my_package.encodings]`; they register
    architectures, positional encodings, schedules, optimizers, search processors, cleaning rules and metrics.
    See docs/extending.md."""
    prepare_only: bool = False
    """Stop after the data are prepared."""
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        """Checks the values."""
        check("seed", self.seed, between(0, 2**32 - 1))


def folders(key: str, value: Any, kind: str = "folder") -> list[str]:
    """The folders (or files) that an option names: one, or a list of them; none without a value.

    Raises:
        UserError: the value is something else.
    """
    if value is None:
        return []
    given = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not given or not all(isinstance(one, str | int | float) for one in given):
        example = "DIR" if kind == "folder" else kind.upper()
        raise UserError(f"{key}={value}: must be a {kind}, or a list of {kind}s: {key}=[{example},{example}]")
    return [str(one) for one in given]


@dataclass
class TranslateConfig:
    """`nmt-translate`: a model folder, text in, text out."""

    model_dir: Any = path_field("folder", "???", several=True)
    """A model or run folder, or a checkpoint, `RUN/checkpoints/update-300`; several that translate together
    (an ensemble) are a list, `[DIR,DIR]`."""
    input: str | None = path_field("file", None)
    """Text file, a sentence a line; default: standard input."""
    output: str | None = path_field("file", None)
    """File for the translations; default: standard output."""
    plugins: list[str] = field(default_factory=list)
    """Python modules to import before anything is built, such as `[my_package.encodings]`; they register
    parts of the model, search processors and metrics. See docs/extending.md."""
    scores: bool = False
    """Write `score<TAB>translation`; the score is the length-normalised log-probability."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1`, or `mps` on Apple machines where torch has it (not tested)."""
    precision: str = "fp32"
    """`fp32`, or `bf16` or `fp16` where speed matters more than equal text in every batch."""
    threads: int = 0
    """CPU threads; 0: one a core."""
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    def __post_init__(self) -> None:
        """Checks the values."""
        check("threads", self.threads, between(0, PROCESSES))
        folders("model_dir", self.model_dir)


@dataclass
class EvalConfig:
    """`nmt-eval`: a model on a test set, or hypothesis files on references."""

    model_dir: Any = path_field("folder", None, several=True)
    """A model or run folder, a checkpoint, or a list of several that translate together; the (first) model's
    own data unless `source` and `references` are given."""
    data: DataConfig | None = None
    """Other data than the model's own, such as `data=quickstart`; their `split` is scored."""
    split: str = "test"
    """`valid` or `test` of the data."""
    source: str | None = path_field("file", None)
    """Text file to translate with `model_dir` instead of its own data; with `hypotheses`, for a metric that
    reads the sources."""
    references: Any = path_field("file", None, several=True)
    """Text file of reference translations, line for line. Of a list, `[FILE,FILE]`, or the files of a quoted
    glob, each is one more reference of every sentence."""
    hypotheses: str | None = path_field("file", None)
    """Text file of translations to score; no model is needed then."""
    baseline: str | None = path_field("file", None)
    """Another hypotheses file: adds paired bootstrap resampling against it."""
    target_lang: str | None = None
    """Language of the references when there is no model to tell; chooses BLEU's tokeniser."""
    groups: str | None = path_field("file", None)
    """Text file with one label a line; each label is scored beside the whole."""
    output: str | None = path_field("file", None)
    """File for the translations of `model_dir`."""
    plugins: list[str] = field(default_factory=list)
    """Python modules to import before anything is built, such as `[my_package.encodings]`; they register
    parts of the model, search processors and metrics. See docs/extending.md."""
    json: str | None = path_field("file", None)
    """File for the report as JSON."""
    device: str = "auto"
    precision: str = "fp32"
    threads: int = 0
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        """Checks the values."""
        check("threads", self.threads, between(0, PROCESSES))
        folders("model_dir", self.model_dir)
        folders("references", self.references, "file")
