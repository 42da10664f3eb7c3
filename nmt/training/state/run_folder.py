"""The folder of a run: its files, its fixed options and its lock."""

from __future__ import annotations

import json
import logging
import os
import re
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path, PurePath
from typing import Any, NoReturn

from nmt.bundle import MOST_RESULTS, checked_results, read_config
from nmt.config import Extension, Normalization, Resume, TrainConfig
from nmt.config.checks import shortened
from nmt.config.data import SIDE_NORMALIZATION
from nmt.config.storage import flat_options, to_yaml, with_values
from nmt.errors import UserError
from nmt.runtime.files import (
    locked,
    make_folder,
    parse_json,
    read_text,
    require_takes_files,
    stat_or_none,
    write_text,
)
from nmt.runtime.model_files import WEIGHTS
from nmt.runtime.os_errors import file_error, reason_of, write_errors
from nmt.runtime.run_files import RunFiles
from nmt.runtime.streams import log, log_also_to
from nmt.training.update.schedule import SCHEDULES

_CHANGEABLE = frozenset(
    {
        "run_dir",
        "resume",
        "resume_from",
        "recipe_keeps",
        "plugins",
        "licence",
        "prepare_only",
        "find_rate",
        "cleaned_pairs",
        "data.workers",
        "data.loaders",
        "data.cache_dir",
        "data.cache_days",
        "decoding.alignment_heads",
        "decoding.alignment_shift",
        "decoding.alignment_threshold",
        "decoding.max_tokens",
        "decoding.max_sentences",
        "training.max_updates",
        "training.max_epochs",
        "training.max_minutes",
        "training.budget",
        "training.devices",
        "training.sharding",
        "training.max_restarts",
        "training.threads",
        "training.log_every",
        "training.loggers",
        "training.report",
        "training.report_every",
        "training.profile",
        "training.keep_checkpoints",
        "training.averaging.kind",
        "training.averaging.count",
        "training.tune_length_penalty",
        "training.validate_metrics",
        "evaluation.metrics",
        "evaluation.comet.command",
    }
)
"""Options that change neither the weights after a given update nor their evaluation in training."""

_CHOSEN = ("data.max_tokens", "data.tokenizer.vocab_size", "training.precision")
"""Options whose `auto` is replaced by what is found in the data or on the machine."""

_FILES = re.compile(
    r"data\.(hub\.path|(train|valid|test)\.((sets|corpora)\.[^.]+\.)?(source|target|path|groups))"
    r"|teacher|distillation\.reverse|data\.monolingual\.(target|reverse)"
)
_MODELS = frozenset({"start_from", "data.tokenizer.path"})

_HALF_RESIDUAL, _EXTEND = "training.half_residual", "data.tokenizer.extend"


