"""Ensembles: models that translate together by averaging the probabilities of the next id.

Shapes: B sentences, K hypotheses per sentence, V vocabulary, S positions of the longest source.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.data.batches.batching import Batch
from nmt.decoding.step import StepOutput
from nmt.model import DecoderState, Seq2Seq


@dataclass(frozen=True)
class EnsembleState:
    """The states of all models between two steps of a search."""

    states: tuple[DecoderState, ...]

    def select(self, rows: Tensor) -> EnsembleState:
        """Reorders hypotheses; see `DecoderState.select`."""
        return EnsembleState(tuple(state.select(rows) for state in self.states))


class Ensemble:
    """The step function of an ensemble: p(y) = (1 / M) sum_m p_m(y) over M models.

    This is the arithmetic mean of the probabilities, not the mean of their logarithms: it gives a confident
    model more weight. Sutskever et al. 2014, section 3.6, report the gain by ensembles. With one model, the
    log-probabilities are exactly those of the model.

    Args:
        models: one or more, with the same vocabulary, on one device.
    """

    def __init__(self, models: Sequence[Seq2Seq]) -> None:
        assert models
        self.models = tuple(models)

    def start(self, batch: Batch) -> EnsembleState:
        """Encodes the sources of a batch with every model; see `Seq2Seq.start`."""
        return EnsembleState(tuple(model.start(batch) for model in self.models))

    def step(
        self, ids: Tensor, state: EnsembleState, /, *, attention: bool = False
    ) -> StepOutput[EnsembleState]:
        """Reads the newest id of every hypothesis; see `Seq2Seq.step`.

        Args:
            ids: (B, K) int64.
            state: the state before `ids`; this call may overwrite it.
            attention: whether to return attention.

        Returns:
            (B, K, V) fp32, the log-probabilities of the next id, at most 0; the state after `ids`; (B, K, S),
            the attention to the source, averaged over the models.
        """
        pairs = zip(self.models, state.states, strict=True)
        if attention:
            steps = [StepOutput(*model.step_with_attention(ids, one)) for model, one in pairs]
        else:
            steps = [StepOutput(*model.step(ids, one)) for model, one in pairs]
        new_state = EnsembleState(tuple(one.state for one in steps))
        mean_attention = _mean([one.attention for one in steps if one.attention is not None])
        if len(steps) == 1:
            return StepOutput(steps[0].log_probs, new_state, mean_attention)
        summed = torch.stack([one.log_probs for one in steps]).logsumexp(0)
        return StepOutput((summed - math.log(len(steps))).clamp(max=0.0), new_state, mean_attention)


def _mean(attention: Sequence[Tensor]) -> Tensor | None:
    if len(attention) <= 1:
        return attention[0] if attention else None
    return torch.stack(list(attention)).mean(0)
