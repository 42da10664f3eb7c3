"""Model, gradients and optimizer in each process: replicated, or sharded (see `sharding`).

Replicated gradients are summed over the processes in buckets, while the backward pass still runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Protocol, TypeAlias, cast

import torch
from torch import Tensor
from torch.distributed import Work

from nmt.bundle import load_weights
from nmt.config import Kernel, Sharding, TrainingConfig
from nmt.model import Seq2Seq, put_on
from nmt.training.processes.ranks import Ranks
from nmt.training.update.gradients import FlatGradients, StartPenalty
from nmt.training.update.optimizer import Adam, build_optimizer, trained_parameters
from nmt.training.update.precision import exchange_dtype, product_dtype

State: TypeAlias = tuple[dict[str, Tensor], dict[str, Tensor]]
"""Unsharded weights by name, and the optimizer's tensors by the names of `Optimizer.tensors`."""


class Parallel(Protocol):
    """A model in training, replicated or sharded over the ranks. All ranks call each method together.

    Attributes:
        model: the model that computes the micro-batches.
        extras: (num_extras,) fp32, numbers that `sums` sums together with the gradients.
        initial_gradient: () 1, with which each backward pass begins.
        whole: the model to validate; after `state` its weights equal those of `model`.
    """

    model: Seq2Seq
    extras: Tensor
    initial_gradient: Tensor
    whole: Seq2Seq

    def weights(self) -> dict[str, Tensor]:
        """Returns the trained weights by name, to read or change; if sharded, the shards of this process."""

    def zero(self) -> None:
        """Begins an update, also if `sums` did not end the one before: sets gradients and extras to 0."""

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Adds the gradient of a micro-batch; `last`: it is the last one of this process in the update."""

    def sums(self) -> Tensor:
        """Sums gradients and extras over the processes.

        Returns:
            (num_extras + 1,): the extras, and the Euclidean norm of the gradient.
        """

    def step(self, rate: float, factor: Tensor, finite: Tensor) -> None:
        """Makes a step of the optimizer.

        Args:
            rate: the learning rate.
            factor: () fp64; the gradient is multiplied by it before the step. The gradient of
                `training.l2_to_start` is added afterwards.
            finite: () bool; if false, nothing changes.
        """

    def state(self, *, optimizer: bool) -> State:
        """Returns the unsharded weights and, if requested, the optimizer's tensors; for rank 0 to read.

        They may be the tensors themselves, which the next update changes.
        """

    def restore(self, state: State | None, begun: bool, where: Path) -> None:
        """Gives all processes the state that rank 0 read from a checkpoint.

        Args:
            state: as `state` returned it; None in the other processes, and in a new run.
            begun: whether there is a checkpoint; a new run has only initial weights.
            where: path of the checkpoint, for the error.

        Raises:
            UserError: it belongs to another model.
        """


def spread(model: Seq2Seq, options: TrainingConfig, ranks: Ranks, num_extras: int) -> Parallel:
    """Replicates or shards a model over the processes of a run, as `training.sharding` selects."""
    if options.sharding is Sharding.full and ranks.world > 1:
        from nmt.training.update.sharding import Sharded  # takes half a second to import

        return Sharded(model, options, ranks, num_extras)
    return Replicated(model, options, ranks, num_extras)


class Replicated:
    """A full copy in every process; gradients are summed once per update. See `Parallel`."""

    def __init__(self, model: Seq2Seq, options: TrainingConfig, ranks: Ranks, num_extras: int) -> None:
        self.model = self.whole = put_on(model, ranks.device, options.unmeasured_kernels)
        self._optimizer = build_optimizer(
            self.model, options.optimizer, product_dtype(options.precision), ranks.world
        )
        self._trained = trained_parameters(self.model)
        l2 = options.l2_to_start
        self._penalty = StartPenalty(self.weights(), l2) if l2 else None
        self.gradients = FlatGradients(self._trained.values(), num_extras)
        self.extras = self.gradients.extras
        self._ranks, self.initial_gradient = ranks, torch.ones((), device=ranks.device)
        self.half = self.model.backend.half_weights(self.model, product_dtype(options.precision))
        self._adam_divides = ranks.device.type == "cuda" and Kernel.adam_divisor in options.unmeasured_kernels
        self._exchange = None
        if ranks.world > 1:
            leaves = [[weight] for weight in self._trained.values()]
            self._exchange = BucketedExchange(
                self.gradients,
                leaves if self.half is None else self.half.leaves(),
                ranks,
                self._collect,
                exchange_dtype(options.gradient_exchange),
            )

    def weights(self) -> dict[str, Tensor]:
        """Returns the trained weights."""
        return {name: weight.detach() for name, weight in self._trained.items()}

    def zero(self) -> None:
        """Sets all gradients to 0, in one call."""
        if self._exchange is not None:
            self._exchange.finish()  # that of a memory probe
        self.gradients.zero()
        if self.half is not None:
            self.half.begin()

    def backward(self, loss: Tensor, *, last: bool) -> None:
        """Adds the gradient of a micro-batch; during the last one, starts the sum over the processes."""
        if last and self._exchange is not None:
            self._exchange.backward(loss, self.initial_gradient)
            return
        torch.autograd.backward(loss, self.initial_gradient)
        if self.half is not None:
            self.half.add_gradients()

    def exchange(self) -> None:
        """Starts the sum of the gradients over the processes, after backward passes of CUDA graphs."""
        if self._exchange is not None:
            self._exchange.start()

    def sums(self) -> Tensor:
        """Finishes the sums of the gradients, and sums the extras."""
        if self._exchange is not None:
            self._exchange.finish()
            self._ranks.sum_(self.extras)
        if self.half is not None:
            self.half.end()
        return torch.cat([self.extras, self.gradients.norm()[None]])

    def step(self, rate: float, factor: Tensor, finite: Tensor) -> None:
        """Makes a step; the host does not wait for the values of the tensors."""
        optimizer, gradients = self._optimizer, self.gradients.gradients
        if self._adam_divides and self._penalty is None and type(optimizer).step is Adam.step:
            # In one pass over the gradients. Another class may not take a divisor.
            cast(Adam, optimizer).step(rate, finite, factor.reciprocal().float())
            return
        gradients.mul_(factor.float())
        if self._penalty is not None:
            self._penalty.add_to([cast(Tensor, weight.grad) for weight in self._trained.values()])
        optimizer.step(rate, finite)

    def state(self, *, optimizer: bool) -> State:
        """Returns the tensors themselves, not copies."""
        return self.model.state_dict(), self._optimizer.tensors() if optimizer else {}

    def _collect(self, numbers: range) -> None:
        """Adds the gradients of these parameters, which the backward pass has computed, to the buffer."""
        if self.half is not None:
            self.half.add_gradients(numbers)

    def restore(self, state: State | None, begun: bool, where: Path) -> None:
        """Loads the state in rank 0, then copies it to the others; copies the initial weights too."""
        if state:
            load_weights(self.model, state[0], where)
            self._optimizer.load(state[1], str(where))
        self._ranks.copy_(self.model.state_dict().values())
        if begun:
            tensors = self._optimizer.tensors()
            self._ranks.copy_(tensors.values())
            self._optimizer.load(tensors, "the main process")  # an optimizer may derive more from its state


BUCKET_SIZE = 1 << 22
"""Floats that a bucket has at least, except the last: 16 MiB, for which the latency is small."""


class BucketedExchange:
    """Sums the gradients of an update over the processes.

    Args:
        gradients: the buffer of the gradients.
        leaves: for each parameter, in the order of the buffer: the tensors whose gradients autograd computes
            for it, such as the parameter and its copy.
        ranks: the processes; two or more.
        collect: called with the numbers of the parameters of a bucket when all their gradients are computed.
            Afterwards the buffer must hold their sums.
        dtype: the number format in which gradients are sent and summed.
    """

    def __init__(
        self,
        gradients: FlatGradients,
        leaves: Sequence[Sequence[Tensor]],
        ranks: Ranks,
        collect: Callable[[range], None],
        dtype: torch.dtype = torch.float32,
    ) -> None:
        self._ranks, self._collect, self._dtype = ranks, collect, dtype
        ends = [*gradients.starts, len(gradients.gradients)]
        self._buckets = _buckets(gradients.starts, ends[-1])
        self._parts = [gradients.gradients[ends[b.start] : ends[b.stop]] for b in self._buckets]
        bucket_of = {number: i for i, numbers in enumerate(self._buckets) for number in numbers}
        self._bucket_of: dict[Tensor, int] = {}
        for number, tensors in enumerate(leaves):
            for leaf in tensors:
                self._bucket_of[leaf] = bucket_of[number]
                if leaf.requires_grad:
                    hook = partial(self._computed, bucket_of[number])
                    leaf.register_post_accumulate_grad_hook(hook)  # type: ignore[no-untyped-call]
        self._missing: Counter[int] = Counter()  # gradients to come, by bucket
        self._next = len(self._buckets)  # the first bucket that is not being summed
        self._sums: list[tuple[Work, Tensor, Tensor]] = []

    def backward(self, loss: Tensor, initial_gradient: Tensor | None = None) -> None:
        """Computes the gradients of the last micro-batch of an update, and starts all sums."""
        self._missing = Counter(
            self._bucket_of[leaf] for leaf in _leaves_below(loss) if leaf in self._bucket_of
        )
        self._next = 0
        torch.autograd.backward(loss, initial_gradient)
        self._start_all()

    def start(self) -> None:
        """Starts all sums, when the backward passes of an update are done."""
        self._next = 0
        self._start_all()

    def _start_all(self) -> None:
        while self._next < len(self._buckets):  # those with a gradient that was not computed after all
            self._start()

    def finish(self) -> None:
        """Waits for the sums, on a GPU without the host; does nothing if none was started."""
        for work, part, sent in self._sums:
            work.wait()
            if sent is not part:
                part.copy_(sent)
        self._sums.clear()

    def _computed(self, bucket: int, leaf: Tensor) -> None:
        if self._next == len(self._buckets):
            return  # not the last micro-batch
        self._missing[bucket] -= 1
        while self._next < len(self._buckets) and self._missing[self._next] <= 0:
            self._start()

    def _start(self) -> None:
        number, self._next = self._next, self._next + 1
        self._collect(self._buckets[number])
        part = self._parts[number]
        sent = part.to(self._dtype)
        self._sums.append((self._ranks.start_sum(sent), part, sent))


def _buckets(starts: Sequence[int], end: int) -> list[range]:
    """Cuts the parameters into ranges of consecutive ones, the last parameters first.

    The parameters of the last layers are the last ones of the buffer, and the backward pass computes their
    gradients first.

    `starts` are the places of the parameters in the buffer, and `end` is the end of the last one.
    """
    buckets, stop = [], len(starts)
    for number in reversed(range(len(starts))):
        if number == 0 or end - starts[number] >= BUCKET_SIZE:
            buckets.append(range(number, stop))
            stop, end = number, starts[number]
    return buckets


def _leaves_below(loss: Tensor) -> list[Tensor]:
    """Returns the leaves to which the backward pass of `loss` goes."""
    pending, seen, leaves = [loss.grad_fn], {loss.grad_fn}, []
    while pending:
        node = pending.pop()
        if node is None:
            continue
        variable = getattr(node, "variable", None)
        if variable is not None:
            leaves.append(variable)
        for below, _ in node.next_functions:
            if below not in seen:
                seen.add(below)
                pending.append(below)
    return leaves
