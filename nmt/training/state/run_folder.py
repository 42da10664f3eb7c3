"""The folder of a run: its files, the options it was started with, and who is writing to it."""

from __future__ import annotations

import json
import logging
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

from nmt.bundle import MOST_RESULTS, checked_results, config_to_yaml, read_config
from nmt.config import Resume, TrainConfig
from nmt.config.checks import shortened
from nmt.config.storage import to_plain
from nmt.errors import UserError
from nmt.runtime import (
    expanded,
    file_error,
    locked,
    log,
    log_also_to,
    make_folder,
    parse_json,
    read_text,
    reason_of,
    replaced,
    stat_or_none,
    write_errors,
)
from nmt.training.update.schedule import SCHEDULES

_FREE = frozenset(
    {
        "run_dir",
        "resume",
        "resume_from",
        "plugins",
        "prepare_only",
        "data.workers",
        "data.loaders",
        "data.cache_dir",
        "data.cache_days",
        "decoding.max_tokens",
        "decoding.max_sentences",
        "training.max_updates",
        "training.max_epochs",
        "training.max_minutes",
        "training.devices",
        "training.sharding",
        "training.max_restarts",
        "training.threads",
        "training.log_every",
        "training.profile",
        "training.keep_checkpoints",
        "training.averaging.kind",
        "training.averaging.count",
        "training.validate_metrics",
        "evaluation.metrics",
        "evaluation.comet.command",
    }
)
"""Options that change neither the weights after a given update nor how they are judged."""

_CHOSEN = ("data.max_tokens", "data.tokenizer.vocab_size")
"""Options whose `auto` is replaced by a number once the data are prepared."""


class RunFolder:
    """Where one run keeps everything.

    Args:
        path: `run_dir`.
    """

    def __init__(self, path: Path) -> None:
        path = expanded(path)
        self.path = path
        self.config = path / "config.yaml"
        self.results = path / "results.json"
        self.metrics = path / "metrics.jsonl"
        self.log = path / "train.log"
        self.tensorboard = path / "tensorboard"
        self.profile = path / "profile"
        self.checkpoints = path / "checkpoints"
        self.model = path / "model"

    def hypotheses(self, split: str) -> Path:
        """The translations of `valid` or `test`."""
        return self.path / f"{split}.hypotheses.txt"

    def holds_checkpoints(self) -> bool:
        """Whether there is something to go on from."""
        # The second is left by a process that was killed as it replaced one; `load_newest` takes it back.
        return any(any(self.checkpoints.glob(name)) for name in ("update-*", ".update-*.replaced"))

    def require_sound(self) -> None:
        """Finds what would make reading or writing here fail, before hours go into preparing data.

        Raises:
            UserError: the folder can't be had or written to, or a name in it is of the wrong kind, such as a
                folder in the place of `results.json`.
        """
        try:
            stat_or_none(self.path)
        except OSError as error:  # such as a name that is too long
            reason = reason_of(error, "write")
            if reason is None:
                raise
            raise UserError(f"run_dir={shortened(self.path)}: {reason}") from error
        with write_errors(self.path):
            above = self.path
            while not os.path.lexists(above) and above != above.parent:
                above = above.parent
            _require_kind(above, stat.S_ISDIR, "folder")
            if not os.access(above, os.W_OK | os.X_OK):
                raise UserError(f"run_dir={self.path}: {above} can't be written to; choose another folder")
            for path in (self.config, self.results, self.metrics, self.log):
                _require_kind(path, stat.S_ISREG, "file")
            for path in (self.checkpoints, self.tensorboard, self.model):
                _require_kind(path, stat.S_ISDIR, "folder")

    def require_present(self) -> None:
        """Makes sure that the folder has not been moved or removed while the run is under way.

        Raises:
            UserError: it has.
        """
        require_run_folder(self.path)

    def check(self, config: TrainConfig) -> None:
        """Makes sure that a run with these options may go on, or start, here.

        Raises:
            UserError: `resume` forbids it, or the run in the folder has other options.
        """
        if config.resume is Resume.never and (self.config.exists() or self.holds_checkpoints()):
            raise UserError(
                f"resume=never: {self.path} holds a run already; give another run_dir, or remove that folder"
            )
        if not self.holds_checkpoints():
            if config.resume is Resume.must:
                raise UserError(f"resume=must: {self.path} holds no checkpoint to go on from; check run_dir")
            return
        if not self.config.exists():
            raise UserError(
                f"{self.path} has checkpoints but no config.yaml that tells of them: give another run_dir"
            )
        begun = read_config(self.config)
        there, here = fixed_options(begun), fixed_options(config)
        require_same(self.path, there, here, {*there, *here})
        if missing := [name for name in begun.plugins if name not in config.plugins]:
            log.warning(
                "%s was started with plugins=[%s], and %s is not given now: the cleaning rules of a module "
                "that is missing drop nothing",
                *(self.path, ",".join(begun.plugins), ",".join(missing)),
            )

    def begun(self) -> TrainConfig | None:
        """The options of the run that there is to go on with; None if there is none."""
        try:
            return read_config(self.config) if self.holds_checkpoints() else None
        except UserError:
            return None  # `check` will say what is wrong

    def plugins(self) -> list[str]:
        """The `plugins` of the run that there is to go on with; none if there is none."""
        begun = self.begun()
        return [] if begun is None else begun.plugins

    def with_choices(self, config: TrainConfig) -> TrainConfig:
        """The options with `auto` replaced by what it became when the run in this folder began, if one did.

        These are the options that depend on the data. A run that never came to a checkpoint may begin again
        with other options or data: only its `data.max_tokens` is taken, and only if all options are the same.
        """
        try:
            there = read_config(self.config)
        except UserError:
            return config  # nothing is there that could be gone on with, or `check` will say what is wrong
        data, found = config.data, there.data
        begun = self.holds_checkpoints()
        if data.tokenizer.vocab_size == "auto" and begun:
            data = replace(data, tokenizer=replace(data.tokenizer, vocab_size=found.tokenizer.vocab_size))
        if data.max_tokens == "auto" and (begun or _given(there, config) == fixed_options(config)):
            data = replace(data, max_tokens=found.max_tokens)
        return replace(config, data=data)

    @contextmanager
    def claimed(self, config: TrainConfig) -> Iterator[None]:
        """Within, this process alone writes to the folder; `config.yaml` is in it and the log goes there too.

        Raises:
            UserError: another process has it, or it can't be written to.
        """
        fresh = not self.config.exists()  # the folder itself is made by prepare_only=true too
        make_folder(self.path)
        with locked(self.path / ".lock", self._taken):
            if fresh:
                log.info("new run in %s", self.path)
            with replaced(self.config) as temporary:
                temporary.write_text(config_to_yaml(config), encoding="utf-8")
            with self.logging():
                yield

    def _taken(self) -> NoReturn:
        raise UserError(f"{self.path}: another nmt-train is at work there; give another run_dir")

    def write_results(self, results: dict[str, Any]) -> None:
        """Writes `results.json`."""
        with replaced(self.results) as temporary:
            temporary.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")

    def read_results(self) -> dict[str, Any] | None:
        """What `results.json` holds; None if it is missing or damaged."""
        try:
            return checked_results(parse_json(read_text(self.results, MOST_RESULTS)))
        except ValueError:  # a UserError is one, too
            return None

    @contextmanager
    def logging(self) -> Iterator[None]:
        """Within, the log goes to `train.log` too."""
        with write_errors(self.log):
            handler = _RunLog(self.log, encoding="utf-8", errors="backslashreplace")
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        try:
            with log_also_to(handler):
                yield
        finally:
            handler.close()


