"""Ensembles: models that translate together by averaging the probabilities of the next id.

Shapes: B sentences, K hypotheses per sentence, V vocabulary, S positions of the longest source.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from nmt.config import Shift
from nmt.data.batches.batching import Batch
from nmt.decoding.alignment import AlignmentHeads
from nmt.decoding.search import StepOutput
from nmt.model import DecoderState, Seq2Seq


@dataclass(frozen=True)
class EnsembleState:
    """The states of all models between two steps of a search.

    Attributes:
        states: of each model.
        delayed: (B, K, S), the attention of the latest step in the models of shift `predicting`; None if
            there is none. It belongs to the token that the next step reads.
    """

    states: tuple[DecoderState, ...]
    delayed: tuple[Tensor | None, ...]

    def select(self, rows: Tensor) -> EnsembleState:
        """Reorders hypotheses; see `DecoderState.select`."""
        delayed = (weights if weights is None else weights.flatten(0, 1)[rows] for weights in self.delayed)
        return EnsembleState(tuple(state.select(rows) for state in self.states), tuple(delayed))


class Ensemble:
    """The step function of an ensemble: p(y) = (1 / M) sum_m p_m(y) over M models.

    This is the arithmetic mean of the probabilities, not the mean of their logarithms: it gives a confident
    model more weight. Sutskever et al. 2014, section 3.6, report the gain by ensembles. With one model, the
    log-probabilities are exactly those of the model.

    Args:
        models: one or more, with the same vocabulary, on one device.
        heads: for each model the heads that align words. If they are given, the attention of a step is that
            of the token that the step reads: the mean over the chosen heads, then over the models. Otherwise
            it is the attention for the choice of the next id.
    """

    def __init__(self, models: Sequence[Seq2Seq], heads: Sequence[AlignmentHeads] = ()) -> None:
        assert models
        assert len(heads) in (0, len(models))
        self.models, self._heads = tuple(models), tuple(heads)

    def start(self, batch: Batch) -> EnsembleState:
        """Encodes the sources of a batch with every model; see `Seq2Seq.start`."""
        return EnsembleState(tuple(model.start(batch) for model in self.models), (None,) * len(self.models))

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
            the attention to the source, averaged over the models. With `heads`, it is 0 for BOS in models of
            shift `predicting`.
        """
        pairs = list(zip(self.models, state.states, strict=True))
        weights, delayed = list[Tensor](), state.delayed
        if not attention:
            steps = [StepOutput(*model.step(ids, before)) for model, before in pairs]
        else:
            steps = [StepOutput(*model.step_with_heads(ids, before)) for model, before in pairs]
            chosen = [choice.heads for choice in self._heads] or [()] * len(steps)
            weights = [
                _of_heads(output.attention, heads) for output, heads in zip(steps, chosen, strict=True)
            ]
            if self._heads:
                weights, delayed = self._shifted(weights, delayed)
        new_state = EnsembleState(tuple(output.state for output in steps), delayed)
        mean_attention = _mean(weights) if weights else None
        if len(steps) == 1:
            return StepOutput(steps[0].log_probs, new_state, mean_attention)
        summed = torch.stack([output.log_probs for output in steps]).logsumexp(0)
        return StepOutput((summed - math.log(len(steps))).clamp(max=0.0), new_state, mean_attention)

    def _shifted(
        self, attention: Sequence[Tensor], delayed: Sequence[Tensor | None]
    ) -> tuple[list[Tensor], tuple[Tensor | None, ...]]:
        """Returns the attention of the token that this step reads, and what to delay to the next step."""
        weights, later = [], list[Tensor | None]()
        for choice, newest, before in zip(self._heads, attention, delayed, strict=True):
            if choice.shift is Shift.predicting:
                weights.append(torch.zeros_like(newest) if before is None else before)
                later.append(newest)
            else:
                weights.append(newest)
                later.append(None)
        return weights, tuple(later)


def _of_heads(weights: Tensor | None, heads: Sequence[tuple[int, int]]) -> Tensor:
    """Returns (B, K, S), the mean of heads of (B, K, L, H, S). None: those of the last layer."""
    assert weights is not None
    return _mean([weights[:, :, layer, head] for layer, head in heads] or [weights[:, :, -1].mean(2)])


def _mean(attention: Sequence[Tensor]) -> Tensor:
    return attention[0] if len(attention) == 1 else torch.stack(list(attention)).mean(0)
