"""MLflow (mlflow.org): a tracking server, or a local database."""

from __future__ import annotations

import os
import re
import time
from collections.abc import Mapping
from contextlib import suppress
from importlib import import_module
from typing import Any

from nmt.training.loggers.base import LoggedRun, Logger, Record, as_markdown, finite_figures

_MOST_PARAMETERS, _LONGEST = 100, 500
"""Parameters in a request, and characters of a value: the limits of servers of all versions."""
_FORBIDDEN = re.compile(r"[^\w\-. :/]")


class MLflow(Logger):
    """Logs to `MLFLOW_TRACKING_URI`, or else to MLflow's default, a database in the current folder.

    MLflow can't remove single figures. So curves retain the figures of updates that a rollback has undone.
    The options are those of the first session.
    """

    requires = "mlflow"

    def __init__(self, run: LoggedRun) -> None:
        super().__init__(run)
        mlflow: Any = import_module(self.requires)
        self._entities: Any = import_module("mlflow.entities")
        self._client, self._status = mlflow.MlflowClient(), "KILLED"
        if run.id is not None:
            with suppress(mlflow.MlflowException):  # this database does not know the run
                self._client.update_run(run.id, status="RUNNING")
                self.id = run.id
                return
        name = os.environ.get("MLFLOW_EXPERIMENT_NAME", "nmt")
        experiment = self._client.get_experiment_by_name(name)
        number = experiment.experiment_id if experiment else self._client.create_experiment(name)
        self.id = self._client.create_run(number, run_name=run.name).info.run_id
        params = [self._entities.Param(key, str(value)[:_LONGEST]) for key, value in run.options.items()]
        for begin in range(0, len(params), _MOST_PARAMETERS):
            self._client.log_batch(self.id, params=params[begin : begin + _MOST_PARAMETERS])

    def log(self, record: Record) -> None:
        """Logs numbers as metrics, and samples as files."""
        self._log_figures(finite_figures(record), record["time"], record["update"])
        if samples := record.get("samples"):
            self._client.log_text(self.id, as_markdown(samples), f"samples/update-{record['update']}.md")

    def finish(self, update: int, scores: Mapping[str, float]) -> None:
        """Logs the scores as metrics."""
        self._log_figures(scores, time.time(), update)
        self._status = "FINISHED"

    def close(self) -> None:
        """Sets the status of the run: `FINISHED`, or `KILLED` if it was stopped."""
        self._client.set_terminated(self.id, self._status)

    def _log_figures(self, figures: Mapping[str, float], seconds: float, update: int) -> None:
        metrics = [
            self._entities.Metric(_FORBIDDEN.sub("_", tag), float(value), int(1000 * seconds), update)
            for tag, value in figures.items()
        ]
        self._client.log_batch(self.id, metrics=metrics)
