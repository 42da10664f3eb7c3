"""The monitor of a run: progress bar, `metrics.jsonl` and TensorBoard; and the profile of a few updates."""

from __future__ import annotations

import json
import math
import os
import shutil
import socket
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.summary.writer.record_writer import RecordWriter
from torch.profiler import ProfilerActivity, profile, schedule
from torch.utils.tensorboard import summary

from nmt.errors import UserError
from nmt.runtime.files import make_folder, replaced
from nmt.runtime.os_errors import read_errors, write_errors
from nmt.runtime.streams import log, progress
from nmt.training.figures.meter import Figures
from nmt.training.state.progress import Progress
from nmt.training.state.run_folder import RunFolder, require_run_folder


class Monitor:
    """Shows and records the figures of a run.

    `metrics.jsonl` has one JSON object per line, with `kind` (`train`, `valid`, `skipped` or `went_back`),
    `update` and `time`. The TensorBoard file is created from it, so both are truncated in the same way when a
    run is resumed.

    Records after the progress `run` are deleted.

    Raises:
        UserError: here and in all methods: the disk is full, or the folder is not writable.
    """

    def __init__(self, folder: RunFolder, run: Progress, max_updates: int) -> None:
        self._folder, self._max_updates = folder, max_updates
        self._begin(run)

    def go_back(self, run: Progress) -> None:
        """Deletes the records after the progress `run`, after a rollback."""
        self._folder.require_present()
        self.close()
        self._begin(run)

    def _begin(self, run: Progress) -> None:
        folder = self._folder
        records = _records_until(folder, run)
        shutil.rmtree(folder.tensorboard, ignore_errors=True)
        make_folder(folder.tensorboard)
        # torch's `SummaryWriter` writes in a background thread, and opens the file again for every flush. If
        # the folder was moved or the disk is full, it prints the thread's traceback.
        name = f"events.out.tfevents.{int(time.time()):010d}.{socket.gethostname()}.{os.getpid()}.0"
        with write_errors(folder.tensorboard):
            self._events = open(folder.tensorboard / name, "wb")
            self._writer = RecordWriter(self._events)
            self._add_event(wall_time=time.time(), file_version="brain.Event:2")
            for record in records:
                self._plot(record)
            self._writer.flush()
        with replaced(folder.metrics) as temporary:
            temporary.write_text("".join(map(_line, records)), encoding="utf-8")
        with write_errors(folder.metrics):
            self._file = open(folder.metrics, "a", encoding="utf-8")
        self._bar = progress(total=self._max_updates, unit="updates", description="training")
        self._bar.n = self._bar.initial = self._bar.last_print_n = run.update

    def expect(self, last: int) -> None:
        """Makes `last` the number of updates at the end of the progress bar."""
        self._bar.total = last

    def advance(self, figures: Figures) -> None:
        """Advances the progress bar by an update, and shows the `figures` of a `Meter` on it."""
        words = (words.format(figures[name]) for name, words in _SHOWN.items())
        self._bar.set_postfix_str(", ".join(words), refresh=False)
        self._bar.update(1)

    def record(self, kind: str, update: int, figures: Mapping[str, Any]) -> None:
        """Records figures. TensorBoard gets the numbers as curves and a list of `samples` as text."""
        record = {"kind": kind, "update": update, "time": round(time.time(), 3), **figures}
        with write_errors(self._folder.metrics):
            self._file.write(_line(record))
            self._file.flush()
            self._plot(record)
            self._writer.flush()

    def close(self) -> None:
        """Closes progress bar and files."""
        self._bar.close()
        with write_errors(self._folder.metrics), self._events, self._file:
            pass

    def _plot(self, record: Mapping[str, Any]) -> None:
        for name, value in record.items():
            tag, plot = f"{record['kind']}/{name}", None
            if name == "samples":
                plot = _text(tag, _as_markdown(value))
            elif name not in ("kind", "update", "time") and not isinstance(value, dict | list):
                plot = _scalar(tag, math.nan if value is None else value)
            if plot is not None:
                self._add_event(wall_time=record["time"], step=record["update"], summary=plot)

    def _add_event(self, **fields: Any) -> None:
        self._writer.write(Event(**fields).SerializeToString())


