"""Options of training: arithmetic, optimizer, schedule, validation, checkpoints."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from nmt.config.checks import MANY, PROCESSES, Section, above, between, bounded, decay, share, shortened
from nmt.config.schema import registered_name
from nmt.errors import UserError


class Precision(Enum):
    """Precision of matrix products. Weights, norms, softmax and loss are always in fp32."""

    auto = "auto"
    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"


class Sharding(Enum):
    """Whether each process holds all of the weights, gradients and optimizer state, or a shard."""

    none = "none"
    full = "full"


class Exchange(Enum):
    """The number format in which processes exchange gradients."""

    fp32 = "fp32"
    bf16 = "bf16"


class Kernel(Enum):
    """A kernel for GPUs whose speed has not been measured on a GPU."""

    relu_product = "relu_product"
    """The product before a ReLU's gradient zeroes and sums its tiles itself."""
    attention_biases = "attention_biases"
    """Attention sums the gradients of the biases of queries, keys and values, and joins those of all decoder
    layers."""
    loss_rows = "loss_rows"
    """A row of logits stays in registers, or is read 16 bytes at a time."""
    adam_divisor = "adam_divisor"
    """Adam divides the gradient by the number of tokens itself."""


class Average(Enum):
    """The checkpoints whose mean is the final model."""

    auto = "auto"
    none = "none"
    last = "last"
    best = "best"


@dataclass
class OptimizerConfig(Section, key="training.optimizer."):
    """The optimizer, by the name that `nmt.training.update.optimizer` registers."""

    name: str = registered_name("adam", "adam", "adamw", "muon")
    """`adam` (section 5.3 of the paper), `adamw` (decoupled weight decay), `muon` (orthogonal steps of the
    matrices in the layers, Adam for all other weights), or an optimizer of a plugin. Only the first three use
    the next four options."""
    beta1: float = bounded(0.9, decay())
    """Decay of the running mean of gradients."""
    beta2: float = bounded(0.98, decay())
    """Decay of the running mean of squared gradients."""
    epsilon: float = bounded(1e-9, above(0, 1))
    """Added to the denominator of an update, for numerical stability."""
    weight_decay: float = bounded(0.0, between(0, 100))
    """Weight decay coefficient. 0: none."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of `muon` (`momentum`, `row_decay`, `adam_rate`), or of an optimizer of a plugin. Its class has
    their types and defaults."""


@dataclass
class ObjectiveConfig:
    """The objective, by the name that `nmt.training.update.objective` registers."""

    name: str = registered_name("label_smoothing", "label_smoothing")
    """`label_smoothing` (section 5.4 of the paper; see `label_smoothing`, `rdrop` and `simcut`), or an
    objective of a plugin."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of an objective of a plugin. Its class has their types and defaults."""


@dataclass
class ScheduleConfig(Section, key="training.schedule."):
    """The schedule of the learning rate, by the name that `nmt.training.update.schedule` registers."""

    name: str = registered_name("noam", "noam", "inverse_sqrt", "linear", "constant", "wsd")
    """`noam` (equation 3 of the paper), `inverse_sqrt`, `linear`, `constant`, `wsd` (warm-up, stable, decay),
    or a schedule of a plugin. All but `noam` rise linearly to `peak` first. `wsd` stays there, and falls to
    `final` before the training ends, whatever ends it."""
    warmup_updates: int = bounded(4000, between(0, MANY))
    """Updates in which the learning rate rises."""
    scale: float = bounded(1.0, above(0, 10_000))
    """Factor on the learning rate of `noam`."""
    peak: float = bounded(7e-4, above(0, 100))
    """Highest learning rate of `inverse_sqrt`, `linear`, `constant` and `wsd`."""
    final: float = bounded(0.0, between(0, 100))
    """Learning rate of `linear` at update `training.max_updates`, and of `wsd` at the last update."""
    decay_share: float = bounded(0.25, between(0.01, 1))
    """The part of a training in which the learning rate of `wsd` falls."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of a schedule of a plugin. Its class has their types and defaults."""


NO_AVERAGE_OF_MODELS = (
    "Weights are averaged over checkpoints of one run, by nmt-train with training.averaging; those of "
    "different runs have no meaningful average. nmt-translate model_dir=[A,B] translates with several models."
)
"""The answer where a user gives several models to average."""


@dataclass
class AveragingConfig(Section, key="training.averaging."):
    """Checkpoint averaging (section 6.1 of the paper)."""

    kind: Average = Average.auto
    """`last`: the mean of the last `count` checkpoints. `best`: the mean of the best `count`. `none`: the
    best checkpoint. `auto`: the best by `training.criterion` of the last checkpoint, the best one, means of
    the last and of the best `count` or fewer, and with `ema` the weights without it. With another value on a
    finished run, the same command creates the final model again, without training."""
    count: int = bounded(5, between(1, 10_000))
    """Checkpoints in a mean."""


