"""Checkpoints: each is a folder, written under a temporary name, flushed to disk and renamed last.

They are written in the background, from a snapshot, while training continues.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from torch import Tensor

from nmt.errors import UserError
from nmt.runtime.checksums import file_sums, first_difference, read_sums, write_sums
from nmt.runtime.files import fsync_folder, make_folder, parse_json, read_text, remove
from nmt.runtime.os_errors import write_errors
from nmt.runtime.streams import log
from nmt.runtime.tensors import read_tensors, write_tensors
from nmt.training.state.progress import Progress
from nmt.training.state.run_folder import require_run_folder, require_same, without_folders

FORMAT_VERSION = 1
START = "model in start_from"
HELD_OUT = "validation or test data"
"""The name of their fingerprint, which checkpoints of earlier versions lack."""
_MODEL, _OPTIMIZER, _STATE = "model.safetensors", "optimizer.safetensors", "state.json"
_MAX_STATE_BYTES = 1 << 26
_NAME = re.compile(r"update-([0-9]{8,18})")  # not \d, which matches the digits of every script


@dataclass(frozen=True)
class Checkpoint:
    """The state of a run after an update.

    Attributes:
        progress: the counters of the run.
        model: name → weight, fp32.
        optimizer: name → tensor, as `Optimizer.tensors` returns them.
    """

    progress: Progress
    model: dict[str, Tensor]
    optimizer: dict[str, Tensor]


class DamagedCheckpoint(Exception):
    """A checkpoint that can't be read; the message names the file and the reason."""


