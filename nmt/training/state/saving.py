"""Checkpoints written in the background, from a snapshot, while training goes on."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from typing import Any

from torch import Tensor

from nmt.errors import UserError
from nmt.runtime import log
from nmt.training.state.checkpoint import Checkpoint, CheckpointFolder
from nmt.training.state.progress import Progress


class Saver:
    """Writes one checkpoint at a time; a copy of the state in main memory is all that training waits for.

    What is promised of a checkpoint stays: it is there whole or not at all, whenever the process dies, and
    old ones go only when it is safely on the disk. What comes later is the word of a failure: `check`, after
    every update, brings it. Whoever reads or changes the folder calls `wait` first.

    Args:
        folder: where checkpoints go.
        pool: one thread.
    """

    def __init__(self, folder: CheckpointFolder, pool: ThreadPoolExecutor) -> None:
        self._folder, self._pool = folder, pool
        self._writing: Future[None] | None = None

    def save(
        self, checkpoint: Checkpoint, facts: Mapping[str, Any], keep: Collection[int] | None = None
    ) -> None:
        """Copies a checkpoint and begins to write it, once the one before is written.

        Args:
            checkpoint: may be changed as soon as this returns.
            facts: more for `state.json`.
            keep: the updates whose checkpoints stay when it is written; None: all.

        Raises:
            UserError: the one before can't be written.
        """
        self.wait()
        self._writing = self._pool.submit(self._write, snapshot(checkpoint), dict(facts), keep)

    def check(self) -> None:
        """Raises what made the last checkpoint fail, if it has; does not wait."""
        if self._writing is not None and self._writing.done():
            self.wait()

    def wait(self) -> None:
        """Waits until nothing is being written.

        Raises:
            UserError: the checkpoint can't be written; those there were are untouched.
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
    """Yields a saver; afterwards nothing is being written any more, however it ends.

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
                log.error("%s", error)  # what ended the training comes first
            raise
        saver.wait()


def snapshot(checkpoint: Checkpoint) -> Checkpoint:
    """A copy in main memory, of counters and tensors alike."""
    parts: list[dict[str, Tensor]] = [
        {name: tensor.detach().to("cpu", copy=True) for name, tensor in part.items()}
        for part in (checkpoint.model, checkpoint.optimizer)
    ]
    return Checkpoint(Progress.from_dict(checkpoint.progress.as_dict()), *parts)
