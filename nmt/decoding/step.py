"""The interface of the step function of a search.

It maps ids and a state to log-probabilities, a new state and attention.
Shapes: B sentences, K hypotheses per sentence, V ids, S positions of the longest source.
"""

from __future__ import annotations

from typing import Generic, NamedTuple, Protocol, TypeVar

from torch import Tensor

from nmt.model import DecoderState

S = TypeVar("S", bound=DecoderState)
"""The type of the state of a search; it has a method `select`."""


class StepOutput(NamedTuple, Generic[S]):
    """The output of a step.

    Attributes:
        log_probs: (B, K, V), the log-probabilities of the next id, at most 0. The caller may overwrite them.
        state: the state after the newest ids.
        attention: (B, K, S), the attention weights of the source positions for the choice of the next id. S
            is the same in all steps of a search. None if it was not requested.
    """

    log_probs: Tensor
    state: S
    attention: Tensor | None = None


class Step(Protocol[S]):
    """The step function: the interface of a model to a search."""

    def __call__(self, ids: Tensor, state: S, /, *, attention: bool = False) -> StepOutput[S]:
        """Reads the newest id of every hypothesis.

        Args:
            ids: (B, K) int64; BOS in the first step.
            state: the state before `ids`; the step may overwrite it.
            attention: whether to compute and return attention.
        """
        ...