class CheckpointFolder:
    """The checkpoints of one run.

    The first `save` creates the folder. `fingerprints` are those of the inputs of the run, such as its data,
    and `options` are those that must not change, by name. Both are stored in each checkpoint, and compared
    when it is loaded. An option that only one side has was added or removed by another version of nmt, and is
    ignored.
    """

    def __init__(
        self, folder: Path, fingerprints: Mapping[str, str], options: Mapping[str, Any] | None = None
    ) -> None:
        self.folder = folder
        self.fingerprints = dict(fingerprints)
        self.options = dict(options or {})

    def save(self, checkpoint: Checkpoint, facts: Mapping[str, Any]) -> Path:
        """Writes a checkpoint atomically; replaces one of the same update.

        `facts` are further entries of `state.json`, for other programs and people.

        Raises:
            UserError: it can't be written; existing checkpoints are unchanged.
        """
        require_run_folder(self.folder.parent)
        make_folder(self.folder)
        final = self._path(checkpoint.progress.update)
        temporary = final.with_name(f".{final.name}.tmp")
        with write_errors(final):
            try:
                self._clear_unfinished()
                temporary.mkdir()
                for name, tensors in ((_MODEL, checkpoint.model), (_OPTIMIZER, checkpoint.optimizer)):
                    write_tensors(temporary / name, tensors)
                sums = file_sums(temporary, (_MODEL, _OPTIMIZER), flush=True)
                state = {
                    "format_version": FORMAT_VERSION,
                    "progress": checkpoint.progress.as_dict(),
                    "fingerprints": self.fingerprints,
                    "options": self.options,
                    "sha256": sums,
                    **facts,
                }
                (temporary / _STATE).write_text(json.dumps(state, indent=2) + "\n", encoding="utf-8")
                write_sums(temporary, sums)
                fsync_folder(temporary)
                if os.path.lexists(final):
                    os.rename(final, final.with_name(f".{final.name}.replaced"))
                os.rename(temporary, final)
                fsync_folder(self.folder)
            finally:
                self._clear_unfinished()
        return final

    def updates(self) -> list[int]:
        """Returns the updates that have a checkpoint, damaged or not, oldest first."""
        if not self.folder.is_dir():
            return []
        matches = (_NAME.fullmatch(path.name) for path in self.folder.iterdir())
        return sorted(int(match[1]) for match in matches if match)

    def load_newest(self) -> Checkpoint | None:
        """Loads the newest checkpoint that can be read; None if there is none. Warns of damaged ones.

        Cleans up first after a process that was killed while it wrote to the folder.

        Raises:
            UserError: all checkpoints are damaged, or the newest belongs to other options or data.
        """
        self._clear_unfinished()
        updates = self.updates()
        for update in reversed(updates):
            try:
                return self.load(update)
            except DamagedCheckpoint as damage:
                log.warning("%s; resuming from the checkpoint before it", damage)
        if updates:
            raise UserError(
                f"{self.folder}: none of the {len(updates)} checkpoints can be read. "
                f"Remove the folder to train from the start, or give another run_dir."
            )
        return None

    def load(self, update: int) -> Checkpoint:
        """Loads the checkpoint of `update`.

        Raises:
            DamagedCheckpoint: it can't be read, or does not exist.
            UserError: it belongs to other options or data.
        """
        folder = self._path(update)
        state, sums = _read_state(folder, (_MODEL, _OPTIMIZER))
        self._require_same(folder, state)
        progress = _progress(folder, state)
        if progress.update != update:
            raise DamagedCheckpoint(f"{folder}: contains update {progress.update}, not the one in its name")
        tensors = [_read_tensors(folder / name, state, sums) for name in (_MODEL, _OPTIMIZER)]
        return Checkpoint(progress, *tensors)

    def require_same(self) -> None:
        """Requires that the newest checkpoint, if there is one, belongs to these options and data.

        Raises:
            UserError: it does not.
        """
        for update in reversed(self.updates()):
            folder = self._path(update)
            try:
                state, _ = _read_state(folder)
            except DamagedCheckpoint:
                continue
            self._require_same(folder, state)
            return

    def newest_progress(self) -> Progress | None:
        """Returns the counters of the newest checkpoint with a readable `state.json`; None without one."""
        newest = self._newest_state()
        return None if newest is None else newest[0]

    def newest_fingerprints(self) -> dict[str, Any]:
        """Returns the fingerprints of the checkpoint of `newest_progress`; empty without one."""
        newest = self._newest_state()
        return {} if newest is None else newest[1]["fingerprints"]

    def _newest_state(self) -> tuple[Progress, dict[str, Any]] | None:
        for update in reversed(self.updates()):
            try:
                state, _ = _read_state(self._path(update))
                return _progress(self._path(update), state), state
            except DamagedCheckpoint:
                continue
        return None

    def weights(self, update: int) -> dict[str, Tensor]:
        """Loads the weights of the model after `update`.

        Raises:
            DamagedCheckpoint: they can't be read, or do not exist.
        """
        folder = self._path(update)
        return _read_tensors(folder / _MODEL, *_read_state(folder, [_MODEL]))

    def remove_after(self, update: int) -> None:
        """Removes the checkpoints after `update`, from which the run resumes."""
        self.keep([other for other in self.updates() if other <= update])

    def keep(self, updates: Collection[int]) -> None:
        """Removes all checkpoints except those of `updates`."""
        for update in self.updates():
            if update not in updates:
                self._remove(self._path(update))
        self._clear_unfinished()

    def _require_same(self, folder: Path, state: Mapping[str, Any]) -> None:
        for name, fingerprint in self.fingerprints.items():
            saved = state["fingerprints"].get(name)
            if saved != fingerprint and not (saved is None and name == HELD_OUT):
                raise UserError(
                    f"{folder}: the {name} changed since this checkpoint was written. "
                    f"Restore the original, or give another run_dir."
                )
        # Absent in checkpoints of earlier versions, or with the folders of files.
        options = without_folders(state.get("options", {}))
        require_same(folder, options, self.options, options.keys() & self.options.keys())

    def _remove(self, path: Path) -> None:
        # Renamed first, so that an interrupted removal leaves nothing that looks like a checkpoint.
        doomed = path.with_name(f".{path.name.lstrip('.')}.removed")
        remove(doomed)
        os.rename(path, doomed)
        remove(doomed)

    def _clear_unfinished(self) -> None:
        """Removes everything except checkpoints; restores one whose replacement was not completed."""
        for path in list(self.folder.glob(".update-*.replaced")):
            final = path.with_name(path.stem.lstrip("."))
            if final.exists():
                self._remove(path)
            else:
                os.rename(path, final)
        for path in [*self.folder.glob(".update-*.tmp"), *self.folder.glob(".update-*.removed")]:
            remove(path)

    def _path(self, update: int) -> Path:
        return self.folder / f"update-{update:08d}"


