"""Loggers; `training.loggers` selects them."""

from nmt.training.loggers.base import LOGGERS, LoggedRun, Logger, as_markdown, check_loggers, finite_figures
from nmt.training.loggers.mlflow import MLflow
from nmt.training.loggers.sending import Loggers, loggers_of
from nmt.training.loggers.tensorboard import TensorBoard
from nmt.training.loggers.trackio import Trackio
from nmt.training.loggers.wandb import WeightsAndBiases

LOGGERS["tensorboard"] = TensorBoard
LOGGERS["wandb"] = WeightsAndBiases
LOGGERS["mlflow"] = MLflow
LOGGERS["trackio"] = Trackio

__all__ = [
    "LOGGERS",
    "LoggedRun",
    "Logger",
    "Loggers",
    "MLflow",
    "TensorBoard",
    "Trackio",
    "WeightsAndBiases",
    "as_markdown",
    "check_loggers",
    "finite_figures",
    "loggers_of",
]
