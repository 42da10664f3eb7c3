"""The counters of an update, which are summed over all processes together with the gradients."""

from __future__ import annotations

from typing import Generic, NamedTuple, TypeVar

from torch import Tensor

T = TypeVar("T", float, Tensor)


class Counters(NamedTuple, Generic[T]):
    """One value a counter: a () tensor while an update is computed, a float afterwards.

    The order of the fields is the order in the buffer of `Parallel.extras`. A further counter is one more
    field here, and one line in the trainer that adds to it.
    """

    objective: T
    """The training objective, summed over target tokens, without the loss scale."""
    teraflops: T
    """Operations of matrix products, in 10^12."""
    tokens: T
    """Target tokens."""
    loss: T
    """Label-smoothed cross-entropy, summed over target tokens."""
    nll: T
    """-log p of the target, summed over target tokens."""
    stop: T
    """How many processes were asked to stop."""
    seconds: T
    """Seconds of training so far, which the main process alone adds."""


NUM_COUNTERS = len(Counters._fields)


def views(buffer: Tensor) -> Counters[Tensor]:
    """The counters in a buffer of (NUM_COUNTERS,): () views, to be changed in place."""
    return Counters(*(buffer[number] for number in range(NUM_COUNTERS)))