_scalar: Any = summary.scalar  # untyped, like most of torch's part of this
_text: Any = summary.text


_SHOWN = {
    "loss": "loss {:.3f}",
    "gradient_norm": "norm {:.2f}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "mfu": "MFU {:.0%}",
    "filling": "{:.0%} full",
    "data_wait": "{:.0%} waiting",
    "peak_memory_gb": "{:.1f} GB",
}


def _records_until(folder: RunFolder, run: Progress) -> list[dict[str, Any]]:
    """Returns the records up to the progress `run`, without a validation that will be repeated."""
    try:
        with read_errors(folder.metrics):
            lines = folder.metrics.read_text(encoding="utf-8", errors="replace").split("\n")
    except UserError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return []
        raise
    records = []
    for line in lines:
        try:
            record = json.loads(line)
            _require_record(record)
            again = record["update"] == run.update and record["kind"] == "valid" and not run.settled
            if record["update"] <= run.update and not again:
                records.append(record)
        except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
            continue  # a line that a crash has truncated, or that was edited
    return records


def _require_record(record: Any) -> None:
    """Checks that a record can be written and plotted again.

    Raises:
        ValueError: it can't. A value that is not a record at all raises another error, such as TypeError.
    """
    plotted = [
        value for name, value in record.items() if name != "kind" and not isinstance(value, dict | list)
    ]
    numbers = all(value is None or isinstance(value, int | float) for value in plotted)
    if not (numbers and isinstance(record["kind"], str) and isinstance(record["update"], int)):
        raise ValueError("not a record")
    if not abs(record["time"]) < 1e300:
        raise ValueError("not a time")
    for value in plotted:
        float(value or 0)  # raises OverflowError for a very large integer
    _as_markdown(record.get("samples", []))
    _line(record).encode()


def _line(record: Mapping[str, Any]) -> str:
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    return json.dumps(finite, ensure_ascii=False) + "\n"


def _as_markdown(samples: list[Mapping[str, str]]) -> str:
    return "\n\n---\n\n".join(
        "\n\n".join(f"**{name}** {text}" for name, text in sample.items()) for sample in samples
    )


TRACE, TABLE = "training.pt.trace.json", "operators.txt"
_SKIPPED, _WARM_UP, _TRACED = 3, 2, 3  # updates; the first ones fill caches


@contextmanager
def profiling(folder: Path, *, wanted: bool) -> Iterator[Callable[[], None]]:
    """Yields a function to be called after every update; traces the sixth to the eighth update.

    Writes to the folder a trace for `tensorboard --logdir` (with torch-tb-profiler), chrome://tracing and
    https://ui.perfetto.dev, and a table of the operators that took most time.
    """
    if not wanted:
        yield lambda: None
        return

    def write(profiler: profile) -> None:
        require_run_folder(folder.parent)
        make_folder(folder)
        by = "self_cuda_time_total" if torch.cuda.is_available() else "self_cpu_time_total"
        table = profiler.key_averages().table(sort_by=by, row_limit=40, max_name_column_width=60)
        with write_errors(folder):
            profiler.export_chrome_trace(str(folder / TRACE))
            (folder / TABLE).write_text(table, encoding="utf-8")
        log.info("profile of %d updates: %s", _TRACED, folder)

    activities = [ProfilerActivity.CPU]
    if torch.cuda.is_available():
        activities.append(ProfilerActivity.CUDA)
    plan = schedule(wait=_SKIPPED, warmup=_WARM_UP, active=_TRACED, repeat=1)
    with profile(activities=activities, schedule=plan, on_trace_ready=write, record_shapes=True) as profiler:
        yield profiler.step
