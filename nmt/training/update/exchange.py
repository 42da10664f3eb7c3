"""The sum of the gradients over the processes, in buckets, while the backward pass still runs.

The backward pass computes the gradients of the last layers first. As soon as all gradients of a bucket are
there, their sum over the processes starts, and the backward pass continues (Li et al. 2020, PyTorch
Distributed, section 3.2). All processes start the buckets in the same order, whatever order their gradients
arrive in, and a bucket holds the same gradients in every update. So a run gives the same bits again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial

import torch
from torch import Tensor
from torch.distributed import Work

from nmt.training.processes.ranks import Ranks
from nmt.training.update.optimizer import FlatGradients

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
        """Computes the gradients of the last micro-batch of an update, and starts all sums.

        Args:
            loss: () the objective.
            initial_gradient: () 1; None: a new one.
        """
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

    Args:
        starts: the place of each parameter in the buffer.
        end: the end of the last one.
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
