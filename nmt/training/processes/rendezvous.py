"""The rendezvous of the processes of a run: has a timeout and names the ranks that are missing."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from nmt.errors import UserError

TIMEOUT = timedelta(minutes=10)
"""Timeout from the first process's start to the last one's: many may import from one slow disk."""

_ACKNOWLEDGE_TIMEOUT = timedelta(seconds=20)

_rendezvous: Callable[..., Any] = rendezvous


def join_rendezvous(rank: int, world: int, problem: str | None, timeout: timedelta = TIMEOUT) -> Store:
    """Waits for all ranks at `MASTER_ADDR` and `MASTER_PORT`.

    Args:
        rank: of this process.
        world: number of processes.
        problem: why this process can't take part; None: it can.
        timeout: how long to wait for the other ranks.

    Returns:
        The store of the rendezvous, with `timeout` as its timeout.

    Raises:
        UserError: in all processes: one can't take part, or ranks are missing.
    """
    try:
        store: Store = next(_rendezvous("env://", rank, world, timeout=timeout))[0]
    except RuntimeError as error:
        first_line = str(error).partition("\n")[0]
        raise UserError(f"the processes of the run could not connect to each other: {first_line}") from error
    gather(store, rank, world, problem, timeout)
    return store


def gather(store: Store, rank: int, world: int, problem: str | None, timeout: timedelta) -> None:
    """Waits until all ranks have reported to `store` whether they can take part; see `join_rendezvous`."""
    keys, received = ([f"nmt/{word}/{other}" for other in range(world)] for word in ("met", "heard"))
    try:
        store.set(keys[rank], json.dumps(problem))
        store.wait(keys, timeout)
        reports = [json.loads(store.get(key)) for key in keys]
    except RuntimeError as error:
        raise UserError(
            f"process {_missing(store, keys)} of the run (of {world}, numbered from 0) did not join within "
            f"{timeout.total_seconds():.0f} seconds. See the logs of the other machines."
        ) from error
    problems = [text for text in reports if text is not None]
    if problems:
        with suppress(RuntimeError):  # the process with the store must not end before all ranks have read it
            store.set(received[rank], "heard")
            store.wait(received, _ACKNOWLEDGE_TIMEOUT)
        raise UserError(problems[0])


def _missing(store: Store, keys: list[str]) -> str:
    try:
        return ", ".join(str(other) for other, key in enumerate(keys) if not store.check([key]))
    except RuntimeError:
        return "0"  # or its launcher: it held the store, which is gone
