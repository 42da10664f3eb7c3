"""Loggers: the base class `Logger` and the registry `LOGGERS`.

A new logger is a subclass of `Logger` and is registered: `LOGGERS["mine"] = Mine`.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar

from nmt.errors import UserError
from nmt.runtime.plugins import Registry

Record = Mapping[str, Any]
"""A record of `metrics.jsonl`: `kind`, `update`, `time` and figures."""


@dataclass(frozen=True)
class LoggedRun:
    """The run that a logger shows.

    Attributes:
        folder: its folder.
        name: its name.
        options: its options, full name → value.
        id: the `Logger.id` of its earlier sessions; None in the first.
    """

    folder: Path
    name: str
    options: Mapping[str, Any]
    id: str | None = None


class Logger(ABC):
    """Shows the records of a run in another tool.

    `__init__` opens the run with `run.id`. If that is None or unknown to the tool, it opens a new one.

    All methods run in a thread of this logger, so they may wait. After an exception the training continues
    without the logger. The next session sends the records that are missing.

    Attributes:
        requires: the module that the logger imports; empty: none. It is imported in `__init__`.
        in_thread: false for a logger that runs in the thread of the training. Its errors end the training. It
            begins empty in each session and after each rollback, and gets all records of the run again.
        id: identifies the run in the tool.
    """

    requires: ClassVar[str] = ""
    in_thread: ClassVar[bool] = True
    id: str = ""

    def __init__(self, run: LoggedRun) -> None:
        self.run = run

    @abstractmethod
    def log(self, record: Record) -> None:
        """Logs a record that has figures or samples; `finite_figures` returns the figures."""

    def clear(self) -> bool:
        """Removes all records of the run, because some of them were undone.

        Returns:
            Whether they are removed, so that those that remain are logged again. If not, no record is logged
            until the training is past those that the tool has.
        """
        return False

    def finish(self, update: int, scores: Mapping[str, float]) -> None:  # noqa: B027
        """Logs the scores of the final model, after the last update; called before `close`."""

    def close(self) -> None:  # noqa: B027
        """Ends the session of the run."""


LOGGERS: Registry[type[Logger]] = Registry("logger")
"""The loggers by the names that `training.loggers` selects."""


def check_loggers(names: Sequence[str]) -> None:
    """Checks `training.loggers`.

    Raises:
        UserError: a logger is not registered, or its package is not installed.
    """
    for name in names:
        module = LOGGERS.find(name, f"training.loggers=[{','.join(names)}]").requires
        if module and find_spec(module) is None:
            raise UserError(
                f"training.loggers=[{','.join(names)}]: the package {module} is not installed. Run "
                f"pip install 'nmt[loggers]', or remove {name}."
            )


def finite_figures(record: Record) -> dict[str, float]:
    """Returns the figures of a record that are finite, such as `train/loss` → 2.5."""
    figures = figures_of(record).items()
    return {tag: value for tag, value in figures if value is not None and math.isfinite(value)}


def figures_of(record: Record) -> dict[str, float | None]:
    """Returns all figures of a record; those that are not finite may be None."""
    return {
        f"{record['kind']}/{name}": value
        for name, value in record.items()
        if name not in ("kind", "update", "time") and not isinstance(value, dict | list)
    }


def as_markdown(samples: Sequence[Mapping[str, str]]) -> str:
    """Returns the `samples` of a record as text."""
    return "\n\n---\n\n".join(
        "\n\n".join(f"**{name}** {text}" for name, text in sample.items()) for sample in samples
    )
