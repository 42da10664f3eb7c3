"""Models that translate together, agreeing on every next piece.

Shapes: B sentences, K hypotheses a sentence, V vocabulary.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.data.batching import Batch
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

    def step(self, ids: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        """Reads one more piece of every hypothesis; see `Seq2Seq.step`.

        Args:
            ids: (B, K) int64.
            state: used up by this.

        Returns:
            (B, K, V) fp32 log-probabilities of the next piece, none above 0; the state that has read `ids`.
        """
        steps = [model.step(ids, one) for model, one in zip(self.models, state.states, strict=True)]
        after = EnsembleState(tuple(one for _, one in steps))
        if len(steps) == 1:
            return steps[0][0], after
        summed = torch.stack([log_probs for log_probs, _ in steps]).logsumexp(0)
        return (summed - math.log(len(steps))).clamp(max=0.0), after