@dataclass
class TrainingConfig(Section, key="training."):
    """The training loop: length, updates, validation, checkpoints, and use of the machine."""

    max_updates: int = bounded(100_000, between(1, MANY))
    """Training ends after this many updates."""
    max_epochs: int | None = bounded(None, between(1, MANY))
    """Training ends after this many epochs. null: no limit."""
    max_minutes: float | None = bounded(None, above(0, MANY))
    """Training ends after this many minutes, counting earlier sessions of the run. null: no limit."""
    budget: str | None = None
    """The time of the whole run, such as `30m`, `2h` or `3d`: preparation, training, choice and test of the
    final model. null: no limit. See docs/training.md#a-budget."""
    micro_batches: int = bounded(1, between(1, 1_000_000))
    """Micro-batches per update, over all processes."""
    fit_micro_batches: bool = False
    """On GPUs: divide an update of `data.max_tokens` times `micro_batches` target tokens into as few
    micro-batches as fit into memory, the same number for each process; few large ones are faster. The numbers
    found are in `config.yaml`, and the run is resumed with them. On CPUs it has no effect."""
    devices: str = "auto"
    """Number of processes, at most `micro_batches`. `auto`: one per GPU, or without GPUs the number of cores
    divided by `threads` (by 1 if `threads` is 0)."""
    sharding: Sharding = Sharding.none
    """`full`: weights, gradients and optimizer state are sharded across the processes (FSDP2), for models too
    large for one GPU. Memory is lowest with as many `micro_batches` as processes."""
    gradient_exchange: Exchange = Exchange.fp32
    """Number format in which processes send and sum gradients. `bf16` sends half as many bytes, for slow
    connections between GPUs. It changes rounding, so it is fixed for the whole run."""
    max_restarts: int = bounded(0, between(0, MANY))
    """Number of times that the processes are restarted from the last checkpoint after one of them is killed
    or fails because of a bug. With `torchrun`, use its `--max-restarts`."""
    precision: Precision = Precision.auto
    """Precision of matrix products; weights, norms, softmax and loss are in fp32. `auto` chooses for the
    device: bf16 where it is supported and, on a CPU, a product in it is not slower than in fp32."""
    half_residual: bool | None = None
    """With bf16 or fp16: hidden states between sub-layers are in this format too, not only the operands of
    products. A GPU has less to move. null: false. It changes rounding, so it is fixed for the whole run."""
    onednn_fp32: bool = True
    """For fp32 on the CPU: use oneDNN for matrix products where it is measured to be as exact. It is faster,
    but rounding depends more on the number of threads and processes."""
    unmeasured_kernels: list[Kernel] = field(default_factory=list)
    """On GPUs, in bf16 and fp16: kernels to use although their speed has not been measured: `relu_product`,
    `attention_biases`, `loss_rows` and `adam_divisor`. They change rounding, so they are fixed for the whole
    run. On CPUs they have no effect."""
    cuda_graphs: bool = False
    """On GPUs, in bf16: record forward and backward pass as CUDA graphs, so that the GPU does not wait for
    Python, and pad batches to few shapes. It is for the Transformer of the paper, and faster with few tokens
    per GPU. It changes rounding, so it is fixed for the whole run. On CPUs it has no effect."""
    label_smoothing: float = bounded(0.1, share())
    """Label smoothing: fraction of the probability that is spread evenly over all pieces. 0: none."""
    rdrop: float = bounded(0.0, between(0, 1000))
    """R-Drop (Liang et al. 2021): weight alpha of the divergence between two passes of each micro-batch with
    different dropout; 5 in the paper. It doubles time and memory. 0: one pass."""
    simcut: float = bounded(0.0, between(0, 1000))
    """SimCut (Gao et al. 2022): weight alpha of the divergence between the predictions for each pair and for
    the same pair with tokens cut out; 3 in the paper. It doubles time and memory, and excludes `rdrop`. 0:
    one pass."""
    simcut_rate: float = bounded(0.05, share())
    """Share of the tokens of both sides that `simcut` cuts out: their embeddings are zero."""
    consistency_from: int = bounded(0, between(0, MANY))
    """The first update with the two passes of `rdrop` or `simcut`. An earlier one has one pass, which takes
    half of the time. 0: all updates have two."""
    final_dropout: float | None = bounded(None, share())
    """Replaces `model.dropout` while the learning rate of `wsd` falls to its end (Rennie et al. 2014). Null:
    `model.dropout`."""
    ema: float = bounded(0.0, decay())
    """Decay of an exponential moving average of the weights, such as 0.999; it is lower in the first updates.
    The average is validated, averaged over checkpoints and delivered. Training itself uses the weights. 0:
    off."""
    clip_norm: float = bounded(0.0, between(0, MANY))
    """Largest norm of the gradients; larger gradients are scaled down to it. 0: no limit."""
    freeze: list[str] = field(default_factory=list)
    """Parts of the model that `start_from` sets and training does not change: `encoder`, `decoder`,
    `embeddings`, or parts of the names of weights such as `encoder.0`, `cross_attention` or `*_norm`. See
    docs/fine_tuning.md."""
    l2_to_start: float = bounded(0.0, between(0, MANY))
    """Weight lambda of a penalty on the distance from the weights of `start_from`, which weakens forgetting:
    lambda / 2 times the sum of the squared differences is added to the loss per target token. 0: none."""
    objective: ObjectiveConfig = field(default_factory=ObjectiveConfig)
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    averaging: AveragingConfig = field(default_factory=AveragingConfig)
    tune_length_penalty: bool = False
    """At the end, choose the length penalty of the final model on the validation sets: `length_penalty` of
    `decoding`, or lower or higher ones in steps of 0.4 while the product of BLEU and chrF2 rises."""
    validate_every: int = bounded(1000, between(0, MANY))
    """Updates between validations. 0: at the end of every epoch. The last update is always validated."""
    validate_sentences: int = bounded(0, between(0, MANY))
    """Sentences of each validation set to use, from its beginning. 0: all."""
    validate_metrics: list[str] = field(default_factory=lambda: ["bleu", "chrf"])
    """Metrics computed in validation, in addition to loss, perplexity and the `criterion`."""
    checkpoint_every: int = bounded(1000, between(0, MANY))
    """Updates between checkpoints. 0: at every validation."""
    keep_checkpoints: int = bounded(5, between(1, MANY))
    """Scheduled checkpoints to retain, in addition to those that averaging, `best` and rollbacks need. The
    best validations also have checkpoints, unless `averaging.kind=last`."""
    criterion: str = registered_name("bleu", "loss", "bleu", "chrf", "chrfpp", "ter", "comet")
    """Validation measure for the best checkpoint, early stopping and the choice of the final model: `loss`,
    or a metric such as `bleu` or `chrf`."""
    criterion_set: str | None = None
    """The set of `data.valid.sets` on which the `criterion` is computed. null: the mean of all sets."""
    patience: int = bounded(0, between(0, MANY))
    """Early stopping: training ends after this many validations in a row without a better `criterion`. 0:
    off."""
    log_every: int = bounded(50, between(1, MANY))
    """Updates between records in `metrics.jsonl` and loggers. The last update is always recorded."""
    loggers: list[str] = field(default_factory=lambda: ["tensorboard"])
    """Tools that show the figures of the run: `tensorboard`, `wandb`, `mlflow`, `trackio`, or a logger of a
    plugin; `[]`: none. See docs/training.md#loggers."""
    report: bool = True
    """Write `run_dir/report.html` at the end: one page with the scores and their analysis, learning curves,
    translations, attention, data, options and commands."""
    report_every: int | None = bounded(None, between(1, MANY))
    """Also write `report.html` while training, after this many validations, without analysis and attention.
    null: only at the end."""
    profile: bool = False
    """Profile the sixth to the eighth update of the session into `run_dir/profile`, for TensorBoard or
    chrome://tracing."""
    deterministic: bool = False
    """Bitwise reproducible training on CUDA, which is slower. On the CPU it always is."""
    threads: int = bounded(0, between(0, PROCESSES))
    """CPU threads per process. 0: the available cores, divided by the number of processes."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # Python refuses to convert more than 4,300 digits.
        number = int(self.devices) if self.devices.isdecimal() and len(self.devices) <= 20 else 0
        if self.devices != "auto" and not 1 <= number <= PROCESSES:
            raise UserError(
                f"training.devices={shortened(self.devices)}: must be auto or a number of processes "
                f"between 1 and {PROCESSES:,}."
            )
        if self.budget is not None:
            _minutes(self.budget)

    @property
    def budget_minutes(self) -> float | None:
        """`budget` in minutes."""
        return None if self.budget is None else _minutes(self.budget)


_UNITS = {"m": 1.0, "h": 60.0, "d": 1440.0}  # minutes


def _minutes(budget: str) -> float:
    """Returns the minutes of a duration such as `30m`, `2.5h` or `3d`.

    Raises:
        UserError: the text is not a duration of at least a minute.
    """
    match = re.fullmatch(r"([0-9]{1,6}(?:\.[0-9]{1,3})?)([mhd])", budget.strip())
    minutes = float(match[1]) * _UNITS[match[2]] if match else 0.0
    if not 1.0 <= minutes <= MANY:
        raise UserError(
            f"training.budget={shortened(budget)}: must be a minute or more, such as 30m, 2h or 3d."
        )
    return minutes
