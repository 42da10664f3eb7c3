"""The loggers of a run: each gets every record once, in a thread that the training does not wait for."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from queue import SimpleQueue
from typing import Any

from nmt.config import TrainConfig
from nmt.config.storage import flat_options
from nmt.runtime.files import make_folder, write_text
from nmt.runtime.plugins import no_silent_exit
from nmt.runtime.streams import log
from nmt.training.loggers.base import LOGGERS, LoggedRun, Logger, Record, figures_of
from nmt.training.state.run_folder import RunFolder

_PATIENCE = 30.0  # seconds that the end of a session waits for its loggers


class Loggers:
    """The loggers of a run; without arguments, none."""

    def __init__(self, loggers: Sequence[_Sender] = ()) -> None:
        self._loggers = loggers

    def begin(self, records: Sequence[Record]) -> None:
        """Begins a session, or continues it after a rollback; `records` are those of the run so far.

        Raises:
            UserError: here and in the other methods, from a logger without a thread: its disk is full.
        """
        for logger in self._loggers:
            logger.do(partial(logger.begin, records))

    def log(self, record: Record) -> None:
        """Gives a record to the loggers."""
        for logger in self._loggers:
            logger.do(partial(logger.log, record))

    def finish(self, results: Mapping[str, Any]) -> None:
        """Gives the scores of `results.json` to the loggers, such as `final/test/bleu` → 27.3."""
        scores = {
            f"final/{split}/{key}": value
            for split in ("test", "valid")
            for key, value in results.get(split, {}).items()
            if isinstance(value, int | float)
        }
        for logger in self._loggers:
            logger.do(partial(logger.finish, results["training"]["updates"], scores))

    def close(self) -> None:
        """Ends the session; waits for the threads, but not long. Can be called repeatedly."""
        end = time.monotonic() + _PATIENCE
        for logger in self._loggers:
            logger.do(None)
        for logger in self._loggers:
            logger.wait(end - time.monotonic())
        self._loggers = ()


def loggers_of(config: TrainConfig) -> Loggers:
    """Returns the loggers of `training.loggers`; they open nothing before `begin`."""
    run = LoggedRun(RunFolder(Path(config.run_dir)).path, config.name, flat_options(config))
    return Loggers([_Sender(name, run) for name in dict.fromkeys(config.training.loggers)])


class _Sender:
    """A logger with its thread, and the last update of which it has a record.

    `RUN/loggers/NAME.json` has that update, the kinds of its records, and the `id` of the logger.
    """

    def __init__(self, name: str, run: LoggedRun) -> None:
        self._name, self._run, self._kind = name, run, LOGGERS[name]
        self._file = run.folder / "loggers" / f"{name}.json"
        self._update, self._kinds = -1, list[str]()
        self._logger: Logger | None = None
        self._tasks: SimpleQueue[Callable[[], None] | None] = SimpleQueue()
        self._thread = threading.Thread(target=self._work, name=f"logger {name}", daemon=True)

    def do(self, task: Callable[[], None] | None) -> None:
        """Executes a task in the thread, or here if the logger has none; None: closes the logger."""
        if self._kind.in_thread:
            if self._thread.ident is None and task is not None:
                self._thread.start()
            if self._thread.is_alive():  # it ends when the logger fails
                self._tasks.put(task)
        elif task is not None:
            task()
        elif self._logger is not None:
            self._logger.close()

    def wait(self, seconds: float) -> None:
        """Waits for the end of the thread."""
        if self._thread.ident is not None:
            self._thread.join(max(0.0, seconds))
        if self._thread.is_alive():
            log.warning(
                "training.loggers: %s did not end in %.0f seconds; its last records may be missing",
                *(self._name, _PATIENCE),
            )

    def _work(self) -> None:
        """Executes the tasks, until the end of the session or an error."""
        try:
            with no_silent_exit(any_status=True):
                while (task := self._tasks.get()) is not None:
                    task()
                    self._save()
                self._opened.close()
        except Exception as error:
            log.warning(
                "training.loggers: %s has failed, and training continues without it. The next session sends "
                "what is missing. The error: %s",
                *(self._name, " ".join(f"{type(error).__name__}: {error}".split())),
            )

    @property
    def _opened(self) -> Logger:
        assert self._logger is not None, "a session begins with `begin`"
        return self._logger

    def begin(self, records: Sequence[Record]) -> None:
        """Opens the logger, and gives it the records that it lacks."""
        if not self._kind.in_thread:
            self.do(None)
            self._logger, self._update = self._kind(self._run), -1
        elif self._logger is None:
            saved = self._saved()
            self._logger = self._kind(replace(self._run, id=saved.get("id")))
            if self._logger.id == saved.get("id"):
                self._update, self._kinds = saved["update"], saved["kinds"]
        if self._update > max((record["update"] for record in records), default=0) and self._opened.clear():
            self._update = -1
        for record in records:
            self.log(record)

    def log(self, record: Record) -> None:
        """Gives a record to the logger, unless it has it."""
        update, kind = record["update"], record["kind"]
        known = update < self._update or (update == self._update and kind in self._kinds)
        if not (known and self._kind.in_thread) and (figures_of(record) or record.get("samples")):
            self._opened.log(record)
            self._kinds = [kind] if update > self._update else [*self._kinds, kind]
            self._update = update

    def finish(self, update: int, scores: Mapping[str, float]) -> None:
        """Gives the scores of the final model to the logger."""
        self._opened.finish(update, scores)

    def _saved(self) -> dict[str, Any]:
        """Returns the state of the last session; empty without one."""
        with suppress(OSError, ValueError, KeyError, TypeError):
            saved = json.loads(self._file.read_text(encoding="utf-8"))
            return {"id": str(saved["id"]), "update": int(saved["update"]), "kinds": list(saved["kinds"])}
        return {}

    def _save(self) -> None:
        make_folder(self._file.parent)
        state = {"id": self._opened.id, "update": self._update, "kinds": self._kinds}
        write_text(self._file, json.dumps(state) + "\n")
