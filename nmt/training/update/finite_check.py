"""What an update comes to, judged where it was computed; the host hears of it when the step is on its way."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class UpdateCheck:
    """Whether an update is to move the weights, and by what its gradient is to be multiplied for that.

    A host that reads a number waits until a GPU has done all it was asked for before, and the GPU then waits
    for the host. So the judgement stays on the device, and what the host wants to know is copied while the
    optimizer makes the step.

    Args:
        sums: (n + 1,), over all processes; the last is the norm of the gradient's sum over tokens.
        objective: (), the one among them that was lowered.
        tokens: (), the one among them that counts target tokens.
        loss_scale: that the gradient was made with.
        clip_norm: the norm that a mean gradient may have at most; 0: any.

    Attributes:
        finite: () bool, whether objective and gradient are numbers, so that a step can be made.
        factor: () fp64; times this, the sum is the mean gradient, clipped.
    """

    def __init__(
        self, sums: Tensor, objective: Tensor, tokens: Tensor, loss_scale: float, clip_norm: float
    ) -> None:
        scale = tokens.double() * loss_scale
        norm = sums[-1].double() / scale
        self.finite = objective.isfinite() & norm.isfinite()
        # A number divided by a tensor is, in torch, its reciprocal times the number: rounded twice.
        largest = torch.full_like(norm, clip_norm or math.inf)
        self.factor = (largest / norm).clamp(max=1.0) / scale
        values = torch.cat([sums[:-1].double(), norm[None], self.finite.double()[None]])
        self._values = values.to("cpu", non_blocking=True)
        self._arrived = _event() if values.is_cuda else None
        if self._arrived is not None:
            self._arrived.record()

    def read(self) -> tuple[list[float], float, bool]:
        """Waits for the device to have judged, not for what it was asked since.

        Returns:
            The n sums; the norm of the mean gradient, before clipping; and whether the update is finite.
        """
        if self._arrived is not None:
            self._arrived.synchronize()
        *sums, norm, finite = self._values.tolist()
        return sums, norm, finite == 1.0


_event: Callable[[], Any] = torch.cuda.Event