class _RunLog(logging.FileHandler):
    """Writes `train.log`; where that fails, says so once, and the log goes on without the file."""

    _failed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line, unless one before could not be written."""
        if not self._failed:
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Gives the file up where its disk is full or the like."""
        error = sys.exception()
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._failed = True
        log.warning("%s", file_error(error, Path(self.baseFilename), "write") or error)

    def close(self) -> None:
        """Closes the file, be it complete or not."""
        with suppress(OSError):  # what it still holds can't be written
            super().close()


def _require_kind(path: Path, is_kind: Callable[[int], bool], kind: str) -> None:
    if os.path.lexists(path) and ((there := stat_or_none(path)) is None or not is_kind(there.st_mode)):
        raise UserError(f"{path}: must be a {kind}, and is not; remove it, or give another run_dir")


def require_run_folder(path: Path) -> None:
    """Makes sure that the folder of a run that is under way is still there.

    Raises:
        UserError: it was moved or removed. To create it anew would leave a run without a beginning.
    """
    if stat_or_none(path) is None:
        raise UserError(
            f"{path}: was moved or removed while the run was writing to it. Move it back, and the same "
            "command goes on from its last checkpoint"
        )


def fixed_options(config: TrainConfig) -> dict[str, Any]:
    """The options that must stay as they are while a run goes on: full name → value."""
    options = dict(_flat(to_plain(config), ""))
    if config.data.train.corpora:
        options["data.train.corpora"] = list(config.data.train.corpora)  # their order matters too
    if chosen := [name for name, given in config.decoding.processors.items() if given is not None]:
        options["decoding.processors"] = chosen  # one without options too
    free = set(_FREE)
    schedule = SCHEDULES.get(config.training.schedule.name)  # of another run it may be unknown here
    if schedule is not None and schedule.depends_on_max_updates:
        free.remove("training.max_updates")  # it is part of every learning rate
    return {key: value for key, value in options.items() if key not in free}


def _given(there: TrainConfig, here: TrainConfig) -> dict[str, Any]:
    """The fixed options of `there` as they were given, if those that are `auto` in `here` were so there."""
    options, given = fixed_options(there), fixed_options(here)
    return {**options, **{key: "auto" for key in _CHOSEN if given[key] == "auto"}}


def require_same(where: Path, there: Mapping[str, Any], here: Mapping[str, Any], keys: Iterable[str]) -> None:
    """Makes sure that these options of a run are what they were when `where` was written.

    Raises:
        UserError: some are not; it names them and both of their values.
    """
    changed = [key for key in sorted(keys) if there.get(key) != here.get(key)]
    if changed:
        words = ", ".join(f"{key}={_word(there.get(key))}, not {_word(here.get(key))}" for key in changed)
        raise UserError(
            f"{where} was started with {words}: give the same options to go on, or another run_dir"
        )


def _flat(value: Any, name: str) -> Iterator[tuple[str, Any]]:
    if isinstance(value, dict):
        for key, item in value.items():
            yield from _flat(item, f"{name}.{key}" if name else str(key))
    else:
        yield name, value


def _word(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_word, value))}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
