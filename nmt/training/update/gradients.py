"""The flat buffer of gradients, and the gradient of the penalty that fine-tuning adds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import torch
from torch import Tensor, nn

_ALIGNMENT = 16  # floats: each gradient begins on a cache line, as a separate tensor would
_BLOCK = 256  # floats whose squares are summed in fp32


class StartPenalty:
    """`training.l2_to_start`: the penalty strength / 2 * ||weights - start||^2, which weakens forgetting.

    It is added to the loss per target token (Barone et al. 2017, "Regularization techniques for fine-tuning
    in neural machine translation"). Its gradient is added after the division by the number of target tokens
    and after clipping, where Adam adds weight decay. So `training.clip_norm` and the logged gradient norm
    concern the loss alone, and neither loss scale nor number of processes matters.

    `weights` are the trained weights by name, or the shards of them in this process, with their starting
    values, which are copied.
    """

    def __init__(self, weights: Mapping[str, Tensor], strength: float) -> None:
        self._weights, self._strength = list(weights.values()), strength
        self._start = [weight.clone() for weight in self._weights]

    @torch.no_grad()
    def add_to(self, gradients: Sequence[Tensor]) -> None:
        """Adds the gradient of the penalty to the mean gradients of the weights, in their order."""
        distances = torch._foreach_sub(self._weights, self._start)
        torch._foreach_add_(list(gradients), distances, alpha=self._strength)


class FlatGradients:
    """One buffer of all gradients: every `parameter.grad` is a view of it.

    Zeroing, scaling, the norm and the sum over processes are then one call each. The buffer ends with extra
    numbers, so that the same sum over processes also sums the counters of an update.

    The `grad` of the parameters is set here and must not be replaced.

    Attributes:
        buffer: (size,) fp32: the gradients, then the extras.
        gradients: the part of `buffer` that holds gradients.
        extras: (num_extras,), the extra numbers.
        starts: the place of the gradient of each parameter in `buffer`.
    """

    def __init__(self, parameters: Iterable[nn.Parameter], num_extras: int) -> None:
        parameters = list(parameters)
        starts: list[int] = []
        end = 0
        for parameter in parameters:
            starts.append(end)
            end += -(-parameter.numel() // _ALIGNMENT) * _ALIGNMENT
        end = -(-end // _BLOCK) * _BLOCK
        self.buffer = torch.zeros(end + num_extras, dtype=torch.float32, device=parameters[0].device)
        self.gradients = self.buffer[:end]
        self.extras = self.buffer[end:]
        self.starts = starts
        for parameter, start in zip(parameters, starts, strict=True):
            parameter.grad = self.buffer[start : start + parameter.numel()].view_as(parameter)

    def zero(self) -> None:
        """Sets gradients and extras to 0."""
        self.buffer.zero_()

    def norm(self) -> Tensor:
        """Returns the Euclidean norm of all gradients, () fp32.

        The sum is split into blocks: with a single fp32 sum on the CPU, the norm of a base model's gradient
        has a relative error of 1e-3, which depends on the number of threads.
        """
        blocks = torch.linalg.vector_norm(self.gradients.view(-1, _BLOCK), dim=1)
        norm: Tensor = torch.linalg.vector_norm(blocks, dtype=torch.float64).float()
        return norm
