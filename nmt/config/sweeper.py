"""The options of a search (`hydra/sweeper=optuna`), with the names of the plugin hydra-optuna-sweeper."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from nmt.config.checks import MANY, Section, between, bounded
from nmt.errors import UserError

SAMPLERS = {"tpe": "TPESampler", "random": "RandomSampler", "cmaes": "CmaEsSampler"}
"""Name → class of optuna.samplers."""
PRUNERS = {"median": "MedianPruner", "none": "NopPruner"}
"""Name → class of optuna.pruners."""


@dataclass
class SweeperConfig(Section):
    """Options of `nmt-train -m hydra/sweeper=optuna`, which searches options with Optuna."""

    n_trials: int = bounded(20, between(1, MANY))
    """Number of trials, finished ones of an earlier start included."""
    n_jobs: int = 1
    """The trials are one after the other."""
    direction: str | None = None
    """`minimize` or `maximize`; null: the direction of `training.criterion`. Another one is an error."""
    study_name: str = "nmt"
    """Name of the study in its storage."""
    storage: str | None = None
    """Storage of the study, a URL of Optuna such as `sqlite:///studies.db`. null: the file `optuna.journal`
    in the folder of the search."""
    max_failure_rate: float = bounded(0.5, between(0, 1))
    """The search ends when more than this share of `n_trials` has failed."""
    sampler: dict[str, Any] = field(default_factory=dict)
    """Options of the sampler, such as `seed` and `n_startup_trials`. Its name is `hydra/sweeper/sampler`:
    `tpe`, `random` or `cmaes`."""
    pruner: dict[str, Any] = field(default_factory=dict)
    """Options of the pruner, such as `n_startup_trials`, and `n_warmup_steps` in updates. Its name is
    `hydra/sweeper/pruner`: `median` or `none`."""

    def __post_init__(self) -> None:
        super().__post_init__()
        # `typed_options` adds the section to these messages.
        if self.n_jobs != 1:
            raise UserError(f"n_jobs={self.n_jobs}: the trials are one after the other. Leave it out.")
        if self.direction not in (None, "minimize", "maximize"):
            raise UserError(f"direction={self.direction}: must be minimize or maximize.")
