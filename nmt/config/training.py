"""Options of training: arithmetic, optimizer, schedule, validation, checkpoints."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import Enum
from typing import Any

from nmt.config.checks import MANY, PROCESSES, above, between, check, decay, share, shortened
from nmt.errors import UserError


class Precision(Enum):
    """Numbers of the matrix products; weights, norms, softmax and loss stay in fp32."""

    auto = "auto"
    fp32 = "fp32"
    bf16 = "bf16"
    fp16 = "fp16"


class Sharding(Enum):
    """What each process keeps of weights, gradients and optimizer: all, or a share."""

    none = "none"
    full = "full"


class Average(Enum):
    """Which checkpoints the final model is the mean of."""

    auto = "auto"
    none = "none"
    last = "last"
    best = "best"


@dataclass
class OptimizerConfig:
    """The optimizer, by the name it is registered under in `nmt.training.update.optimizer`."""

    name: str = "adam"
    """`adam` (section 5.3 of the paper), `adamw` (decoupled weight decay), or an optimizer of a plugin. The
    four options below belong to these two."""
    beta1: float = 0.9
    beta2: float = 0.98
    epsilon: float = 1e-9
    weight_decay: float = 0.0
    options: dict[str, Any] = field(default_factory=dict)
    """Options of an optimizer of a plugin; its class has their types and defaults."""

    def __post_init__(self) -> None:
        """Checks the values."""
        for key in ("beta1", "beta2"):
            check(f"training.optimizer.{key}", getattr(self, key), decay())
        check("training.optimizer.epsilon", self.epsilon, above(0, 1))
        check("training.optimizer.weight_decay", self.weight_decay, between(0, 100))


@dataclass
class ScheduleConfig:
    """Learning rate, by the name that its schedule is registered under in `nmt.training.update.schedule`."""

    name: str = "noam"
    """`noam` is equation 3 of the paper; `inverse_sqrt`, `linear` and `constant` rise linearly to `peak`
    first. Or a schedule of a plugin."""
    warmup_updates: int = 4000
    scale: float = 1.0
    """Factor on `noam`."""
    peak: float = 7e-4
    """Highest learning rate of `inverse_sqrt`, `linear` and `constant`."""
    final: float = 0.0
    """Learning rate at `training.max_updates` of `linear`."""
    options: dict[str, Any] = field(default_factory=dict)
    """Options of a schedule of a plugin; its class has their types and defaults."""

    def __post_init__(self) -> None:
        """Checks the values."""
        check("training.schedule.warmup_updates", self.warmup_updates, between(0, MANY))
        check("training.schedule.scale", self.scale, above(0, 10_000))
        check("training.schedule.peak", self.peak, above(0, 100))
        check("training.schedule.final", self.final, between(0, 100))


@dataclass
class AveragingConfig:
    """Checkpoint averaging (section 6.1 of the paper)."""

    kind: Average = Average.auto
    """`auto`: the last checkpoint, the best one, means of the last and of the best `count` or fewer, and with
    `ema` the weights without it are validated, and the best by `training.criterion` is the final model;
    `last`: the mean of the last `count`; `best`: of the `count` best; `none`: the best one alone. It may
    change on a finished run: the same command makes the final model anew, without training."""
    count: int = 5

    def __post_init__(self) -> None:
        """Checks the values."""
        check("training.averaging.count", self.count, between(1, 10_000))


@dataclass
class TrainingConfig:
    """The training loop as a whole."""

    max_updates: int = 100_000
    max_epochs: int | None = None
    max_minutes: float | None = None
    """Stop after so many minutes of training, earlier sessions of the run counted in."""
    micro_batches: int = 1
    """Batches an update is made of, whatever the number of processes."""
    devices: str = "auto"
    """Processes: a number, or `auto`: one a GPU, or without GPUs as many as have `threads` cores each, one a
    core if that is 0; at most `micro_batches`."""
    sharding: Sharding = Sharding.none
    """`full`: weights, gradients and optimizer are cut up among the processes (FSDP2), for a model too large
    to be trained on one GPU. It takes least memory with as many `micro_batches` as processes."""
    max_restarts: int = 0
    """How often the processes are started again, from the last checkpoint, when one of them dies or fails by
    a bug. `torchrun` has `--max-restarts` for that."""
    precision: Precision = Precision.auto
    onednn_fp32: bool = True
    """In fp32 on a CPU, let oneDNN do the matrix products where its own are measured to be as exact; faster,
    but how they round depends more on the number of threads and processes."""
    compile: bool = False
    """In training, let `torch.compile` join up what layers do between attentions. Meant for GPUs, but what it
    gains there has not been measured; on a CPU it gains nothing, and a start takes a minute longer. It needs
    a C++ compiler, on a GPU Triton too. Rounding is its own: a run keeps it, or keeps without."""
    label_smoothing: float = 0.1
    rdrop: float = 0.0
    """R-Drop (Liang et al. 2021): weight alpha of the divergence between two passes of every micro-batch with
    different dropout, 5 in the paper; takes twice the time and memory. 0: one pass."""
    ema: float = 0.0
    """Decay of a running mean of the weights, such as 0.999 (less in the first updates). The mean is what is
    validated, averaged and delivered; training goes on from the weights themselves. 0: no mean."""
    clip_norm: float = 0.0
    """Gradients of a larger norm are scaled down to it; 0 leaves them."""
    optimizer: OptimizerConfig = field(default_factory=OptimizerConfig)
    schedule: ScheduleConfig = field(default_factory=ScheduleConfig)
    averaging: AveragingConfig = field(default_factory=AveragingConfig)
    validate_every: int = 1000
    """Updates between validations; 0: at the end of every epoch. The last update has one in any case."""
    validate_sentences: int = 0
    """Validate on the first so many sentences; 0: on all."""
    validate_metrics: list[str] = field(default_factory=lambda: ["bleu", "chrf"])
    """The metrics of a validation, beside loss and perplexity, and beside the `criterion`."""
    checkpoint_every: int = 1000
    """Updates between checkpoints; 0: at every validation."""
    keep_checkpoints: int = 5
    """Scheduled checkpoints kept, beside those that averaging, `best` and a way back need. Validations among
    the best have a checkpoint too, unless `averaging.kind=last`."""
    criterion: str = "bleu"
    """What the best checkpoint, early stopping and the choice of the final model go by on the validation set:
    `loss`, or a metric such as `bleu` or `chrf`."""
    patience: int = 0
    """Early stopping: training ends after so many validations without a better `criterion`; 0: never."""
    log_every: int = 50
    """Updates between lines in `metrics.jsonl` and TensorBoard; the last update has one in any case."""
    profile: bool = False
    """Trace the sixth to the eighth update of the session into `run_dir/profile`, for TensorBoard or
    chrome://tracing."""
    deterministic: bool = False
    """Bitwise repeatable on CUDA, slower; on the CPU it always is."""
    threads: int = 0
    """CPU threads of this process; 0: the cores there are, shared among the processes."""

    def __post_init__(self) -> None:
        """Checks the values."""
        for key, low, high in (
            ("max_updates", 1, MANY),
            ("micro_batches", 1, 1_000_000),
            ("keep_checkpoints", 1, MANY),
            ("log_every", 1, MANY),
            ("validate_every", 0, MANY),
            ("validate_sentences", 0, MANY),
            ("checkpoint_every", 0, MANY),
            ("patience", 0, MANY),
            ("max_restarts", 0, MANY),
            ("clip_norm", 0, MANY),
            ("threads", 0, PROCESSES),
        ):
            check(f"training.{key}", getattr(self, key), between(low, high))
        if self.max_epochs is not None:
            check("training.max_epochs", self.max_epochs, between(1, MANY))
        if self.max_minutes is not None:
            check("training.max_minutes", self.max_minutes, above(0, MANY))
        check("training.label_smoothing", self.label_smoothing, share())
        check("training.rdrop", self.rdrop, between(0, 1000))
        check("training.ema", self.ema, decay())
        # A long number is not converted: Python refuses more than 4,300 digits.
        number = int(self.devices) if self.devices.isdecimal() and len(self.devices) <= 20 else 0
        if self.devices != "auto" and not 1 <= number <= PROCESSES:
            raise UserError(
                f"training.devices={shortened(self.devices)}: must be auto or a number of processes "
                f"between 1 and {PROCESSES:,}"
            )
