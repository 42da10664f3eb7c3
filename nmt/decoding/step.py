"""The step function of a search: ids and state in; log-probabilities, state and attention out.

Shapes: B sentences, K hypotheses of each, V ids, S places of the longest source.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

from torch import Tensor

from nmt.model import DecoderState

S = TypeVar("S", bound=DecoderState)
"""The state of a search, of any kind that can `select`."""


class StepOutput(NamedTuple, Generic[S]):
    """What a step returns.

    Attributes:
        log_probs: (B, K, V) of the next id, none above 0.
        state: the state that has read the newest ids.
        attention: (B, K, S), how much the choice of the next id looks at each place of the source. S is the
            same at every step of a search. None if nobody asked for it.
    """

    log_probs: Tensor
    state: S
    attention: Tensor | None = None


class Step(Protocol[S]):
    """A model as a search sees it."""

    def __call__(self, ids: Tensor, state: S, /, *, attention: bool = False) -> StepOutput[S]:
        """Reads the newest id of every hypothesis.

        Args:
            ids: (B, K) int64; BOS at first.
            state: what came before; the step may use it up.
            attention: whether to return attention. Without it, nothing is computed for it.
        """
        ...
