"""The event file of TensorBoard, written without a background thread."""

from __future__ import annotations

import os
import socket
import time
from pathlib import Path
from typing import Any

from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.utils.tensorboard import summary

_scalar: Any = summary.scalar  # untyped, like most of torch's part of this
_text: Any = summary.text


class Board:
    """Writes figures for TensorBoard.

    torch's `SummaryWriter` writes in a background thread and opens the file again for every flush. If the
    folder was moved or the disk is full, it prints the thread's traceback. Here the file stays open, and the
    call raises `OSError`.

    Args:
        folder: receives one event file.

    Raises:
        OSError: here and in all methods: the file can't be written.
    """

    def __init__(self, folder: Path) -> None:
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.0"
        self._file = open(folder / name, "wb")
        self._records = RecordWriter(self._file)
        self._write(Event(wall_time=time.time(), file_version="brain.Event:2"))

    @property
    def closed(self) -> bool:
        """Whether `close` was called."""
        return self._file.closed

    def add_scalar(self, name: str, value: float, update: int, seconds: float) -> None:
        """Adds a point to a curve; `seconds` is the time since the epoch."""
        self._write(Event(wall_time=seconds, step=update, summary=_scalar(name, value)))

    def add_text(self, name: str, markdown: str, update: int, seconds: float) -> None:
        """Adds a text."""
        self._write(Event(wall_time=seconds, step=update, summary=_text(name, markdown)))

    def flush(self) -> None:
        """Flushes the file, so that readers see all points and texts."""
        self._records.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _write(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