class RunFolder(RunFiles):
    """The folder that holds all files of one run."""

    def holds_checkpoints(self) -> bool:
        """Returns whether there is a checkpoint to resume from."""
        # The second pattern is left by a process that was killed while replacing; `load_newest` restores it.
        return any(any(self.checkpoints.glob(name)) for name in ("update-*", ".update-*.replaced"))

    def require_sound(self) -> None:
        """Requires a folder that can be read and written; called before the data are prepared.

        Raises:
            UserError: the folder can't be created or written to, or an entry has the wrong type, such as a
                folder named `results.json`, or the folder is that of a model.
        """
        try:
            stat_or_none(self.path)
        except OSError as error:  # for example, a name that is too long
            reason = reason_of(error, "write")
            if reason is None:
                raise
            raise UserError(f"run_dir={shortened(self.path)}: {reason}") from error
        with write_errors(self.path):
            above = self.path
            while not os.path.lexists(above) and above != above.parent:
                above = above.parent
            _require_kind(above, stat.S_ISDIR, "folder")
            require_takes_files(above, f"run_dir={self.path}")
            if (self.path / WEIGHTS).exists():
                raise UserError(
                    f"run_dir={self.path}: is the folder of a model, which the run would overwrite. Give "
                    f"another run_dir; start_from={self.path} trains the model further."
                )
            for path in (self.config, self.results, self.metrics, self.log):
                _require_kind(path, stat.S_ISREG, "file")
            for path in (self.checkpoints, self.tensorboard, self.model):
                _require_kind(path, stat.S_ISDIR, "folder")

    def check(self, config: TrainConfig) -> None:
        """Requires that a run with these options may start or resume in this folder.

        Raises:
            UserError: `resume` forbids it, or the run in the folder has other options.
        """
        if config.resume is Resume.never and (self.config.exists() or self.holds_checkpoints()):
            raise UserError(
                f"resume=never: {self.path} already has a run. Give another run_dir, or remove that folder."
            )
        if not self.holds_checkpoints():
            if config.resume is Resume.must:
                raise UserError(f"resume=must: {self.path} has no checkpoint to resume from. Check run_dir.")
            if (self.model / WEIGHTS).exists():
                raise UserError(
                    f"{self.path}: has a trained model but no checkpoints, so it can't be resumed. Give "
                    f"another run_dir, or remove {self.model} to train again."
                )
            if self.config.exists():
                try:
                    read_config(self.config)
                except UserError as error:
                    raise UserError(
                        f"{error} The run would replace this file. Remove it, or give another run_dir."
                    ) from error
            return
        if not self.config.exists():
            raise UserError(f"{self.path}: has checkpoints but no config.yaml. Give another run_dir.")
        begun = read_config(self.config)
        saved, new = fixed_options(begun), fixed_options(config)
        keys = {*saved, *new}
        if ("training.max_updates" in saved) != ("training.max_updates" in new):
            keys.remove("training.max_updates")  # only one of the two schedules depends on it
        note = ""
        if "training.max_updates" in keys and saved["training.max_updates"] != new["training.max_updates"]:
            name = config.training.schedule.name
            note = f" The learning rates of training.schedule.name={name} depend on training.max_updates."
        require_same(self.path, saved, new, keys, note)
        if missing := [name for name in begun.plugins if name not in config.plugins]:
            log.warning(
                "%s: started with plugins=[%s], but %s is not given now; the cleaning rules of a missing "
                "module drop nothing",
                *(self.path, ",".join(begun.plugins), ",".join(missing)),
            )

    def resumable_config(self) -> TrainConfig | None:
        """Returns the options of the run that can be resumed; None if there is none."""
        try:
            return read_config(self.config) if self.holds_checkpoints() else None
        except UserError:
            return None  # `check` reports the error

    def plugins(self) -> list[str]:
        """Returns the `plugins` of the run that can be resumed; empty if there is none."""
        begun = self.resumable_config()
        return [] if begun is None else begun.plugins

    def with_choices(self, config: TrainConfig) -> TrainConfig:
        """Returns the options with `auto` replaced by the values from the start of the run in this folder.

        These are the options that depend on the data. A run of an earlier version retains its normalisation.
        A run without a checkpoint may start again with other options or data. Then only its `data.max_tokens`
        is used, and only if all options are the same.
        """
        try:
            saved = read_config(self.config)
        except UserError:
            return config  # nothing to resume, or `check` reports the error
        data, begun, values = config.data, self.holds_checkpoints(), dict[str, Any]()
        if begun and data.tokenizer.normalization == SIDE_NORMALIZATION:
            # A run of an earlier version had one rule for both sides, which was not given either.
            if saved.data.tokenizer.rule_of_both is Normalization.nmt_nfkc:
                values["data.tokenizer.normalization"] = saved.data.tokenizer.normalization
        if data.tokenizer.vocab_size == "auto" and begun:
            values["data.tokenizer.vocab_size"] = saved.data.tokenizer.vocab_size
        if data.max_tokens == "auto":
            if begun or options_before_choices(saved, config) == fixed_options(config):
                values["data.max_tokens"] = saved.data.max_tokens
        return with_values(config, values)

    @contextmanager
    def claimed(self, config: TrainConfig, check: Callable[[], object] = bool) -> Iterator[None]:
        """Holds the lock of the folder; writes `config.yaml` and logs to `train.log`.

        `check` is called with the lock, before anything is written; it may raise an error.

        Raises:
            UserError: another process holds the lock, or the folder can't be written to.
        """
        fresh = not self.config.exists()  # prepare_only=true creates the folder too
        make_folder(self.path)
        with locked(self.path / ".lock", self._raise_locked):
            check()
            if fresh:
                log.info("new run in %s", self.path)
            write_text(self.config, to_yaml(config))
            with self.logging():
                yield

    def _raise_locked(self) -> NoReturn:
        raise UserError(f"{self.path}: in use by another nmt-train. Give another run_dir.")

    def write_results(self, results: dict[str, Any]) -> None:
        """Writes `results.json`."""
        write_text(self.results, json.dumps(results, indent=2, ensure_ascii=False) + "\n")

    def read_results(self) -> dict[str, Any] | None:
        """Returns the content of `results.json`; None if it is missing or damaged."""
        try:
            return checked_results(parse_json(read_text(self.results, MOST_RESULTS)))
        except ValueError:  # includes UserError
            return None

    @contextmanager
    def logging(self, *, later: bool = False) -> Iterator[None]:
        """Also writes the log to `train.log`; `later`: the file is opened for the first line."""
        with write_errors(self.log):
            handler = _RunLog(self.log, encoding="utf-8", errors="backslashreplace", delay=later)
        handler.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(message)s"))
        try:
            with log_also_to(handler):
                yield
        finally:
            handler.close()


