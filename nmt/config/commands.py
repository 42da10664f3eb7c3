"""The options of `nmt-train`, `nmt-translate` and `nmt-eval`, and those of scoring."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from nmt.config import disabled
from nmt.config.checks import PROCESSES, Section, between, bounded, check_language, check_licence, shortened
from nmt.config.data import DataConfig
from nmt.config.decoding import DecodingConfig
from nmt.config.model import ModelConfig
from nmt.config.schema import path_field, registered_name
from nmt.config.synthetic import DistillationConfig
from nmt.config.training import NO_AVERAGE_OF_MODELS, TrainingConfig
from nmt.errors import UserError


class Resume(Enum):
    """Whether `nmt-train` resumes a run folder that holds checkpoints."""

    auto = "auto"
    never = "never"
    must = "must"


class Recipe(Enum):
    """Whether nmt chooses the options that are not given, for the corpus and the machine."""

    auto = "auto"
    none = "none"


RECIPE_KEYS = (
    "model.encoder_layers",
    "model.decoder_layers",
    "model.d_model",
    "model.d_ff",
    "model.heads",
    "model.norm",
    "model.tie",
    "model.dropout",
    "data.max_tokens",
    "data.augmentation.capitals",
    "data.augmentation.titles",
    "data.augmentation.unpunctuated",
    "data.augmentation.typos",
    "data.reversed",
    "training.micro_batches",
    "training.max_updates",
    "training.optimizer.name",
    "training.schedule.name",
    "training.schedule.peak",
    "training.schedule.warmup_updates",
    "training.final_dropout",
    "training.rdrop",
    "training.label_smoothing",
    "training.clip_norm",
    "training.validate_every",
    "training.validate_sentences",
    "training.checkpoint_every",
    "training.patience",
    "training.averaging.count",
    "training.tune_length_penalty",
    "decoding.beam_size",
    "decoding.length_penalty",
    "decoding.retry_loops",
)
"""The options that `recipe=auto` chooses, unless they are given."""


@dataclass
class CometConfig:
    """The metric `comet`: COMET (Rei et al. 2020), a command in a separate environment."""

    command: Any = path_field("command", None, several=True)
    """Command `comet-score` of unbabel-comet 2.2. With arguments, a list:
    `[/opt/comet/bin/comet-score,--gpus,0]`. nmt adds `-s`, `-t` and `-r` with files, and `--quiet`."""

    def __post_init__(self) -> None:
        words = self.command
        if words is not None and not isinstance(words, str) and not (isinstance(words, list) and words):
            raise UserError(
                f"evaluation.comet.command={words}: must be a command, or a list of a command and its "
                "arguments, evaluation.comet.command=[/path/to/comet-score,--gpus,0]."
            )


@dataclass
class EvaluationConfig:
    """The metrics of translations, by the names that `nmt.evaluation.metrics` registers."""

    metrics: list[str] = field(default_factory=lambda: ["bleu", "chrf", "ter"])
    """Metrics of reports and of `results.json`: `bleu`, `chrf` (chrF2), `chrfpp` (chrF2++), `ter`, `comet`,
    or a metric of a plugin."""
    comet: CometConfig = field(default_factory=CometConfig)

    def __post_init__(self) -> None:
        if not self.metrics:
            raise UserError("evaluation.metrics=[]: is empty. Give a metric, such as [bleu].")


@dataclass
class TrainConfig(Section, refused=disabled.REFUSED_IN_TRAINING, unused=disabled.UNUSED_IN_TRAINING):
    """Options of `nmt-train`: data, model, training, and decoding in validation and test."""

    run_dir: str = path_field("folder", "runs/${name}")
    """Folder of the run, relative to the current folder."""
    name: str = path_field("name", "quickstart")
    """Name of the experiment."""
    seed: int = bounded(1, between(0, 2**32 - 1))
    """Seed of all random numbers."""
    resume: Resume = Resume.auto
    """`auto`: resume the run if its folder has a checkpoint. `never`: start a new run; the folder must be
    empty. `must`: fail if there is no checkpoint."""
    resume_from: str | None = None
    """Checkpoint of the run to go back to, such as `update-300`. Later checkpoints are removed when training
    begins. Running the same command again resumes the run and does not go back again."""
    start_from: str | None = path_field("folder", None, alternative=NO_AVERAGE_OF_MODELS)
    """Warm start: a model folder, a run folder, a checkpoint or `hf://OWNER/NAME`. Training begins with its
    weights and its vocabulary."""
    teacher: Any = path_field("folder", None, several=True)
    """Model folder, run folder, checkpoint or `hf://OWNER/NAME`; a list, `[DIR,DIR]`, is an ensemble. It
    translates the training sources, and the model also learns from these translations. See
    docs/more_data.md."""
    distillation: DistillationConfig = field(default_factory=DistillationConfig)
    recipe: Recipe = Recipe.none
    """`auto`: choose model, batch, optimizer, schedule and end of the training for the corpus and the
    machine; options that are given stay. See docs/training.md. It is the default without `experiment` and
    `model`; with `start_from`, whose model it keeps, if there is a budget. `none`: the defaults of this
    list."""
    recipe_keeps: list[str] = field(default_factory=list)
    """Options that `recipe=auto` leaves as they are. Those of the command line are added."""
    plugins: list[str] = field(default_factory=list)
    """Python modules to import first, such as `[my_package.encodings]`. They register architectures,
    positional encodings, schedules, optimizers, search processors, cleaning rules and metrics. See
    docs/extending.md."""
    licence: str | None = None
    """Licence of the model, for its card: an identifier such as `apache-2.0` or `cc-by-4.0`. See
    docs/sharing.md."""
    prepare_only: bool = False
    """Prepare the data, then stop."""
    find_rate: bool = False
    """Instead of training, find a learning rate: train some hundred updates while it rises, print the option
    that sets the suggested one, and write the curve to `run_dir/find_rate.svg`. See
    docs/training.md#finding-a-learning-rate."""
    cleaned_pairs: str | None = path_field("file", None)
    """With `prepare_only`: text files to write the cleaned training pairs to, `PATH.<source_lang>` and
    `PATH.<target_lang>`. This option gives `PATH`. Tags of corpora are not written."""
    data: DataConfig = field(default_factory=DataConfig)
    model: ModelConfig = field(default_factory=ModelConfig)
    training: TrainingConfig = field(default_factory=TrainingConfig)
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        folders("teacher", self.teacher)
        folders("distillation.reverse", self.distillation.reverse)
        folders("data.monolingual.reverse", self.data.monolingual.reverse)
        check_licence(self.licence)
        name, sets = self.training.criterion_set, self.data.valid.sets
        if name is not None and name not in sets:
            known = f"Choose from {', '.join(sets)}" if sets else "There are none. Remove it"
            raise UserError(f"training.criterion_set={name}: not a set of data.valid.sets. {known}.")


