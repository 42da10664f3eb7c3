"""Models that translate together, agreeing on every next piece.

Shapes: B sentences, K hypotheses a sentence, V vocabulary, S longest source.
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
    """What each model remembers between two steps of a search."""

    states: tuple[DecoderState, ...]

    def select(self, rows: Tensor) -> EnsembleState:
        """Reorders hypotheses; see `DecoderState.select`."""
        return EnsembleState(tuple(state.select(rows) for state in self.states))


class Ensemble:
    """The step function of a search by several models: a next piece's probability is the mean of theirs.

    The mean of probabilities, not of their logarithms: of the two it lets a model that is sure outvote the
    others (Sutskever et al. 2014, section 3.6, tell what ensembles gain). One model alone keeps its own
    log-probabilities, to the bit.

    Args:
        models: one or more, of one vocabulary, on one device.
    """

    def __init__(self, models: Sequence[Seq2Seq]) -> None:
        assert models
        self.models = tuple(models)

    def start(self, batch: Batch) -> EnsembleState:
        """Reads the sources of a batch; its targets are not looked at."""
        return EnsembleState(tuple(model.start(batch) for model in self.models))

    def step(
        self, ids: Tensor, state: EnsembleState, /, *, attention: bool = False
    ) -> StepOutput[EnsembleState]:
        """Reads one more piece of every hypothesis; see `Seq2Seq.step`.

        Args:
            ids: (B, K) int64.
            state: used up by this.
            attention: whether to return attention: the mean of the models' cross-attention.

        Returns:
            (B, K, V) fp32 log-probabilities of the next piece, none above 0; the state that has read `ids`;
            (B, K, S) attention.
        """
        pairs = zip(self.models, state.states, strict=True)
        if attention:
            steps = [StepOutput(*model.step_with_attention(ids, one)) for model, one in pairs]
        else:
            steps = [StepOutput(*model.step(ids, one)) for model, one in pairs]
        after = EnsembleState(tuple(one.state for one in steps))
        seen = _mean([one.attention for one in steps if one.attention is not None])
        if len(steps) == 1:
            return StepOutput(steps[0].log_probs, after, seen)
        summed = torch.stack([one.log_probs for one in steps]).logsumexp(0)
        return StepOutput((summed - math.log(len(steps))).clamp(max=0.0), after, seen)


def _mean(attention: Sequence[Tensor]) -> Tensor | None:
    if len(attention) <= 1:
        return attention[0] if attention else None
    return torch.stack(list(attention)).mean(0)
