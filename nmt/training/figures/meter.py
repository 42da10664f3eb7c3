"""Figures over the last few updates: loss, speed, causes of low speed, and memory."""

from __future__ import annotations

import math
import operator
import os
import sys
import time
from collections.abc import Callable

import torch
from torch import Tensor

from nmt.config import Precision, TrainConfig
from nmt.data.batches.blocks import budgets
from nmt.runtime.machine import available_cores, queued_seconds
from nmt.runtime.streams import log
from nmt.training.processes.ranks import Ranks
from nmt.training.update.precision import product_dtype
from nmt.training.update.training_step import NUM_COUNTERS, Counters

Figures = dict[str, float | None]

_NO_UPDATES: Counters[float] = Counters(*[0.0] * NUM_COUNTERS)


class Meter:
    """Sums updates between two calls of `clear` and computes their figures.

    `ceiling` is the peak of operations per second of all devices of the run together. `cores` warns when
    other programs use the CPU cores; None: the run does not compute on the CPU.
    """

    def __init__(
        self,
        config: TrainConfig,
        ceiling: float,
        device: torch.device,
        cores: CpuContention | None = None,
    ) -> None:
        self._cores = cores
        self._options, self._ceiling, self._device = config.training, ceiling, device
        self._room = config.training.micro_batches * budgets(config.data)[0]
        self._waited_before = self._waited = 0.0
        self._totals: Counters[float] = _NO_UPDATES
        self.clear()

    def add(self, totals: Counters[float], norm: float, seconds: float, waited: float) -> None:
        """Adds an update.

        `totals` are over all processes. `waited` are the seconds of waiting for data in all updates of this
        session so far.
        """
        self._updates += 1
        self._totals = Counters(*map(operator.add, self._totals, totals))
        self._norm, self._waited = norm, waited
        self._seconds += seconds
        if self._cores is not None:
            self._cores.look(self._mfu)

    @property
    def num_updates(self) -> int:
        """Number of updates since the last `clear`."""
        return self._updates

    def figures(self) -> Figures:
        """Returns the figures of the updates since the last `clear`; there must be at least one.

        Returns:
            `loss`, `ppl` and, if it is not the loss, `objective`: means per target token; `gradient_norm` of
            the last update; `tokens_per_second`; `mfu`: matrix products as a share of the ceiling;
            `data_wait`: the share of the time spent waiting for batches; `filling`: target tokens as a share
            of the token budget; `peak_memory_gb` of this process, or of its GPU.
        """
        totals, tokens, seconds = self._totals, self._totals.tokens, self._seconds
        options = self._options
        differs = options.rdrop or options.simcut or options.objective.name != "label_smoothing"
        objective = {"objective": totals.objective / tokens} if differs else {}
        return {
            "loss": totals.loss / tokens,
            **objective,
            "ppl": perplexity(totals.nll / tokens),
            "gradient_norm": self._norm,
            "tokens_per_second": tokens / seconds,
            "mfu": self._mfu,
            "data_wait": min(1.0, (self._waited - self._waited_before) / seconds),
            "filling": tokens / (self._updates * self._room),
            "peak_memory_gb": peak_memory(self._device) / 1e9,
        }

    @property
    def _mfu(self) -> float:
        return self._totals.teraflops * 1e12 / (self._seconds * self._ceiling)

    def clear(self) -> None:
        """Resets the sums."""
        self._updates, self._seconds, self._norm = 0, 0.0, math.nan
        self._totals = _NO_UPDATES
        self._waited_before = self._waited


def meter_for(config: TrainConfig, ranks: Ranks) -> Meter:
    """Returns the meter of a run; all processes measure the ceiling of their devices at the same time.

    The GPU memory of this measurement does not count towards the peak memory of the run.
    """
    ceiling = torch.tensor(measured_ceiling(ranks.device, config.training.precision), device=ranks.device)
    ranks.sum_(ceiling)
    if ranks.device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(ranks.device)
    cores = None
    if ranks.device.type == "cpu" and ranks.is_main:
        local = int(os.environ.get("LOCAL_WORLD_SIZE", ranks.world))
        cores = CpuContention(torch.get_num_threads(), local)
    return Meter(config, ceiling.item(), ranks.device, cores)


def perplexity(nll: float) -> float | None:
    """Returns the perplexity for a mean -log p per token; None if it overflows."""
    return math.exp(nll) if nll < 700 else None


def peak_memory(device: torch.device) -> int:
    """Returns the peak memory of this process so far, in bytes: on its GPU, or without one in main memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)  # with the memory of CUDA graphs
    import resource  # Windows does not have it

    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes on macOS, kibibytes elsewhere


_SMALLEST, _LARGEST = 512, 8192  # below, call overhead is visible; above, the speed does not increase
_LONG_ENOUGH = 0.01  # seconds
_WARM = 0.1  # seconds of work until a GPU has raised its clock rate from idle


def measured_ceiling(device: torch.device, precision: Precision) -> float:
    """Returns the operations per second of a large product in `precision`; a multiply-add counts as two.

    Multiplies square matrices of doubling size, until a product takes long enough to fill the device. This
    takes a tenth of a second, on a GPU half a second. A separate random generator leaves the global one
    unchanged.
    """
    dtype, best, size = product_dtype(precision), 0.0, _SMALLEST
    while True:
        numbers = torch.Generator(device).manual_seed(0)
        a = torch.randn(size, size, generator=numbers, device=device).to(dtype)
        tries = [_seconds_of_product(a) for _ in range(4)]
        while device.type == "cuda" and sum(tries) < _WARM:
            tries.append(_seconds_of_product(a))
        seconds = min(tries)
        best = max(best, 2 * size**3 / seconds)
        if seconds >= _LONG_ENOUGH or size == _LARGEST:
            return best
        size *= 2


def _seconds_of_product(a: Tensor) -> float:
    _wait_for(a.device)
    start = time.perf_counter()
    a @ a.T
    _wait_for(a.device)
    return max(time.perf_counter() - start, 1e-9)


def _wait_for(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


_WINDOW = 20.0  # seconds
_THRESHOLD = 0.25
"""Share of the time that a thread waits for a core: near 0 on an idle machine, about one half with one other
program per core."""


class CpuContention:
    """Warns once when other programs use the cores that this process computes on.

    MFU shows that training is slow, but not why. Its ceiling is measured on the same busy machine. Linux
    counts how long each thread was ready to run without a core: that is the time that other threads took.

    `queued` returns the seconds that the threads of this process have waited for a core so far; None:
    unknown.
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
        """Checks the waiting time every twenty seconds until it has warned; called after every update."""
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