def folders(key: str, value: Any, kind: str = "folder") -> list[str]:
    """Returns the folders (or files) that an option names: one or several, or none if it has no value.

    Raises:
        UserError: the value is neither text nor a list of texts.
    """
    if value is None:
        return []
    given = list(value) if isinstance(value, Sequence) and not isinstance(value, str) else [value]
    if not given or not all(isinstance(one, str | int | float) for one in given):
        example = "DIR" if kind == "folder" else kind.upper()
        raise UserError(f"{key}={value}: must be a {kind} or a list of {kind}s, {key}=[{example},{example}].")
    return [str(one) for one in given]


FORMATS = ("auto", "text", "tsv", "csv", "jsonl", "json", "html", "xliff", "tmx", "po", "srt", "vtt")
"""The values of `format` of `nmt-translate`."""


@dataclass
class TranslateConfig(Section):
    """Options of `nmt-translate`: a model, and where text is read and written."""

    model_dir: Any = path_field("folder", "???", several=True)
    """Model folder, run folder, checkpoint, such as `RUN/checkpoints/update-300`, or a model on the hub,
    `hf://OWNER/NAME`. A list, `[DIR,DIR]`, is an ensemble. With `backend=ctranslate2`, also an export."""
    input: str | None = path_field("file", None)
    """Text file with one sentence per line. null: standard input."""
    output: str | None = path_field("file", None)
    """File for the translations. null: standard output."""
    terminology: str | None = path_field("file", None)
    """Text file of required translations, a line `source term<TAB>target term` for each. A translation has
    the target term for each occurrence of a source term. See docs/translating.md."""
    plugins: list[str] = field(default_factory=list)
    """Python modules to import first, such as `[my_package.encodings]`. They register parts of the model,
    search processors and metrics. See docs/extending.md."""
    format: str = "auto"
    """Format of input and output: `text`, `tsv`, `csv`, `jsonl` (JSON Lines), `json` (one list), `html`,
    `xliff`, `tmx`, `po`, `srt` or `vtt`; see docs/translating.md. `auto`: by the name of the input file, or
    else its content; a stream is `text`."""
    delimiter: str | None = None
    """Delimiter of `format=csv`, one character or `tab`. null: the one that the first lines show."""
    column: Any = None
    """Column to translate, of tab-separated values or of CSV: its number, counted from 1, or its name in the
    first line. The translation is appended as the last column. null: the whole line."""
    key: str = "text"
    """With `format=jsonl`, the member to translate. A dot separates the names of nested members."""
    alignments: str | None = path_field("file", None)
    """File for word alignments, one line for each output line: `0-0 2-1` joins source word 0 with target word
    0, and 2 with 1. null: none."""
    attention: str | None = path_field("file", None)
    """HTML page to write, with the attention weights of every layer and head in the first 10 lines that are
    not blank. null: none."""
    scores: bool = False
    """Write `score<TAB>translation`. The score is the length-normalised log-probability."""
    backend: str = registered_name("nmt", "nmt", "ctranslate2")
    """Engine that translates: `nmt`, or `ctranslate2`, which is faster on the CPU and has fewer options. It
    reads an export, which is made once if it is missing. See docs/translating.md."""
    quantization: str | None = None
    """With `backend=ctranslate2`, the number format of the weights: `float32`, `int8` (fast, and slightly
    less exact) or another one of `nmt-export`. null: `float32`, or that of the given export."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1`, or `mps` (Apple; not tested). `auto`: a GPU if there is one."""
    precision: str = "fp32"
    """`auto`, `fp32`, `bf16` or `fp16`. With bf16 and fp16, which are faster, a translation may depend on the
    other sentences of its batch. `auto` chooses for the device."""
    threads: int = bounded(0, between(0, PROCESSES))
    """CPU threads. 0: one per core."""
    decoding: DecodingConfig = field(default_factory=DecodingConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.format not in FORMATS:
            raise UserError(
                f"format={shortened(self.format)}: must be {', '.join(FORMATS[:-1])} or {FORMATS[-1]}."
            )
        if self.delimiter == "tab":
            self.delimiter = "\t"
        if self.delimiter is not None and (len(self.delimiter) != 1 or self.delimiter in '"\r\n'):
            raise UserError(f"delimiter={shortened(self.delimiter)}: must be one character, or tab.")
        column = self.column
        if isinstance(column, str) and column.isdecimal():
            self.column = column = int(column[:9])
        is_name = isinstance(column, str) and column != ""
        is_number = isinstance(column, int) and not isinstance(column, bool) and 1 <= column <= 10_000
        if column is not None and not is_name and not is_number:
            raise UserError(
                f"column={shortened(column)}: must be a number from 1 to 10,000, or the name of a column."
            )
        folders("model_dir", self.model_dir)


class Significance(Enum):
    """The test of the difference from a baseline."""

    bootstrap = "bootstrap"
    randomisation = "randomisation"


@dataclass
class EvalConfig(Section):
    """Options of `nmt-eval`: a model and a test set, or a file of hypotheses and its references."""

    runs: Any = path_field("folder", None, several=True)
    """Run folders to compare, a list. Folders that are given as words, such as `runs/*`, are added to it.
    Nothing is translated: the folders have the translations and the scores."""
    model_dir: Any = path_field("folder", None, several=True)
    """Model folder, run folder, checkpoint or `hf://OWNER/NAME`; a list, `[DIR,DIR]`, is an ensemble. It is
    scored on the data of the (first) model unless `source` and `references`, or `data`, are given."""
    data: DataConfig | None = None
    """Other data than those of the model, such as `data=quickstart`. Their `split` is scored."""
    split: str = "test"
    """Split of the data to score: `valid` or `test`."""
    set: str | None = None
    """Set of the split to score, of those with names (`data.test.sets`). null: all."""
    source: str | None = path_field("file", None)
    """Text file to translate with `model_dir` instead of the data of the model. With `hypotheses`: the
    sources, for the analysis and for metrics that read them."""
    references: Any = path_field("file", None, several=True)
    """Text file of reference translations, line for line. With a list, `[FILE,FILE]`, or a quoted glob, every
    sentence has several references, one per file."""
    hypotheses: str | None = path_field("file", None)
    """Text file of translations to score, without a model."""
    baseline: str | None = path_field("file", None)
    """Text file of other translations, for a significance test against them."""
    significance: Significance = Significance.bootstrap
    """Test of the difference from `baseline`: `bootstrap` (paired bootstrap resampling) or `randomisation`
    (approximate randomisation). Both are those of sacreBLEU."""
    target_lang: str | None = None
    """Language of the references if no model is given. It selects BLEU's tokeniser. null: that of their
    script if it leaves no doubt, such as zh."""
    source_lang: str | None = None
    """Language of the sources if no model is given, for the analysis: numbers and negation."""
    groups: str | None = path_field("file", None)
    """Text file with one label per line. Each label is also scored separately."""
    analysis: bool = False
    """Add intervals, scores by properties of the sources, and signs of faults such as loops and lost numbers.
    With `hypotheses`, most of it needs `source`."""
    score: bool = False
    """Instead of translating, score the references with the model (forced decoding). Each pair gives a line:
    log-probability, tokens, log-probability per token, separated by tabs."""
    output: str | None = path_field("file", None)
    """File for the translations of `model_dir`. With `score=true`: file for the scores; null: standard
    output."""
    plugins: list[str] = field(default_factory=list)
    """Python modules to import first, such as `[my_package.encodings]`. They register parts of the model,
    search processors and metrics. See docs/extending.md."""
    json: str | None = path_field("file", None)
    """File for the report as JSON."""
    table: str | None = path_field("file", None)
    """File for the tables of the report: LaTeX if its name ends in `.tex`, Markdown if in `.md`."""
    report: str | None = path_field("file", None)
    """File for the report and its analysis as one HTML page, with charts and single sentences: `*.html`."""
    device: str = "auto"
    """`auto`, `cpu`, `cuda`, `cuda:1`, or `mps` (Apple; not tested). `auto`: a GPU if there is one."""
    precision: str = "fp32"
    """`auto`, `fp32`, `bf16` or `fp16`. With bf16 and fp16, which are faster, a translation may depend on the
    other sentences of its batch. `auto` chooses for the device."""
    threads: int = bounded(0, between(0, PROCESSES))
    """CPU threads. 0: one per core."""
    decoding: DecodingConfig = field(default_factory=DecodingConfig)
    evaluation: EvaluationConfig = field(default_factory=EvaluationConfig)

    def __post_init__(self) -> None:
        super().__post_init__()
        folders("runs", self.runs)
        folders("model_dir", self.model_dir)
        folders("references", self.references, "file")
        for key in ("source_lang", "target_lang"):
            if code := getattr(self, key):
                check_language(key, code)
        if self.table is not None and not self.table.endswith((".md", ".tex")):
            raise UserError(f"table={shortened(self.table)}: must end in .md (Markdown) or .tex (LaTeX).")
        if self.report is not None and not self.report.endswith(".html"):
            raise UserError(f"report={shortened(self.report)}: must end in .html.")

    @property
    def analysed(self) -> bool:
        """Whether the report has an analysis."""
        return self.analysis or self.report is not None
