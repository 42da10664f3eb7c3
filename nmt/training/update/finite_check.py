"""Decides on the device whether to apply an update, without a host synchronisation before the step."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class UpdateCheck:
    """Whether an update is applied, and the factor for its gradient.

    When the host reads a value, it waits until the GPU has finished all earlier work, and then the GPU waits
    for the host. So the decision stays on the device. The values for the host are copied while the optimizer
    makes the step.

    Args:
        sums: (n + 1,), over all processes; the last is the norm of the gradient summed over tokens. If they
            are fp64, they are not converted.
        objective: (), the element of `sums` that was minimised.
        tokens: (), the element of `sums` that counts target tokens.
        loss_scale: the loss scale of the gradient.
        clip_norm: largest norm of the mean gradient; 0: no limit.

    Attributes:
        finite: () bool, whether objective and gradient are finite, so that the update is applied.
        factor: () fp64; the summed gradient times this is the mean gradient, clipped.
    """

    def __init__(
        self, sums: Tensor, objective: Tensor, tokens: Tensor, loss_scale: float, clip_norm: float
    ) -> None:
        sums = sums.double()
        scale = tokens.double() * loss_scale
        norm = sums[-1] / scale
        total = objective + norm  # in fp64, where finite fp32 numbers have a finite sum
        self.finite = total - total == 0  # as `isfinite`, which takes twice as many kernels
        if clip_norm:
            # A tensor in place of the number: torch computes number / tensor as reciprocal times number and
            # so rounds twice.
            self.factor = (torch.full_like(norm, clip_norm) / norm).clamp(max=1.0) / scale
        else:
            self.factor = scale.reciprocal()
        values = torch.cat([sums[:-1], norm[None], self.finite.double()[None]])
        self._values = values.to("cpu", non_blocking=True)
        self._arrived = _event() if values.is_cuda else None
        if self._arrived is not None:
            self._arrived.record()

    def read(self) -> tuple[list[float], float, bool]:
        """Waits for the decision of the device, not for work that was queued after it.

        Returns:
            The n sums; the norm of the mean gradient before clipping; whether the update is finite.
        """
        if self._arrived is not None:
            self._arrived.synchronize()
        *sums, norm, finite = self._values.tolist()
        return sums, norm, finite == 1.0


_event: Callable[[], Any] = torch.cuda.Event