def _read_state(folder: Path, others: Iterable[str] = ()) -> tuple[dict[str, Any], dict[str, str]]:
    """Reads `state.json`; returns it and the checksums of it and of `others`, compared with recorded ones."""
    try:
        recorded = read_sums(folder)
        sums = file_sums(folder, [_STATE, *others])
        if recorded is not None and (name := first_difference(recorded, sums)):
            raise DamagedCheckpoint(f"{folder / name}: is damaged: its content is not what was written")
        state = parse_json(read_text(folder / _STATE, _MAX_STATE_BYTES))
    except (OSError, ValueError) as error:
        raise DamagedCheckpoint(f"{folder}: is damaged ({error})") from error
    version = state.get("format_version") if isinstance(state, dict) else None
    if version != FORMAT_VERSION:
        raise DamagedCheckpoint(
            f"{folder}: has format {version!r:.40}, but this program reads format {FORMAT_VERSION}"
        )
    for key in ("progress", "fingerprints", "sha256", "options"):
        if not isinstance(state.setdefault(key, {} if key == "options" else None), dict):
            raise DamagedCheckpoint(f"{folder / _STATE}: is damaged: {key} is not a mapping")
    return state, sums


def _progress(folder: Path, state: Mapping[str, Any]) -> Progress:
    try:
        return Progress.from_dict(state["progress"])
    except ValueError as error:
        raise DamagedCheckpoint(f"{folder / _STATE}: is damaged: {error}") from error


def _read_tensors(path: Path, state: Mapping[str, Any], sums: Mapping[str, str]) -> dict[str, Tensor]:
    if sums[path.name] != state["sha256"].get(path.name):
        raise DamagedCheckpoint(f"{path}: is damaged: its content is not what was written")
    try:
        return read_tensors(path)
    except (OSError, ValueError) as error:
        raise DamagedCheckpoint(f"{path}: is damaged: {error}") from error


class Saver:
    """Writes one checkpoint at a time; training waits only for a copy of the state in main memory.

    Checkpoints remain atomic: each is complete or absent, whenever the process dies. Old ones are removed
    only when the new one is safely on disk. Errors are reported later, by `check`, which is called after each
    update. Call `wait` before reading or changing the folder.

    The pool has one thread.
    """

    def __init__(self, folder: CheckpointFolder, pool: ThreadPoolExecutor) -> None:
        self._folder, self._pool = folder, pool
        self._writing: Future[None] | None = None

    def save(
        self, checkpoint: Checkpoint, facts: Mapping[str, Any], keep: Collection[int] | None = None
    ) -> None:
        """Waits for the previous checkpoint, copies this one and starts to write it.

        The checkpoint may be changed as soon as this returns. Once it is written, the checkpoints of the
        updates `keep` are retained; None: all.

        Raises:
            UserError: the previous checkpoint can't be written.
        """
        self.wait()
        self._writing = self._pool.submit(self._write, snapshot(checkpoint), dict(facts), keep)

    def check(self) -> None:
        """Raises the error of the last checkpoint, if it failed; does not wait."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Waits until nothing is being written.

        Raises:
            UserError: the checkpoint can't be written; existing checkpoints are unchanged.
        """
        writing, self._writing = self._writing, None
        if writing is not None:
            writing.result()

    def _write(self, checkpoint: Checkpoint, facts: Mapping[str, Any], keep: Collection[int] | None) -> None:
        self._folder.save(checkpoint, facts)
        if keep is not None:
            self._folder.keep(keep)


@contextmanager
def saving(folder: CheckpointFolder) -> Iterator[Saver]:
    """Yields a saver; waits for its last checkpoint on exit, also after an error.

    Raises:
        UserError: the last checkpoint can't be written.
    """
    with ThreadPoolExecutor(1, "checkpoint") as pool:
        saver = Saver(folder, pool)
        try:
            yield saver
        except BaseException:
            try:
                saver.wait()
            except UserError as error:
                log.error("%s", error)  # only logged: the error that ended training is raised
            raise
        saver.wait()


def snapshot(checkpoint: Checkpoint) -> Checkpoint:
    """Copies counters and tensors to main memory."""
    parts: list[dict[str, Tensor]] = [
        {name: tensor.detach().to("cpu", copy=True) for name, tensor in part.items()}
        for part in (checkpoint.model, checkpoint.optimizer)
    ]
    return Checkpoint(Progress.from_dict(checkpoint.progress.as_dict()), *parts)
