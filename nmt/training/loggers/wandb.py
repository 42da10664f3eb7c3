"""Weights & Biases (wandb.ai), with or without a network."""

from __future__ import annotations

import os
import secrets
from collections.abc import Mapping
from html import escape
from importlib import import_module
from typing import Any

from nmt.runtime.streams import log
from nmt.training.loggers.base import LoggedRun, Logger, Record, as_markdown, finite_figures


class WeightsAndBiases(Logger):
    """Sends records to the server to which wandb is logged in; else writes them to `RUN/wandb`.

    A server drops the records of a step before the last one. So curves retain the figures of updates that a
    rollback has undone.
    """

    requires = "wandb"

    def __init__(self, run: LoggedRun) -> None:
        super().__init__(run)
        self._wandb: Any = import_module(self.requires)
        self.id = run.id or secrets.token_hex(4)
        mode = os.environ.get("WANDB_MODE")
        if mode is None and not self._wandb.login(prompt=False):
            mode = "offline"
            log.info("training.loggers: wandb is not logged in, so it writes to %s", run.folder / "wandb")
        self._run = self._wandb.init(
            project=os.environ.get("WANDB_PROJECT", "nmt"),
            name=run.name,
            id=self.id,
            resume="allow",
            mode=mode,
            dir=os.environ.get("WANDB_DIR", run.folder),
            config=dict(run.options),
            allow_val_change=True,  # of options that a resume may change
            # Its own console would replace the streams of the command.
            settings=self._wandb.Settings(silent=True, console="off"),
        )

    def log(self, record: Record) -> None:
        """Logs numbers as curves, and samples as text."""
        values: dict[str, Any] = dict(finite_figures(record))
        if samples := record.get("samples"):
            text = f"<pre style='white-space: pre-wrap'>{escape(as_markdown(samples))}</pre>"
            values[f"{record['kind']}/samples"] = self._wandb.Html(text, inject=False)
        self._run.log(values, step=record["update"])

    def finish(self, update: int, scores: Mapping[str, float]) -> None:
        """Sets the scores as the summary of the run."""
        self._run.summary.update(dict(scores))

    def close(self) -> None:
        """Sends the rest."""
        self._run.finish()
