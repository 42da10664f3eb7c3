"""Figures over the last few updates: loss, speed, causes of low speed, memory and remaining time."""

from __future__ import annotations

import math
import operator
import os
import resource
import sys

import torch

from nmt.config import TrainConfig
from nmt.data.batches.blocks import budgets
from nmt.training.figures.cpu_contention import CpuContention
from nmt.training.figures.peak_flops import measured_ceiling
from nmt.training.processes.ranks import Ranks
from nmt.training.state.progress import Progress
from nmt.training.update.counters import NUM_COUNTERS, Counters

Figures = dict[str, float | None]

_NO_UPDATES: Counters[float] = Counters(*[0.0] * NUM_COUNTERS)


class Meter:
    """Sums updates between two calls of `clear` and computes their figures.

    Args:
        config: of the run.
        progress: the progress at the start of this session.
        ceiling: peak operations per second of all devices of the run together.
        device: the device whose memory is reported.
        cores: warns when other programs use the CPU cores; None: the run does not compute on the CPU.
    """

    def __init__(
        self,
        config: TrainConfig,
        progress: Progress,
        ceiling: float,
        device: torch.device,
        cores: CpuContention | None = None,
    ) -> None:
        self._cores = cores
        self._options, self._ceiling, self._device = config.training, ceiling, device
        self._room = config.training.micro_batches * budgets(config.data)[0]
        self._first = progress.update, progress.total_seconds
        self._waited_before = self._waited = 0.0
        self._totals: Counters[float] = _NO_UPDATES
        self.clear()

    def add(self, totals: Counters[float], norm: float, seconds: float, waited: float) -> None:
        """Adds an update.

        Args:
            totals: its counters, over all processes.
            norm: the norm of its gradient.
            seconds: duration of the update.
            waited: total seconds of waiting for data, in all updates of this session so far.
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

    def figures(self, progress: Progress) -> Figures:
        """Returns the figures of the updates since the last `clear`; there must be at least one.

        Returns:
            `loss`, `ppl` and, if it is not the loss, `objective`: means per target token; `gradient_norm` of
            the last update; `tokens_per_second`; `mfu`: matrix products as a share of the ceiling;
            `data_wait`: the share of the time spent waiting for batches; `filling`: target tokens as a share
            of the token budget; `peak_memory_gb` of this process, or of its GPU; `eta_minutes` until
            `max_updates` or `max_minutes`, at the pace of this session.
        """
        totals, tokens, seconds = self._totals, self._totals.tokens, self._seconds
        differs = self._options.rdrop or self._options.objective.name != "label_smoothing"
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
            "eta_minutes": self._seconds_left(progress) / 60,
        }

    @property
    def _mfu(self) -> float:
        return self._totals.teraflops * 1e12 / (self._seconds * self._ceiling)

    def clear(self) -> None:
        """Resets the sums."""
        self._updates, self._seconds, self._norm = 0, 0.0, math.nan
        self._totals = _NO_UPDATES
        self._waited_before = self._waited

    def _seconds_left(self, progress: Progress) -> float:
        update, seconds = self._first
        pace = (progress.total_seconds - seconds) / max(1, progress.update - update)
        left = pace * (self._options.max_updates - progress.update)
        if self._options.max_minutes is not None:
            left = min(left, 60 * self._options.max_minutes - progress.total_seconds)
        return max(0.0, left)


def meter_for(config: TrainConfig, progress: Progress, ranks: Ranks) -> Meter:
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
    return Meter(config, progress, ceiling.item(), ranks.device, cores)


def perplexity(nll: float) -> float | None:
    """Returns the perplexity for a mean -log p per token; None if it overflows."""
    return math.exp(nll) if nll < 700 else None


def peak_memory(device: torch.device) -> int:
    """Returns the peak memory of this process so far, in bytes: on its GPU, or without one in main memory."""
    if device.type == "cuda":
        return torch.cuda.max_memory_reserved(device)  # with the memory of CUDA graphs
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024  # bytes on macOS, kibibytes elsewhere
