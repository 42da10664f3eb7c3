"""Linear layers whose products can use copies of the weights in another number format."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Linear(nn.Linear):
    """`torch.nn.Linear`, which in training may multiply with copies of its weights.

    `copy_weights` makes the copies; the trainer fills them once per update. `torch.nn.Linear` works
    in a model too, but then autocast converts its weights for every micro-batch.

    Attributes:
        copies: copies of weight and bias (None without bias), used in training mode; None: there are none.
    """

    def __init__(self, in_features: int, out_features: int, bias: bool = True) -> None:
        super().__init__(in_features, out_features, bias)
        self.copies: tuple[Tensor, Tensor | None] | None = None

    def forward(self, input: Tensor) -> Tensor:
        """(..., in_features) → (..., out_features)."""
        if self.copies is None or not self.training:
            return super().forward(input)
        weight, bias = self.copies
        return F.linear(input, weight, bias)


def rounded(x: Tensor, dtype: torch.dtype) -> Tensor:
    """Returns `x` converted to `dtype`, without a gradient; without an operator if `note_rounded` has it."""
    noted: Tensor | None = getattr(x, _ROUNDED, None)
    return noted if noted is not None and noted.dtype is dtype else x.detach().to(dtype)


def note_rounded(x: Tensor, converted: Tensor) -> None:
    """Notes the values of `x` in another number format, which the kernel that computed `x` has written."""
    setattr(x, _ROUNDED, converted)


_ROUNDED = "_nmt_rounded"


def copy_weights(model: nn.Module, dtype: torch.dtype) -> list[tuple[Tensor, Tensor]]:
    """Gives all instances of `Linear` in a model copies of their weights.

    Args:
        model: changed in place.
        dtype: of the copies.

    Returns:
        Each weight with its copy, a leaf with its own gradient. Layers that share a weight share its copy.
    """
    copies: dict[Tensor, Tensor] = {}
    for layer in model.modules():
        if isinstance(layer, Linear):
            for weight in (layer.weight, layer.bias):
                if weight is not None and weight not in copies:
                    copies[weight] = weight.detach().to(dtype, copy=True).requires_grad_()
            bias = None if layer.bias is None else copies[layer.bias]
            layer.copies = copies[layer.weight], bias
    return list(copies.items())
