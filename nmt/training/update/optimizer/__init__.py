"""Optimizers; `training.optimizer.name` selects one."""

from nmt.training.update.optimizer.adam import Adam, AdamW
from nmt.training.update.optimizer.base import (
    OPTIMIZERS,
    Optimizer,
    build_optimizer,
    check_optimizer,
    trained_parameters,
)
from nmt.training.update.optimizer.muon import Muon

__all__ = [
    "OPTIMIZERS",
    "Adam",
    "AdamW",
    "Muon",
    "Optimizer",
    "build_optimizer",
    "check_optimizer",
    "trained_parameters",
]
