"""The counters of an update. They are summed over all processes together with the gradients."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from torch import Tensor

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


NUM_COUNTERS = len(Counters._fields)


def views(buffer: Tensor) -> Counters[Tensor]:
    """Returns () views of a buffer of (NUM_COUNTERS,), to be changed in place."""
    return Counters(*(buffer[number] for number in range(NUM_COUNTERS)))
