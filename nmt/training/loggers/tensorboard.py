"""TensorBoard: event files in the folder `tensorboard` of a run."""

from __future__ import annotations

import math
import os
import shutil
import socket
import time
from collections.abc import Mapping
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard import summary

from nmt.runtime.files import make_folder
from nmt.runtime.os_errors import write_errors
from nmt.training.loggers.base import LoggedRun, Logger, Record, as_markdown, figures_of
from nmt.training.state.run_folder import RunFolder

_scalar: Any = summary.scalar  # untyped, like most of torch's part of this
_text: Any = summary.text
_hparams: Any = summary.hparams


class TensorBoard(Logger):
    """Writes one event file, which replaces that of the earlier sessions.

    Raises:
        UserError: here and in all methods: the disk is full, or the folder is not writable.
    """

    in_thread = False

    def __init__(self, run: LoggedRun) -> None:
        super().__init__(run)
        self._folder = RunFolder(run.folder).tensorboard
        shutil.rmtree(self._folder, ignore_errors=True)
        make_folder(self._folder)
        # torch's `SummaryWriter` writes in a background thread, and opens the file again for every flush. If
        # the folder was moved or the disk is full, it prints the thread's traceback.
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.0"
        with write_errors(self._folder):
            self._file = open(self._folder / name, "wb")
            self._writer = RecordWriter(self._file)
            self._add(wall_time=time.time(), file_version="brain.Event:2")
            self._writer.flush()

    def log(self, record: Record) -> None:
        """Logs numbers as curves, and samples as text."""
        plots = [
            _scalar(tag, math.nan if value is None else value) for tag, value in figures_of(record).items()
        ]
        if "samples" in record:
            plots.append(_text(f"{record['kind']}/samples", as_markdown(record["samples"])))
        with write_errors(self._folder):
            for plot in plots:
                self._add(wall_time=record["time"], step=record["update"], summary=plot)
            self._writer.flush()

    def finish(self, update: int, scores: Mapping[str, float]) -> None:
        """Logs options and scores for the page of hyperparameters."""
        options = {
            key: value if isinstance(value, int | float) else str(value)
            for key, value in self.run.options.items()
        }
        plots = [*_hparams(options, dict(scores)), *(_scalar(tag, value) for tag, value in scores.items())]
        with write_errors(self._folder):
            for plot in plots:
                self._add(wall_time=time.time(), step=update, summary=plot)
            self._writer.flush()

    def close(self) -> None:
        """Closes the file."""
        with write_errors(self._folder):
            self._file.close()

    def _add(self, **fields: Any) -> None:
        self._writer.write(Event(**fields).SerializeToString())
