"""The L2 penalty on the distance from the starting weights (`training.l2_to_start`)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor


def start_penalty(weights: Mapping[str, Tensor], strength: float) -> StartPenalty | None:
    """Returns the penalty of this strength; None if it is 0."""
    return StartPenalty(weights, strength) if strength else None


class StartPenalty:
    """The penalty strength / 2 * ||weights - start||^2, which weakens forgetting.

    It is added to the loss per target token (Barone et al. 2017, "Regularization techniques for fine-tuning
    in neural machine translation"). Its gradient is added after the division by the number of target tokens
    and after clipping, where Adam adds weight decay. So `training.clip_norm` and the logged gradient norm
    concern the loss alone, and neither loss scale nor number of processes matters.

    Args:
        weights: the trained weights by name, or the shards of them in this process, with their starting
            values, which are copied. Training changes the tensors.
        strength: of the penalty.
    """

    def __init__(self, weights: Mapping[str, Tensor], strength: float) -> None:
        self._weights, self._strength = list(weights.values()), strength
        self._start = [weight.clone() for weight in self._weights]

    @torch.no_grad()
    def add_to(self, gradients: Sequence[Tensor]) -> None:
        """Adds the gradient of the penalty to the mean gradients of the weights, in their order."""
        distances = torch._foreach_sub(self._weights, self._start)
        torch._foreach_add_(list(gradients), distances, alpha=self._strength)
