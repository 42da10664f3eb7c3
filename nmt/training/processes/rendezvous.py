"""The processes of a run meet before they exchange anything: who does not come is told, not waited for."""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from torch.distributed.distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from nmt.errors import UserError

PATIENCE = timedelta(minutes=10)
"""From the first process's start to the last one's: many may import from one slow disk."""

_FAREWELL = timedelta(seconds=20)

_rendezvous: Callable[..., Any] = rendezvous


def join_rendezvous(rank: int, world: int, hindrance: str | None, patience: timedelta = PATIENCE) -> Store:
    """Meets the others where `MASTER_ADDR` and `MASTER_PORT` say.

    Args:
        rank: of this process.
        world: how many there are.
        hindrance: why this process can't take part.
        patience: how long to wait for the others.

    Returns:
        The store they met in, with `patience` for its timeout.

    Raises:
        UserError: in all of them, if one can't take part; or some did not come.
    """
    try:
        store: Store = next(_rendezvous("env://", rank, world, timeout=patience))[0]
    except RuntimeError as error:
        first_line = str(error).partition("\n")[0]
        raise UserError(f"the processes of the run did not find each other: {first_line}") from error
    gather(store, rank, world, hindrance, patience)
    return store


def gather(store: Store, rank: int, world: int, hindrance: str | None, patience: timedelta) -> None:
    """Waits until all have told `store` whether they can take part; see `join_rendezvous`."""
    keys, received = ([f"nmt/{word}/{other}" for other in range(world)] for word in ("met", "heard"))
    try:
        store.set(keys[rank], json.dumps(hindrance))
        store.wait(keys, patience)
        reports = [json.loads(store.get(key)) for key in keys]
    except RuntimeError as error:
        raise UserError(
            f"process {_missing(store, keys)} of the run, of {world} counted from 0, did not come within "
            f"{patience.total_seconds():.0f} seconds: see what was said on the other machines"
        ) from error
    hindrances = [text for text in reports if text is not None]
    if hindrances:
        with suppress(RuntimeError):  # whoever holds the store must not end before all have heard
            store.set(received[rank], "heard")
            store.wait(received, _FAREWELL)
        raise UserError(hindrances[0])


def _missing(store: Store, keys: list[str]) -> str:
    try:
        return ", ".join(str(other) for other, key in enumerate(keys) if not store.check([key]))
    except RuntimeError:
        return "0"  # or its launcher: the store was there, and is gone
