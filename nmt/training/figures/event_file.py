"""The event file that TensorBoard reads, written at once and by this thread."""

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

    torch's `SummaryWriter` writes in a thread of its own, opens the file anew for every flush, and so prints
    the thread's traceback when the folder was moved or its disk is full. Here the file stays open, and a
    failure is an `OSError` of the call.

    Args:
        folder: gets one event file.

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
        """Adds a point of a curve; `seconds` since the epoch."""
        self._write(Event(wall_time=seconds, step=update, summary=_scalar(name, value)))

    def add_text(self, name: str, markdown: str, update: int, seconds: float) -> None:
        """Adds a text."""
        self._write(Event(wall_time=seconds, step=update, summary=_text(name, markdown)))

    def flush(self) -> None:
        """Lets readers see what was added."""
        self._records.flush()

    def close(self) -> None:
        """Closes the file."""
        self._file.close()

    def _write(self, event: Event) -> None:
        self._records.write(event.SerializeToString())
