"""Trackio (github.com/gradio-app/trackio): a local database, a Space on the Hugging Face hub, or a server."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from importlib import import_module
from typing import Any

from nmt.training.loggers.base import LoggedRun, Logger, Record, as_markdown, finite_figures

_PROJECT = "nmt"


class Trackio(Logger):
    """Logs to trackio's folder (`TRACKIO_DIR`), `TRACKIO_SPACE_ID` or `TRACKIO_SERVER_URL`.

    After a rollback a local run is deleted, and logged again without the updates that were undone. On a Space
    or a server, curves retain their figures.
    """

    requires = "trackio"

    def __init__(self, run: LoggedRun) -> None:
        super().__init__(run)
        self._trackio: Any = import_module(self.requires)
        self.id = run.id or f"{run.name}-{secrets.token_hex(4)}"
        self._open()

    def _open(self) -> None:
        self._run = self._trackio.init(
            _PROJECT,
            name=self.id,
            resume="allow",
            config=dict(self.run.options),
            embed=False,
            auto_log_gpu=False,
            auto_log_cpu=False,
        )

    def log(self, record: Record) -> None:
        """Logs numbers as curves, and samples as text."""
        values: dict[str, Any] = dict(finite_figures(record))
        if samples := record.get("samples"):
            values[f"{record['kind']}/samples"] = self._trackio.Markdown(as_markdown(samples))
        self._run.log(values, step=record["update"])

    def clear(self) -> bool:
        """Deletes a local run."""
        if any(name in os.environ for name in ("TRACKIO_SPACE_ID", "TRACKIO_SERVER_URL")):
            return False
        self._run.finish()
        for run in self._trackio.Api().runs(_PROJECT):
            if run.name == self.id:
                run.delete()
        self._open()
        return True

    def finish(self, update: int, scores: Mapping[str, float]) -> None:
        """Logs the scores."""
        self._run.log(dict(scores), step=update)

    def close(self) -> None:
        """Sends the rest."""
        self._run.finish()
