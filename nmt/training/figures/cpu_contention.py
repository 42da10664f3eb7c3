"""CPU contention: warns when training waits for CPU cores that other programs use."""

from __future__ import annotations

import time
from collections.abc import Callable

from nmt.runtime import available_cores, log, queued_seconds

_WINDOW = 20.0  # seconds
_THRESHOLD = 0.25
"""Share of the time that a thread waits for a core: near 0 on an idle machine, about one half with one other
program per core."""


class CpuContention:
    """Warns once when other programs use the cores that this process computes on.

    MFU shows that training is slow, but not why. Its ceiling is measured on the same busy machine. Linux
    counts how long each thread was ready to run without a core: that is the time that other threads took.

    Args:
        threads: number of computing threads of this process.
        processes: number of processes of the run on this machine.
        queued: returns the seconds that the threads of this process have waited for a core so far; None:
            unknown.
        clock: returns the time in seconds.
    """

    def __init__(
        self,
        threads: int,
        processes: int,
        queued: Callable[[], float | None] = queued_seconds,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._threads, self._processes = threads, processes
        self._queued, self._clock = queued, clock
        self._since = clock(), queued()

    def look(self, mfu: float) -> None:
        """Checks the waiting time every twenty seconds, until it has warned; to be called after every update.

        Args:
            mfu: MFU of the last updates.
        """
        (began, before), now = self._since, self._clock()
        if before is None or now - began < _WINDOW:
            return
        queued = self._queued()
        if queued is not None:
            share = (queued - before) / (now - began) / self._threads
            if share >= _THRESHOLD:
                self._warn(min(1.0, share), mfu)
                queued = None
        self._since = now, queued

    def _warn(self, share: float, mfu: float) -> None:
        threads, cores = self._threads * self._processes, available_cores()
        fewer = "training.devices=1 training.threads=1" if self._processes > 1 else "training.threads=1"
        less = f", or give {fewer}: threads also wait for each other" if threads > 1 else ""
        log.warning(
            "training waits %.0f%% of its time for a CPU core (MFU %.0f%%): other programs use the %d %s of "
            "this machine. End them or use another machine%s",
            *(100 * share, 100 * mfu, cores, "core" if cores == 1 else "cores", less),
        )
