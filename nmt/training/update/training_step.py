"""An update of the weights: the passes of its micro-batches, its counters, and a step of the optimizer.

No part of it makes the host wait for the GPU, except to read the outcome at the end.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from functools import partial
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from nmt.config import Sharding, TrainingConfig
from nmt.data.batches.batching import Batch
from nmt.model import Seq2Seq
from nmt.model.gpu.graphs import CapturedPasses, check_capture
from nmt.training.processes.ranks import Ranks
from nmt.training.update.objective import build_objective
from nmt.training.update.parallel import Replicated, spread
from nmt.training.update.precision import residual_dtype


class TrainingStep:
    """Computes updates: `begin`, `add` for each micro-batch of this process, `apply`.

    All processes call each method together, except `add`.

    The weights of the model are moved to the device of `ranks`.

    Attributes:
        model: the model that computes the micro-batches.
        parallel: the model, its gradients and its optimizer.
        objective: the training objective.
        counters: of the update so far, in this process.
        captured: the passes as CUDA graphs; None without `training.cuda_graphs`.

    Raises:
        UserError: `training.cuda_graphs` is not possible with this model or machine.
    """

    def __init__(self, model: Seq2Seq, options: TrainingConfig, ranks: Ranks) -> None:
        self._options, self._ranks, self._loss_scale = options, ranks, 1.0
        self._dropout: float | None = None
        self.parallel = spread(model, options, ranks, num_extras=NUM_COUNTERS)
        self.model = self.parallel.model
        self.model.residual_dtype = residual_dtype(options)
        self.objective = build_objective(options)
        self.counters = views(self.parallel.extras)
        self.captured: CapturedPasses | None = None
        if uses_graphs(options, ranks):
            check_capture(options, self.model.train())
            parallel = self.parallel
            assert isinstance(parallel, Replicated) and parallel.half is not None
            passes = partial(TrainingStep._passes, weakref.proxy(self), last=False)
            self.captured = CapturedPasses(passes, self.model, parallel.half, parallel.exchange, ranks.device)

    def set_dropout(self, rate: float) -> None:
        """Sets the rate of `model.dropout` of the updates from now on."""
        if rate != self._dropout:
            self._dropout = rate
            self.model.set_dropout(rate)
            if self.captured is not None:
                self.captured.clear()  # the graphs have the former rate

    def begin(self, loss_scale: float = 1.0, update: int | None = None) -> None:
        """Begins an update, also if `apply` did not end the one before.

        `loss_scale`, a power of two, multiplies the loss, so that fp16 can represent its gradient. `update`
        is the number of the update, from 1; None: one with all passes of the objective.
        """
        self._loss_scale = loss_scale
        objective = self.objective
        self._num_passes = objective.passes if update is None else objective.passes_after(update - 1, update)
        self.parallel.zero()

    def add(self, batch: Batch, number: int, *, seed: int) -> None:
        """Adds gradient, loss and tokens of a micro-batch to the sums of the update.

        Args:
            batch: on the host; with `captured` padded and in one piece of memory.
            number: of the micro-batch in the update, counted over all processes from 0.
            seed: of dropout.
        """
        self.model.seed_dropout(seed)
        last = number + self._ranks.world >= self._options.micro_batches
        if self.captured is None:
            self._passes(batch.to(self._ranks.device, non_blocking=True), last=last)
        else:
            self.captured.run(batch, last=last)
        self.counters.teraflops.add_(self.model.training_flops(batch) * self._num_passes / 1e12)
        self.counters.tokens.add_(batch.num_target_tokens)

    def apply(self, rate: float, *, stop: bool, seconds: float, end: tuple[int, int] = (0, 0)) -> UpdateCheck:
        """Sums over the processes and takes the step of the optimizer, unless the update is not finite.

        The counters get the stop request of this process, the seconds of the training so far, and the
        decided end of the training: its last update and the number of the limit.

        Returns:
            Whether the update is applied, and the counters over all processes.
        """
        # `fill_`, because assigning to an element would synchronise with the GPU.
        self.counters.stop.fill_(stop)
        self.counters.seconds.fill_(seconds)
        self.counters.end.fill_(end[0])
        self.counters.limit.fill_(end[1])
        sums = self.parallel.sums().double()
        summed = views(sums)
        check = UpdateCheck(sums, summed.objective, summed.tokens, self._loss_scale, self._options.clip_norm)
        self.parallel.step(rate, check.factor, check.finite)
        return check

    def probe(self, batch: Batch, *, loss_scale: float = 1.0) -> None:
        """Runs the passes of a batch, so that running out of memory is noticed; changes no weights.

        The next update zeroes the gradients and seeds dropout again.
        """
        self.begin(loss_scale)
        if self.captured is None:
            for number in self._probed_micro_batches():
                self.add(batch, number, seed=0)
        else:
            self._probe_graphs(self.captured, batch.pin_memory())
        # Synchronises with the device, so that its errors are raised here.
        self.parallel.extras.tolist()

    def _passes(self, batch: Batch, *, last: bool) -> None:
        """Runs forward and backward pass of a micro-batch on the device; CUDA graphs record it."""
        counters = self.counters
        # A recording that failed has drawn masks, too.
        self.model.randomness.restart()
        losses = self.objective(
            self.model,
            batch,
            precision=self._options.precision,
            passes=self._num_passes,
            scale=self._loss_scale,
            is_static=self.captured is not None,
            initial_gradient=self.parallel.initial_gradient,
        )
        self.parallel.backward(losses.objective, last=last)
        counters.objective.add_(losses.objective.detach(), alpha=1 / self._loss_scale)  # exact: 2^n
        counters.loss.add_(losses.loss)
        counters.nll.add_(losses.nll)

    def _probe_graphs(self, captured: CapturedPasses, batch: Batch) -> None:
        """Probes a micro-batch with and without a graph, whose memory exists side by side."""
        captured.needs_memory = True
        try:
            for _ in range(2):  # the second time as graphs
                self.parallel.zero()
                for number in self._probed_micro_batches():
                    self.add(batch, number, seed=0)
            captured.run_once(batch)
        finally:
            captured.needs_memory = False
            captured.clear()

    def _probed_micro_batches(self) -> list[int]:
        """Returns the micro-batches of an update to probe: the last, in which all processes communicate.

        Also the first of several if they differ in memory. With sharding, it leaves unsharded weights and
        gradients; with CUDA graphs, the others have a graph of their own, which adds to the gradients.
        """
        first, last = self._ranks.rank, self._options.micro_batches - 1
        sharded = self._options.sharding is Sharding.full and self._ranks.world > 1
        several = first + self._ranks.world <= last
        return [first, last] if several and (sharded or self.captured is not None) else [last]


def uses_graphs(options: TrainingConfig, ranks: Ranks) -> bool:
    """Whether `training.cuda_graphs` is set and has an effect on the device of this process."""
    return options.cuda_graphs and ranks.device.type == "cuda"


T = TypeVar("T", float, Tensor)


class Counters(NamedTuple, Generic[T]):
    """One value per counter: a () tensor while an update is computed, a float afterwards.

    The order of the fields is the order in the buffer `Parallel.extras`. A new counter needs a field here and
    a line in the trainer that adds to it.
    """

    objective: T
    """The training objective, summed over target tokens, without the loss scale."""
    teraflops: T
    """Floating-point operations of matrix products, in 10^12."""
    tokens: T
    """Target tokens."""
    loss: T
    """Label-smoothed cross-entropy, summed over target tokens."""
    nll: T
    """-log p of the target, summed over target tokens."""
    stop: T
    """Number of processes with a stop request."""
    seconds: T
    """Seconds of training so far; only rank 0 adds them."""
    end: T
    """The last update of the training, once rank 0 has decided it; else 0."""
    limit: T
    """With `end`: the number of the limit that decided, in `LIMITS`."""


NUM_COUNTERS = len(Counters._fields)


def views(buffer: Tensor) -> Counters[Tensor]:
    """Returns () views of a buffer of (NUM_COUNTERS,), to be changed in place."""
    return Counters(*(buffer[number] for number in range(NUM_COUNTERS)))


class UpdateCheck:
    """Whether an update is applied, and the factor for its gradient.

    When the host reads a value, it waits until the GPU has finished all earlier work, and then the GPU waits
    for the host. So the decision stays on the device. The values for the host are copied while the optimizer
    makes the step.

    Args:
        sums: (n + 1,), over all processes; the last is the norm of the gradient summed over tokens. If they
            are fp64, they are not converted.
        objective: (), the element of `sums` that was minimised.
        tokens: (), the element of `sums` that counts target tokens.
        loss_scale: the loss scale of the gradient.
        clip_norm: largest norm of the mean gradient; 0: no limit.

    Attributes:
        finite: () bool, whether objective and gradient are finite, so that the update is applied.
        factor: () fp64; the summed gradient times this is the mean gradient, clipped.
    """

    def __init__(
        self, sums: Tensor, objective: Tensor, tokens: Tensor, loss_scale: float, clip_norm: float
    ) -> None:
        sums = sums.double()
        scale = tokens.double() * loss_scale
        norm = sums[-1] / scale
        total = objective + norm  # in fp64, where finite fp32 numbers have a finite sum
        self.finite = total - total == 0  # as `isfinite`, which takes twice as many kernels
        if clip_norm:
            # A tensor in place of the number: torch computes number / tensor as reciprocal times number and
            # so rounds twice.
            self.factor = (torch.full_like(norm, clip_norm) / norm).clamp(max=1.0) / scale
        else:
            self.factor = scale.reciprocal()
        values = torch.cat([sums[:-1], norm[None], self.finite.double()[None]])
        self._values = values.to("cpu", non_blocking=True)
        self._arrived = _event() if values.is_cuda else None
        if self._arrived is not None:
            self._arrived.record()

    def read(self) -> tuple[list[float], float, bool]:
        """Waits for the decision of the device, not for work that was queued after it.

        Returns:
            The n sums; the norm of the mean gradient before clipping; whether the update is finite.
        """
        if self._arrived is not None:
            self._arrived.synchronize()
        *sums, norm, finite = self._values.tolist()
        return sums, norm, finite == 1.0


_event: Callable[[], Any] = torch.cuda.Event