class _RunLog(logging.FileHandler):
    """Writes `train.log`; after a failure, warns once and stops writing to the file."""

    _failed = False

    def emit(self, record: logging.LogRecord) -> None:
        """Writes a line, unless an earlier one failed, or the folder of a new run is not created yet."""
        if not self._failed and (self.stream or Path(self.baseFilename).parent.is_dir()):
            super().emit(record)

    def handleError(self, record: logging.LogRecord) -> None:
        """Stops writing to the file after an error such as a full disk."""
        error = sys.exception()
        if not isinstance(error, OSError):
            super().handleError(record)
            return
        self._failed = True
        log.warning("%s", file_error(error, Path(self.baseFilename), "write") or error)

    def close(self) -> None:
        """Closes the file, even if it is incomplete."""
        with suppress(OSError):  # the rest of its buffer can't be written
            super().close()


def _require_kind(path: Path, is_kind: Callable[[int], bool], kind: str) -> None:
    if os.path.lexists(path) and ((status := stat_or_none(path)) is None or not is_kind(status.st_mode)):
        raise UserError(f"{path}: not a {kind}. Remove it, or give another run_dir.")


def require_run_folder(path: Path) -> None:
    """Requires that the folder of a running training still exists.

    It is not created again, because the start of the run would be missing from it.

    Raises:
        UserError: it was moved or removed.
    """
    if stat_or_none(path) is None:
        raise UserError(
            f"{path}: was moved or removed while the run was writing to it. Move it back, and the same "
            "command resumes from its last checkpoint."
        )


def fixed_options(config: TrainConfig) -> dict[str, Any]:
    """Returns the options that must not change when a run is resumed: full name → value."""
    options = flat_options(config)
    # Missing in the file of a run that began before there was a choice; every other run records it.
    options[_HALF_RESIDUAL] = bool(options[_HALF_RESIDUAL])
    if options[_EXTEND] == "auto":
        options[_EXTEND] = "never"
    if config.data.train.corpora:
        options["data.train.corpora"] = list(config.data.train.corpora)  # the order matters too
    for split in ("valid", "test"):
        options[f"data.{split}.sets"] = list(getattr(config.data, split).sets)
    if chosen := [name for name, values in config.decoding.processors.items() if values is not None]:
        options["decoding.processors"] = chosen  # includes those without options
    free = set(_CHANGEABLE)
    schedule = SCHEDULES.get(config.training.schedule.name)  # another run's schedule may be unknown
    if schedule is not None and schedule.depends_on_max_updates:
        free.remove("training.max_updates")  # each learning rate depends on it
    return without_folders({key: value for key, value in options.items() if key not in free})


def without_folders(options: Mapping[str, Any]) -> dict[str, Any]:
    """Returns options as those of a run that was moved with its data: of each file the name alone.

    The checkpoints know the contents of the files. Of other models they know the pieces and the weights, so
    it only counts whether there is one.
    """
    changed = {key: _names(value) for key, value in options.items() if _FILES.fullmatch(key)}
    given = {key: "a model" for key in _MODELS if options.get(key) is not None}
    return {**options, **changed, **given}


def _names(paths: Any) -> Any:
    if isinstance(paths, list):
        return [*map(_names, paths)]
    return PurePath(paths).name if isinstance(paths, str) else paths


def options_before_choices(saved: TrainConfig, new: TrainConfig) -> dict[str, Any]:
    """Returns the fixed options of a saved run; those still `auto` in the new options stay `auto`."""
    new_options = fixed_options(new)
    unresolved = [key for key in _CHOSEN if new_options[key] == "auto"]
    if new.training.half_residual is None:
        unresolved.append(_HALF_RESIDUAL)
    if new.data.tokenizer.extend is Extension.auto:
        unresolved.append(_EXTEND)
    return {**fixed_options(saved), **{key: new_options[key] for key in unresolved}}


_SHOWN = 6
"""Options that an error message about changed options has at most."""


def require_same(
    where: Path,
    saved: Mapping[str, Any],
    new: Mapping[str, Any],
    keys: Iterable[str],
    note: str = "",
) -> None:
    """Requires that these options of a run have not changed since `where` was written.

    `saved` are the options in `where`, the run folder or the checkpoint, and `new` those given now: full name
    → value. `note` is a reason that the message gives, with a space before it.

    Raises:
        UserError: some have changed; the message has the names, old and new values of the first ones.
    """
    changed = [key for key in sorted(keys) if saved.get(key) != new.get(key)]
    # Of corpora or sets with other names, the names alone.
    changed = [key for key in changed if not any(key.startswith(f"{outer}.") for outer in changed)]
    if changed:
        # Other data explain most of the other differences.
        shown = sorted(changed, key=lambda key: key != "data.name")[:_SHOWN]
        words = ", ".join(f"{key}={_word(saved.get(key))}, not {_word(new.get(key))}" for key in shown)
        if len(changed) > len(shown):
            words += f", and {len(changed) - len(shown)} other options differ"
        raise UserError(
            f"{where}: started with {words}. Give the same options to resume, or another run_dir.{note}"
        )


def _word(value: Any) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_word, value))}]"
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else str(value)
