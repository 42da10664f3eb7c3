"""The seam between a model and the device that computes it: `Backend`, which is that of the CPU.

`nmt.model.put_on` moves a model to a device and gives it the backend of that device, once. Whatever a backend
has no code of its own for is computed by the model itself, with the operators of PyTorch.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from typing import Any, Protocol

import torch
from torch import Tensor

from nmt.config import Kernel
from nmt.data.batches.batching import Batch
from nmt.model.attention import Attention, Pattern
from nmt.model.cpu.padded import PaddedAttention
from nmt.model.cpu.variants import VariantAttention


class Layers(Protocol):
    """The layers of a Transformer in training, computed by kernels of a device."""

    @property
    def is_complete(self) -> bool:
        """Whether the embeddings of both sides are computed by kernels, too."""
        ...

    def hidden(self, model: Any, batch: Batch, sources: Sequence[Attention]) -> Tensor:
        """Returns the hidden states of a batch.

        `sources` is the cross-attention of each layer of the Transformer.

        Returns:
            (T, D), for T target tokens.
        """
        ...


class LossKernel(Protocol):
    """Replaces logits by their gradients, for `nmt.training.update.loss`."""

    def __call__(
        self, logits: Sequence[Tensor], ids: Tensor, figures: Tensor, peak: float, rdrop: float, scale: float
    ) -> None:
        """Overwrites logits and figures.

        Args:
            logits: (R, V), those of each pass; two with R-Drop.
            ids: (R,) int64, the targets.
            figures: (3, R) fp32, receives for each token -log p, its logit, and the divergence.
            peak: 1 - label smoothing.
            rdrop: the weight of the divergence; 0: one pass.
            scale: the loss scale.
        """
        ...


class Backend:
    """How a device computes a model; each model has a separate instance.

    This one is for the CPU, and the base class for other devices: attention pads sentences, and everything
    else is computed by the model.

    A subclass is registered in `nmt.model.BACKENDS` under the type of its device.

    Args:
        device: the device of the model.
        kernels: those of `training.unmeasured_kernels`.

    Attributes:
        layers: computes the layers in training; None: the model does.
        group_overhead: see `PaddedAttention`; measured on a CPU.
    """

    layers: Layers | None = None
    group_overhead = 32_000

    def __init__(self, device: torch.device, kernels: Collection[Kernel] = ()) -> None:
        self.device, self.kernels = device, frozenset(kernels)

    @property
    def loss_kernel(self) -> LossKernel | None:
        """A kernel for the training loss; None: there is none."""
        return None

    def attention(self, pattern: Pattern, dtype: torch.dtype) -> Attention:
        """Returns the attention of a batch.

        `dtype` is that of queries, keys and values.
        """
        kind = PaddedAttention if pattern.is_plain else VariantAttention
        return kind(pattern, self.group_overhead)

    def half_weights(self, model: Any, dtype: torch.dtype) -> Any:
        """Gives a model copies of its weights for the matrix products of training, and chooses `layers`.

        Args:
            model: a `Seq2Seq` on the device. Gradients are summed in the `grad` of each trained weight.
            dtype: of matrix products.

        Returns:
            The `nmt.model.gpu.half_weights.HalfWeights`; None: training multiplies with the weights.
        """
        return None

    def captures(self, model: Any) -> bool:
        """Whether `layers` and `attention` of a model promise what `Seq2Seq.can_be_captured` requires."""
        return False


def converted_once(x: Tensor, count: int) -> tuple[Tensor, ...]:
    """Returns a tensor for several users; under autocast, it is converted once for all of them.

    `x` is an operand of a matrix product of each of `count` users.
    """
    device = x.device.type
    if not torch.is_autocast_enabled(device):
        return (x,) * count
    return _convert_once(x, count, torch.get_autocast_dtype(device))


class _ConvertedOnce(torch.autograd.Function):
    """Sums the gradients of the users in the number format of the tensor."""

    @staticmethod
    def forward(ctx: Any, x: Tensor, count: int, dtype: torch.dtype) -> tuple[Tensor, ...]:
        ctx.dtype = x.dtype
        converted = x.detach().to(dtype)
        return tuple(converted.view_as(converted) for _ in range(count))

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
        # From the last user to the first: in the order in which autograd would sum them.
        total = grads[-1].to(ctx.dtype)
        for grad in reversed(grads[:-1]):
            total = total + grad
        return total, None, None


_convert_once: Callable[..., tuple[Tensor, ...]] = _ConvertedOnce.apply
