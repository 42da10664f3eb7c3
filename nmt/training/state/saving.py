"""Writes checkpoints in the background, from a snapshot, while training continues."""

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
    """Writes one checkpoint at a time; training waits only for a copy of the state in main memory.

    Checkpoints remain atomic: each is complete or absent, whenever the process dies. Old ones are removed
    only when the new one is safely on disk. Errors are reported later, by `check`, which is called after each
    update. Call `wait` before reading or changing the folder.

    Args:
        folder: the folder of the checkpoints.
        pool: a pool of one thread.
    """

    def __init__(self, folder: CheckpointFolder, pool: ThreadPoolExecutor) -> None:
        self._folder, self._pool = folder, pool
        self._writing: Future[None] | None = None

    def save(
        self, checkpoint: Checkpoint, facts: Mapping[str, Any], keep: Collection[int] | None = None
    ) -> None:
        """Waits for the previous checkpoint, copies this one and starts to write it.

        Args:
            checkpoint: may be changed as soon as this returns.
            facts: further entries of `state.json`.
            keep: the updates whose checkpoints are retained once it is written; None: all.

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
