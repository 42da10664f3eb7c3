"""The monitor of a run: progress bar, `metrics.jsonl` and loggers."""

from __future__ import annotations

import json
import math
import time
from collections.abc import Mapping
from typing import Any

from nmt.errors import UserError
from nmt.runtime.files import write_text
from nmt.runtime.os_errors import read_errors, write_errors
from nmt.runtime.streams import progress
from nmt.training.figures.meter import Figures
from nmt.training.loggers import Loggers, as_markdown
from nmt.training.state.progress import Progress
from nmt.training.state.run_folder import RunFolder, require_run_folder


class Monitor:
    """Shows and records the figures of a run.

    `metrics.jsonl` has one JSON object per line, with `kind` (`train`, `valid`, `skipped` or `went_back`),
    `update` and `time`. The loggers get the same records; in a resumed run, they continue from those that
    remain.

    Records after the progress `run` are deleted.

    Raises:
        UserError: here and in all methods: the disk is full, or the folder is not writable.
    """

    def __init__(self, folder: RunFolder, run: Progress, max_updates: int, loggers: Loggers) -> None:
        self._folder, self._max_updates, self._loggers = folder, max_updates, loggers
        self._begin(run)

    def go_back(self, run: Progress) -> None:
        """Deletes the records after the progress `run`, after a rollback."""
        require_run_folder(self._folder.path)
        self.close()
        self._begin(run)

    def _begin(self, run: Progress) -> None:
        folder = self._folder
        records = records_until(folder, run)
        self._loggers.begin(records)
        write_text(folder.metrics, "".join(map(_line, records)))
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
        """Records figures. Loggers get the numbers as curves and a list of `samples` as text."""
        record = {"kind": kind, "update": update, "time": round(time.time(), 3), **figures}
        with write_errors(self._folder.metrics):
            self._file.write(_line(record))
            self._file.flush()
            self._loggers.log(record)

    def close(self) -> None:
        """Closes progress bar and file."""
        self._bar.close()
        with write_errors(self._folder.metrics), self._file:
            pass


_SHOWN = {
    "loss": "loss {:.3f}",
    "gradient_norm": "norm {:.2f}",
    "tokens_per_second": "{:,.0f} tokens/s",
    "mfu": "MFU {:.0%}",
    "filling": "{:.0%} full",
    "data_wait": "{:.0%} waiting",
    "peak_memory_gb": "{:.1f} GB",
}


def records_until(folder: RunFolder, run: Progress) -> list[dict[str, Any]]:
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
    as_markdown(record.get("samples", []))
    _line(record).encode()


def _line(record: Mapping[str, Any]) -> str:
    finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in record.items()}
    return json.dumps(finite, ensure_ascii=False) + "\n"
